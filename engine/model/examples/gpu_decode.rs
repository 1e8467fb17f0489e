//! Writing speed on a GPU: `gpu_decode MODEL device|host BUDGET_MIB THREADS TOKENS WINDOW`.
#![allow(clippy::unwrap_used, clippy::print_stdout)]
use std::time::Instant;
use strata_cpu::{Cpu, Isa};
use strata_cuda::Device;
use strata_gguf::Gguf;
use strata_model::{CudaOps, ExpertPlace, Model, Observer, Routing, Silent, Want};

struct Counts { experts: usize, counts: Vec<u32>, last: Option<Instant>, waits: f64, serves: f64 }
impl Observer for Counts {
    fn routing(&mut self, layer: usize, routing: &Routing) {
        let now = Instant::now();
        if let Some(l) = self.last { self.waits += (now - l).as_secs_f64(); }
        self.last = Some(now);
        for &id in &routing.ids { self.counts[layer * self.experts + id as usize] += 1; }
    }
    fn experts(&mut self, _layer: usize) {
        let now = Instant::now();
        if let Some(l) = self.last { self.serves += (now - l).as_secs_f64(); }
        self.last = Some(now);
    }
}

fn main() {
    let a: Vec<String> = std::env::args().collect();
    let n = |i: usize| a[i].parse::<usize>().unwrap();
    let (place, budget, threads, tokens, window) = (if a[2] == "device" { ExpertPlace::Device } else { ExpertPlace::Host }, n(3), n(4), n(5), n(6));
    let device = Device::open(0).unwrap();
    let begun = Instant::now();
    let gguf = Gguf::open(a[1].as_ref()).unwrap();
    let model = Model::load(&gguf, CudaOps::new(device.clone(), Cpu::new(threads, Isa::detect()), place), &mut |_| ()).unwrap();
    let c = model.config();
    let (layers, experts, vocab) = (c.layers.len(), c.experts, c.vocab);
    println!("loaded in {:.1} s, {:.2} GiB on the GPU", begun.elapsed().as_secs_f64(), device.held() as f64 / (1u64 << 30) as f64);
    let mut counts = Counts { experts, counts: vec![0; layers * experts], last: None, waits: 0.0, serves: 0.0 };
    let argmax = |l: &[f32]| l.iter().enumerate().fold((0, f32::MIN), |b, (i, &v)| if v > b.1 { (i, v) } else { b }).0 as u32;
    let mut state = model.new_state(4096);
    let mut run = |model: &Model<CudaOps>, state: &mut strata_model::State<CudaOps>, count: usize, first: u32, obs: &mut dyn Observer| {
        let mut last = first;
        let mut hash = 0u64;
        let begun = Instant::now();
        for _ in 0..count {
            let w: Vec<u32> = (0..window as u32).map(|i| (last + i * 7919) % vocab as u32).collect();
            let out = model.forward(state, &w, Want::All, obs).unwrap();
            last = argmax(&out.logits[(window - 1) * vocab..]);
            hash = hash.wrapping_mul(31).wrapping_add(last.into());
        }
        (begun.elapsed().as_secs_f64(), last, hash)
    };
    let (t, last, hash) = run(&model, &mut state, 8, 1000, &mut counts);
    println!("warm: {:.2} ms a round, hash {hash:x}", t / 8.0 * 1e3);
    let (t, last, hash) = run(&model, &mut state, tokens, last, &mut counts);
    println!("no slots: {:.3} ms a round, {:.1} rounds/s, hash {hash:x}", t / tokens as f64 * 1e3, tokens as f64 / t);
    if place == ExpertPlace::Host {
        let mut ranked: Vec<usize> = (0..layers * experts).collect();
        ranked.sort_by_key(|&i| std::cmp::Reverse(counts.counts[i]));
        let held = device.held();
        let bytes = (budget << 20).saturating_sub(held);
        let slots = model.keep_experts(bytes, ranked.iter().map(|&i| (i / experts, i % experts))).unwrap();
        println!("{slots} slots; {:.2} GiB on the GPU", device.held() as f64 / (1u64 << 30) as f64);
        let (_, last, _) = run(&model, &mut state, 8, last, &mut Silent);
        let mut c2 = Counts { experts, counts: vec![0; layers * experts], last: None, waits: 0.0, serves: 0.0 };
        let (t, _, hash) = run(&model, &mut state, tokens, last, &mut c2);
        println!("slots: {:.3} ms a round, {:.1} rounds/s, hash {hash:x}; host waits {:.3} ms, serves {:.3} ms", t / tokens as f64 * 1e3, tokens as f64 / t, c2.waits / tokens as f64 * 1e3, c2.serves / tokens as f64 * 1e3);
    }
}
