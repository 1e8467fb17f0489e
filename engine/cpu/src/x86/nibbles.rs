//! Types with 32 values under one float scale, and Q2_0.

use super::short::{Blocks, Short};
use super::{Sign, at, load16, table};
use crate::arranged::Order;
use crate::units::small::half_power;
use std::arch::x86_64::*;
use strata_gguf::quant::tables::{KVALUES_FP4, KVALUES_IQ4NL};

/// Two vectors of 16 bytes as one.
#[inline]
#[target_feature(enable = "avx2")]
fn both(low: &[u8; 16], high: &[u8; 16]) -> __m256i {
    _mm256_inserti128_si256(_mm256_castsi128_si256(load16(low)), load16(high), 1)
}

/// From pairs of units, each a vector of first halves and one of second halves, to the order of halves.
#[inline]
#[target_feature(enable = "avx2")]
fn in_order(pair: impl Fn(usize) -> [__m256i; 2]) -> [__m256i; 8] {
    let [[a, c], [b, d], [e, g], [f, h]] = [pair(0), pair(2), pair(4), pair(6)];
    [a, b, c, d, e, f, g, h]
}

/// The nibbles of eight units whose bytes begin at an offset: numbers from 0 to 15.
#[inline]
#[target_feature(enable = "avx2")]
fn nibbles<const BYTES: usize>(blocks: &Blocks<'_, BYTES>, offset: usize) -> [__m256i; 8] {
    let low = _mm256_set1_epi8(15);
    in_order(|u| {
        let v = both(at(blocks[u], offset), at(blocks[u + 1], offset));
        [_mm256_and_si256(v, low), _mm256_and_si256(_mm256_srli_epi16(v, 4), low)]
    })
}

/// The halves at an offset of eight blocks as floats, in the order of halves.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn halves<const BYTES: usize>(blocks: &Blocks<'_, BYTES>, offset: usize) -> __m256 {
    let half = |u: usize| i16::from_le_bytes(*at(blocks[u], offset));
    _mm256_cvtph_ps(_mm_setr_epi16(half(0), half(2), half(4), half(6), half(1), half(3), half(5), half(7)))
}

/// The entries of a table that nibbles number.
#[inline]
#[target_feature(enable = "avx2")]
fn look_up(entries: &[i8; 16], numbers: [__m256i; 8]) -> [__m256i; 8] {
    let entries = table(entries);
    numbers.map(|n| _mm256_shuffle_epi8(entries, n))
}

/// Adds a fifth bit, from the 32-bit word at an offset of each block, to nibbles in the order of halves.
#[inline]
#[target_feature(enable = "avx2")]
fn with_fifth<const BYTES: usize>(blocks: &Blocks<'_, BYTES>, offset: usize, nibbles: [__m256i; 8]) -> [__m256i; 8] {
    let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    let spread = |half: i64| {
        let (a, b) = (0x0101_0101_0101_0101 * (2 * half), 0x0101_0101_0101_0101 * (2 * half + 1));
        _mm256_setr_epi64x(a, b, a, b)
    };
    let (first, second) = (spread(0), spread(1));
    let fifth = in_order(|u| {
        // The word is followed by more than twelve bytes of the block.
        let words = both(at(blocks[u], offset), at(blocks[u + 1], offset));
        [first, second].map(|spread| {
            let set = _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(words, spread), bit), bit);
            _mm256_and_si256(set, _mm256_set1_epi8(16))
        })
    });
    std::array::from_fn(|j| _mm256_or_si256(nibbles[j], fifth[j]))
}

macro_rules! short {
    ($name:ident[$bytes:literal] $sign:expr, $levels:expr $(, $mins:expr)?) => {
        pub(super) struct $name;
        impl Short<$bytes> for $name {
            const SIGN: Sign = $sign;
            #[inline]
            #[target_feature(enable = "avx2")]
            unsafe fn bytes(blocks: &Blocks<'_, $bytes>) -> [__m256i; 8] {
                $levels(blocks)
            }
            #[inline]
            #[target_feature(enable = "avx2,f16c")]
            unsafe fn d(blocks: &Blocks<'_, $bytes>) -> __m256 {
                halves(blocks, 0)
            }
            $(
                const MINS: bool = true;
                /// `d * level + m`: the minimum is subtracted, so its scale is `-m`.
                #[inline]
                #[target_feature(enable = "avx2,f16c")]
                unsafe fn d_min(blocks: &Blocks<'_, $bytes>) -> __m256 {
                    _mm256_xor_ps(halves(blocks, $mins), _mm256_set1_ps(-0.0))
                }
            )?
        }
    };
}

short!(Q8_0[34] Sign::Apart, |blocks: &Blocks<'_, 34>| in_order(|u| {
    let (a, b) = (blocks[u], blocks[u + 1]);
    [both(at(a, 2), at(b, 2)), both(at(a, 18), at(b, 18))]
}));
short!(Q4_0[18] Sign::Offset(8), |blocks| nibbles(blocks, 2));
short!(Q4_1[20] Sign::Offset(0), |blocks| nibbles(blocks, 4), 2);
short!(Q5_0[22] Sign::Offset(16), |blocks| with_fifth(blocks, 2, nibbles(blocks, 6)));
short!(Q5_1[24] Sign::Offset(0), |blocks| with_fifth(blocks, 4, nibbles(blocks, 8)), 2);
short!(Iq4Nl[18] Sign::Apart, |blocks| look_up(&KVALUES_IQ4NL, nibbles(blocks, 2)));

pub(super) struct Mxfp4;

impl Short<17> for Mxfp4 {
    const SIGN: Sign = Sign::Apart;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn bytes(blocks: &Blocks<'_, 17>) -> [__m256i; 8] {
        look_up(&KVALUES_FP4, nibbles(blocks, 1))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn d(blocks: &Blocks<'_, 17>) -> __m256 {
        super::load_floats(&Order::Halves.lanes().map(|u| half_power(blocks[u][0])))
    }
}

pub(super) struct Q2_0;

/// Two bits a value, four values a byte, levels -1 to 2; a block is two units.
impl Short<18> for Q2_0 {
    const PER_BLOCK: usize = 2;
    const ORDER: Order = Order::Planes;
    const SIGN: Sign = Sign::Offset(1);

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn bytes(blocks: &Blocks<'_, 18>) -> [__m256i; 8] {
        let [a, b] = [both(at(blocks[0], 2), at(blocks[1], 2)), both(at(blocks[2], 2), at(blocks[3], 2))];
        let low = _mm256_set1_epi8(3);
        [
            _mm256_and_si256(a, low),
            _mm256_and_si256(b, low),
            _mm256_and_si256(_mm256_srli_epi16(a, 2), low),
            _mm256_and_si256(_mm256_srli_epi16(b, 2), low),
            _mm256_and_si256(_mm256_srli_epi16(a, 4), low),
            _mm256_and_si256(_mm256_srli_epi16(b, 4), low),
            _mm256_and_si256(_mm256_srli_epi16(a, 6), low),
            _mm256_and_si256(_mm256_srli_epi16(b, 6), low),
        ]
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn d(blocks: &Blocks<'_, 18>) -> __m256 {
        let half = |b: usize| i16::from_le_bytes(*at(blocks[b], 0));
        let four = _mm_setr_epi16(half(0), half(2), half(1), half(3), 0, 0, 0, 0);
        // Both units of a block, next to each other.
        _mm256_cvtph_ps(_mm_unpacklo_epi16(four, four))
    }
}
