//! How fast a model writes on a GPU, in windows of recorded passes:
//!
//! ```sh
//! cargo run --release -p strata-model --example gpu_decode -- MODEL.gguf PLACE BUDGET_MIB THREADS ROUNDS WINDOW
//! ```
//!
//! PLACE is `device` (all experts on the GPU) or `host` (experts in host memory, where THREADS threads compute them; after a
//! first measurement the most used ones get slots, as many as fit in BUDGET_MIB together with everything else; then so many of which
//! nothing is known, which stay or make room for those that are used). Seven times
//! ROUNDS rounds of WINDOW rows are timed, each window being kept whole, as if every draft were right.
//!
//! With `clock` behind all that, the kernels of one more round are listed as they begin: when, in nanoseconds from the first,
//! how long a kernel was there before it could go on, how long until the next could, and how long it was itself at work.
#![forbid(unsafe_code)]

use std::error::Error;
use std::time::{Duration, Instant};
use strata_cpu::{Cpu, Isa};
use strata_cuda::Device;
use strata_gguf::Gguf;
use strata_model::plan::in_turn;
use strata_model::{CacheUse, CudaOps, ExpertPlace, Model, Observer, Routing, State, Want};
use strata_policy::cache::{CacheParams, Capacity, Rule};

/// Repetitions of a measurement.
const TIMES: usize = 7;

/// Room for what is allocated after the slots.
const RESERVE: usize = 64 << 20;

/// Counts uses of experts, and how long the host waited for kernels and worked for them.
struct Watch {
    experts: usize,
    uses: Vec<u32>,
    last: Instant,
    waited: Duration,
    served: Duration,
}

impl Observer for Watch {
    fn routing(&mut self, layer: usize, routing: &Routing) {
        self.waited += self.last.elapsed();
        self.last = Instant::now();
        for &id in &routing.ids {
            if let Some(uses) = self.uses.get_mut(layer * self.experts + usize::from(id)) {
                *uses += 1;
            }
        }
    }

    fn experts(&mut self, _layer: usize) {
        self.served += self.last.elapsed();
        self.last = Instant::now();
    }
}

/// Rounds, each beginning with the token that the last one chose.
struct Text<'a> {
    model: &'a Model<CudaOps>,
    state: State<CudaOps>,
    window: usize,
    last: u32,
}

impl Text<'_> {
    /// Rounds per second.
    fn rounds(&mut self, count: usize, watch: &mut Watch) -> Result<f64, Box<dyn Error>> {
        let vocab = self.model.config().vocab;
        let began = Instant::now();
        for _ in 0..count {
            let drafts = (0..self.window).map(|i| (self.last as usize + i * 7919) % vocab);
            let tokens: Vec<u32> = drafts.filter_map(|t| u32::try_from(t).ok()).collect();
            watch.last = Instant::now();
            let logits = self.model.forward(&mut self.state, &tokens, Want::Last, watch)?.logits;
            let best = logits.iter().enumerate().fold((0, f32::MIN), |b, (i, &v)| if v > b.1 { (i, v) } else { b });
            self.last = u32::try_from(best.0)?;
        }
        Ok(count as f64 / began.elapsed().as_secs_f64())
    }

    /// Prints when the kernels of a round begin, the first ones one by one, and how long each kind takes.
    fn clock(&mut self, device: &Device, watch: &mut Watch) -> Result<(), Box<dyn Error>> {
        device.kernel_starts()?;
        self.rounds(1, watch)?;
        let starts = device.kernel_starts()?;
        let first = starts.first().map_or(0, |start| start.followed);
        let mut sums: std::collections::BTreeMap<&str, (u64, u64)> = std::collections::BTreeMap::new();
        for (at, pair) in starts.windows(2).enumerate() {
            let [this, next] = pair else { continue };
            let took = next.followed - this.followed;
            let sum = sums.entry(this.name).or_default();
            *sum = (sum.0 + 1, sum.1 + took);
            if at < 130 {
                let ns = |to: u64, from: u64| to as i64 - from as i64;
                let (led, ran) = (ns(this.followed, this.started), ns(this.ended, this.followed));
                println!("{:9} {led:7} {took:6} {ran:6} {}", this.followed - first, this.name);
            }
        }
        for (name, (times, sum)) in sums {
            println!("{name:24} {times:5} {:9.1} us, {:7.2} each", sum as f64 / 1e3, sum as f64 / 1e3 / times as f64);
        }
        Ok(())
    }

    fn measure(&mut self, what: &str, count: usize, watch: &mut Watch) -> Result<(), Box<dyn Error>> {
        // Recording, and touching memory for the first time, is not what is measured.
        self.rounds(4, watch)?;
        (watch.waited, watch.served) = (Duration::ZERO, Duration::ZERO);
        let speeds = (0..TIMES).map(|_| self.rounds(count, watch)).collect::<Result<Vec<f64>, _>>()?;
        let shown: Vec<String> = speeds.iter().map(|s| format!("{s:.2}")).collect();
        let per_round = |d: Duration| d.as_secs_f64() * 1e3 / (count * TIMES) as f64;
        println!(
            "{what}: rounds/s {}; the host waits {:.2} ms and works {:.2} ms a round",
            shown.join(" "),
            per_round(watch.waited),
            per_round(watch.served)
        );
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let clocked = args.last().is_some_and(|last| last == "clock");
    if clocked {
        args.pop();
    }
    let [path, place, budget, threads, rounds, window] = args.as_slice() else {
        return Err("usage: gpu_decode MODEL.gguf device|host BUDGET_MIB THREADS ROUNDS WINDOW".into());
    };
    let (budget, threads): (usize, usize) = (budget.parse()?, threads.parse()?);
    let (rounds, window): (usize, usize) = (rounds.parse()?, window.parse()?);
    let place = match place.as_str() {
        "device" => ExpertPlace::Device,
        "host" => ExpertPlace::Host,
        other => return Err(format!("PLACE is device or host, not {other}").into()),
    };
    let device = Device::open(0)?;
    if clocked {
        device.clock_kernels();
    }
    let ops = CudaOps::new(device.clone(), Cpu::new(threads, Isa::detect()), place);
    let began = Instant::now();
    let model = Model::load(&Gguf::open(path.as_ref())?, ops, &mut |_| ())?;
    let held = |device: &Device| device.held() as f64 / f64::from(1 << 30);
    println!("loaded in {:.1} s; {:.2} GiB on {}", began.elapsed().as_secs_f64(), held(&device), device.name());
    let (layers, experts) = (model.config().layers.len(), model.config().experts);
    let mut watch = Watch {
        experts,
        uses: vec![0; layers * experts],
        last: Instant::now(),
        waited: Duration::ZERO,
        served: Duration::ZERO,
    };
    let state = model.new_state(64 + 5 * (rounds + 8) * window * TIMES);
    let mut text = Text { model: &model, state, window, last: 1000 };
    text.measure("no slots", rounds, &mut watch)?;
    if clocked && place == ExpertPlace::Device {
        return text.clock(&device, &mut watch);
    }
    if place == ExpertPlace::Host {
        let mut ranked: Vec<usize> = (0..layers * experts).collect();
        ranked.sort_by_key(|&i| std::cmp::Reverse(watch.uses.get(i).copied()));
        let bytes = (budget << 20).saturating_sub(device.held() + RESERVE);
        let slots = model.keep_experts(bytes, ranked.iter().map(|&i| (i / experts, i % experts)))?;
        println!("{slots} slots; {:.2} GiB on the GPU", held(&device));
        text.measure("slots", rounds, &mut watch)?;
        if clocked {
            return text.clock(&device, &mut watch);
        }
        // The same number for experts of which nothing is known, with a cache that learns.
        model.keep_experts(bytes, in_turn(layers, experts))?;
        text.measure("slots in turn", rounds, &mut watch)?;
        let adaptive = Rule::Adaptive { every: 4, swaps: 96, min_use: 2.0, gain: 1.5, decay: 0.7 };
        for rule in [adaptive, Rule::Lru] {
            model.keep_experts(bytes, in_turn(layers, experts))?;
            model.adapt_experts(&CacheParams::new(rule, Capacity::Slots(slots)))?;
            text.measure(rule.name(), rounds, &mut watch)?;
            if let Some(CacheUse { accesses, hits, inserts }) = model.ops().cache_use() {
                println!("  {:.1} % found, {inserts} brought", hits as f64 / accesses.max(1) as f64 * 1e2);
            }
        }
    }
    Ok(())
}
