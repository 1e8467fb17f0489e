//! Versions, metadata and its limits.

use crate::raw::Raw;
use crate::{refused, says, small};
use strata_gguf::{ArrayValue, Gguf, Value, Writer};

#[test]
fn versions_2_and_3_open_and_others_are_named() {
    let with = |version: u32| {
        let mut bytes = small().to_bytes().unwrap();
        bytes[4..8].copy_from_slice(&version.to_le_bytes());
        bytes
    };
    for version in [2, 3] {
        assert_eq!(Gguf::from_bytes("m", with(version)).unwrap().version(), version);
    }
    refused(with(1), &["version 1 is not supported"]);
    refused(with(4), &["version 4 is unknown", "newer", "damaged"]);
    refused(with(0), &["version 0"]);
    refused(with(3u32.swap_bytes()), &["big-endian", "version 3"]);
}

#[test]
fn a_key_of_2_to_the_48_bytes_allocates_nothing() {
    let bytes = Raw::header(0, 1).u64((1 << 48) - 1);
    assert_eq!(bytes.0.len(), 32);
    refused(bytes.clone().0, &["needs", "left in the file"]);
    refused(bytes.bytes(&[b'a'; 64]).0, &["metadata key 1 of 1", "281474976710655", "65535"]);
}

#[test]
fn an_empty_key_is_refused() {
    let bytes = Raw::header(0, 1).str("").u32(7).bytes(&[1]);
    assert_eq!(bytes.0.len(), 37);
    refused(bytes.0, &["metadata key 1 of 1 is empty"]);
    refused(Raw::header(1, 0).tensor("", &[1], 0, 0).data(32, 4), &["name of tensor 1 of 1 is empty"]);
}

#[test]
fn hostile_lengths_in_values_are_refused() {
    let key = |ty: u32| Raw::header(0, 1).str("tokenizer.ggml.tokens").u32(ty);
    for length in [65, 1 << 30, 1 << 48, u64::MAX] {
        refused(key(8).u64(length).bytes(&[b'a'; 64]).0, &["tokenizer.ggml.tokens", "needs"]);
        for element in 0..=12 {
            let array = key(9).u32(element).u64(length).bytes(&[1; 64]);
            refused(array.0, &["tokenizer.ggml.tokens", "needs"]);
        }
    }
    refused(key(13).u64(0).0, &["tokenizer.ggml.tokens", "unknown value type 13"]);
    refused(key(9).u32(77).u64(0).0, &["tokenizer.ggml.tokens", "unknown value type 77"]);
    refused(key(7).bytes(&[2]).u64(0).0, &["tokenizer.ggml.tokens", "neither 0 nor 1"]);
}

#[test]
fn arrays_nest_to_a_limit() {
    let nested = |depth: usize| {
        let start = Raw::header(0, 1).str("deep").u32(9);
        (1..depth).fold(start, |r, _| r.u32(9).u64(1)).u32(0).u64(1).bytes(&[5])
    };
    let model = Gguf::from_bytes("m", nested(3).0).unwrap();
    let inner = ArrayValue::Array(vec![ArrayValue::Array(vec![ArrayValue::U8(vec![5])])]);
    assert_eq!(model.meta().get("deep"), Some(&Value::Array(inner)));
    assert!(Gguf::from_bytes("m", nested(8).0).is_ok());
    refused(nested(9).0, &["deep", "nests arrays"]);
    refused(nested(100_000).0, &["deep", "nests arrays"]);
}

#[test]
fn text_must_be_utf8() {
    let bad = [0xff, 0xfe];
    let key = Raw::header(0, 1).u64(2).bytes(&bad).u32(0).bytes(&[0; 40]);
    refused(key.0, &["metadata key 1 of 1", "UTF-8"]);
    let value = Raw::header(0, 1).str("general.name").u32(8).u64(2).bytes(&bad);
    refused(value.0, &["general.name", "UTF-8"]);
    let element = Raw::header(0, 1).str("tokenizer.ggml.tokens").u32(9).u32(8).u64(2).str("ok").u64(2).bytes(&bad);
    refused(element.0, &["element 1 of key tokenizer.ggml.tokens", "UTF-8"]);
    let tensor = Raw::header(1, 0).u64(2).bytes(&bad).bytes(&[0; 60]);
    refused(tensor.0, &["name of tensor 1 of 1", "UTF-8"]);
}

#[test]
fn keys_are_unique() {
    let twice = Raw::header(0, 2).str("general.name").u32(0).bytes(&[1]).str("general.name").u32(0).bytes(&[2]);
    refused(twice.0, &["general.name appears twice"]);
}

#[test]
fn alignments_are_powers_of_two_within_reason() {
    let with = |value: Value| {
        let mut w = Writer::new();
        w.meta("split.none", Value::U8(0)).unwrap();
        let mut bytes = w.to_bytes().unwrap();
        // The writer refuses what the reader must be shown: the key is put in by hand.
        bytes.truncate(24);
        bytes[16] = 1;
        let raw = Raw(bytes).str("general.alignment");
        match value {
            Value::U32(a) => raw.u32(4).u32(a),
            _ => raw.u32(8).str("32"),
        }
        .0
    };
    for good in [8, 16, 32, 64, 4096, 65536] {
        assert!(Gguf::from_bytes("m", with(Value::U32(good))).is_ok(), "{good}");
        assert!(small().alignment(good).is_ok(), "{good}");
    }
    for bad in [0, 1, 3, 4, 24, 100_000, 1 << 17, 1 << 30, u32::MAX] {
        refused(with(Value::U32(bad)), &["general.alignment", &bad.to_string(), "power of two"]);
        assert!(small().alignment(bad).is_err(), "{bad}");
    }
    refused(with(Value::String(String::new())), &["general.alignment", "string"]);
}

#[test]
fn values_of_another_type_name_key_and_types() {
    let mut w = Writer::new();
    w.meta("tokenizer.ggml.token_type", Value::Array(ArrayValue::U8(vec![1, 2, 3]))).unwrap();
    w.meta("tokenizer.ggml.merges", Value::Array(ArrayValue::I32(vec![1]))).unwrap();
    w.meta("tokenizer.ggml.model", Value::U32(7)).unwrap();
    let model = Gguf::from_bytes("m.gguf", w.to_bytes().unwrap()).unwrap();
    let meta = model.meta();
    let text = meta.opt_i32s("tokenizer.ggml.token_type").unwrap_err().to_string();
    says(&text, &["m.gguf", "tokenizer.ggml.token_type", "array of u8", "array of i32"]);
    let text = meta.strings("tokenizer.ggml.merges").unwrap_err().to_string();
    says(&text, &["m.gguf", "tokenizer.ggml.merges", "array of i32", "array of string"]);
    says(&meta.str("tokenizer.ggml.model").unwrap_err().to_string(), &["u32", "string"]);
}

#[test]
fn hostile_names_are_shown_escaped() {
    let bytes = Raw::header(1, 0).tensor("a\u{202e}b\nc\x1b[31m", &[32], 99, 0).data(32, 4);
    refused(bytes, &["a\\u{202e}b\\u{a}c\\u{1b}[31m"]);
}
