//! Whatever is drafted, and however drafts are verified, answers have the distribution that the model gives them.
//!
//! The probability of an answer follows from the logits behind each of its beginnings. A [`Tree`] holds them, worked out
//! without sessions and samplers, down to where answers become too rare to count; its leaves are the cells of a
//! chi-square test.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used)]

#[path = "common/chi_square.rs"]
mod chi_square;
mod common;

use chi_square::{LEAST, p_value};
use common::{NEVER, engine, nano_with_draft_layer, noise, tiny};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strata_gguf::Special;
use strata_model::{CpuOps, HiddenNorm, Silent, Want};
use strata_policy::window::{Settings, Source};
use strata_runtime::{
    Answer, DraftNorm, Engine, GenerateParams, SamplingParams, Session, SpecSampling, SpeculationParams,
};

/// Tokens of an answer at most: one that comes with the prompt and those of a window of three rows.
const LENGTH: usize = 4;

/// What follows a beginning: tokens and their probabilities, the likeliest first.
type Next = Vec<(u32, f64)>;

/// Whether an answer goes on, given what could follow its beginnings.
type GoesOn = fn(&HashMap<Vec<u32>, Next>, &[u32]) -> bool;

/// Where answers may go.
struct Tree {
    /// By beginning; those that are not here are too rare.
    next: HashMap<Vec<u32>, Next>,
    /// Probability by cell: an answer or the beginning of one. Rare ways on from a beginning share the cell that ends in
    /// [`OTHER`].
    cells: BTreeMap<Vec<u32>, f64>,
}

/// No token.
const OTHER: u32 = u32::MAX;

impl Tree {
    fn of(engine: &Engine<CpuOps>, prompt: &[u32], params: &SamplingParams, draws: u64, goes_on: GoesOn) -> Tree {
        let mut tree = Tree { next: HashMap::new(), cells: BTreeMap::new() };
        let mut open = vec![(Vec::new(), 1.0)];
        while let Some((beginning, share)) = open.pop() {
            let text = [prompt, &beginning].concat();
            let next = softmax(&logits(engine, &text), params, &text);
            tree.next.insert(beginning.clone(), next.clone());
            for (token, p) in next {
                let (way, p) = ([&beginning[..], &[token]].concat(), p * share);
                let expected = p * draws as f64;
                // Worth a look at what follows if that may have some cells with draws in them.
                if expected >= 40.0 && goes_on(&tree.next, &way) {
                    open.push((way, p));
                } else if expected >= 5.0 {
                    tree.cells.insert(way, p);
                } else {
                    *tree.cells.entry([&beginning[..], &[OTHER]].concat()).or_insert(0.0) += p;
                }
            }
        }
        tree
    }

    /// The cell of an answer.
    fn cell(&self, answer: &[u32]) -> Vec<u32> {
        for end in 1..=answer.len() {
            let (way, before) = (&answer[..end], &answer[..end - 1]);
            if self.cells.contains_key(way) {
                return way.to_vec();
            }
            if !self.next.contains_key(way) {
                // What cannot follow has no cell, and is found out by that.
                let possible = self.next.get(before).is_some_and(|next| next.iter().any(|n| n.0 == answer[end - 1]));
                return if possible { [before, &[OTHER]].concat() } else { answer.to_vec() };
            }
        }
        answer.to_vec()
    }
}

/// The draft behind a beginning: a function of it, sometimes the likeliest token and sometimes not.
fn draft(next: &HashMap<Vec<u32>, Next>, beginning: &[u32]) -> u32 {
    let taste = beginning.iter().sum::<u32>() as usize % 3;
    next.get(beginning).map_or(0, |next| next[taste.min(next.len() - 1)].0)
}

/// How many drafts follow the first token.
fn drafts(first: u32) -> usize {
    if first.is_multiple_of(3) { LENGTH - 2 } else { 1 }
}

/// Whether a round goes on behind these tokens, the first of which came with the prompt.
fn round_goes_on(next: &HashMap<Vec<u32>, Next>, way: &[u32]) -> bool {
    match way {
        [_] => true,
        [before @ .., last] => before.len() <= drafts(way[0]) && *last == draft(next, before),
        [] => true,
    }
}

fn logits(engine: &Engine<CpuOps>, tokens: &[u32]) -> Vec<f32> {
    let model = engine.model();
    let mut state = model.new_state(tokens.len());
    model.forward(&mut state, tokens, Want::Last, &mut Silent).unwrap().logits
}

/// The filtered softmax as its definition has it. Of the penalties it knows the repeat penalty.
fn softmax(logits: &[f32], params: &SamplingParams, text: &[u32]) -> Next {
    let recent = &text[text.len().saturating_sub(params.repeat_last_n)..];
    let mut tokens: Next = logits
        .iter()
        .enumerate()
        .map(|(id, &l)| {
            let penalty = if recent.contains(&(id as u32)) { params.repeat_penalty } else { 1.0 };
            let l = if l > 0.0 { l / penalty } else { l * penalty };
            (id as u32, (f64::from(l) / f64::from(params.temp)).exp())
        })
        .collect();
    tokens.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    if params.top_k > 0 {
        tokens.truncate(params.top_k);
    }
    normalise(&mut tokens);
    let mut before = 0.0;
    tokens.retain(|t| {
        let kept = before < f64::from(params.top_p);
        before += t.1;
        kept
    });
    let least = f64::from(params.min_p) * tokens[0].1;
    tokens.retain(|t| t.1 >= least);
    normalise(&mut tokens);
    tokens
}

fn normalise(tokens: &mut Next) {
    let total: f64 = tokens.iter().map(|t| t.1).sum();
    tokens.iter_mut().for_each(|t| t.1 /= total);
}

/// Draws answers and gives the p value of their counts.
fn p_of(tree: &Tree, seeds: Range<u64>, mut draw: impl FnMut(u64) -> Vec<u32>) -> f64 {
    let (mut counts, draws) = (BTreeMap::new(), seeds.end - seeds.start);
    for seed in seeds {
        *counts.entry(tree.cell(&draw(seed))).or_insert(0) += 1;
    }
    p_value(&counts, &tree.cells, draws)
}

fn with_seed(sampling: &SamplingParams, seed: u64, max_tokens: usize) -> GenerateParams {
    let sampling = SamplingParams { seed, ..sampling.clone() };
    GenerateParams { sampling, max_tokens, ignore_stop: true, ..GenerateParams::default() }
}

fn answer(session: &mut Session<'_, CpuOps>, prompt: &[u32], params: &GenerateParams) -> Answer {
    session.generate(prompt, params, &NEVER, &mut |_| ()).unwrap()
}

fn speculation(source: Source, fixed: Option<usize>, sampling: SpecSampling) -> SpeculationParams {
    let policy = Settings { source, fixed, ..Settings::default() };
    SpeculationParams { policy, norm: DraftNorm::Fixed(HiddenNorm::Whole), sampling }
}

/// The random model's own distributions are flat: some of these make them steep.
fn settings() -> [(&'static str, SamplingParams); 6] {
    let plain = SamplingParams { temp: 1.0, ..SamplingParams::default() };
    [
        ("temperature 0.1", SamplingParams { temp: 0.1, ..plain.clone() }),
        ("temperature 0.25", SamplingParams { temp: 0.25, ..plain.clone() }),
        ("top-k", SamplingParams { temp: 1.5, top_k: 5, ..plain.clone() }),
        ("top-p", SamplingParams { temp: 0.2, top_p: 0.7, ..plain.clone() }),
        ("min-p", SamplingParams { temp: 0.4, min_p: 0.4, ..plain.clone() }),
        ("all", SamplingParams { temp: 0.2, top_k: 30, top_p: 0.9, min_p: 0.05, repeat_penalty: 1.3, ..plain }),
    ]
}

/// Answers of one round with drafts, for every setting. Where a round ends is a function of its tokens, so they have
/// exact probabilities too.
fn rounds_follow_the_model(mode: SpecSampling) {
    const DRAWS: u64 = 4000;
    // Other seeds in each mode: the first tokens are drawn in the same way.
    let from = if mode == SpecSampling::Noise { 1_000_000 } else { 2_000_000 };
    let engine = engine(&tiny());
    let prompt = noise(3, 24);
    let (mut tokens, mut accepted) = (0, 0);
    for (name, sampling) in settings() {
        let tree = Tree::of(&engine, &prompt, &sampling, DRAWS, round_goes_on);
        let (next, cells) = (Arc::new(tree.next.clone()), tree.cells.len());
        // Drafts are asked for in the first round: time to say that there shall be no second one.
        let enough = Arc::new(AtomicBool::new(false));
        let (stop, begin) = (Arc::clone(&enough), prompt.len());
        let own = move |text: &[u32], _| {
            stop.store(true, Ordering::Relaxed);
            let mut answer = text[begin..].to_vec();
            for _ in 0..drafts(answer[0]) {
                answer.push(draft(&next, &answer));
            }
            answer.split_off(1)
        };
        let mut session = engine.session(64, 64).with_speculation(speculation(Source::Both, None, mode));
        session = session.with_own_drafts(Box::new(own));
        let mut plain = engine.session(64, 64).with_speculation(SpeculationParams::none());
        let p = p_of(&tree, from..from + DRAWS, |seed| {
            enough.store(false, Ordering::Relaxed);
            let params = with_seed(&sampling, seed, LENGTH);
            let drawn = session.generate(&prompt, &params, &enough, &mut |_| ()).unwrap();
            tokens += drawn.tokens.len();
            accepted += drawn.speculation.positions.iter().map(|t| t.accepted).sum::<usize>();
            if mode == SpecSampling::Noise && seed % 16 == 0 {
                assert!(answer(&mut plain, &prompt, &params).tokens.starts_with(&drawn.tokens), "{name}, seed {seed}");
            }
            drawn.tokens
        });
        println!("{mode:?}, {name}: p = {p:.4} over {cells} cells");
        assert!(p > LEAST, "{mode:?}, {name}: p = {p}");
    }
    println!("{mode:?}: {tokens} tokens, {accepted} drafts accepted");
    assert!(tokens >= 50_000 && accepted > 5000, "{tokens} tokens, {accepted} accepted");
}

#[test]
fn rounds_by_noise_follow_the_model() {
    rounds_follow_the_model(SpecSampling::Noise);
}

#[test]
fn rounds_by_rejection_follow_the_model() {
    rounds_follow_the_model(SpecSampling::Reject);
}

/// A prompt that ends like many places inside it: lookup finds drafts for what may follow, and the likeliest one of what
/// may follow that.
fn prompt_for_lookup(engine: &Engine<CpuOps>, sampling: &SamplingParams) -> Vec<u32> {
    let mut ways: BTreeMap<u32, u32> = BTreeMap::new();
    let mut prompt = vec![7, 8];
    // What the model says depends on the prompt, so the prompt is made of that some times over.
    for _ in 0..6 {
        let next = |text: &[u32]| softmax(&logits(engine, text), sampling, text);
        ways.extend(next(&prompt).iter().map(|n| (n.0, 0)));
        for (token, then) in &mut ways {
            *then = next(&[&prompt[..], &[*token]].concat())[0].0;
        }
        prompt = ways.iter().flat_map(|(&token, &then)| [7, 8, token, then]).chain([7, 8]).collect();
    }
    prompt
}

/// Whole answers, with drafts of lookup and several rounds.
#[test]
fn answers_with_lookup_follow_the_model() {
    const DRAWS: u64 = 2500;
    let engine = engine(&tiny());
    // Below 1 the penalty is a reward: what was said before is said again, as drafts of lookup need it.
    let sampling = SamplingParams { temp: 0.7, top_k: 8, repeat_penalty: 0.5, ..SamplingParams::default() };
    let prompt = prompt_for_lookup(&engine, &sampling);
    let tree = Tree::of(&engine, &prompt, &sampling, DRAWS, |_, way| way.len() < LENGTH);
    for mode in [SpecSampling::Noise, SpecSampling::Reject] {
        let mut session = engine.session(512, 64).with_speculation(speculation(Source::Lookup, Some(3), mode));
        let (mut verified, mut accepted) = (0, 0);
        let p = p_of(&tree, 0..DRAWS, |seed| {
            let answer = answer(&mut session, &prompt, &with_seed(&sampling, seed, LENGTH));
            verified += answer.speculation.lookup.verified;
            accepted += answer.speculation.lookup.accepted;
            answer.tokens
        });
        println!("{mode:?}, lookup: p = {p:.4} over {} cells, {accepted} of {verified}", tree.cells.len());
        assert!(p > LEAST && accepted > 100, "{mode:?}: p = {p}, {accepted} of {verified} accepted");
    }
}

#[test]
fn by_noise_a_seed_has_one_text() {
    let engine = engine(&tiny());
    let (mut verified, mut accepted) = (0, 0);
    for (name, sampling) in settings() {
        let sampling = SamplingParams { repeat_penalty: 0.5, ..sampling };
        let prompt = prompt_for_lookup(&engine, &SamplingParams { top_k: 8, ..sampling.clone() });
        for seed in [1, 77, u64::MAX] {
            let params = with_seed(&sampling, seed, 24);
            let mut text = None;
            for fixed in (0..8).map(Some).chain([None]) {
                let params_of_drafts = speculation(Source::Lookup, fixed, SpecSampling::Noise);
                let mut session = engine.session(512, 64).with_speculation(params_of_drafts);
                let answer = answer(&mut session, &prompt, &params);
                verified += answer.speculation.lookup.verified;
                accepted += answer.speculation.lookup.accepted;
                let text = text.get_or_insert(answer.tokens.clone());
                assert_eq!(text, &answer.tokens, "{name}, seed {seed}, drafts {fixed:?}");
            }
        }
    }
    println!("one text: {accepted} of {verified} drafts accepted");
    assert!(accepted > 20 && verified > accepted, "{accepted} of {verified} accepted");
}

/// Whole answers, with drafts of the built-in model's draft layer: fewer, since it is a larger model.
#[test]
fn answers_with_the_draft_layer_follow_the_model() {
    const DRAWS: u64 = 1000;
    let engine = nano_with_draft_layer();
    let prompt = engine.tokenizer().encode("And God said unto", Special::Plain);
    let sampling = SamplingParams { temp: 1.3, top_k: 4, ..SamplingParams::default() };
    let tree = Tree::of(&engine, &prompt, &sampling, DRAWS, |_, way| way.len() < LENGTH);
    let mut params = speculation(Source::Mtp, Some(2), SpecSampling::Reject);
    // Ends chains behind unlikely drafts, which must be verified themselves.
    params.policy.confidence_floor = 0.3;
    let mut session = engine.session(32, 32).with_speculation(params);
    let (mut verified, mut accepted) = (0, 0);
    let p = p_of(&tree, 0..DRAWS, |seed| {
        let answer = answer(&mut session, &prompt, &with_seed(&sampling, seed, LENGTH));
        verified += answer.speculation.mtp.verified;
        accepted += answer.speculation.mtp.accepted;
        answer.tokens
    });
    println!("the draft layer: p = {p:.4} over {} cells, {accepted} of {verified}", tree.cells.len());
    assert!(p > LEAST && accepted > 400, "p = {p}, {accepted} of {verified} accepted");
}

/// The built-in model, whose draft layer draws from distributions of its own.
#[test]
fn what_the_draft_layer_drew_is_verified() {
    let engine = nano_with_draft_layer();
    let prompt = engine.tokenizer().encode("In the beginning God created the heaven", Special::Plain);
    let sampling = SamplingParams { temp: 0.8, top_k: 20, top_p: 0.95, ..SamplingParams::default() };
    let mut drafted = 0;
    for fixed in [Some(3), None] {
        let mut params = speculation(Source::Both, fixed, SpecSampling::Reject);
        // Most drafts are below this.
        params.policy.confidence_floor = 0.9;
        for seed in 0..4 {
            let mut session = engine.session(128, 64).with_speculation(params);
            let s = answer(&mut session, &prompt, &with_seed(&sampling, seed, 24)).speculation;
            assert_eq!(s.drafted, s.mtp.verified);
            drafted += s.drafted;
        }
    }
    assert!(drafted > 20, "{drafted} drafts");
    // Without drafts, and without chance, the mode makes no difference.
    for (sampling, fixed) in [(sampling, Some(0)), (SamplingParams::default(), Some(3))] {
        let text = |mode| {
            let mut session = engine.session(128, 64).with_speculation(speculation(Source::Both, fixed, mode));
            answer(&mut session, &prompt, &with_seed(&sampling, 9, 16)).tokens
        };
        assert_eq!(text(SpecSampling::Noise), text(SpecSampling::Reject));
    }
}
