//! Speculative decoding changes nothing but speed: tokens, text, the end of the answer and the state afterwards are
//! those of plain decoding, whatever is drafted.
//!
//! `STRATA_CASES` sets the number of cases on the random model; a tenth as many run on the built-in one.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used)]

mod common;

use common::{NEVER, drafts, engine, nano_with_draft_layer, noise, run_cases as run, tiny};
use proptest::prelude::*;
use strata_gguf::Special;
use strata_model::CpuOps;
use strata_policy::window::{Settings, Source};
use strata_runtime::{Answer, CheckpointParams, DraftNorm, Engine, GenerateParams, Session, SpeculationParams};

/// Cases on the random model.
fn cases() -> u32 {
    std::env::var("STRATA_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(2000)
}

fn session<'e>(engine: &'e Engine<CpuOps>, context: usize) -> Session<'e, CpuOps> {
    engine.session(context, 16).with_checkpoints(CheckpointParams::none())
}

fn answer(session: &mut Session<'_, CpuOps>, prompt: &[u32], params: &GenerateParams) -> Answer {
    session.generate(prompt, params, &NEVER, &mut |_| ()).unwrap()
}

fn plain<'e>(engine: &'e Engine<CpuOps>, context: usize) -> Session<'e, CpuOps> {
    session(engine, context).with_speculation(SpeculationParams::none())
}

/// What both did, that must be the same.
fn same(a: (&Answer, u64), b: (&Answer, u64)) -> Result<(), TestCaseError> {
    prop_assert_eq!(&a.0.tokens, &b.0.tokens);
    prop_assert_eq!(&a.0.text, &b.0.text);
    prop_assert_eq!(a.0.finish, b.0.finish);
    prop_assert!(a.1 == b.1, "the states differ");
    Ok(())
}

#[test]
fn any_drafts_give_the_answer_and_the_state_of_plain_decoding() {
    let engine = engine(&tiny());
    let vocab = engine.model().config().vocab as u32;
    let stop = engine.stop_ids().first().copied().unwrap_or(0);
    run(cases(), |(seed, len, max_tokens, ignore_stop, room, sampling)| {
        let prompt = noise(seed, len);
        let params = GenerateParams { sampling, max_tokens, ignore_stop, ..GenerateParams::default() };
        // Sometimes the context ends before the answer does.
        let context = len + 1 + max_tokens.saturating_sub(room);
        let mut slow = plain(&engine, context);
        let expected = answer(&mut slow, &prompt, &params);
        let own = drafts(seed, prompt.len(), expected.tokens.clone(), vocab, stop);
        let mut fast = session(&engine, context).with_own_drafts(own);
        let found = answer(&mut fast, &prompt, &params);
        same((&found, fast.state().fingerprint()), (&expected, slow.state().fingerprint()))
    });
}

#[test]
fn any_source_and_window_give_the_answer_and_the_state_of_plain_decoding() {
    let engine = nano_with_draft_layer();
    let texts = [
        "The capital of France is Paris. The capital of France is",
        "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return",
        "1 2 3 1 2 3 1 2 3 1 2",
        "In the beginning God created the heaven and the earth. And the earth was",
    ];
    run(cases() / 10, |(seed, len, max_tokens, ignore_stop, room, sampling)| {
        let text = texts[seed as usize % texts.len()];
        let mut prompt = engine.tokenizer().encode(text, Special::Plain);
        prompt.truncate(len.max(4));
        let source = [Source::Mtp, Source::Lookup, Source::Both][seed as usize / 7 % 3];
        // Decided by the policy, or fixed at 1 to 7 drafts.
        let fixed = (seed as usize / 64 % 8).checked_sub(1).map(|n| n + 1);
        let norm = [DraftNorm::Auto, DraftNorm::Fixed(strata_model::HiddenNorm::Whole)][seed as usize / 512 % 2];
        let policy = Settings { source, fixed, max_rows: fixed.map_or(8, |n| n + 1), ..Settings::default() };
        let params = GenerateParams { sampling, max_tokens, ignore_stop, ..GenerateParams::default() };
        let context = prompt.len() + 1 + max_tokens.saturating_sub(room);
        let mut slow = plain(&engine, context);
        let expected = answer(&mut slow, &prompt, &params);
        let mut fast = session(&engine, context).with_speculation(SpeculationParams {
            policy,
            norm,
            ..SpeculationParams::default()
        });
        let found = answer(&mut fast, &prompt, &params);
        prop_assert_eq!(found.speculation.failures, 0);
        same((&found, fast.state().fingerprint()), (&expected, slow.state().fingerprint()))
    });
}

/// The draft layer reads along through turns and checkpoints, and drafts well afterwards.
#[test]
fn drafts_stay_good_through_turns_and_edits() {
    let engine = nano_with_draft_layer();
    let policy = Settings { source: Source::Mtp, fixed: Some(3), max_rows: 4, ..Settings::default() };
    let norm = DraftNorm::Fixed(strata_model::HiddenNorm::Whole);
    let params = SpeculationParams { policy, norm, ..SpeculationParams::default() };
    let encode = |text: &str| engine.tokenizer().encode(text, Special::Parse);
    let first = encode(
        "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    );
    let mut session = engine.session(512, 16).with_speculation(params);
    let limits = GenerateParams { max_tokens: 40, ..GenerateParams::default() };
    let one = answer(&mut session, &first, &limits);
    assert!(one.text.contains("Paris"), "{}", one.text);
    let next = "<|im_end|>\n<|im_start|>user\nWhat is the capital of Italy?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
    let turn = [first.clone(), one.tokens[..one.tokens.len() - 1].to_vec(), encode(next)].concat();
    let fresh = |prompt: &[u32]| {
        let mut session = engine.session(512, 16).with_speculation(params);
        answer(&mut session, prompt, &limits)
    };
    let two = answer(&mut session, &turn, &limits);
    assert!(two.timings.cached_tokens > first.len());
    // Cells made along the way are those of reading everything at once, so drafts are the same too.
    let expected = fresh(&turn);
    assert_eq!((&two.tokens, two.speculation.mtp), (&expected.tokens, expected.speculation.mtp));
    assert!(two.speculation.mtp.accepted > 0 && two.speculation.failures == 0);
    // Back to the first question: from its checkpoint.
    let again = answer(&mut session, &first, &limits);
    assert!(again.timings.cached_tokens > 0);
    assert_eq!((again.tokens, again.speculation.mtp), (one.tokens, one.speculation.mtp));
}
