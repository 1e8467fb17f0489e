//! The i-quants: groups of eight values looked up in code books, with signs.

use super::{Scales, dword_at, half_at, nibble, word_at};
use strata_gguf::quant::tables::{IQ1S_GRID, IQ2S_GRID, IQ2XS_GRID, IQ2XXS_GRID, IQ3S_GRID, IQ3XXS_GRID, KSIGNS};

/// Magnitudes with signs: bit j of the sign byte makes value j negative.
#[inline(always)]
fn signed(levels: &mut [i8], group: usize, magnitudes: [u8; 8], signs: u8) {
    for (j, m) in magnitudes.into_iter().enumerate() {
        levels[8 * group + j] = if (signs >> j) & 1 == 1 { -(m as i8) } else { m as i8 };
    }
}

/// The signs of group `l` in a word that holds four times seven of them.
#[inline(always)]
fn packed_signs(word: u32, l: usize) -> u8 {
    KSIGNS[((word >> (7 * (l % 4))) & 127) as usize]
}

/// `d * (s + 1/2) / 4`
#[inline(always)]
pub(crate) fn iq2_xxs(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    u.d = half_at(b, 0) * 0.125;
    for l in 0..32 {
        let sub = 2 + 8 * (l / 4);
        let word = dword_at(b, sub + 4);
        u.scales[l / 2] = 2 * (word >> 28) as i16 + 1;
        let row = IQ2XXS_GRID[usize::from(b[sub + l % 4])];
        signed(levels, l, row.to_le_bytes(), packed_signs(word, l));
    }
}

/// `d * (s + 1/2) / 4`
#[inline(always)]
pub(crate) fn iq2_xs(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    u.d = half_at(b, 0) * 0.125;
    for l in 0..32 {
        u.scales[l / 2] = 2 * i16::from(nibble(&b[66..74], l / 2)) + 1;
        let q = word_at(b, 2 + 2 * l);
        let row = IQ2XS_GRID[usize::from(q & 511)];
        signed(levels, l, row.to_le_bytes(), KSIGNS[usize::from(q >> 9)]);
    }
}

/// `d * (s + 1/2) / 4`
#[inline(always)]
pub(crate) fn iq2_s(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    u.d = half_at(b, 0) * 0.125;
    for l in 0..32 {
        u.scales[l / 2] = 2 * i16::from(nibble(&b[74..82], l / 2)) + 1;
        let high = (usize::from(b[66 + l / 4]) >> (2 * (l % 4))) & 3;
        let row = IQ2S_GRID[usize::from(b[2 + l]) | high << 8];
        signed(levels, l, row.to_le_bytes(), b[34 + l]);
    }
}

/// Two rows of four as eight bytes.
#[inline(always)]
fn pair(first: u32, second: u32) -> [u8; 8] {
    (u64::from(first) | u64::from(second) << 32).to_le_bytes()
}

/// `d * (s + 1/2) / 2`
#[inline(always)]
pub(crate) fn iq3_xxs(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    u.d = half_at(b, 0) * 0.25;
    for l in 0..32 {
        let word = dword_at(b, 66 + 4 * (l / 4));
        u.scales[l / 2] = 2 * (word >> 28) as i16 + 1;
        let row = |entry: usize| IQ3XXS_GRID[usize::from(b[2 + entry])];
        signed(levels, l, pair(row(2 * l), row(2 * l + 1)), packed_signs(word, l));
    }
}

/// `d * (2 s + 1)`
#[inline(always)]
pub(crate) fn iq3_s(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    u.d = half_at(b, 0);
    for l in 0..32 {
        u.scales[l / 2] = 2 * i16::from(nibble(&b[106..110], l / 4)) + 1;
        let ninth = usize::from(b[66 + l / 4]);
        let row = |entry: usize| IQ3S_GRID[usize::from(b[2 + entry]) | ((ninth >> (entry % 8)) & 1) << 8];
        signed(levels, l, pair(row(2 * l), row(2 * l + 1)), b[74 + l]);
    }
}

/// Rows of -1, 0 and 1, shifted up or down by an eighth: in eighths.
#[inline(always)]
fn shifted(levels: &mut [i8], l: usize, row: usize, down: bool) {
    let shift = if down { -1 } else { 1 };
    for (level, value) in levels[8 * l..8 * l + 8].iter_mut().zip(IQ1S_GRID[row].to_le_bytes()) {
        *level = 8 * value as i8 + shift;
    }
}

/// `d * (2 s + 1)` in eighths.
#[inline(always)]
pub(crate) fn iq1_s(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    u.d = half_at(b, 0) * 0.125;
    for l in 0..32 {
        let h = word_at(b, 34 + 2 * (l / 4));
        u.scales[l / 2] = 2 * ((h >> 12) & 7) as i16 + 1;
        let row = usize::from(b[2 + l]) | usize::from((h >> (3 * (l % 4))) & 7) << 8;
        shifted(levels, l, row, h & 0x8000 != 0);
    }
}

/// `d * (2 s + 1)` in eighths; the bits of `d` are spread over the scale words.
#[inline(always)]
pub(crate) fn iq1_m(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    let word = |i: usize| word_at(b, 48 + 2 * i);
    let bits = (word(0) >> 12) | (word(1) >> 12) << 4 | (word(2) >> 12) << 8 | (word(3) >> 12) << 12;
    u.d = crate::dot::f16_to_f32(bits) * 0.125;
    for l in 0..32 {
        let k = l / 2;
        u.scales[k] = 2 * ((word(k / 4) >> (3 * (k % 4))) & 7) as i16 + 1;
        let n = nibble(&b[32..48], l);
        shifted(levels, l, usize::from(b[l]) | usize::from(n & 7) << 8, n & 8 != 0);
    }
}
