//! MXFP4 and NVFP4: 4-bit floats (E2M1) under an 8-bit float scale.
//!
//! The table of values is doubled to be integers, so the scales here are half of those stored.

use super::field;
use super::tables::KVALUES_FP4;

/// `exponent (1), codes (16)`. Low nibbles are values 0..16, high nibbles values 16..32.
pub(super) fn mxfp4(block: &[u8; 17], y: &mut [f32; 32]) {
    let factor = half_of_e8m0(block[0]);
    let codes = field::<1, 16, _>(block);
    for i in 0..16 {
        y[i] = factor * value(codes[i] & 15);
        y[i + 16] = factor * value(codes[i] >> 4);
    }
}

/// `scales (4), codes (32)`. A scale serves 16 values; of their eight code bytes the low nibbles are values 0..8, the
/// high nibbles values 8..16.
pub(super) fn nvfp4(block: &[u8; 36], y: &mut [f32; 64]) {
    let scales = field::<0, 4, _>(block);
    let codes = field::<4, 32, _>(block).as_chunks::<8>().0;
    for ((y, codes), scale) in y.as_chunks_mut::<16>().0.iter_mut().zip(codes).zip(scales) {
        let factor = half_of_ue4m3(*scale);
        for i in 0..8 {
            y[i] = factor * value(codes[i] & 15);
            y[i + 8] = factor * value(codes[i] >> 4);
        }
    }
}

fn value(code: u8) -> f32 {
    f32::from(KVALUES_FP4[usize::from(code)])
}

/// `2^(e - 128)`, half of the E8M0 number `e`. ggml: `ggml_e8m0_to_fp32_half`.
///
/// Like there, 255 is a power of two, although the format's authors (OCP Microscaling Formats 1.0) made it NaN.
fn half_of_e8m0(e: u8) -> f32 {
    // The two smallest are subnormal: one bit in the significand instead of an exponent.
    f32::from_bits(if e < 2 { 1 << (21 + u32::from(e)) } else { (u32::from(e) - 1) << 23 })
}

/// Half of an unsigned E4M3 number: four bits of exponent with bias 7, three of fraction. ggml: `ggml_ue4m3_to_fp32`.
///
/// Like there, 0x7f (NaN in E4M3) is zero, and the upper bit of any other code is ignored.
fn half_of_ue4m3(code: u8) -> f32 {
    let exponent = u32::from(code >> 3) & 15;
    let fraction = u32::from(code & 7);
    if code == 0x7f {
        0.0
    } else if exponent == 0 {
        fraction as f32 / 1024.0
    } else {
        f32::from_bits(((exponent + 127 - 7 - 1) << 23) | (fraction << 20))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e8m0_is_a_power_of_two() {
        for e in 0..=255 {
            assert_eq!(f64::from(half_of_e8m0(e)), 2f64.powi(i32::from(e) - 128), "{e}");
        }
    }

    #[test]
    fn ue4m3_follows_its_definition() {
        for code in 0..=255u8 {
            let (exponent, fraction) = (i32::from(code >> 3) & 15, f64::from(code & 7) / 8.0);
            let value = match code {
                0x7f => 0.0,
                _ if exponent == 0 => fraction * 2f64.powi(-6),
                _ => (1.0 + fraction) * 2f64.powi(exponent - 7),
            };
            assert_eq!(f64::from(half_of_ue4m3(code)), value / 2.0, "{code:#04x}");
        }
    }
}
