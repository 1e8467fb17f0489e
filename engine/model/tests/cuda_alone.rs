//! What only a process that has a GPU to itself can tell. Needs a GPU, or the one that `engine/cuda/emulator` makes.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used)]

mod common;

use common::{data, nano};
use std::sync::Mutex;
use strata_cpu::{Cpu, Isa};
use strata_cuda::{Device, Slots};
use strata_gguf::Gguf;
use strata_model::{CudaOps, ExpertPlace, Model, Silent, Want};
use strata_policy::cache::{CacheParams, Capacity, Rule};

/// Tests of this process come one after another.
static ALONE: Mutex<()> = Mutex::new(());

fn is_emulated() -> bool {
    std::env::var_os("EMULATED_GPU_SEED").is_some()
}

fn opened() -> Option<Device> {
    let device = Device::open(0).inspect_err(|e| println!("skipped: {e}"));
    assert!(device.is_ok() || !is_emulated(), "the emulated GPU is not there");
    device.ok()
}

/// A model that goes while its slots are lent to a prompt, and copies under way, leaves nothing behind on the device.
#[test]
fn what_a_model_held_is_given_back() {
    let _alone = ALONE.lock();
    let Some(device) = opened() else { return };
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
        assert!(free() == before || !is_emulated(), "{} of {before} are free", free());
    }
}

/// More slots than there is room for are refused, and the model goes on without them.
#[test]
fn slots_beyond_the_memory_are_refused() {
    let _alone = ALONE.lock();
    let Some(device) = opened() else { return };
    let ops = CudaOps::new(device, Cpu::exactly(2, Isa::detect()), ExpertPlace::Host);
    let gpu = Model::load(&Gguf::open(&data("tiny/tiny-qwen4exp.gguf")).unwrap(), ops, &mut |_| ()).unwrap();
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    let tokens = [5, 6, 7, 8];
    let read = || gpu.forward(&mut gpu.new_state(16), &tokens, Want::All, &mut Silent).map(|out| bits(&out.logits));
    let expected = read().unwrap();
    let experts = || (0..100).map(|i| (i % 2, i / 2));
    let device = gpu.ops().device().clone();
    // All the room there is, in ever smaller pieces.
    let taken: Vec<_> = (9..38)
        .rev()
        .flat_map(|p| std::iter::from_fn(|| Slots::new(&device, 1 << p, 1).ok()).collect::<Vec<_>>())
        .collect();
    let refused = gpu.keep_experts(100 << 16, experts()).unwrap_err().to_string();
    assert!(refused.contains("has no room for"), "{refused}");
    drop(taken);
    assert_eq!(read().unwrap(), expected);
    assert!(gpu.keep_experts(100 << 16, experts()).unwrap() > 0);
    assert_eq!(read().unwrap(), expected);
}
