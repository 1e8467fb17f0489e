//! The container: what opens, what is refused, and with which words.

// clippy.toml lets `#[test]` functions panic; their helpers need to as well.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod files;
mod flips;
mod headers;
mod raw;
mod round_trip;
mod shards;
mod tensors;

use strata_gguf::{GgmlType, Gguf, Result, Value, Writer};
use tempfile::TempDir;

/// A small valid model: six tensors of three types, every byte of data its position.
fn small() -> Writer {
    let mut w = Writer::new();
    w.meta("general.architecture", Value::String("qwen4exp".into())).unwrap();
    w.meta("qwen4exp.block_count", Value::U32(2)).unwrap();
    w.tensor("token_embd.weight", &[32, 8], GgmlType::F32, pattern(1024)).unwrap();
    for layer in 0..2 {
        w.tensor(&format!("blk.{layer}.norm.weight"), &[32], GgmlType::F32, pattern(128)).unwrap();
        w.tensor(&format!("blk.{layer}.ffn_up_exps.weight"), &[32, 3, 2], GgmlType::Q8_0, pattern(204)).unwrap();
    }
    w.tensor("output.weight", &[32, 8], GgmlType::BF16, pattern(512)).unwrap();
    w
}

/// Bytes without a zero among the last ones, so that a cut is a cut.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 + 1).collect()
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// The sentence with which a model was refused.
fn refusal(opened: Result<Gguf>) -> String {
    let text = opened.expect_err("should have been refused").to_string();
    assert!(!text.contains('\n') && !text.is_empty(), "{text:?} is not one line");
    text
}

/// Refuses bytes, and checks that the sentence names the file and holds all of these words.
#[track_caller]
fn refused(bytes: Vec<u8>, words: &[&str]) {
    let text = refusal(Gguf::from_bytes("m.gguf", bytes));
    assert!(text.starts_with("m.gguf: "), "{text}");
    says(&text, words);
}

#[track_caller]
fn says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{text:?} does not say {word:?}");
    }
}

/// Names, shapes, types and bytes of all tensors.
fn contents(g: &Gguf) -> Vec<(String, Vec<u64>, GgmlType, Vec<u8>)> {
    g.tensors().iter().map(|t| (t.name().into(), t.dims().to_vec(), t.ty(), t.data().to_vec())).collect()
}
