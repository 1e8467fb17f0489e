//! F32, F16 and BF16: no blocks, one value at a time.

pub(super) fn f32(block: &[u8; 4], y: &mut [f32; 1]) {
    y[0] = f32::from_le_bytes(*block);
}

pub(super) fn f16(block: &[u8; 2], y: &mut [f32; 1]) {
    y[0] = half(u16::from_le_bytes(*block));
}

/// BF16 is the upper half of an f32; like ggml's `ggml_compute_bf16_to_fp32`, this keeps even a signalling NaN as is.
pub(super) fn bf16(block: &[u8; 2], y: &mut [f32; 1]) {
    y[0] = f32::from_bits(u32::from(u16::from_le_bytes(*block)) << 16);
}

/// The value of an IEEE 754 half; NaN comes out quiet, with its payload.
///
/// Written as selections between three cheap results instead of calls into a library, so that a row of halves becomes
/// vector code. Subnormal halves are converted as integers: as subnormal floats they would be slow on many CPUs, and
/// block scales of small weights are often that small.
pub(super) fn half(bits: u16) -> f32 {
    /// 2^-24, the smallest half above zero.
    const UNIT: f32 = 1.0 / 16_777_216.0;
    /// The difference between the exponent biases of f32 and f16, 127 - 15, in the exponent field of an f32.
    const REBIAS: u32 = 112 << 23;
    const INFINITY: u32 = 0x7f80_0000;
    const QUIET: u32 = 1 << 22;

    let sign = u32::from(bits & 0x8000) << 16;
    let rest = u32::from(bits & 0x7fff);
    let shifted = rest << 13;
    let magnitude = if rest < 0x0400 {
        (rest as f32 * UNIT).to_bits()
    } else if rest < 0x7c00 {
        shifted + REBIAS
    } else {
        shifted | INFINITY | if rest > 0x7c00 { QUIET } else { 0 }
    };
    f32::from_bits(sign | magnitude)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_is_as_the_half_crate_has_it() {
        for bits in 0..=u16::MAX {
            let mut y = [0.0];
            f16(&bits.to_le_bytes(), &mut y);
            assert_eq!(y[0].to_bits(), half::f16::from_bits(bits).to_f32().to_bits(), "{bits:#06x}");
        }
    }

    #[test]
    fn every_bfloat_is_the_upper_half_of_a_float() {
        for bits in 0..=u16::MAX {
            let mut y = [0.0];
            bf16(&bits.to_le_bytes(), &mut y);
            assert_eq!(y[0].to_bits(), u32::from(bits) << 16, "{bits:#06x}");
            let theirs = half::bf16::from_bits(bits).to_f32();
            assert!(y[0] == theirs || (y[0].is_nan() && theirs.is_nan()), "{bits:#06x}");
        }
    }

    #[test]
    fn a_float_keeps_its_bits() {
        for bits in [0, 1, 0x8000_0000, 0x3f80_0000, 0x7f80_0000, 0x7fc0_0001, 0xffff_ffff] {
            let mut y = [0.0];
            f32(&u32::to_le_bytes(bits), &mut y);
            assert_eq!(y[0].to_bits(), bits);
        }
    }
}
