//! The i-quants with code books.
//!
//! Row numbers and signs are computed as vectors, the rows themselves are looked up one by one: gathering is no faster.

use super::long::{Book, Entries, Long, Scales};
use super::{Sign, at, eight_each, half, load16, load32, spread_bits, word};
use std::arch::x86_64::*;
use strata_gguf::quant::tables::{IQ1S_GRID, IQ2S_GRID, IQ2XS_GRID, IQ2XXS_GRID, IQ3S_GRID, IQ3XXS_GRID};

/// Each of four 16-bit words four times.
#[inline]
#[target_feature(enable = "avx2")]
fn four_each(words: &[u8; 8]) -> __m256i {
    let all = _mm256_set1_epi64x(i64::from_le_bytes(*words));
    let spread =
        _mm256_setr_epi64x(0x0100_0100_0100_0100, 0x0302_0302_0302_0302, 0x0504_0504_0504_0504, 0x0706_0706_0706_0706);
    _mm256_shuffle_epi8(all, spread)
}

/// 256 in the 16-bit integers whose bit of a word is set.
#[inline]
#[target_feature(enable = "avx2")]
fn ninth_bits(word: u16) -> __m256i {
    let bit = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, i16::MIN);
    let set = _mm256_cmpeq_epi16(_mm256_and_si256(_mm256_set1_epi16(word as i16), bit), bit);
    _mm256_and_si256(set, _mm256_set1_epi16(256))
}

/// Sign bytes of even parity from their low seven bits.
#[inline]
#[target_feature(enable = "avx2")]
fn with_parity(seven: __m256i) -> __m256i {
    const ODD: i8 = i8::MIN;
    let parity =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, ODD, ODD, 0, ODD, 0, 0, ODD, ODD, 0, 0, ODD, 0, ODD, ODD, 0));
    let low = _mm256_set1_epi8(15);
    let a = _mm256_shuffle_epi8(parity, _mm256_and_si256(seven, low));
    let b = _mm256_shuffle_epi8(parity, _mm256_and_si256(_mm256_srli_epi16(seven, 4), low));
    _mm256_or_si256(seven, _mm256_xor_si256(a, b))
}

/// The signs in eight words that hold four times seven of them.
#[inline]
#[target_feature(enable = "avx2")]
fn packed_signs(words: __m256i) -> [u32; 8] {
    let field = |v: __m256i, to: i32| _mm256_and_si256(v, _mm256_set1_epi32(127 << to));
    let seven = _mm256_or_si256(
        _mm256_or_si256(field(words, 0), field(_mm256_slli_epi32(words, 1), 8)),
        _mm256_or_si256(field(_mm256_slli_epi32(words, 2), 16), field(_mm256_slli_epi32(words, 3), 24)),
    );
    store_words(with_parity(seven))
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_words(v: __m256i) -> [u32; 8] {
    let mut out = [0; 8];
    // SAFETY: the array holds 32 bytes.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), v) };
    out
}

/// Scales `2 s + 1` of eight sub-blocks of 32, one in each 32-bit integer.
#[inline]
#[target_feature(enable = "avx2")]
fn of_sub_blocks(s: __m256i) -> __m256i {
    let odd = _mm256_add_epi32(_mm256_slli_epi32(s, 1), _mm256_set1_epi32(1));
    _mm256_or_si256(odd, _mm256_slli_epi32(odd, 16))
}

/// Scales `2 s + 1` of sixteen groups, from their nibbles.
#[inline]
#[target_feature(enable = "avx2")]
fn of_groups(nibbles: &[u8; 8]) -> __m256i {
    let n = _mm_cvtsi64_si128(i64::from_le_bytes(*nibbles));
    let low = _mm_set1_epi8(15);
    let apart = _mm_unpacklo_epi8(_mm_and_si128(n, low), _mm_and_si128(_mm_srli_epi16(n, 4), low));
    let s = _mm256_cvtepu8_epi16(apart);
    _mm256_add_epi16(_mm256_slli_epi16(s, 1), _mm256_set1_epi16(1))
}

/// Magnitudes with their signs, plus an offset.
#[inline]
#[target_feature(enable = "avx2")]
fn signed(entries: &Entries, run: usize, offset: i16) -> __m256i {
    let magnitudes = load32(&entries.levels.as_chunks::<32>().0[run]);
    let negative = spread_bits(entries.changes[run]);
    // A complement plus one is the negative.
    let level = _mm256_sub_epi8(_mm256_xor_si256(magnitudes, negative), negative);
    _mm256_add_epi8(level, _mm256_set1_epi8(offset as i8))
}

/// [`signed`] for 64 levels.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn signed_wide(entries: &Entries, run: usize, offset: i16) -> __m512i {
    let Entries { levels, changes, .. } = entries;
    let zeros = _mm512_setzero_si512();
    // SAFETY: the array holds 64 bytes.
    let magnitudes = unsafe { _mm512_loadu_si512(levels.as_chunks::<64>().0[run].as_ptr().cast()) };
    let negative = u64::from(changes[2 * run]) | u64::from(changes[2 * run + 1]) << 32;
    let level = _mm512_mask_sub_epi8(magnitudes, negative, zeros, magnitudes);
    _mm512_add_epi8(level, _mm512_set1_epi8(offset as i8))
}

macro_rules! book {
    // Numbers are within the book, whatever the block's bytes.
    ($(#[$doc:meta])* $name:ident[$bytes:literal] $offset:literal, $book:expr, $numbers:expr, $scales:expr, $levels:expr $(, $wide:expr)?) => {
        $(#[$doc])*
        pub(super) struct $name;
        impl Long<$bytes> for $name {
            const SIGN: Sign = Sign::Offset($offset);
            const BOOK: Book = $book;
            #[inline]
            #[target_feature(enable = "avx2")]
            unsafe fn numbers(block: &[u8; $bytes], entries: &mut Entries) {
                $numbers(block, entries);
            }
            #[inline]
            #[target_feature(enable = "avx2,f16c")]
            unsafe fn scales(block: &[u8; $bytes]) -> Scales {
                $scales(block)
            }
            #[inline]
            #[target_feature(enable = "avx2")]
            unsafe fn bytes(_: &[u8; $bytes], entries: &Entries, run: usize) -> __m256i {
                $levels(entries, run, $offset)
            }
            $(
                #[inline]
                #[target_feature(enable = "avx2,avx512f,avx512bw")]
                unsafe fn wide_bytes(_: &[u8; $bytes], entries: &Entries, run: usize) -> __m512i {
                    $wide(entries, run, $offset)
                }
            )?
        }
    };
}

/// Odd 32-bit words of 64 bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn odd_words(bytes: &[u8; 64]) -> __m256i {
    let pick = _mm256_setr_epi32(1, 3, 5, 7, 0, 2, 4, 6);
    let (a, b) = (load32(at(bytes, 0)), load32(at(bytes, 32)));
    let (a, b) = (_mm256_permutevar8x32_epi32(a, pick), _mm256_permutevar8x32_epi32(b, pick));
    _mm256_permute2x128_si256(a, b, 0x20)
}

book!(
    /// `d * (s + 1/2) / 4`. Each 32 values have four row numbers of a byte and a word of signs and a scale.
    Iq2Xxs[66] 43, Book::Eights(&IQ2XXS_GRID),
    |b: &[u8; 66], entries: &mut Entries| {
        // Four of every eight bytes.
        let pick = _mm_setr_epi8(0, 1, 2, 3, 8, 9, 10, 11, -1, -1, -1, -1, -1, -1, -1, -1);
        for part in 0..2 {
            let four = |half: usize| _mm_shuffle_epi8(load16(at(b, 2 + 32 * part + 16 * half)), pick);
            entries.set(part, _mm256_cvtepu8_epi16(_mm_unpacklo_epi64(four(0), four(1))));
        }
        entries.changes = packed_signs(odd_words(at(b, 2)));
    },
    |b: &[u8; 66]| {
        Scales::plain(of_sub_blocks(_mm256_srli_epi32(odd_words(at(b, 2)), 28)), half(*at(b, 0)) * 0.125)
    },
    signed,
    signed_wide
);
book!(
    /// `d * (s + 1/2) / 4`. Row numbers of nine bits with seven signs.
    Iq2Xs[74] 43, Book::Eights(&IQ2XS_GRID),
    |b: &[u8; 74], entries: &mut Entries| {
        let (first, second) = (load32(at(b, 2)), load32(at(b, 34)));
        let nine = _mm256_set1_epi16(511);
        entries.set(0, _mm256_and_si256(first, nine));
        entries.set(1, _mm256_and_si256(second, nine));
        let seven = _mm256_packus_epi16(_mm256_srli_epi16(first, 9), _mm256_srli_epi16(second, 9));
        entries.changes = store_words(with_parity(_mm256_permute4x64_epi64::<0b11_01_10_00>(seven)));
    },
    |b: &[u8; 74]| Scales::plain(of_groups(at(b, 66)), half(*at(b, 0)) * 0.125),
    signed,
    signed_wide
);
book!(
    /// `d * (s + 1/2) / 4`. Row numbers of ten bits, two of them apart, and eight signs.
    Iq2S[82] 43, Book::Eights(&IQ2S_GRID),
    |b: &[u8; 82], entries: &mut Entries| {
        for part in 0..2 {
            let low = _mm256_cvtepu8_epi16(load16(at(b, 2 + 16 * part)));
            // Each byte has the two bits of four numbers: bits 2k and 2k + 1 are moved to bits 8 and 9.
            let bytes = _mm_cvtsi32_si128(word(b, 66 + 4 * part) as i32);
            let spread = _mm_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
            let four = _mm256_cvtepu8_epi16(_mm_shuffle_epi8(bytes, spread));
            let high = _mm256_mullo_epi16(four, _mm256_set1_epi64x(0x0004_0010_0040_0100));
            entries.set(part, _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi16(0x300))));
        }
        entries.changes = store_words(load32(at(b, 34)));
    },
    |b: &[u8; 82]| Scales::plain(of_groups(at(b, 74)), half(*at(b, 0)) * 0.125),
    signed,
    signed_wide
);
book!(
    /// `d * (s + 1/2) / 2`. Row numbers of a byte, then a word of signs and a scale for each 32 values.
    Iq3Xxs[98] 62, Book::Fours(&IQ3XXS_GRID),
    |b: &[u8; 98], entries: &mut Entries| {
        for part in 0..4 {
            entries.set(part, _mm256_cvtepu8_epi16(load16(at(b, 2 + 16 * part))));
        }
        entries.changes = packed_signs(load32(at(b, 66)));
    },
    |b: &[u8; 98]| {
        Scales::plain(of_sub_blocks(_mm256_srli_epi32(load32(at(b, 66)), 28)), half(*at(b, 0)) * 0.25)
    },
    signed,
    signed_wide
);
book!(
    /// `d * (2 s + 1)`. Row numbers of nine bits, one of them apart, and eight signs.
    Iq3S[110] 15, Book::Fours(&IQ3S_GRID),
    |b: &[u8; 110], entries: &mut Entries| {
        for part in 0..4 {
            let low = _mm256_cvtepu8_epi16(load16(at(b, 2 + 16 * part)));
            let ninth = ninth_bits(u16::from_le_bytes(*at(b, 66 + 2 * part)));
            entries.set(part, _mm256_or_si256(low, ninth));
        }
        entries.changes = store_words(load32(at(b, 74)));
    },
    |b: &[u8; 110]| {
        let nibbles = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
        let s = _mm256_srlv_epi32(_mm256_set1_epi32(word(b, 106) as i32), nibbles);
        Scales::plain(of_sub_blocks(_mm256_and_si256(s, _mm256_set1_epi32(15))), half(*at(b, 0)))
    },
    signed,
    signed_wide
);

/// Rows of -1, 0 and 1 in eighths, each group of eight shifted by one up or down, plus an offset.
#[inline]
#[target_feature(enable = "avx2")]
fn shifted(entries: &Entries, run: usize, offset: i16) -> __m256i {
    let rows = load32(&entries.levels.as_chunks::<32>().0[run]);
    let shifts = eight_each(entries.changes[run]);
    let eighths = _mm256_sign_epi8(_mm256_set1_epi8(8), rows);
    _mm256_add_epi8(eighths, _mm256_add_epi8(shifts, _mm256_set1_epi8(offset as i8)))
}

book!(
    /// `d * (2 s + 1)` in eighths. For each 32 values a word: three bits of four row numbers, a scale, a shift.
    Iq1S[50] 9, Book::Eights(&IQ1S_GRID),
    |b: &[u8; 50], entries: &mut Entries| {
        for part in 0..2 {
            let words = four_each(at(b, 34 + 8 * part));
            // Bits 3l to 3l + 2 of a word are moved to bits 8 to 10.
            let left = _mm256_mullo_epi16(words, _mm256_set1_epi64x(0x0000_0004_0020_0100));
            let moved = _mm256_blend_epi16::<0b1000_1000>(left, _mm256_srli_epi16(words, 1));
            let low = _mm256_cvtepu8_epi16(load16(at(b, 2 + 16 * part)));
            entries.set(part, _mm256_or_si256(low, _mm256_and_si256(moved, _mm256_set1_epi16(0x700))));
        }
        for (sub, change) in entries.changes.iter_mut().enumerate() {
            *change = if b[35 + 2 * sub] & 0x80 != 0 { 0xffff_ffff } else { 0x0101_0101 };
        }
    },
    |b: &[u8; 50]| {
        let words = _mm256_cvtepu16_epi32(load16(at(b, 34)));
        let s = _mm256_and_si256(_mm256_srli_epi32(words, 12), _mm256_set1_epi32(7));
        Scales::plain(of_sub_blocks(s), half(*at(b, 0)) * 0.125)
    },
    shifted
);
book!(
    /// `d * (2 s + 1)` in eighths. Each row number has a nibble of three more bits and its own shift; the bits of `d` are
    /// spread over the words of scales.
    Iq1M[56] 9, Book::Eights(&IQ1S_GRID),
    |b: &[u8; 56], entries: &mut Entries| {
        let mut downs = [_mm256_setzero_si256(); 2];
        for (part, downs) in downs.iter_mut().enumerate() {
            let words = four_each(at(b, 32 + 8 * part));
            // Nibble l of a word is moved to bits 8 to 11.
            let left = _mm256_mullo_epi16(words, _mm256_set1_epi64x(0x0000_0001_0010_0100));
            let moved = _mm256_blend_epi16::<0b1000_1000>(left, _mm256_srli_epi16(words, 4));
            let low = _mm256_cvtepu8_epi16(load16(at(b, 16 * part)));
            entries.set(part, _mm256_or_si256(low, _mm256_and_si256(moved, _mm256_set1_epi16(0x700))));
            let bit = _mm256_set1_epi16(0x800);
            *downs = _mm256_cmpeq_epi16(_mm256_and_si256(moved, bit), bit);
        }
        let bytes = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi16(downs[0], downs[1]));
        // -1 where the bit is set, else 1.
        entries.changes = store_words(_mm256_or_si256(bytes, _mm256_set1_epi8(1)));
    },
    |b: &[u8; 56]| {
        let words: u64 = u64::from_le_bytes(*at(b, 48));
        let s: [u16; 16] = std::array::from_fn(|g| 2 * ((words >> (16 * (g / 4) + 3 * (g % 4))) as u16 & 7) + 1);
        let d = (words >> 12 & 0xf) | (words >> 24 & 0xf0) | (words >> 36 & 0xf00) | (words >> 48 & 0xf000);
        // SAFETY: the array holds 32 bytes.
        let scales = unsafe { _mm256_loadu_si256(s.as_ptr().cast()) };
        Scales::plain(scales, half((d as u16).to_le_bytes()) * 0.125)
    },
    shifted
);
