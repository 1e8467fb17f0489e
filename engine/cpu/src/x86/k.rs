//! The k-quants, and IQ4_XS.

use super::long::{Entries, Long, Scales};
use super::{Sign, at, half, load16, load32, shift_right, table, word};
use std::arch::x86_64::*;
use strata_gguf::quant::tables::KVALUES_IQ4NL;

/// Two bits of each byte, from bit `plane` times two on.
#[inline]
#[target_feature(enable = "avx2")]
fn two_bits(bytes: &[u8; 32], plane: usize) -> __m256i {
    _mm256_and_si256(shift_right(load32(bytes), 2 * plane), _mm256_set1_epi8(3))
}

/// The low or the high nibble of each byte.
#[inline]
#[target_feature(enable = "avx2")]
fn nibble(bytes: &[u8; 32], high: bool) -> __m256i {
    _mm256_and_si256(shift_right(load32(bytes), if high { 4 } else { 0 }), _mm256_set1_epi8(15))
}

/// A bit of each byte, moved to bit `to`.
#[inline]
#[target_feature(enable = "avx2")]
fn one_bit(bytes: &[u8; 32], bit: usize, to: usize) -> __m256i {
    let v = load32(bytes);
    let moved =
        if bit >= to { shift_right(v, bit - to) } else { _mm256_sll_epi16(v, _mm_cvtsi32_si128((to - bit) as i32)) };
    _mm256_and_si256(moved, _mm256_set1_epi8(1 << to))
}

/// Eight bytes, each as two 16-bit integers.
#[inline]
#[target_feature(enable = "avx2")]
fn twice(low: u32, high: u32) -> __m256i {
    let bytes = _mm_cvtsi64_si128((u64::from(low) | u64::from(high) << 32) as i64);
    _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(bytes, bytes))
}

/// The 6-bit scales and minimums of eight sub-blocks, packed into twelve bytes at offset 4, under `d` and `d_min`.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn six_bit_scales<const BYTES: usize>(block: &[u8; BYTES]) -> Scales {
    let [a, b, c] = [word(block, 4), word(block, 8), word(block, 12)];
    let (six, four, two) = (0x3f3f_3f3f, 0x0f0f_0f0f, 0x3030_3030);
    Scales {
        scales: twice(a & six, (c & four) | ((a >> 2) & two)),
        mins: twice(b & six, ((c >> 4) & four) | ((b >> 2) & two)),
        d: half(*at(block, 0)),
        d_min: half(*at(block, 2)),
    }
}

macro_rules! long {
    (
        $(#[$doc:meta])* $name:ident[$bytes:literal] $sign:expr, $mins:literal,
        $scales:expr, $levels:expr
    ) => {
        $(#[$doc])*
        pub(super) struct $name;
        impl Long<$bytes> for $name {
            const SIGN: Sign = $sign;
            const MINS: bool = $mins;
            #[inline]
            #[target_feature(enable = "avx2,f16c")]
            unsafe fn scales(block: &[u8; $bytes]) -> Scales {
                $scales(block)
            }
            #[inline]
            #[target_feature(enable = "avx2")]
            unsafe fn bytes(block: &[u8; $bytes], _: &Entries, run: usize) -> __m256i {
                $levels(block, run)
            }
        }
    };
}

long!(
    /// In each half of 128 values, byte c holds four values 32 apart.
    Q2K[84] Sign::Offset(0), true,
    |b: &[u8; 84]| {
        let s = load16(at(b, 0));
        let low = _mm_set1_epi8(15);
        Scales {
            scales: _mm256_cvtepu8_epi16(_mm_and_si128(s, low)),
            mins: _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(s, 4), low)),
            d: half(*at(b, 80)),
            d_min: half(*at(b, 82)),
        }
    },
    |b: &[u8; 84], run: usize| two_bits(at(b, 16 + run / 4 * 32), run % 4)
);
long!(
    /// A third bit from a mask, whose absence means -4; 6-bit scales offset by 32.
    Q3K[110] Sign::Offset(4), false,
    |b: &[u8; 110]| {
        let [low, high, top] = [word(b, 96), word(b, 100), word(b, 104)];
        let (four, two) = (0x0f0f_0f0f, 0x3030_3030);
        let s = _mm_setr_epi32(
            ((low & four) | ((top << 4) & two)) as i32,
            ((high & four) | ((top << 2) & two)) as i32,
            (((low >> 4) & four) | (top & two)) as i32,
            (((high >> 4) & four) | ((top >> 2) & two)) as i32,
        );
        Scales::plain(_mm256_cvtepi8_epi16(_mm_sub_epi8(s, _mm_set1_epi8(32))), half(*at(b, 108)))
    },
    |b: &[u8; 110], run: usize| {
        _mm256_or_si256(two_bits(at(b, 32 + run / 4 * 32), run % 4), one_bit(at(b, 0), run, 2))
    }
);
long!(
    /// Sub-blocks 2m and 2m + 1 are the low and high nibbles of the same 32 bytes.
    Q4K[144] Sign::Offset(0), true,
    |b: &[u8; 144]| six_bit_scales(b),
    |b: &[u8; 144], run: usize| nibble(at(b, 16 + run / 2 * 32), run % 2 == 1)
);
long!(
    /// Q4_K with a fifth bit: bit j of byte c belongs to value c of sub-block j.
    Q5K[176] Sign::Offset(0), true,
    |b: &[u8; 176]| six_bit_scales(b),
    |b: &[u8; 176], run: usize| {
        _mm256_or_si256(nibble(at(b, 48 + run / 2 * 32), run % 2 == 1), one_bit(at(b, 16), run, 4))
    }
);
long!(
    /// Nibbles in four planes of 32 per half of 128, two more bits from a second array, offset by 32.
    Q6K[210] Sign::Offset(32), false,
    |b: &[u8; 210]| Scales::plain(_mm256_cvtepi8_epi16(load16(at(b, 192))), half(*at(b, 208))),
    |b: &[u8; 210], run: usize| {
        let (part, plane) = (run / 4, run % 4);
        let low = nibble(at(b, 64 * part + 32 * (plane % 2)), plane / 2 == 1);
        let high = two_bits(at(b, 128 + 32 * part), plane);
        _mm256_or_si256(low, _mm256_slli_epi16(high, 4))
    }
);
long!(
    /// Eight sub-blocks of 32 with 6-bit scales, offset by 32; nibbles number a table.
    Iq4Xs[136] Sign::Apart, false,
    |b: &[u8; 136]| {
        let (low, high) = (word(b, 4), u32::from(u16::from_le_bytes(*at(b, 2))));
        // Four bits of sub-block j: nibble j. Two more: bits 2j and 2j + 1, each four taken apart to one byte each.
        let four = |bits: u32| (bits & 0x0f) | (bits & 0xf0) << 4 | (bits & 0xf00) << 8 | (bits & 0xf000) << 12;
        let two = |bits: u32| ((bits & 3) | (bits & 12) << 6 | (bits & 48) << 12 | (bits & 192) << 18) << 4;
        let scales = twice(four(low & 0xffff) | two(high & 0xff), four(low >> 16) | two(high >> 8));
        Scales::plain(_mm256_sub_epi16(scales, _mm256_set1_epi16(32)), half(*at(b, 0)))
    },
    |b: &[u8; 136], run: usize| {
        let v = load16(at(b, 8 + 16 * run));
        let numbers = _mm256_inserti128_si256(_mm256_castsi128_si256(v), _mm_srli_epi16(v, 4), 1);
        _mm256_shuffle_epi8(table(&KVALUES_IQ4NL), _mm256_and_si256(numbers, _mm256_set1_epi8(15)))
    }
);
