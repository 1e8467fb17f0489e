//! The i-quants: groups of eight values looked up in code books, with signs.
//!
//! Eight levels are handled as the bytes of one 64-bit word.

use super::{Scales, field, half};
use strata_gguf::quant::tables::{IQ1S_GRID, IQ2S_GRID, IQ2XS_GRID, IQ2XXS_GRID, IQ3S_GRID, IQ3XXS_GRID, KSIGNS};

/// One in every byte.
const ONES: u64 = 0x0101_0101_0101_0101;

/// For each sign byte a word whose byte j is 0xff where bit j makes value j negative.
static NEGATIVE: [u64; 256] = {
    let mut table = [0; 256];
    let mut signs = 0;
    while signs < 256 {
        let mut j = 0;
        while j < 8 {
            if (signs >> j) & 1 == 1 {
                table[signs] |= 0xff << (8 * j);
            }
            j += 1;
        }
        signs += 1;
    }
    table
};

/// [`NEGATIVE`] for the seven stored bits of a sign byte with even parity.
static NEGATIVE_EVEN: [u64; 128] = {
    let mut table = [0; 128];
    let mut i = 0;
    while i < 128 {
        table[i] = NEGATIVE[KSIGNS[i] as usize];
        i += 1;
    }
    table
};

/// Magnitudes, none of them zero, with signs: a negative byte is its complement plus one, which cannot carry.
#[inline(always)]
fn signed(magnitudes: u64, negative: u64) -> [i8; 8] {
    (magnitudes ^ negative).wrapping_add(negative & ONES).to_le_bytes().map(|b| b as i8)
}

/// The signs of group `l` in a word that holds four times seven of them.
#[inline(always)]
fn packed_signs(word: u32, l: usize) -> u64 {
    NEGATIVE_EVEN[((word >> (7 * (l % 4))) & 127) as usize]
}

#[inline(always)]
fn words<const N: usize>(bytes: &[u8]) -> impl Fn(usize) -> u16 + '_ {
    let bytes = field::<N>(bytes, 0);
    move |i| u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]])
}

#[inline(always)]
fn dwords<const N: usize>(bytes: &[u8; N], i: usize) -> u32 {
    u32::from_le_bytes([bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]])
}

/// The integer scales of all groups, `2 s + 1`, from 16 nibbles.
#[inline(always)]
fn odd_scales(nibbles: &[u8; 8], scales: &mut [i16; 16]) {
    for g in 0..16 {
        scales[g] = 2 * i16::from((nibbles[g / 2] >> (4 * (g % 2))) & 15) + 1;
    }
}

/// The integer scales from the top four bits of each sub-block's word.
#[inline(always)]
fn top_scales(word: impl Fn(usize) -> u32, scales: &mut [i16; 16]) {
    for sub in 0..8 {
        scales[2 * sub..2 * sub + 2].fill(2 * (word(sub) >> 28) as i16 + 1);
    }
}

/// `d * (s + 1/2) / 4`
#[inline(always)]
pub(crate) fn iq2_xxs(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    u.d = half(b, 0) * 0.125;
    let rows = field::<64>(b, 2);
    let word = |sub: usize| dwords(rows, 2 * sub + 1);
    top_scales(word, &mut u.scales);
    for (l, out) in levels.as_chunks_mut::<8>().0.iter_mut().take(32).enumerate() {
        let word = word(l / 4);
        *out = signed(IQ2XXS_GRID[usize::from(rows[l / 4 * 8 + l % 4])], packed_signs(word, l));
    }
}

/// `d * (s + 1/2) / 4`
#[inline(always)]
pub(crate) fn iq2_xs(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    u.d = half(b, 0) * 0.125;
    odd_scales(field(b, 66), &mut u.scales);
    let q = words::<64>(&b[2..]);
    for (l, out) in levels.as_chunks_mut::<8>().0.iter_mut().take(32).enumerate() {
        let q = q(l);
        *out = signed(IQ2XS_GRID[usize::from(q & 511)], NEGATIVE_EVEN[usize::from(q >> 9)]);
    }
}

/// `d * (s + 1/2) / 4`
#[inline(always)]
pub(crate) fn iq2_s(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    u.d = half(b, 0) * 0.125;
    odd_scales(field(b, 74), &mut u.scales);
    let (rows, signs, high) = (field::<32>(b, 2), field::<32>(b, 34), field::<8>(b, 66));
    for (l, out) in levels.as_chunks_mut::<8>().0.iter_mut().take(32).enumerate() {
        let high = (usize::from(high[l / 4]) >> (2 * (l % 4))) & 3;
        *out = signed(IQ2S_GRID[usize::from(rows[l]) | high << 8], NEGATIVE[usize::from(signs[l])]);
    }
}

/// Two rows of four as one word.
#[inline(always)]
fn pair(first: u32, second: u32) -> u64 {
    u64::from(first) | u64::from(second) << 32
}

/// `d * (s + 1/2) / 2`
#[inline(always)]
pub(crate) fn iq3_xxs(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    u.d = half(b, 0) * 0.25;
    let (rows, signs) = (field::<64>(b, 2), field::<32>(b, 66));
    top_scales(|sub| dwords(signs, sub), &mut u.scales);
    for (l, out) in levels.as_chunks_mut::<8>().0.iter_mut().take(32).enumerate() {
        let word = dwords(signs, l / 4);
        let row = |entry: usize| IQ3XXS_GRID[usize::from(rows[entry])];
        *out = signed(pair(row(2 * l), row(2 * l + 1)), packed_signs(word, l));
    }
}

/// `d * (2 s + 1)`
#[inline(always)]
pub(crate) fn iq3_s(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    u.d = half(b, 0);
    let (rows, ninth, signs, scales) = (field::<64>(b, 2), field::<8>(b, 66), field::<32>(b, 74), field::<4>(b, 106));
    for (g, scale) in u.scales.iter_mut().enumerate() {
        *scale = 2 * i16::from((scales[g / 4] >> (4 * (g / 2 % 2))) & 15) + 1;
    }
    // Row numbers first: this loop runs several at a time, the one that looks them up cannot.
    let mut entries = [0u16; 64];
    for (sub, entries) in entries.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        for (e, entry) in entries.iter_mut().enumerate() {
            *entry = u16::from(rows[8 * sub + e]) | (u16::from(ninth[sub]) << (8 - e)) & 256;
        }
    }
    let row = |entry: usize| IQ3S_GRID[usize::from(entries[entry] & 511)];
    for (l, out) in levels.as_chunks_mut::<8>().0.iter_mut().take(32).enumerate() {
        *out = signed(pair(row(2 * l), row(2 * l + 1)), NEGATIVE[usize::from(signs[l])]);
    }
}

/// Rows of -1, 0 and 1, shifted up or down by an eighth: in eighths.
#[inline(always)]
fn shifted(row: u64, down: bool) -> [i8; 8] {
    const TOP: u64 = 0x80 * ONES;
    let eighths = (row << 3) & (0xf8 * ONES);
    let shift = if down { 0xff * ONES } else { ONES };
    // Bytes added without carries between them: the top bit of each apart.
    (((eighths & !TOP) + (shift & !TOP)) ^ ((eighths ^ shift) & TOP)).to_le_bytes().map(|b| b as i8)
}

/// `d * (2 s + 1)` in eighths.
#[inline(always)]
pub(crate) fn iq1_s(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    u.d = half(b, 0) * 0.125;
    let (rows, high) = (field::<32>(b, 2), words::<16>(&b[34..]));
    for (l, out) in levels.as_chunks_mut::<8>().0.iter_mut().take(32).enumerate() {
        let h = high(l / 4);
        u.scales[l / 2] = 2 * ((h >> 12) & 7) as i16 + 1;
        let row = usize::from(rows[l]) | usize::from((h >> (3 * (l % 4))) & 7) << 8;
        *out = shifted(IQ1S_GRID[row], h & 0x8000 != 0);
    }
}

/// `d * (2 s + 1)` in eighths; the bits of `d` are spread over the scale words.
#[inline(always)]
pub(crate) fn iq1_m(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    let (rows, high, word) = (field::<32>(b, 0), field::<16>(b, 32), words::<8>(&b[48..]));
    let bits = (word(0) >> 12) | (word(1) >> 12) << 4 | (word(2) >> 12) << 8 | (word(3) >> 12) << 12;
    u.d = crate::dot::f16_to_f32(bits) * 0.125;
    for (l, out) in levels.as_chunks_mut::<8>().0.iter_mut().take(32).enumerate() {
        let k = l / 2;
        u.scales[k] = 2 * ((word(k / 4) >> (3 * (k % 4))) & 7) as i16 + 1;
        let n = (high[l / 2] >> (4 * (l % 2))) & 15;
        *out = shifted(IQ1S_GRID[usize::from(rows[l]) | usize::from(n & 7) << 8], n & 8 != 0);
    }
}
