//! Speculative decoding on a GPU against plain decoding on the CPU: the same tokens and texts, whatever is drafted and wherever experts
//! lie, and a state from which both go on alike. Needs a GPU, or the one that `engine/cuda/emulator` makes, and says so where there is
//! none.
//!
//! `STRATA_CASES` sets the number of cases.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used)]

mod common;

use common::{NEVER, drafts, engine, noise, run_cases, tiny};
use proptest::prelude::*;
use strata_cpu::{Cpu, Isa};
use strata_cuda::Device;
use strata_model::{CudaOps, ExpertPlace, Ops};
use strata_policy::cache::{CacheParams, Capacity, Rule};
use strata_runtime::{Answer, CheckpointParams, Engine, GenerateParams, Session, SpeculationParams};

fn is_emulated() -> bool {
    std::env::var_os("EMULATED_GPU_SEED").is_some()
}

fn on_gpu(place: ExpertPlace) -> Option<Engine<CudaOps>> {
    let device = Device::open(0).inspect_err(|e| println!("skipped: {e}"));
    assert!(device.is_ok() || !is_emulated(), "the emulated GPU is not there");
    let ops = CudaOps::new(device.ok()?, Cpu::exactly(1, Isa::detect()), place);
    Some(Engine::load(&tiny(), ops, &mut |_| ()).unwrap())
}

fn session<O: Ops>(engine: &Engine<O>, context: usize) -> Session<'_, O> {
    engine.session(context, 16).with_checkpoints(CheckpointParams::none())
}

fn answer<O: Ops>(session: &mut Session<'_, O>, prompt: &[u32], params: &GenerateParams) -> Answer {
    session.generate(prompt, params, &NEVER, &mut |_| ()).unwrap()
}

#[test]
fn any_drafts_on_a_gpu_give_the_answer_of_plain_decoding_on_the_cpu() {
    let slow = engine(&tiny());
    let (Some(all), Some(some)) = (on_gpu(ExpertPlace::Device), on_gpu(ExpertPlace::Host)) else { return };
    // Few slots, whose experts change all the time.
    let (layers, experts) = (slow.model().config().layers.len(), slow.model().config().experts);
    let ranking = (0..layers * experts).map(|i| (i % layers, i / layers));
    let slots = some.model().keep_experts(256 << 10, ranking).unwrap();
    assert!((4..layers * experts).contains(&slots), "{slots} slots");
    some.model().adapt_experts(&CacheParams::new(Rule::Lru, Capacity::Slots(0))).unwrap();
    let vocab = slow.model().config().vocab as u32;
    let stop = slow.stop_ids().first().copied().unwrap_or(0);
    let cases = std::env::var("STRATA_CASES").ok().and_then(|n| n.parse().ok());
    run_cases(
        cases.unwrap_or(if is_emulated() { 12 } else { 500 }),
        |(seed, len, max_tokens, ignore_stop, room, sampling)| {
            let prompt = noise(seed, len);
            let params = GenerateParams { sampling, max_tokens, ignore_stop, ..GenerateParams::default() };
            // Sometimes the context ends before the answer does.
            let context = len + 1 + max_tokens.saturating_sub(room);
            let mut plain = session(&slow, context).with_speculation(SpeculationParams::none());
            let expected = answer(&mut plain, &prompt, &params);
            let own = drafts(seed, prompt.len(), expected.tokens.clone(), vocab, stop);
            let mut fast = session(if seed % 2 == 0 { &all } else { &some }, context).with_own_drafts(own);
            let found = answer(&mut fast, &prompt, &params);
            prop_assert_eq!(&found.tokens, &expected.tokens);
            prop_assert_eq!(&found.text, &expected.text);
            prop_assert_eq!(found.finish, expected.finish);
            // What was kept of the last window is what goes on.
            let so_far = [&prompt[..], &expected.tokens].concat();
            if so_far.len() < context {
                let one = GenerateParams { max_tokens: 1, ignore_stop: true, ..GenerateParams::default() };
                let (a, b) = (answer(&mut plain, &so_far, &one), answer(&mut fast, &so_far, &one));
                prop_assert_eq!(a.tokens, b.tokens);
            }
            Ok(())
        },
    );
}
