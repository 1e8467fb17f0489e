//! The k-quants: 256 values with integer scales, some with minimums.

use super::{Scales, half_at};

/// The 2-bit planes that Q2_K and Q3_K share: in each half of 128, byte c holds four values 32 apart.
#[inline(always)]
fn two_bits(qs: &[u8], levels: &mut [i8]) {
    for half in 0..2 {
        for plane in 0..4 {
            for c in 0..32 {
                levels[128 * half + 32 * plane + c] = ((qs[32 * half + c] >> (2 * plane)) & 3) as i8;
            }
        }
    }
}

#[inline(always)]
pub(crate) fn q2_k(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    (u.d, u.d_min) = (half_at(b, 80), half_at(b, 82));
    for (g, &s) in b[..16].iter().enumerate() {
        (u.scales[g], u.mins[g]) = (i16::from(s & 15), i16::from(s >> 4));
    }
    two_bits(&b[16..80], levels);
}

/// A third bit from a mask (absent means -4), and 6-bit scales offset by 32.
#[inline(always)]
pub(crate) fn q3_k(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    u.d = half_at(b, 108);
    let s = &b[96..108];
    for g in 0..16 {
        let low = if g < 8 { s[g] & 15 } else { s[g - 8] >> 4 };
        let high = (s[8 + g % 4] >> (2 * (g / 4))) & 3;
        u.scales[g] = i16::from(low | high << 4) - 32;
    }
    two_bits(&b[32..96], levels);
    for (i, level) in levels.iter_mut().enumerate() {
        if (b[i % 32] >> (i / 32)) & 1 == 0 {
            *level -= 4;
        }
    }
}

/// The 6-bit scales and minimums of eight sub-blocks, packed into twelve bytes.
#[inline(always)]
fn six_bit_scales(s: &[u8], u: &mut Scales) {
    for j in 0..8 {
        let (scale, min) = if j < 4 {
            (s[j] & 63, s[j + 4] & 63)
        } else {
            ((s[j + 4] & 15) | (s[j - 4] >> 6) << 4, (s[j + 4] >> 4) | (s[j] >> 6) << 4)
        };
        u.scales[2 * j..2 * j + 2].fill(scale.into());
        u.mins[2 * j..2 * j + 2].fill(min.into());
    }
}

/// Sub-blocks 2m and 2m + 1 are the low and high nibbles of the same 32 bytes.
#[inline(always)]
fn four_bits(qs: &[u8], levels: &mut [i8]) {
    for (qs, levels) in qs.chunks_exact(32).zip(levels.chunks_exact_mut(64)) {
        for (c, &q) in qs.iter().enumerate() {
            (levels[c], levels[32 + c]) = ((q & 15) as i8, (q >> 4) as i8);
        }
    }
}

#[inline(always)]
pub(crate) fn q4_k(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    (u.d, u.d_min) = (half_at(b, 0), half_at(b, 2));
    six_bit_scales(&b[4..16], u);
    four_bits(&b[16..144], levels);
}

/// Q4_K with a fifth bit: bit j of byte c belongs to value c of sub-block j.
#[inline(always)]
pub(crate) fn q5_k(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    (u.d, u.d_min) = (half_at(b, 0), half_at(b, 2));
    six_bit_scales(&b[4..16], u);
    four_bits(&b[48..176], levels);
    for (i, level) in levels.iter_mut().enumerate() {
        *level |= (((b[16 + i % 32] >> (i / 32)) & 1) << 4) as i8;
    }
}

/// Six bits: nibbles in four planes of 32 per half of 128, two more bits from a second array, offset by 32.
#[inline(always)]
pub(crate) fn q6_k(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    u.d = half_at(b, 208);
    for (scale, &s) in u.scales.iter_mut().zip(&b[192..208]) {
        *scale = i16::from(s as i8);
    }
    for half in 0..2 {
        let (ql, qh) = (&b[64 * half..][..64], &b[128 + 32 * half..][..32]);
        for plane in 0..4 {
            for c in 0..32 {
                let low = (ql[32 * (plane % 2) + c] >> (4 * (plane / 2))) & 15;
                let high = (qh[c] >> (2 * plane)) & 3;
                levels[128 * half + 32 * plane + c] = (low | high << 4) as i8 - 32;
            }
        }
    }
}
