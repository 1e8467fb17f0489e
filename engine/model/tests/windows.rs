//! Windows, chunks and snapshots never change a bit.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{data, json, load, logits_in_chunks, nano, numbers};
use strata_cpu::{Cpu, Isa};
use strata_model::{CpuOps, Model, Silent, State, Want};

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

fn run(model: &Model<CpuOps>, tokens: &[u32], chunk: usize) -> (Vec<u32>, u64) {
    let mut state = model.new_state(tokens.len());
    let logits = logits_in_chunks(model, &mut state, tokens, chunk, &mut Silent);
    (bits(&logits), state.fingerprint())
}

fn chunks_agree(model: &Model<CpuOps>, tokens: &[u32]) {
    let one_by_one = run(model, tokens, 1);
    for chunk in [2, 3, 7, 64, tokens.len()] {
        let (logits, state) = run(model, tokens, chunk);
        assert!(logits == one_by_one.0, "logits differ in chunks of {chunk}");
        assert_eq!(state, one_by_one.1, "states differ in chunks of {chunk}");
    }
}

#[test]
fn chunks_agree_on_tiny() {
    let ids = numbers(&json(&data("tiny/tiny-qwen4exp.json"))["ids"]);
    chunks_agree(&load(&data("tiny/tiny-qwen4exp.gguf")), &ids);
}

/// 647 tokens: beyond the indexer's budget of 256, so most windows select.
#[test]
fn chunks_agree_on_nano_beyond_the_budget() {
    chunks_agree(&load(&nano()), &numbers(&json(&data("oracle/long.json"))["tokens"]));
}

#[test]
fn instruction_sets_never_change_a_bit() {
    let ids = numbers(&json(&data("oracle/code.json"))["tokens"])[..24].to_vec();
    let gguf = strata_gguf::Gguf::open(&nano()).unwrap();
    let with = |isa| run(&Model::load(&gguf, CpuOps::on(Cpu::new(2, isa)), &mut |_| ()).unwrap(), &ids, 7);
    let scalar = with(Isa::SCALAR);
    for isa in Isa::available() {
        assert!(with(isa) == scalar, "{isa} differs from scalar");
    }
}

#[test]
fn threads_never_change_a_bit() {
    let ids = numbers(&json(&data("oracle/code.json"))["tokens"]);
    let gguf = strata_gguf::Gguf::open(&nano()).unwrap();
    let with = |threads| {
        run(&Model::load(&gguf, CpuOps::on(Cpu::exactly(threads, Isa::detect())), &mut |_| ()).unwrap(), &ids, 7)
    };
    let alone = with(1);
    for threads in [2, 3, 5] {
        assert!(with(threads) == alone, "{threads} threads differ from one");
    }
}

/// Reads nine tokens one by one; returns logits and what the state is then.
fn nine(model: &Model<CpuOps>, state: &mut State<CpuOps>, tokens: &[u32]) -> (Vec<u32>, u64) {
    let logits = logits_in_chunks(model, state, &tokens[..9], 1, &mut Silent);
    (bits(&logits), state.fingerprint())
}

fn snapshot_returns(model: &Model<CpuOps>, tokens: &[u32], at: usize) {
    let mut state = model.new_state(tokens.len() + 9);
    model.forward(&mut state, &tokens[..at], Want::Nothing, &mut Silent).unwrap();
    let before = state.fingerprint();
    let snapshot = model.snapshot(&state).unwrap();
    let first = nine(model, &mut state, &tokens[at..]);
    model.restore(&mut state, &snapshot).unwrap();
    assert_eq!(state.fingerprint(), before);
    // A detour over other tokens must leave nothing behind.
    let detour: Vec<u32> = tokens[..9].iter().rev().copied().collect();
    nine(model, &mut state, &detour);
    model.restore(&mut state, &snapshot).unwrap();
    assert!(nine(model, &mut state, &tokens[at..]) == first, "run, restore, run at {at}");
}

#[test]
fn run_nine_restore_run_nine() {
    let tiny = load(&data("tiny/tiny-qwen4exp.gguf"));
    let ids = numbers(&json(&data("tiny/tiny-qwen4exp.json"))["ids"]);
    for at in [1, 2, 10, 18, 19, 50, 81] {
        snapshot_returns(&tiny, &ids, at);
    }
    let long = numbers(&json(&data("oracle/long.json"))["tokens"]);
    snapshot_returns(&load(&nano()), &long, 300);
}

#[test]
fn a_snapshot_of_a_lost_history_is_refused() {
    let model = load(&data("tiny/tiny-qwen4exp.gguf"));
    let mut state = model.new_state(64);
    let start = model.snapshot(&state).unwrap();
    model.forward(&mut state, &[1, 2, 3, 4], Want::Nothing, &mut Silent).unwrap();
    let four = model.snapshot(&state).unwrap();
    model.restore(&mut state, &start).unwrap();
    model.forward(&mut state, &[1, 2, 3, 4, 5], Want::Nothing, &mut Silent).unwrap();
    let error = model.restore(&mut state, &four).unwrap_err().to_string();
    assert!(error.contains("history"), "{error}");
}
