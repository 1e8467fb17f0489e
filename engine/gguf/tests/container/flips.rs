//! Damaged files open or are refused with a sentence; nothing panics.

use crate::small;
use proptest::prelude::*;
use strata_gguf::{ArrayValue, Gguf, Value};

fn model() -> Vec<u8> {
    let mut w = small();
    w.meta("tokenizer.ggml.tokens", Value::Array(ArrayValue::String(vec!["a".into(), "Ġb".into()]))).unwrap();
    w.meta("qwen4exp.ple.head_offsets", Value::Array(ArrayValue::U64(vec![0, 20_000_003]))).unwrap();
    w.meta("nested", Value::Array(ArrayValue::Array(vec![ArrayValue::Bool(vec![true])]))).unwrap();
    w.meta("qwen4exp.rope.freq_base", Value::F32(1e7)).unwrap();
    w.alignment(64).unwrap();
    w.to_bytes().unwrap()
}

fn touch(bytes: Vec<u8>) {
    match Gguf::from_bytes("flipped.gguf", bytes) {
        Ok(model) => {
            for (key, value) in model.meta().iter() {
                assert!(!key.is_empty() && !value.type_name().is_empty());
            }
            for t in model.tensors() {
                assert_eq!(t.data().len() as u64, t.bytes());
                let in_rows: u64 = (0..t.rows()).map(|i| t.row(i).unwrap().len() as u64).sum();
                assert_eq!(in_rows, t.bytes());
                t.prefetch_rows(0, t.rows());
            }
        }
        Err(e) => {
            let text = e.to_string();
            assert!(text.starts_with("flipped.gguf: ") && !text.contains('\n') && text.len() > 30, "{text}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bytes_never_panic(flips in prop::collection::vec((any::<prop::sample::Index>(), 1..=255u8), 1..=8)) {
        let mut bytes = model();
        let header = bytes.len() - 2500;
        for (at, with) in flips {
            bytes[at.index(header)] ^= with;
        }
        touch(bytes);
    }

    #[test]
    fn cut_and_spliced_files_never_panic(cut in any::<prop::sample::Index>(), tail in prop::collection::vec(any::<u8>(), 0..64)) {
        let mut bytes = model();
        bytes.truncate(cut.index(bytes.len()));
        bytes.extend(tail);
        touch(bytes);
    }
}

#[test]
fn every_single_bit_of_the_header_may_flip() {
    let whole = model();
    for at in 0..whole.len() - 2500 {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            touch(bytes);
        }
    }
}
