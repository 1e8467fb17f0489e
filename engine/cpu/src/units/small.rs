//! Types of 16 to 64 values under one float scale, and IQ4_XS, which shares their table.

use super::{Scales, field, half};
use strata_gguf::quant::tables::{KVALUES_FP4, KVALUES_IQ4NL};

/// Sixteen bytes of nibbles: low ones are values 0 to 15, high ones 16 to 31.
#[inline(always)]
fn nibbles<const N: usize>(bytes: &[u8; N], levels: &mut [i8], level: impl Fn(u8, usize) -> i8) {
    let (low, high) = levels.split_at_mut(N);
    for (i, (b, l)) in bytes.iter().zip(low).enumerate() {
        *l = level(b & 15, i);
    }
    for (i, (b, l)) in bytes.iter().zip(high).enumerate() {
        *l = level(b >> 4, N + i);
    }
}

#[inline(always)]
pub(crate) fn q8_0(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    u.d = half(b, 0);
    for (level, &byte) in levels.iter_mut().zip(field::<32>(b, 2)) {
        *level = byte as i8;
    }
}

#[inline(always)]
pub(crate) fn q4_0(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    u.d = half(b, 0);
    nibbles(field::<16>(b, 2), levels, |n, _| n as i8 - 8);
}

/// `d * level + m`: the minimum is subtracted, so its scale is `-m` over the whole unit.
#[inline(always)]
fn d_and_m(b: &[u8], u: &mut Scales) {
    (u.d, u.d_min) = (half(b, 0), -half(b, 2));
    u.mins[..2].fill(1);
}

#[inline(always)]
pub(crate) fn q4_1(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    d_and_m(b, u);
    nibbles(field::<16>(b, 4), levels, |n, _| n as i8);
}

/// Nibbles with a fifth bit from a 32-bit word.
#[inline(always)]
fn five_bits(b: &[u8], at: usize, levels: &mut [i8], offset: i8) {
    let fifth = u32::from_le_bytes(*field(b, at));
    nibbles(field::<16>(b, at + 4), levels, |n, i| (n | (((fifth >> i) & 1) as u8) << 4) as i8 - offset);
}

#[inline(always)]
pub(crate) fn q5_0(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    u.d = half(b, 0);
    five_bits(b, 2, levels, 16);
}

#[inline(always)]
pub(crate) fn q5_1(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    d_and_m(b, u);
    five_bits(b, 4, levels, 0);
}

#[inline(always)]
pub(crate) fn iq4_nl(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    u.d = half(b, 0);
    nibbles(field::<16>(b, 2), levels, |n, _| KVALUES_IQ4NL[usize::from(n)]);
}

/// Eight sub-blocks of 32 with 6-bit scales, offset by 32.
#[inline(always)]
pub(crate) fn iq4_xs_scales(b: &[u8], u: &mut Scales) {
    u.d = half(b, 0);
    let high = u16::from_le_bytes(*field(b, 2));
    for sub in 0..8 {
        let scale = i16::from((b[4 + sub / 2] >> (4 * (sub % 2))) & 15) | (((high >> (2 * sub)) & 3) << 4) as i16;
        u.scales[2 * sub..2 * sub + 2].fill(scale - 32);
    }
}

#[inline(always)]
pub(crate) fn iq4_xs(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    iq4_xs_scales(b, u);
    for (sub, levels) in levels.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        nibbles(field::<16>(b, 8 + 16 * sub), levels, |n, _| KVALUES_IQ4NL[usize::from(n)]);
    }
}

/// `2^(e - 128)`, half of what the exponent says since the table is doubled; subnormal for the two smallest.
#[inline(always)]
pub(crate) fn half_power(e: u8) -> f32 {
    let e = u32::from(e);
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (e - 1) << 23 })
}

#[inline(always)]
pub(crate) fn mxfp4(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    u.d = half_power(b[0]);
    nibbles(field::<16>(b, 1), levels, |n, _| KVALUES_FP4[usize::from(n)]);
}

/// Four runs of 16 with an unsigned 8-bit float each (4 bits of exponent, 3 of mantissa); the table is doubled.
#[inline(always)]
pub(crate) fn nvfp4(b: &[u8], run: usize, levels: &mut [i8], u: &mut Scales) {
    let s = b[run];
    let (e, m) = (u32::from(s >> 3) & 15, f32::from(s & 7));
    let scale = if e == 0 { m / 512.0 } else { (1.0 + m / 8.0) * f32::from_bits((e + 120) << 23) };
    u.d = if s == 0 || s == 0x7f { 0.0 } else { scale * 0.5 };
    nibbles(field::<8>(b, 4 + 8 * run), levels, |n, _| KVALUES_FP4[usize::from(n)]);
}

/// Two bits a value, four values a byte, levels -1 to 2.
///
/// A block of 64 is two units, since activations have a scale for each 32 values.
#[inline(always)]
pub(crate) fn q2_0(b: &[u8], part: usize, levels: &mut [i8], u: &mut Scales) {
    u.d = half(b, 0);
    for (levels, &byte) in levels.as_chunks_mut::<4>().0.iter_mut().zip(field::<8>(b, 2 + 8 * part)) {
        for (i, level) in levels.iter_mut().enumerate() {
            *level = ((byte >> (2 * i)) & 3) as i8 - 1;
        }
    }
}
