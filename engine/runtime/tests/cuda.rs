//! Speculative decoding on a GPU against plain decoding on the CPU: the same tokens and texts, whatever is drafted and wherever experts
//! lie, and a state from which both go on alike. Needs a GPU, or the one that `engine/cuda/emulator` makes, and says so where there is
//! none.
//!
//! `STRATA_CASES` sets the number of cases.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used)]

mod common;

use common::{NEVER, drafts, engine, knobs, noise, run_cases, tiny};
use proptest::prelude::*;
use strata_cpu::{Cpu, Isa};
use strata_cuda::Device;
use strata_model::{CudaOps, ExpertPlace, Ops};
use strata_policy::cache::{Admission, CacheParams, Capacity, Rule};
use strata_runtime::{About, Answer, CheckpointParams, Engine, GenerateParams, Recording, Session, SpeculationParams};
use strata_sim::replay::{StartState, check};
use strata_trace::{Phase, Trace};

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

/// What a GPU's expert cache did, as its trace has it, is what the simulator makes of the trace, access by access.
#[test]
fn what_a_gpus_cache_did_is_what_its_replay_does() {
    let Some(engine) = on_gpu(ExpertPlace::Host) else { return };
    let (layers, experts) = (engine.model().config().layers.len(), engine.model().config().experts);
    engine.model().keep_experts(256 << 10, (0..layers * experts).map(|i| (i % layers, i / layers))).unwrap();
    let lru = CacheParams::new(Rule::Lru, Capacity::Slots(0));
    let adaptive = Rule::Adaptive { every: 2, swaps: 20, min_use: 1.0, gain: 1.1, decay: 0.8 };
    let cases = [
        lru,
        CacheParams { count_prefill: true, copy_rounds: 0, ..lru },
        CacheParams { admission: Admission::WaitForCopy, insert_budget: Some(3), ..lru },
        CacheParams::new(adaptive, Capacity::Slots(0)),
    ];
    for params in cases {
        engine.model().adapt_experts(&params).unwrap();
        // What was used before the recording begins is forgotten when it does.
        answer(&mut session(&engine, 64), &noise(9, 5), &GenerateParams { max_tokens: 4, ..GenerateParams::default() });
        let start = engine.model().restart_cache().unwrap().unwrap();
        let mut about = About::of(&tiny(), &engine, "test 1", knobs(&start.params)).unwrap();
        about.meta.resident = start.resident;
        let (recorder, recording) = Recording::start(Vec::new(), about, 16).unwrap();
        engine.record(recorder);
        // Prompts in long and short chunks, windows that are kept and that are not.
        for (seed, len) in [(1, 40), (2, 3), (3, 19)] {
            let limits = GenerateParams { max_tokens: 9, ignore_stop: true, ..GenerateParams::default() };
            let own = drafts(seed, len, Vec::new(), 280, 0);
            answer(&mut session(&engine, 64).with_own_drafts(own), &noise(seed, len), &limits);
        }
        engine.stop_recording();
        let (file, recorded) = recording.finish().unwrap();
        let mut trace = Trace::read_from(&file[..], file.len() as u64, "t").unwrap().trace;
        assert_eq!(CacheParams::from_meta(&trace.meta).unwrap(), Some(start.params));
        let from = StartState::recorded(&trace.meta).unwrap();
        assert!(!from.ranking.is_empty() && trace.hits.iter().any(|&hit| hit), "{params}");
        assert!(trace.rounds.iter().any(|round| round.phase == Phase::Prefill && round.rows <= 8), "{params}");
        assert_eq!(check(&trace, &start.params, &from).unwrap(), None, "{params}");
        let (counted, told) = (engine.model().ops().cache_use().unwrap(), recorded.cache.unwrap());
        assert_eq!((told.accesses, told.hits), (counted.accesses, counted.hits), "{params}");
        assert!(told.inserts > 0 && told.inserts <= counted.inserts, "{params}: {told:?}, {counted:?}");
        trace.hits[5] = !trace.hits[5];
        assert!(check(&trace, &start.params, &from).unwrap().is_some(), "{params}");
    }
}
