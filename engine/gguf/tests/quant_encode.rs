//! Encoders: how far a value may move, and what must not move at all.
#![allow(clippy::unwrap_used)] // The helpers are test code too, but clippy looks only into #[test] functions.

use proptest::prelude::*;
use strata_gguf::GgmlType;
use strata_gguf::quant::{EncodeError, can_encode, decode, encode};

/// An f16 has 11 bits of significand: rounding moves a normal one by at most this part of it.
const F16_ROUNDING: f32 = 1.0 / 2048.0;

fn decoded(ty: GgmlType, blocks: &[u8]) -> Vec<f32> {
    let mut values = vec![0.0; blocks.len() / ty.block_bytes() * ty.block_values()];
    decode(ty, blocks, &mut values).unwrap();
    values
}

fn through(ty: GgmlType, values: &[f32]) -> Vec<f32> {
    decoded(ty, &encode(ty, values).unwrap())
}

fn most(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |most, x| most.max(x.abs()))
}

/// Three blocks of 64 values, of a magnitude that keeps scales in the normal range of f16.
fn rows() -> impl Strategy<Value = Vec<f32>> {
    (0.1f32..1000.0).prop_flat_map(|size| prop::collection::vec(-size..size, 192))
}

#[test]
fn types_are_encoded_as_promised() {
    let zeros = [0.0; 256];
    let can: Vec<GgmlType> = GgmlType::ALL.iter().copied().filter(|&ty| can_encode(ty)).collect();
    use GgmlType::{BF16, F16, F32, Q2_0, Q4_0, Q8_0};
    assert_eq!(can, [F32, F16, BF16, Q4_0, Q8_0, Q2_0]);
    for &ty in GgmlType::ALL {
        match encode(ty, &zeros) {
            Ok(blocks) => {
                assert!(can_encode(ty));
                assert_eq!(decoded(ty, &blocks), zeros);
            }
            Err(refused) => {
                assert!(!can_encode(ty));
                assert_eq!(refused, EncodeError::Unsupported { ty });
            }
        }
    }
}

#[test]
fn what_cannot_be_held_is_refused_in_words() {
    let ty = GgmlType::Q8_0;
    let refused = encode(ty, &[0.0; 33]).unwrap_err();
    assert_eq!(refused.to_string(), "33 values are not a whole number of Q8_0 blocks, which have 32 values each");
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
        for ty in [GgmlType::Q8_0, GgmlType::Q4_0, GgmlType::Q2_0] {
            let mut values = [1.0; 64];
            values[40] = bad;
            let refused = encode(ty, &values).unwrap_err();
            assert!(matches!(refused, EncodeError::OutOfRange { index: 40, .. }), "{refused}");
        }
    }
    for (ty, limit) in [(GgmlType::Q8_0, 127.0), (GgmlType::Q4_0, 8.0), (GgmlType::Q2_0, 2.0)] {
        let largest = (65520.0f32 * limit).next_down();
        assert!(through(ty, &[largest; 64]).iter().all(|x| x.is_finite()), "{ty}");
        assert!(encode(ty, &[largest.next_up(); 64]).is_err(), "{ty}");
    }
}

#[test]
fn magnitudes_that_no_scale_can_express_become_zero() {
    for ty in [GgmlType::Q8_0, GgmlType::Q4_0, GgmlType::Q2_0] {
        for tiny in [f32::from_bits(1), f32::MIN_POSITIVE, 1e-12] {
            assert_eq!(through(ty, &[tiny; 64]), [0.0; 64], "{ty}");
        }
    }
}

#[test]
fn a_bfloat_rounds_to_nearest_even_and_keeps_nan() {
    let rounded = |bits: u32| {
        let block = encode(GgmlType::BF16, &[f32::from_bits(bits)]).unwrap();
        u16::from_le_bytes([block[0], block[1]])
    };
    assert_eq!(rounded(0x3f80_7fff), 0x3f80);
    assert_eq!(rounded(0x3f80_8000), 0x3f80);
    assert_eq!(rounded(0x3f80_8001), 0x3f81);
    assert_eq!(rounded(0x3f81_8000), 0x3f82);
    assert_eq!(rounded(0x7f7f_ffff), 0x7f80);
    assert_eq!(rounded(0x7f80_0000), 0x7f80);
    // A NaN whose payload is cut off must not become an infinity.
    assert_eq!(rounded(0x7f80_0001), 0x7fc0);
    assert_eq!(rounded(0xffa0_0001), 0xffe0);
}

#[test]
fn every_half_and_bfloat_survives() {
    for ty in [GgmlType::F16, GgmlType::BF16] {
        for bits in 0..=u16::MAX {
            let block = bits.to_le_bytes();
            let value = decoded(ty, &block);
            let again = encode(ty, &value).unwrap();
            if value[0].is_nan() {
                assert!(decoded(ty, &again)[0].is_nan(), "{ty} {bits:#06x}");
            } else {
                assert_eq!(again, block, "{ty} {bits:#06x}");
            }
        }
    }
}

#[test]
fn known_rows_have_known_codes() {
    // d = 1: ties go away from zero in Q8_0, and half a step up from the code's own value in Q4_0.
    let mut values = [0.0; 32];
    values[..6].copy_from_slice(&[-127.0, 0.5, -0.5, 1.5, 2.5, 126.4]);
    let block = encode(GgmlType::Q8_0, &values).unwrap();
    assert_eq!(block[..8], [0x00, 0x3c, (-127i8) as u8, 1, (-1i8) as u8, 2, 3, 126]);

    let mut values = [0.0; 32];
    values[..5].copy_from_slice(&[-8.0, 0.5, -0.5, 7.0, 7.9]);
    let block = encode(GgmlType::Q4_0, &values).unwrap();
    assert_eq!(block[..7], [0x00, 0x3c, 0x80, 0x89, 0x88, 0x8f, 0x8f]);

    // Negative twos need a negative scale, since 2 is the level of largest magnitude.
    let mut values = [0.0; 64];
    values[..4].copy_from_slice(&[-2.0, 1.0, 0.0, -1.0]);
    let block = encode(GgmlType::Q2_0, &values).unwrap();
    assert_eq!(block[..4], [0x00, 0xbc, 0b10_01_00_11, 0b01_01_01_01]);
}

proptest! {
    #[test]
    fn floats_are_kept(bits in prop::collection::vec(any::<u32>(), 64)) {
        let values: Vec<f32> = bits.iter().copied().map(f32::from_bits).collect();
        let kept: Vec<u32> = through(GgmlType::F32, &values).iter().map(|x| x.to_bits()).collect();
        prop_assert_eq!(kept, bits);
    }

    #[test]
    fn half_precision_moves_by_half_a_step(values in rows()) {
        for (ty, part) in [(GgmlType::F16, F16_ROUNDING), (GgmlType::BF16, 1.0 / 256.0)] {
            for (x, y) in values.iter().zip(through(ty, &values)) {
                // 2^-25 is half the step of subnormal halves.
                prop_assert!((x - y).abs() <= (x.abs() * part).max(f32::powi(2.0, -25)), "{} {} {}", ty, x, y);
            }
        }
    }

    #[test]
    fn q8_0_moves_by_half_a_step(values in rows()) {
        let out = through(GgmlType::Q8_0, &values);
        for (x, y) in values.chunks(32).zip(out.chunks(32)) {
            let d = most(x) / 127.0;
            // Half a step, and the rounding of the scale times the largest code.
            let bound = d * (0.5 + 127.0 * F16_ROUNDING) * 1.001;
            for (x, y) in x.iter().zip(y) {
                prop_assert!((x - y).abs() <= bound, "{} {} {}", x, y, d);
            }
        }
    }

    #[test]
    fn q4_0_moves_by_half_a_step_or_one_at_its_short_end(values in rows()) {
        let out = through(GgmlType::Q4_0, &values);
        for (x, y) in values.chunks(32).zip(out.chunks(32)) {
            let step = most(x) / 8.0;
            let sign = if x.iter().any(|v| *v == most(x)) { 1.0 } else { -1.0 };
            for (x, y) in x.iter().zip(y) {
                // Codes run from -8 to 7: the other sign's values beyond 7.5 steps are cut off.
                let half_steps = if -x * sign > 7.4 * step { 1.0 } else { 0.5 };
                prop_assert!((x - y).abs() <= step * (half_steps + 8.0 * F16_ROUNDING) * 1.001, "{} {} {}", x, y, step);
            }
        }
    }

    #[test]
    fn q2_0_is_no_worse_than_its_plain_scales(values in rows()) {
        let out = through(GgmlType::Q2_0, &values);
        let error = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(x, y)| f64::from(x - y).powi(2)).sum::<f64>();
        for (x, y) in values.chunks(64).zip(out.chunks(64)) {
            for d in [most(x), -most(x), most(x) / 2.0, -most(x) / 2.0] {
                let d = half::f16::from_f32(d).to_f32();
                let plain: Vec<f32> = x.iter().map(|x| d * (x / d).round().clamp(-1.0, 2.0)).collect();
                prop_assert!(error(x, y) <= error(x, &plain) * 1.000_001);
            }
        }
    }

    #[test]
    fn encoding_twice_changes_nothing(values in rows(), shrink in 0i32..24) {
        let values: Vec<f32> = values.iter().map(|x| x * f32::powi(2.0, -shrink)).collect();
        for ty in [GgmlType::F16, GgmlType::BF16, GgmlType::Q8_0, GgmlType::Q4_0, GgmlType::Q2_0] {
            let once = through(ty, &values);
            prop_assert_eq!(&through(ty, &once), &once, "{}", ty);
        }
    }

    #[test]
    fn any_q2_0_block_is_held_exactly(
        d in -60000.0f32..60000.0,
        shrink in 0i32..30,
        codes in prop::array::uniform16(any::<u8>()),
    ) {
        let d = half::f16::from_f32(d * f32::powi(2.0, -shrink)).to_le_bytes();
        let block: Vec<u8> = d.into_iter().chain(codes).collect();
        let values = decoded(GgmlType::Q2_0, &block);
        prop_assert_eq!(through(GgmlType::Q2_0, &values), values);
    }

    #[test]
    fn any_floats_encode_or_are_refused(bits in prop::collection::vec(any::<u32>(), 0..130)) {
        let values: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
        for &ty in GgmlType::ALL {
            if let Ok(blocks) = encode(ty, &values) {
                prop_assert_eq!(decoded(ty, &blocks).len(), values.len());
            }
        }
    }
}
