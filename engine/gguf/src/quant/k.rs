//! The k-quants Q2_K to Q6_K: 256 values whose sub-blocks have small integer scales under one or two f16 scales.
//!
//! Low bits of codes are stored in *planes*. For 2-bit codes, each of 32 columns is a byte that holds the codes of four
//! values 32 apart; for nibbles, of two values 32 apart. A 16-value group lies in one plane and in 16 columns.

use super::{field, nibble, scale};

/// `scales (16), codes (64), d (2), dmin (2)`: `d * scale * code - dmin * minimum` in groups of 16, where scale and
/// minimum are the low and the high nibble of a byte.
pub(super) fn q2_k(block: &[u8; 84], y: &mut [f32; 256]) {
    let scales = field::<0, 16, _>(block);
    let codes = field::<16, 64, _>(block);
    let d = scale::<80, _>(block);
    let dmin = scale::<82, _>(block);
    for (group, y) in y.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let factor = d * f32::from(scales[group] & 15);
        let offset = dmin * f32::from(scales[group] >> 4);
        let low = two_bits(codes, group);
        for i in 0..16 {
            y[i] = factor * f32::from(low[i]) - offset;
        }
    }
}

/// `high bits (32), codes (64), scales (12), d (2)`: `d * (scale - 32) * code`, where the code is the low two bits,
/// less 4 if the high bit is clear.
pub(super) fn q3_k(block: &[u8; 110], y: &mut [f32; 256]) {
    let high = field::<0, 32, _>(block);
    let codes = field::<32, 64, _>(block);
    let low_scales = field::<96, 8, _>(block);
    let high_scales = field::<104, 4, _>(block);
    let d = scale::<108, _>(block);
    for (group, y) in y.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        // Groups 0..8 have the low nibbles, 8..16 the high ones; four groups share a byte of high bits.
        let bits = ((low_scales[group % 8] >> (4 * (group / 8))) & 15)
            | (((high_scales[group % 4] >> (2 * (group / 4))) & 3) << 4);
        let factor = d * (f32::from(bits) - 32.0);
        let low = two_bits(codes, group);
        let plane = group / 2;
        let high = &high.as_chunks::<16>().0[group % 2];
        for i in 0..16 {
            let bit = (high[i] >> plane) & 1;
            y[i] = factor * (f32::from(low[i] | (bit << 2)) - 4.0);
        }
    }
}

/// `d (2), dmin (2), scales (12), codes (128)`: `d * scale * code - dmin * minimum` in sub-blocks of 32.
pub(super) fn q4_k(block: &[u8; 144], y: &mut [f32; 256]) {
    let d = scale::<0, _>(block);
    let dmin = scale::<2, _>(block);
    let scales = field::<4, 12, _>(block);
    let codes = field::<16, 128, _>(block);
    for (sub, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (factor, offset) = scale_and_minimum(scales, sub);
        let factor = d * f32::from(factor);
        let offset = dmin * f32::from(offset);
        for c in 0..32 {
            let code = (codes[32 * (sub / 2) + c] >> (4 * (sub % 2))) & 15;
            y[c] = factor * f32::from(code) - offset;
        }
    }
}

/// `d (2), dmin (2), scales (12), fifth bits (32), codes (128)`: as Q4_K, with bit `s` of column `c` on top of the code
/// of value `c` of sub-block `s`.
pub(super) fn q5_k(block: &[u8; 176], y: &mut [f32; 256]) {
    let d = scale::<0, _>(block);
    let dmin = scale::<2, _>(block);
    let scales = field::<4, 12, _>(block);
    let fifth = field::<16, 32, _>(block);
    let codes = field::<48, 128, _>(block);
    for (sub, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (factor, offset) = scale_and_minimum(scales, sub);
        let factor = d * f32::from(factor);
        let offset = dmin * f32::from(offset);
        for c in 0..32 {
            let code = (codes[32 * (sub / 2) + c] >> (4 * (sub % 2))) & 15;
            y[c] = factor * f32::from(code | (((fifth[c] >> sub) & 1) << 4)) - offset;
        }
    }
}

/// `low nibbles (128), high bit pairs (64), scales (16, signed), d (2)`: `d * scale * (code - 32)`, a scale for 16
/// values.
pub(super) fn q6_k(block: &[u8; 210], y: &mut [f32; 256]) {
    let low = field::<0, 128, _>(block);
    let high = field::<128, 64, _>(block);
    let scales = field::<192, 16, _>(block);
    let d = scale::<208, _>(block);
    for (group, y) in y.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let factor = d * f32::from(scales[group].cast_signed());
        // Each half of the block has its own nibbles and pairs. Its four planes of pairs run along its values; of the
        // nibbles, planes 0 and 1 are the low ones of two times 32 columns, planes 2 and 3 the high ones.
        let (half, plane, columns) = (group / 8, group % 8 / 2, group % 2);
        let low = &low.as_chunks::<16>().0[4 * half + 2 * (plane % 2) + columns];
        let high = &high.as_chunks::<16>().0[2 * half + columns];
        for i in 0..16 {
            let nibble = (low[i] >> (4 * (plane / 2))) & 15;
            let pair = (high[i] >> (2 * plane)) & 3;
            y[i] = factor * (f32::from(nibble | (pair << 4)) - 32.0);
        }
    }
}

/// The 2-bit codes of a 16-value group: each half of the block has four planes over 32 columns.
fn two_bits(codes: &[u8; 64], group: usize) -> [u8; 16] {
    let (half, plane, columns) = (group / 8, group % 8 / 2, group % 2);
    codes.as_chunks().0[2 * half + columns].map(|byte| (byte >> (2 * plane)) & 3)
}

/// The 6-bit scale and minimum of sub-block `sub` of 8, as ggml's `get_scale_min_k4` reads them.
///
/// Bytes 0..4 and 4..8 are the scales and minimums of sub-blocks 0..4. Their spare upper two bits complete the nibbles
/// in bytes 8..12, low for the scale and high for the minimum, of sub-blocks 4..8.
fn scale_and_minimum(scales: &[u8; 12], sub: usize) -> (u8, u8) {
    if sub < 4 {
        (scales[sub] & 63, scales[sub + 4] & 63)
    } else {
        let both = 2 * (sub + 4);
        let low = (nibble(scales, both), nibble(scales, both + 1));
        (low.0 | ((scales[sub - 4] >> 6) << 4), low.1 | ((scales[sub] >> 6) << 4))
    }
}
