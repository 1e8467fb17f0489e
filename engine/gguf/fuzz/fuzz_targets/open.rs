//! Any bytes open as a model or are refused: no panic, no overflow, no allocation that the bytes do not pay for.
//!
//! From `engine/gguf`: `cargo run --manifest-path fuzz/Cargo.toml --bin seeds` writes the seeds, then
//! `cargo +nightly fuzz run open -- -max_total_time=60 -rss_limit_mb=512`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use strata_gguf::{Gguf, Writer};

fuzz_target!(|bytes: &[u8]| {
    let model = match Gguf::from_bytes("fuzzed.gguf", bytes.to_vec()) {
        Ok(model) => model,
        Err(e) => {
            assert!(!e.to_string().contains('\n'));
            return;
        }
    };
    for (key, value) in model.meta().iter() {
        assert!(!key.is_empty() && !value.type_name().is_empty());
        let _ = value.as_u64();
    }
    for t in model.tensors() {
        assert_eq!(t.data().len() as u64, t.bytes());
        for row in (0..t.rows()).take(64) {
            assert_eq!(t.row(row).map(|r| r.len() as u64), Some(t.row_bytes()));
        }
        assert!(t.row(t.rows()).is_none());
        t.prefetch_rows(0, u64::MAX);
    }
    // What opened can be written again and opens to the same.
    let copy = Writer::copy_of(&model).and_then(|w| w.to_bytes()).and_then(|b| Gguf::from_bytes("copy.gguf", b));
    let copy = copy.expect("a model that opened survives a copy");
    assert!(model.tensors().iter().zip(copy.tensors()).all(|(a, b)| a.name() == b.name() && a.data() == b.data()));
});
