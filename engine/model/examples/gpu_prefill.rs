//! How fast a model reads a prompt on a GPU:
//!
//! ```sh
//! cargo run --release -p strata-model --example gpu_prefill -- MODEL.gguf PLACE BUDGET_MIB THREADS CHUNK TOKENS...
//! ```
//!
//! PLACE, BUDGET_MIB and THREADS are those of the example `gpu_decode`; which experts get slots is what a prompt of 512 tokens
//! used most. Prompts of each of the lengths TOKENS are read five times in chunks of at most CHUNK, then once more with all kernels
//! timed.
#![forbid(unsafe_code)]

use std::error::Error;
use std::time::Instant;
use strata_cpu::{Cpu, Isa};
use strata_cuda::Device;
use strata_gguf::Gguf;
use strata_model::{CudaOps, ExpertPlace, Model, Observer, Routing, Want};

/// Repetitions of a measurement.
const TIMES: usize = 5;

/// Room for what is allocated after the slots: recorded windows, the longest state, and what experts pass through.
const RESERVE: usize = 320 << 20;

/// Counts uses of experts.
struct Watch {
    experts: usize,
    uses: Vec<u32>,
}

impl Observer for Watch {
    fn routing(&mut self, layer: usize, routing: &Routing) {
        for &id in &routing.ids {
            if let Some(uses) = self.uses.get_mut(layer * self.experts + usize::from(id)) {
                *uses += 1;
            }
        }
    }
}

/// Tokens per second.
fn read(
    model: &Model<CudaOps>,
    room: usize,
    tokens: &[u32],
    chunk: usize,
    watch: &mut Watch,
) -> Result<f64, Box<dyn Error>> {
    let mut state = model.new_state(room);
    let began = Instant::now();
    for part in tokens.chunks(chunk) {
        model.forward(&mut state, part, Want::Last, watch)?;
    }
    model.ops().device().synchronize()?;
    Ok(tokens.len() as f64 / began.elapsed().as_secs_f64())
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path, place, budget, threads, chunk, lengths @ ..] = args.as_slice() else {
        return Err("usage: gpu_prefill MODEL.gguf device|host BUDGET_MIB THREADS CHUNK TOKENS...".into());
    };
    let (budget, threads, chunk): (usize, usize, usize) = (budget.parse()?, threads.parse()?, chunk.parse()?);
    let place = match place.as_str() {
        "device" => ExpertPlace::Device,
        "host" => ExpertPlace::Host,
        other => return Err(format!("PLACE is device or host, not {other}").into()),
    };
    let device = Device::open(0)?;
    let ops = CudaOps::new(device.clone(), Cpu::new(threads, Isa::detect()), place);
    let model = Model::load(&Gguf::open(path.as_ref())?, ops, &mut |_| ())?;
    let (layers, experts, vocab) = (model.config().layers.len(), model.config().experts, model.config().vocab);
    let mut watch = Watch { experts, uses: vec![0; layers * experts] };
    let text = |len: usize| -> Vec<u32> { (0..len).filter_map(|i| u32::try_from(i * 7919 % vocab).ok()).collect() };
    let lengths = lengths.iter().map(|len| len.parse()).collect::<Result<Vec<usize>, _>>()?;
    let room = lengths.iter().max().copied().unwrap_or(0).max(512);
    if place == ExpertPlace::Host {
        // In chunks so short that what they leave fits beside the slots.
        read(&model, room, &text(512), 256, &mut watch)?;
        let mut ranked: Vec<usize> = (0..layers * experts).collect();
        ranked.sort_by_key(|&i| std::cmp::Reverse(watch.uses.get(i).copied()));
        let bytes = (budget << 20).saturating_sub(device.held() + RESERVE);
        let slots = model.keep_experts(bytes, ranked.iter().map(|&i| (i / experts, i % experts)))?;
        println!("{slots} slots; {:.2} GiB on the GPU", device.held() as f64 / f64::from(1 << 30));
    }
    for len in lengths {
        let tokens = text(len);
        read(&model, room, &tokens, chunk, &mut watch)?;
        let speeds =
            (0..TIMES).map(|_| read(&model, room, &tokens, chunk, &mut watch)).collect::<Result<Vec<f64>, _>>()?;
        let shown: Vec<String> = speeds.iter().map(|s| format!("{s:.0}")).collect();
        let held = device.held() as f64 / f64::from(1 << 30);
        println!("{len} tokens in chunks of {chunk}: tokens/s {}; {held:.2} GiB on the GPU", shown.join(" "));
        let (kernels, _) = device.time_kernels(|| read(&model, room, &tokens, chunk, &mut watch))?;
        for k in kernels.iter().take(24) {
            println!("  {:24} {:6} times {:9.3} ms", k.name, k.times, k.seconds * 1e3);
        }
    }
    Ok(())
}
