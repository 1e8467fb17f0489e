//! Every quantised type against known values, bit for bit, and against bytes that mean nothing.
//!
//! `data/quant-blocks` has two files for each type: 64 blocks of random codes (`TYPE.blocks`), and the values that they
//! stand for (`TYPE.f32`, little-endian). The values come from decoders written separately in another language, whose
//! output was the same, bit for bit, as that of ggml's `to_float` functions.
#![allow(clippy::unwrap_used)] // The helpers are test code too, but clippy looks only into #[test] functions.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use strata_gguf::GgmlType;
use strata_gguf::quant::{SizeMismatch, decode, nonfinite_blocks};

const BLOCKS: usize = 64;

fn data() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/quant-blocks")
}

fn quantised() -> impl Iterator<Item = GgmlType> {
    GgmlType::ALL.iter().copied().filter(|ty| ty.block_values() > 1)
}

fn decoded(ty: GgmlType, blocks: &[u8]) -> Vec<f32> {
    let mut values = vec![0.0; blocks.len() / ty.block_bytes() * ty.block_values()];
    decode(ty, blocks, &mut values).unwrap();
    values
}

#[test]
fn every_quantised_type_has_known_values() {
    let expected: BTreeSet<String> = quantised().flat_map(|ty| [format!("{ty}.blocks"), format!("{ty}.f32")]).collect();
    let found: BTreeSet<String> =
        fs::read_dir(data()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(found, expected);
    assert_eq!(quantised().count(), 22);
}

#[test]
fn known_blocks_decode_bit_for_bit() {
    for ty in quantised() {
        let blocks = fs::read(data().join(format!("{ty}.blocks"))).unwrap();
        let known = fs::read(data().join(format!("{ty}.f32"))).unwrap();
        assert_eq!(blocks.len(), BLOCKS * ty.block_bytes(), "{ty}");
        assert_eq!(known.len(), BLOCKS * ty.block_values() * 4, "{ty}");
        let values = decoded(ty, &blocks);
        for (i, (value, known)) in values.iter().zip(known.as_chunks().0).enumerate() {
            let known = f32::from_le_bytes(*known);
            assert_eq!(value.to_bits(), known.to_bits(), "{ty}: value {i} is {value}, not {known}");
        }
        assert_eq!(nonfinite_blocks(ty, &blocks), Ok(0), "{ty}");
    }
}

#[test]
fn nothing_decodes_to_nothing() {
    for &ty in GgmlType::ALL {
        assert_eq!(decode(ty, &[], &mut []), Ok(()));
        assert_eq!(nonfinite_blocks(ty, &[]), Ok(0));
    }
}

#[test]
fn sizes_that_disagree_are_refused_in_words() {
    let ty = GgmlType::Q4_0;
    let mut out = [7.0; 64];
    let refused = decode(ty, &[0; 18], &mut out).unwrap_err();
    assert_eq!(refused, SizeMismatch { ty, bytes: 18, values: 64 });
    assert_eq!(refused.to_string(), "18 bytes of Q4_0 hold 32 values, not 64");
    let refused = decode(ty, &[0; 37], &mut out).unwrap_err();
    assert_eq!(refused.to_string(), "37 bytes are not a whole number of Q4_0 blocks, which have 18 bytes each");
    assert_eq!(out, [7.0; 64]);
    assert_eq!(nonfinite_blocks(ty, &[0; 37]).unwrap_err(), SizeMismatch { ty, bytes: 37, values: 64 });
}

#[test]
fn blocks_with_a_bad_scale_are_counted() {
    let mut blocks = [0; 34 * 20];
    for (block, scale) in [(3, half::f16::NAN), (8, half::f16::INFINITY), (19, half::f16::NEG_INFINITY)] {
        blocks[34 * block..34 * block + 2].copy_from_slice(&scale.to_le_bytes());
    }
    assert_eq!(nonfinite_blocks(GgmlType::Q8_0, &blocks), Ok(3));
    let floats: Vec<u8> =
        [1.0, f32::NAN, -0.0, f32::NEG_INFINITY, f32::MAX].iter().flat_map(|x| x.to_le_bytes()).collect();
    assert_eq!(nonfinite_blocks(GgmlType::F32, &floats), Ok(2));
    // The largest exponent: twice its power of two is beyond f32.
    let mut block = [0; 17];
    (block[0], block[1]) = (255, 0x02);
    assert_eq!(nonfinite_blocks(GgmlType::MXFP4, &block), Ok(1));
}

proptest! {
    #[test]
    fn no_bytes_and_no_lengths_panic(bytes in prop::collection::vec(any::<u8>(), 0..1024), values in 0usize..2048) {
        for &ty in GgmlType::ALL {
            let mut out = vec![0.0; values];
            let fits = bytes.len() % ty.block_bytes() == 0
                && bytes.len() / ty.block_bytes() * ty.block_values() == values;
            prop_assert_eq!(decode(ty, &bytes, &mut out).is_ok(), fits);

            let whole = &bytes[..bytes.len() / ty.block_bytes() * ty.block_bytes()];
            let values = decoded(ty, whole);
            let bad = values.chunks(ty.block_values()).filter(|block| block.iter().any(|x| !x.is_finite())).count();
            prop_assert_eq!(nonfinite_blocks(ty, whole), Ok(bad));
            prop_assert_eq!(nonfinite_blocks(ty, &bytes).is_ok(), whole.len() == bytes.len());
        }
    }

    #[test]
    fn a_block_means_the_same_wherever_it_stands(bytes in prop::collection::vec(any::<u8>(), 1024)) {
        for &ty in GgmlType::ALL {
            let whole = &bytes[..bytes.len() / ty.block_bytes() * ty.block_bytes()];
            let together = decoded(ty, whole);
            for (block, values) in whole.chunks(ty.block_bytes()).zip(together.chunks(ty.block_values())) {
                let alone = decoded(ty, block);
                prop_assert!(alone.iter().zip(values).all(|(a, b)| a.to_bits() == b.to_bits()), "{}", ty);
            }
        }
    }
}
