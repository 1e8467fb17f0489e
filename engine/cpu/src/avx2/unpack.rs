//! Levels of the nibble types and of Q2_0, 32 at a time.
//!
//! These replace the loops of [`crate::units::small`], which the compiler does not turn into shuffles. They are inlined
//! into functions compiled for AVX2 and are called from nowhere else.

use crate::units::{Scales, field, small};
use std::arch::x86_64::*;
use strata_gguf::quant::tables::{KVALUES_FP4, KVALUES_IQ4NL};

/// Sixteen bytes of nibbles in order: the low ones, then the high ones.
#[inline(always)]
fn nibbles(bytes: &[u8; 16]) -> __m256i {
    // SAFETY: callers run on processors with AVX2; the array holds 16 bytes.
    unsafe {
        let b = _mm_loadu_si128(bytes.as_ptr().cast());
        let both = _mm256_inserti128_si256(_mm256_castsi128_si256(b), _mm_srli_epi16(b, 4), 1);
        _mm256_and_si256(both, _mm256_set1_epi8(15))
    }
}

/// The entries of a table that 32 nibbles number.
#[inline(always)]
fn look_up(table: &[i8; 16], numbers: __m256i) -> __m256i {
    // SAFETY: callers run on processors with AVX2; the array holds 16 bytes.
    unsafe { _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast())), numbers) }
}

/// 16 in every byte whose bit of a word is set.
#[inline(always)]
fn fifth_bits(word: u32) -> __m256i {
    // SAFETY: callers run on processors with AVX2.
    unsafe {
        let spread = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
        let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(word as i32), spread);
        let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
        _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit), _mm256_set1_epi8(16))
    }
}

/// The little-endian half at a byte offset, by the processor's own conversion.
#[inline(always)]
fn half(block: &[u8], at: usize) -> f32 {
    let bits = u16::from_le_bytes(*field(block, at));
    // SAFETY: callers run on processors with F16C.
    unsafe { _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits.into()))) }
}

/// `d * level + m`, as [`small::d_and_m`].
#[inline(always)]
fn d_and_m(b: &[u8], u: &mut Scales) {
    (u.d, u.d_min) = (half(b, 0), -half(b, 2));
    u.mins[..2].fill(1);
}

#[inline(always)]
fn store(levels: &mut [i8], v: __m256i) {
    if let Some(levels) = levels.first_chunk_mut::<32>() {
        // SAFETY: callers run on processors with AVX2; the array holds 32 bytes.
        unsafe { _mm256_storeu_si256(levels.as_mut_ptr().cast(), v) };
    }
}

#[inline(always)]
fn less(v: __m256i, offset: i8) -> __m256i {
    // SAFETY: callers run on processors with AVX2.
    unsafe { _mm256_sub_epi8(v, _mm256_set1_epi8(offset)) }
}

#[inline(always)]
fn plus(a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: callers run on processors with AVX2.
    unsafe { _mm256_or_si256(a, b) }
}

#[inline(always)]
pub(super) fn q8_0(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    u.d = half(b, 0);
    // SAFETY: callers run on processors with AVX2; the array holds 32 bytes.
    store(levels, unsafe { _mm256_loadu_si256(field::<32>(b, 2).as_ptr().cast()) });
}

#[inline(always)]
pub(super) fn q4_0(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    u.d = half(b, 0);
    store(levels, less(nibbles(field(b, 2)), 8));
}

#[inline(always)]
pub(super) fn q4_1(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    d_and_m(b, u);
    store(levels, nibbles(field(b, 4)));
}

#[inline(always)]
pub(super) fn q5_0(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    u.d = half(b, 0);
    store(levels, less(plus(nibbles(field(b, 6)), fifth_bits(u32::from_le_bytes(*field(b, 2)))), 16));
}

#[inline(always)]
pub(super) fn q5_1(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    d_and_m(b, u);
    store(levels, plus(nibbles(field(b, 8)), fifth_bits(u32::from_le_bytes(*field(b, 4)))));
}

#[inline(always)]
pub(super) fn iq4_nl(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    u.d = half(b, 0);
    store(levels, look_up(&KVALUES_IQ4NL, nibbles(field(b, 2))));
}

#[inline(always)]
pub(super) fn iq4_xs(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    small::iq4_xs_scales(b, u);
    for (sub, levels) in levels.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        store(levels, look_up(&KVALUES_IQ4NL, nibbles(field(b, 8 + 16 * sub))));
    }
}

#[inline(always)]
pub(super) fn mxfp4(b: &[u8], _: usize, levels: &mut [i8], u: &mut Scales) {
    u.d = small::half_power(b[0]);
    store(levels, look_up(&KVALUES_FP4, nibbles(field(b, 1))));
}

/// The four 2-bit codes of a byte: the first two in its low nibble, the others in its high one; in each nibble one low
/// and one high.
#[inline(always)]
pub(super) fn q2_0(b: &[u8], part: usize, levels: &mut [i8], u: &mut Scales) {
    const LOW: [i8; 16] = [-1, 0, 1, 2, -1, 0, 1, 2, -1, 0, 1, 2, -1, 0, 1, 2];
    const HIGH: [i8; 16] = [-1, -1, -1, -1, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2];
    u.d = half(b, 0);
    let bytes = i64::from_le_bytes(*field(b, 2 + 8 * part));
    // SAFETY: callers run on processors with AVX2.
    let numbers = unsafe {
        // Every byte four times.
        let spread = _mm256_setr_epi64x(
            0x0101_0101_0000_0000,
            0x0303_0303_0202_0202,
            0x0505_0505_0404_0404,
            0x0707_0707_0606_0606,
        );
        let four = _mm256_shuffle_epi8(_mm256_set1_epi64x(bytes), spread);
        let second_half = _mm256_set1_epi32(0xffff_0000_u32 as i32);
        let nibble = _mm256_blendv_epi8(four, _mm256_srli_epi16(four, 4), second_half);
        _mm256_and_si256(nibble, _mm256_set1_epi8(15))
    };
    let (low, high) = (look_up(&LOW, numbers), look_up(&HIGH, numbers));
    // SAFETY: as above.
    store(levels, unsafe { _mm256_blendv_epi8(low, high, _mm256_set1_epi16(0xff00_u16 as i16)) });
}
