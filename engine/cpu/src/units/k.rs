//! The k-quants: 256 values with integer scales, some with minimums.

use super::{Scales, field, half};

/// The 2-bit planes that Q2_K and Q3_K share: in each half of 128, byte c holds four values 32 apart.
#[inline(always)]
fn two_bits(qs: &[u8; 64], levels: &mut [i8]) {
    for (run, levels) in levels.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (qs, plane) = (field::<32>(qs, run / 4 * 32), run % 4);
        for c in 0..32 {
            levels[c] = ((qs[c] >> (2 * plane)) & 3) as i8;
        }
    }
}

#[inline(always)]
pub(crate) fn q2_k(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    (u.d, u.d_min) = (half(b, 80), half(b, 82));
    for (g, &s) in b[..16].iter().enumerate() {
        (u.scales[g], u.mins[g]) = (i16::from(s & 15), i16::from(s >> 4));
    }
    two_bits(field(b, 16), levels);
}

/// A third bit from a mask (absent means -4), and 6-bit scales offset by 32.
#[inline(always)]
pub(crate) fn q3_k(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    u.d = half(b, 108);
    let s = &b[96..108];
    for g in 0..16 {
        let low = if g < 8 { s[g] & 15 } else { s[g - 8] >> 4 };
        let high = (s[8 + g % 4] >> (2 * (g / 4))) & 3;
        u.scales[g] = i16::from(low | high << 4) - 32;
    }
    two_bits(field(b, 32), levels);
    let mask = field::<32>(b, 0);
    for (run, levels) in levels.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for c in 0..32 {
            levels[c] -= 4 - (((mask[c] >> run) & 1) << 2) as i8;
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
    for (qs, levels) in qs.as_chunks::<32>().0.iter().zip(levels.as_chunks_mut::<64>().0) {
        for c in 0..32 {
            levels[c] = (qs[c] & 15) as i8;
        }
        for c in 0..32 {
            levels[32 + c] = (qs[c] >> 4) as i8;
        }
    }
}

#[inline(always)]
pub(crate) fn q4_k(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    (u.d, u.d_min) = (half(b, 0), half(b, 2));
    six_bit_scales(&b[4..16], u);
    four_bits(&b[16..144], levels);
}

/// Q4_K with a fifth bit: bit j of byte c belongs to value c of sub-block j.
#[inline(always)]
pub(crate) fn q5_k(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    (u.d, u.d_min) = (half(b, 0), half(b, 2));
    six_bit_scales(&b[4..16], u);
    four_bits(&b[48..176], levels);
    let fifth = field::<32>(b, 16);
    for (run, levels) in levels.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for c in 0..32 {
            levels[c] |= (((fifth[c] >> run) & 1) << 4) as i8;
        }
    }
}

/// Six bits: nibbles in four planes of 32 per half of 128, two more bits from a second array, offset by 32.
#[inline(always)]
pub(crate) fn q6_k(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    u.d = half(b, 208);
    for (scale, &s) in u.scales.iter_mut().zip(&b[192..208]) {
        *scale = i16::from(s as i8);
    }
    for (run, levels) in levels.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (half, plane) = (run / 4, run % 4);
        let (ql, qh) = (field::<32>(b, 64 * half + 32 * (plane % 2)), field::<32>(b, 128 + 32 * half));
        for c in 0..32 {
            let low = (ql[c] >> (4 * (plane / 2))) & 15;
            let high = (qh[c] >> (2 * plane)) & 3;
            levels[c] = (low | high << 4) as i8 - 32;
        }
    }
}
