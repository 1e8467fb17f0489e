//! Engines and short cuts for the tests.
// Each test binary uses its own part of these.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use strata_gguf::{ArrayValue, Gguf, SafeTensors, Value, Writer};
use strata_model::{CpuOps, draft_from_safetensors};
use strata_policy::cache::CacheParams;
use strata_runtime::{Answer, CheckpointParams, Engine, GenerateParams, OwnDrafts, SamplingParams, Session};
use strata_trace::KnobValue;

pub static NEVER: AtomicBool = AtomicBool::new(false);

fn open(path: &str) -> Gguf {
    Gguf::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The built-in model.
pub fn nano() -> Gguf {
    open("../cli/model/nano-IQ3_S.gguf")
}

/// A random model, small enough for thousands of tokens a second; its own tokenizer is a stub, so it gets one of bytes.
pub fn tiny() -> Gguf {
    Gguf::from_bytes("tiny", tiny_with(&[]).to_bytes().unwrap()).unwrap()
}

/// The same with tokens of a chat format behind those of bytes.
pub fn tiny_that_chats() -> Gguf {
    let added = [("<think>", 4), ("</think>", 4), ("<tool_call>", 4), ("</tool_call>", 4), ("<|im_end|>", 3)];
    Gguf::from_bytes("tiny", tiny_of(&added, &[]).to_bytes().unwrap()).unwrap()
}

/// The random model as it is written, with further metadata.
pub fn tiny_with(more: &[(&str, Value)]) -> Writer {
    tiny_of(&[], more)
}

/// The random model as it is written, with added tokens and their types, and further metadata.
pub fn tiny_of(added: &[(&str, i32)], more: &[(&str, Value)]) -> Writer {
    const OURS: [&str; 3] = ["tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges"];
    let (model, vocabulary) = (open("../model/tests/data/tiny/tiny-qwen4exp.gguf"), nano());
    let mut writer = Writer::new();
    for (key, value) in model.meta().iter().filter(|(key, _)| !OURS.contains(key)) {
        writer.meta(key, value.clone()).unwrap();
    }
    let all = vocabulary.meta().strings(OURS[0]).unwrap();
    let mut tokens: Vec<String> = all.iter().filter(|t| t.chars().count() == 1).cloned().collect();
    let types = [vec![1; tokens.len()], added.iter().map(|a| a.1).collect()].concat();
    tokens.extend(added.iter().map(|a| a.0.to_owned()));
    writer.meta(OURS[1], Value::Array(ArrayValue::I32(types))).unwrap();
    writer.meta(OURS[0], Value::Array(ArrayValue::String(tokens))).unwrap();
    writer.meta(OURS[2], Value::Array(ArrayValue::String(Vec::new()))).unwrap();
    for (key, value) in more {
        writer.meta(key, value.clone()).unwrap();
    }
    for tensor in model.tensors() {
        writer.tensor(tensor.name(), tensor.dims(), tensor.ty(), tensor.data().to_vec()).unwrap();
    }
    writer
}

pub fn engine(gguf: &Gguf) -> Engine<CpuOps> {
    Engine::load(gguf, CpuOps::new(1), &mut |_| ()).unwrap()
}

/// The built-in model with its draft layer.
pub fn nano_with_draft_layer() -> Engine<CpuOps> {
    let mut engine = engine(&nano());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/model/nano-mtp.safetensors");
    let layers = engine.model().config().layers.len();
    let file = draft_from_safetensors(&SafeTensors::open(&path, "mtp.").unwrap(), layers).unwrap();
    engine.add_draft_layer(&file).unwrap();
    engine
}

/// Answers of exactly this length.
pub fn exactly(max_tokens: usize) -> GenerateParams {
    GenerateParams { max_tokens, ignore_stop: true, ..GenerateParams::default() }
}

pub fn generate(session: &mut Session<'_, CpuOps>, prompt: &[u32], max: usize) -> Answer {
    session.generate(prompt, &exactly(max), &NEVER, &mut |_| ()).unwrap()
}

/// What a session that knew nothing answers, and what its state is then.
pub fn fresh(engine: &Engine<CpuOps>, prompt: &[u32], max: usize) -> (Vec<u32>, u64) {
    let mut session = engine.session(512, 64).with_checkpoints(CheckpointParams::none());
    let tokens = generate(&mut session, prompt, max).tokens;
    (tokens, session.state().fingerprint())
}

/// Tokens that look like nothing in particular.
pub fn noise(seed: u32, len: usize) -> Vec<u32> {
    let mut x = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut next = || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 16) % 280
    };
    (0..len).map(|_| next()).collect()
}

/// Drafts by someone who knows the true continuation and may lie about it.
pub fn drafts(seed: u32, prompt: usize, truth: Vec<u32>, vocab: u32, stop: u32) -> OwnDrafts {
    let mut state = seed;
    let mut next = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    Box::new(move |text, most| {
        let truth = truth.get(text.len() - prompt..).unwrap_or_default();
        let len = next() as usize % (most.min(7) + 1);
        let right = next() as usize % (len + 1);
        let mut out: Vec<u32> = truth.iter().copied().take(right).collect();
        while out.len() < len {
            out.push(match next() % 4 {
                0 => stop,
                1 => text[text.len() - 1],
                // Off by one from the truth, so that what follows it is right again.
                2 => truth.get(out.len()).map_or(0, |t| (t + 1) % vocab),
                _ => next() % vocab,
            });
        }
        out
    })
}

fn sampling() -> impl Strategy<Value = SamplingParams> {
    let greedy = SamplingParams::default();
    prop_oneof![
        3 => Just(greedy.clone()),
        1 => Just(SamplingParams { repeat_penalty: 1.3, frequency_penalty: 0.5, ..greedy.clone() }),
        2 => (0.2f32..2.0, 0usize..20, 0.3f32..1.0, any::<u64>()).prop_map(move |(temp, top_k, top_p, seed)| {
            SamplingParams { temp, top_k, top_p, seed, presence_penalty: 0.3, ..greedy.clone() }
        }),
    ]
}

/// Cases of speculation: a seed, the prompt's length, tokens at most, whether ends are ignored, how much the context is too short by,
/// and how tokens are chosen.
pub fn run_cases(
    cases: u32,
    test: impl Fn((u32, usize, usize, bool, usize, SamplingParams)) -> Result<(), TestCaseError>,
) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let strategy = (any::<u32>(), 1usize..40, 1usize..24, any::<bool>(), 0usize..6, sampling());
    TestRunner::new(config).run(&strategy, test).unwrap();
}

/// The settings of a cache as a trace's header has them.
pub fn knobs(params: &CacheParams) -> BTreeMap<String, KnobValue> {
    let text = params.to_string();
    let pairs = text.split(' ').map(|pair| pair.split_once('=').unwrap());
    let knob = |(name, value): (&str, &str)| {
        (format!("experts.{name}"), KnobValue { value: value.to_owned(), origin: "flag".to_owned() })
    };
    pairs.map(knob).collect()
}
