//! Windows of which some rows are kept leave the state of reading those rows one by one, bit for bit.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{data, json, load, nano, numbers};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use strata_model::{CpuOps, Error, Model, Silent, Snapshot, State, Want};

/// What is done to a sequence.
#[derive(Debug, Clone)]
enum Step {
    /// Verifies these tokens and keeps so many of them, modulo their number and one.
    Window(Vec<u32>, usize),
    /// Reads these tokens for good.
    Read(Vec<u32>),
    /// Remembers the point.
    Save,
    /// Returns to the point remembered last, if there is one; with tokens, from a window of them.
    Return(Vec<u32>),
}

/// Windows of 1 to 8 rows, mostly, mixed with the rest. `text` is what drafts would often be right about.
fn steps(vocab: u32, special: u32, text: &[u32]) -> impl Strategy<Value = Vec<Step>> + use<> {
    let text = text.to_vec();
    // Pieces of real text, one token again and again, whatever there is, and the token that cuts n-grams.
    let real = (0..text.len() - 8, 1..=8usize).prop_map(move |(at, n)| text[at..at + n].to_vec());
    let token = prop_oneof![6 => 0..vocab, 1 => Just(special), 1 => Just(0)];
    let mixed = prop::collection::vec(token.clone(), 1..=8);
    let same = (token, 1..=8usize).prop_map(|(t, n)| vec![t; n]);
    let tokens = prop_oneof![2 => real, 2 => mixed, 1 => same].boxed();
    let window = (tokens.clone(), 0..=72usize).prop_map(|(t, keep)| Step::Window(t, keep));
    let back =
        (tokens.clone(), any::<bool>()).prop_map(|(t, window)| Step::Return(if window { t } else { Vec::new() }));
    let step = prop_oneof![8 => window, 2 => tokens.prop_map(Step::Read), 1 => Just(Step::Save), 1 => back];
    prop::collection::vec(step, 1..=10)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// A sequence that uses windows, and one that reads what the first keeps token by token.
struct Pair<'m> {
    model: &'m Model<CpuOps>,
    state: State<CpuOps>,
    plain: State<CpuOps>,
}

impl<'m> Pair<'m> {
    fn new(model: &'m Model<CpuOps>, prompt: &[u32]) -> Pair<'m> {
        let read = || {
            let mut state = model.new_state(prompt.len() + 80);
            for chunk in prompt.chunks(256) {
                model.forward(&mut state, chunk, Want::Nothing, &mut Silent).unwrap();
            }
            state
        };
        Pair { model, state: read(), plain: read() }
    }

    /// Reads tokens one by one and compares each row's logits with those of the pass that read them together.
    fn follow(&mut self, tokens: &[u32], logits: &[f32]) {
        let rows = logits.chunks(self.model.config().vocab);
        for (i, (&token, row)) in tokens.iter().zip(rows).enumerate() {
            let alone = self.model.forward(&mut self.plain, &[token], Want::All, &mut Silent).unwrap().logits;
            assert!(bits(&alone) == bits(row), "logits of row {i} differ");
        }
    }

    fn agree(&self) {
        assert_eq!(self.state.tokens(), self.plain.tokens());
        assert!(self.state.window().is_empty());
        assert_eq!(self.state.fingerprint(), self.plain.fingerprint(), "states differ");
    }

    /// The tokens of a step, as many as still fit.
    fn fitting<'t>(&self, tokens: &'t [u32]) -> &'t [u32] {
        &tokens[..tokens.len().min(self.state.capacity() - self.state.tokens().len())]
    }

    fn window(&mut self, tokens: &[u32], keep: usize) {
        let before = self.state.tokens().to_vec();
        let logits = self.model.verify(&mut self.state, tokens, &mut Silent).unwrap().logits;
        assert_eq!(logits.len(), tokens.len() * self.model.config().vocab);
        assert_eq!((self.state.window(), self.state.tokens()), (tokens, &before[..]));
        self.model.commit(&mut self.state, keep).unwrap();
        self.follow(&tokens[..keep], &logits);
        self.agree();
    }

    fn run(&mut self, steps: &[Step]) {
        let mut saved: Option<(Snapshot<CpuOps>, Snapshot<CpuOps>)> = None;
        for step in steps {
            match step {
                Step::Window(tokens, keep) => {
                    let tokens = self.fitting(tokens);
                    if !tokens.is_empty() {
                        self.window(tokens, keep % (tokens.len() + 1));
                    }
                }
                Step::Read(tokens) => {
                    let tokens = self.fitting(tokens);
                    let logits = self.model.forward(&mut self.state, tokens, Want::All, &mut Silent).unwrap().logits;
                    self.follow(tokens, &logits);
                }
                Step::Save => {
                    saved = Some([&self.state, &self.plain].map(|s| self.model.snapshot(s).unwrap()).into());
                }
                Step::Return(tokens) => {
                    let Some((state, plain)) = &saved else { continue };
                    let tokens = self.fitting(tokens);
                    if !tokens.is_empty() {
                        self.model.verify(&mut self.state, tokens, &mut Silent).unwrap();
                    }
                    self.model.restore(&mut self.state, state).unwrap();
                    self.model.restore(&mut self.plain, plain).unwrap();
                }
            }
            self.agree();
        }
    }
}

fn check(model: &Model<CpuOps>, text: &[u32], prompts: std::ops::Range<usize>, cases: u32) {
    let vocab = model.config().vocab as u32;
    let special = model.config().ngram.as_ref().unwrap().eos;
    let config =
        ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 200, ..ProptestConfig::default() };
    let result = TestRunner::new(config).run(&(prompts, steps(vocab, special, text)), |(prompt, steps)| {
        Pair::new(model, &text[..prompt]).run(&steps);
        Ok(())
    });
    result.unwrap_or_else(|e| panic!("{e}"));
}

/// Prompts of up to 40 tokens and up to 80 more: dense attention below 19 tokens, sparse above.
#[test]
fn windows_on_tiny() {
    let ids = numbers(&json(&data("tiny/tiny-qwen4exp.json"))["ids"]);
    check(&load(&data("tiny/tiny-qwen4exp.gguf")), &ids, 0..40, 48);
}

#[test]
fn windows_on_nano() {
    let text = numbers(&json(&data("oracle/long.json"))["tokens"]);
    check(&load(&nano()), &text, 0..20, 8);
}

/// Prompts from just below the budget of 256 tokens, where rows of one window differ in whether they select, to beyond.
#[test]
fn windows_on_nano_around_the_budget() {
    let text = numbers(&json(&data("oracle/long.json"))["tokens"]);
    let model = load(&nano());
    check(&model, &text, 230..262, 5);
    check(&model, &text, 500..560, 3);
}

/// Every number of kept rows of windows that begin at every place of an indexer block.
#[test]
fn every_keep_at_every_place_of_a_block() {
    let ids = numbers(&json(&data("tiny/tiny-qwen4exp.json"))["ids"]);
    let model = load(&data("tiny/tiny-qwen4exp.gguf"));
    for prompt in 17..21 {
        let mut pair = Pair::new(&model, &ids[..prompt]);
        for keep in 0..=8 {
            let drafts: Vec<u32> = ids.iter().rev().skip(keep).take(8).copied().collect();
            pair.window(&drafts, keep);
        }
    }
}

/// A window far larger than those that buffers are made for at first, then small ones again.
#[test]
fn large_windows_work() {
    let ids = numbers(&json(&data("tiny/tiny-qwen4exp.json"))["ids"]);
    let model = load(&data("tiny/tiny-qwen4exp.gguf"));
    let mut pair = Pair::new(&model, &[]);
    pair.window(&ids[..2], 1);
    pair.window(&ids[1..41], 33);
    pair.window(&ids[41..45], 4);
    pair.window(&ids[45..60], 0);
    pair.window(&ids[45..60], 9);
}

#[test]
fn calls_out_of_turn_are_refused_and_lose_nothing() {
    let model = load(&data("tiny/tiny-qwen4exp.gguf"));
    let mut pair = Pair::new(&model, &[1, 2, 3]);
    let start = model.snapshot(&pair.state).unwrap();
    let named = |result: Result<(), Error>, words: &str| {
        let error = result.expect_err("no failure").to_string();
        assert!(error.contains(words), "\"{error}\" does not say {words}");
    };
    let verify = |state: &mut _, tokens: &[u32]| model.verify(state, tokens, &mut Silent).map(|_| ());
    let forward = |state: &mut _, tokens: &[u32]| model.forward(state, tokens, Want::Nothing, &mut Silent).map(|_| ());

    named(model.commit(&mut pair.state, 0), "no window");
    named(verify(&mut pair.state, &[]), "at least one token");
    named(verify(&mut pair.state, &[1, u32::MAX]), "vocabulary");
    named(verify(&mut pair.state, &[1; 81]), "context");
    named(model.commit(&mut pair.state, 0), "no window");
    pair.agree();

    let window = [4, 5, 6, 7];
    let logits = model.verify(&mut pair.state, &window, &mut Silent).unwrap().logits;
    named(verify(&mut pair.state, &[8]), "not committed");
    named(forward(&mut pair.state, &[8]), "not committed");
    named(forward(&mut pair.state, &[]), "not committed");
    named(model.snapshot(&pair.state).map(|_| ()), "not committed");
    named(model.commit(&mut pair.state, 5), "5 rows cannot be kept of a window of 4");
    model.commit(&mut pair.state, 2).unwrap();
    named(model.commit(&mut pair.state, 2), "no window");
    pair.follow(&window[..2], &logits);
    pair.agree();

    verify(&mut pair.state, &window).unwrap();
    model.restore(&mut pair.state, &start).unwrap();
    named(model.commit(&mut pair.state, 1), "no window");
    assert_eq!(pair.state.fingerprint(), Pair::new(&model, &[1, 2, 3]).plain.fingerprint());
}
