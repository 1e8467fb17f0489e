//! The metadata a GGUF file of the nano model has, made from its `tokenizer.json`.
// Each test file uses a part of it, and panics are how tests fail.
#![allow(dead_code, clippy::unwrap_used)]

use serde_json::Value as Json;
use strata_gguf::{ArrayValue, Metadata, Value};

/// The nano model's `tokenizer.json`.
pub(crate) const NANO: &str = include_str!("../data/nano-tokenizer.json");

/// The entries of the nano model, under their keys.
pub(crate) fn entries(pre: &str, more: &[&str]) -> Vec<(String, Value)> {
    let json: Json = serde_json::from_str(NANO).unwrap();
    let mut tokens = vec![(String::new(), 0); json["model"]["vocab"].as_object().unwrap().len()];
    for (token, id) in json["model"]["vocab"].as_object().unwrap() {
        tokens[id.as_u64().unwrap() as usize] = (token.clone(), 1);
    }
    for added in json["added_tokens"].as_array().unwrap() {
        assert_eq!(added["id"].as_u64().unwrap() as usize, tokens.len());
        let kind = if added["special"].as_bool().unwrap() { 3 } else { 4 };
        tokens.push((added["content"].as_str().unwrap().to_owned(), kind));
    }
    tokens.extend(more.iter().map(|token| ((*token).to_owned(), 4)));
    tokens.push(("[PAD4096]".to_owned(), 5));
    let merges = json["model"]["merges"].as_array().unwrap().iter();
    let merges = merges.map(|m| format!("{} {}", m[0].as_str().unwrap(), m[1].as_str().unwrap())).collect();
    let (tokens, types): (Vec<String>, Vec<i32>) = tokens.into_iter().unzip();
    let id = |literal: &str| Value::U32(tokens.iter().position(|t| t == literal).unwrap() as u32);
    let (eos, padding) = (id("<|im_end|>"), id("<|endoftext|>"));
    [
        ("model", Value::String("gpt2".to_owned())),
        ("pre", Value::String(pre.to_owned())),
        ("tokens", Value::Array(ArrayValue::String(tokens))),
        ("token_type", Value::Array(ArrayValue::I32(types))),
        ("merges", Value::Array(ArrayValue::String(merges))),
        ("eos_token_id", eos),
        ("padding_token_id", padding),
        ("add_bos_token", Value::Bool(false)),
    ]
    .map(|(name, value)| (format!("tokenizer.ggml.{name}"), value))
    .to_vec()
}

/// Metadata of these entries.
pub(crate) fn from_entries(entries: Vec<(String, Value)>) -> Metadata {
    let mut meta = Metadata::new("nano.gguf");
    entries.into_iter().for_each(|(key, value)| assert!(meta.insert(key, value)));
    meta
}

/// The nano model with this split.
pub(crate) fn metadata(pre: &str) -> Metadata {
    from_entries(entries(pre, &[]))
}

/// The nano model with this split and further visible added tokens.
pub(crate) fn with_added(pre: &str, more: &[&str]) -> Metadata {
    from_entries(entries(pre, more))
}
