//! The tokenizer against Hugging Face's, and what it makes of broken files.
#![allow(clippy::unwrap_used)] // Panics are how tests fail, in their helpers too.

mod tokenizer_data;
mod tokenizer_text;

use std::collections::HashSet;
use strata_gguf::{ArrayValue, ControlText, Prompt, Special, TokenKind, Tokenizer, Value};
use tokenizer_data::{NANO, entries, from_entries, metadata};
use tokenizer_text::{Random, bytes, text};
use tokenizers::tokenizer::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

fn nano() -> Tokenizer {
    Tokenizer::from_metadata(&metadata("qwen35")).unwrap()
}

/// Hugging Face's tokenizer of the same file, without Unicode normalisation: this engine takes text as it is.
fn oracle(json: &serde_json::Value) -> tokenizers::Tokenizer {
    let mut oracle = tokenizers::Tokenizer::from_bytes(json.to_string().as_bytes()).unwrap();
    oracle.with_normalizer(None::<tokenizers::NormalizerWrapper>).unwrap();
    oracle
}

fn oracle_pieces<'a>(oracle: &tokenizers::Tokenizer, text: &'a str) -> Vec<&'a [u8]> {
    let mut split = PreTokenizedString::from(text);
    oracle.get_pre_tokenizer().unwrap().pre_tokenize(&mut split).unwrap();
    let splits = split.get_splits(OffsetReferential::Original, OffsetType::Byte);
    splits.into_iter().map(|(_, (start, end), _)| &text.as_bytes()[start..end]).collect()
}

#[test]
fn equals_hugging_face() {
    let json: serde_json::Value = serde_json::from_str(NANO).unwrap();
    let mut without_added = json.clone();
    without_added["added_tokens"] = serde_json::json!([]);
    let mut older = json.clone();
    let pattern = &mut older["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"];
    *pattern = pattern.as_str().unwrap().replace(r"[\p{L}\p{M}]+", r"\p{L}+").replace(r"\p{M}", "").into();
    let (parsing, plain, older) = (oracle(&json), oracle(&without_added), oracle(&older));
    let tokenizer = nano();
    let qwen2 = Tokenizer::from_metadata(&metadata("qwen2")).unwrap();

    let mut random = Random::new(20_261_130);
    let mut seen = HashSet::new();
    let (mut tokens, mut differing_splits) = (0, 0);
    while seen.len() < 24_000 {
        let text = text(&mut random);
        if !seen.insert(text.clone()) {
            continue;
        }
        let text = text.as_str();
        let ids = tokenizer.encode(text, Special::Parse);
        assert_eq!(ids, parsing.encode_fast(text, false).unwrap().get_ids(), "{text:?}");
        let plain_ids = tokenizer.encode(text, Special::Plain);
        assert_eq!(plain_ids, plain.encode_fast(text, false).unwrap().get_ids(), "{text:?}");
        let pieces: Vec<&[u8]> = tokenizer.pieces(text.as_bytes()).collect();
        assert_eq!(pieces, oracle_pieces(&plain, text), "{text:?}");
        let older_pieces: Vec<&[u8]> = qwen2.pieces(text.as_bytes()).collect();
        assert_eq!(older_pieces, oracle_pieces(&older, text), "{text:?}");
        assert_eq!(qwen2.encode(text, Special::Parse), older.encode_fast(text, false).unwrap().get_ids(), "{text:?}");
        differing_splits += usize::from(pieces != older_pieces);
        for ids in [&ids, &plain_ids] {
            assert_eq!(tokenizer.decode(ids, ControlText::Show), text.as_bytes());
        }
        tokens += ids.len();
    }
    println!("{} distinct strings, {tokens} tokens equal; qwen2 splits {differing_splits} differently", seen.len());
    assert!(differing_splits > 100);
}

#[test]
fn any_bytes_round_trip() {
    let tokenizer = nano();
    let mut random = Random::new(7);
    let mut invalid = 0;
    while invalid < 2_000 {
        let bytes = bytes(&mut random);
        invalid += usize::from(std::str::from_utf8(&bytes).is_err());
        for special in [Special::Parse, Special::Plain] {
            let ids = tokenizer.encode(&bytes, special);
            assert_eq!(tokenizer.decode(&ids, ControlText::Show), bytes);
        }
    }
    println!("{invalid} invalid byte strings round-tripped");
    assert!(tokenizer.encode("", Special::Parse).is_empty());
}

/// Long runs are one piece each; a merge loop that is quadratic would take hours here.
#[test]
fn long_runs_are_encoded() {
    let tokenizer = nano();
    for unit in ["a", " ", "\n", "=", "the", "\u{3000}", " \n", "\t x", "е\u{301}", "<", "'s", "\u{FFFD}"] {
        let text = unit.repeat((1 << 20) / unit.len());
        let ids = tokenizer.encode(&text, Special::Parse);
        assert_eq!(tokenizer.decode(&ids, ControlText::Show), text.as_bytes());
    }
    let noise = vec![0xFF; 1 << 20];
    assert_eq!(tokenizer.decode(&tokenizer.encode(&noise, Special::Parse), ControlText::Show), noise);
}

#[test]
fn kinds_and_names() {
    let t = nano();
    let id = |literal: &str| t.id_of(literal).unwrap();
    assert_eq!(t.vocab_size(), 4097);
    assert_eq!((id("<|endoftext|>"), id("<|im_start|>"), id("<|im_end|>"), id("<think>")), (4087, 4088, 4089, 4094));
    assert_eq!(t.stop_ids(), [4089, 4087]);
    assert_eq!((t.eos_id(), t.bos_id(), t.padding_id(), t.bos_to_add()), (Some(4089), None, Some(4087), None));
    assert!(t.is_special(4088) && !t.is_special(4094) && !t.is_special(0) && !t.is_special(9999));
    assert_eq!(t.kind(4095), Some(TokenKind::Visible));
    assert_eq!((t.kind(4096), t.token_bytes(4096)), (Some(TokenKind::Unused), Some(&[][..])));
    assert_eq!((t.kind(4097), t.token_bytes(4097)), (None, None));
    assert_eq!(t.token_bytes(4089), Some(&b"<|im_end|>"[..]));
    assert_eq!(t.id_of("the"), None);
    let ids = t.encode("<|im_start|>é<think>", Special::Parse);
    assert_eq!(t.decode(&ids, ControlText::Hide), "é<think>".as_bytes());
    assert_eq!(t.decode(&[u32::MAX, 4096, 4097], ControlText::Show), b"");
    assert!(t.warnings().is_empty());
    assert_eq!(t.encode_prompt(&Prompt::trusted("<|im_start|>é<think>")), ids);
    assert_eq!(t.encode("[PAD4096]", Special::Parse), t.encode("[PAD4096]", Special::Plain));
}

/// The nano model with one entry replaced, or removed for `None`.
fn with(key: &str, value: Option<Value>) -> Result<Tokenizer, String> {
    let key = format!("tokenizer.ggml.{key}");
    let mut entries = entries("qwen35", &[]);
    entries.retain(|(name, _)| *name != key);
    entries.extend(value.map(|value| (key, value)));
    Tokenizer::from_metadata(&from_entries(entries)).map_err(|e| e.to_string())
}

#[test]
fn broken_files_get_a_sentence() {
    let string = |s: &str| Some(Value::String(s.to_owned()));
    let array = |a: ArrayValue| Some(Value::Array(a));
    let strings = |key: &str| match entries("qwen35", &[]).into_iter().find(|(k, _)| k.ends_with(key)) {
        Some((_, Value::Array(ArrayValue::String(v)))) => v,
        _ => panic!("{key}"),
    };
    let (tokens, merges) = (strings("tokens"), strings("merges"));
    let n = tokens.len();
    let merge = |line: &str| {
        let mut merges = merges.clone();
        merges[3] = line.to_owned();
        array(ArrayValue::String(merges))
    };
    let types = |at: usize, kind: i32| {
        let mut types = vec![1; n];
        types[at] = kind;
        array(ArrayValue::I32(types))
    };
    let mut no_bang = tokens.clone();
    no_bang[0] = "?!".to_owned();
    let cases = [
        ("model", string("llama"), "key tokenizer.ggml.model is \"llama\", expected gpt2"),
        ("model", None, "key tokenizer.ggml.model is missing"),
        ("model", Some(Value::U8(1)), "key tokenizer.ggml.model is of type u8, expected string"),
        ("pre", string("foo\u{202E}"), "key tokenizer.ggml.pre is \"foo\\u{202e}\", expected one of qwen35, qwen2"),
        ("pre", Some(Value::Bool(true)), "key tokenizer.ggml.pre is of type bool, expected string"),
        ("tokens", None, "key tokenizer.ggml.tokens is missing"),
        ("tokens", array(ArrayValue::I32(vec![1])), "tokens is of type array of i32, expected array of string"),
        (
            "tokens",
            array(ArrayValue::String(no_bang)),
            "key tokenizer.ggml.tokens lacks the token \"!\" of the byte 0x21",
        ),
        ("token_type", array(ArrayValue::U8(vec![1; n])), "is of type array of u8, expected array of i32"),
        ("token_type", array(ArrayValue::I32(vec![1; 5])), "token_type has 5 elements, expected 4097"),
        ("token_type", None, "key tokenizer.ggml.token_type is missing"),
        ("token_type", types(7, 9), "key tokenizer.ggml.token_type[7] is 9, expected 1 to 6"),
        ("token_type", types(0, 3), "lacks the token \"!\" of the byte 0x21"),
        ("merges", None, "key tokenizer.ggml.merges is missing"),
        ("merges", array(ArrayValue::I32(vec![1])), "merges is of type array of i32, expected array of string"),
        ("merges", merge("ab"), "key tokenizer.ggml.merges[3] is \"ab\", expected two tokens and a space"),
        ("merges", merge("Zq a"), "merges[3] is \"Zq a\", but \"Zq\" is no normal token"),
        ("merges", merge("! Q"), "merges[3] is \"! Q\", but \"!Q\" is no normal token"),
        ("merges", merge("a b c"), "merges[3] is \"a b c\", but \"b c\" is no normal token"),
        ("scores", array(ArrayValue::F32(vec![0.0])), "key tokenizer.ggml.scores has 1 elements of f32, expected 4097"),
        ("scores", array(ArrayValue::I8(vec![0; n])), "scores has 4097 elements of i8, expected 4097 of f32"),
        ("eos_token_id", Some(Value::U32(5000)), "key tokenizer.ggml.eos_token_id is 5000, expected less than 4097"),
        ("eos_token_id", Some(Value::U64(1 << 32)), "eos_token_id is 4294967296, expected less than"),
        ("bos_token_id", Some(Value::I32(-1)), "bos_token_id is -1, expected a non-negative integer"),
        ("add_bos_token", Some(Value::U8(1)), "add_bos_token is of type u8, expected bool"),
    ];
    for (key, value, expected) in cases {
        let error = with(key, value).unwrap_err();
        assert!(error.starts_with("nano.gguf: ") && error.contains(expected), "{error}");
    }
}

#[test]
fn what_is_assumed_is_said() {
    let reference = nano().encode("a b\u{301} 12", Special::Plain);
    for pre in [None, Some(Value::String("default".to_owned()))] {
        let t = with("pre", pre).unwrap();
        assert_eq!(t.warnings().len(), 1);
        assert!(t.warnings()[0].contains("tokenizer.ggml.pre") && t.warnings()[0].contains("qwen35"));
        assert_eq!(t.encode("a b\u{301} 12", Special::Plain), reference);
    }
    let repeated = Tokenizer::from_metadata(&tokenizer_data::with_added("qwen35", &["<think>", "<think>"])).unwrap();
    assert_eq!(repeated.id_of("<think>"), Some(4094));
    assert_eq!(
        repeated.warnings(),
        [
            "nano.gguf: key tokenizer.ggml.tokens has \"<think>\" as 4094 and as 4096, and 1 more like it; text is encoded \
          with the first id"
        ]
    );
}

#[test]
fn the_longest_literal_counts() {
    let t = Tokenizer::from_metadata(&tokenizer_data::with_added("qwen35", &["<think>x", "ink", "<thi"])).unwrap();
    let parse = |text: &str| t.encode(text, Special::Parse);
    let id = |literal: &str| t.id_of(literal).unwrap();
    assert_eq!(parse("<think>x<think><thi"), [id("<think>x"), id("<think>"), id("<thi")]);
    assert_eq!(parse("ink<thinker"), [&[id("ink"), id("<thi")][..], &t.encode("nker", Special::Plain)].concat());
}

#[test]
fn a_bos_token_is_offered_only_if_asked_for() {
    let mut all = entries("qwen35", &[]);
    all.retain(|(key, _)| !key.ends_with("add_bos_token"));
    all.push(("tokenizer.ggml.bos_token_id".to_owned(), Value::U32(4087)));
    assert_eq!(Tokenizer::from_metadata(&from_entries(all.clone())).unwrap().bos_to_add(), None);
    all.push(("tokenizer.ggml.add_bos_token".to_owned(), Value::Bool(true)));
    assert_eq!(Tokenizer::from_metadata(&from_entries(all)).unwrap().bos_to_add(), Some(4087));
}
