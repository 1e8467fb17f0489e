//! What a model leaves on a GPU, which only a process of its own can tell. Needs a GPU, or the one that `engine/cuda/emulator` makes.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used)]

mod common;

use common::nano;
use strata_cpu::{Cpu, Isa};
use strata_cuda::Device;
use strata_gguf::Gguf;
use strata_model::{CudaOps, ExpertPlace, Model, Silent, Want};
use strata_policy::cache::{CacheParams, Capacity, Rule};

/// A model that goes while its slots are lent to a prompt, and copies under way, leaves nothing behind on the device.
#[test]
fn what_a_model_held_is_given_back() {
    let is_emulated = std::env::var_os("EMULATED_GPU_SEED").is_some();
    let device = Device::open(0).inspect_err(|e| println!("skipped: {e}"));
    assert!(device.is_ok() || !is_emulated, "the emulated GPU is not there");
    let Ok(device) = device else { return };
    let free = || device.memory().unwrap().0;
    let before = free();
    let tokens: Vec<u32> = (0..80).map(|i| 300 + i * 37 % 1000).collect();
    for on in [false, true] {
        let ops = CudaOps::new(Device::open(0).unwrap(), Cpu::exactly(1, Isa::detect()), ExpertPlace::Host);
        let gpu = Model::load(&Gguf::open(&nano()).unwrap(), ops, &mut |_| ()).unwrap();
        let slots = gpu.keep_experts(100 * 64 * 1024, (0..400).map(|i| (i % 8, i / 8))).unwrap();
        assert!(slots >= 100);
        gpu.adapt_experts(&CacheParams::new(Rule::Lru, Capacity::Slots(0))).unwrap();
        let mut state = gpu.new_state(tokens.len());
        gpu.forward(&mut state, &tokens[..40], Want::Last, &mut Silent).unwrap();
        if on {
            gpu.forward(&mut state, &tokens[40..41], Want::Last, &mut Silent).unwrap();
            gpu.forward(&mut state, &tokens[41..], Want::Last, &mut Silent).unwrap();
        }
        assert!(free() < before);
        drop((state, gpu));
        // Others may use a real GPU meanwhile.
        assert!(free() == before || !is_emulated, "{} of {before} are free", free());
    }
}
