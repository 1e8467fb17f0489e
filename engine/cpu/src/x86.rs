//! Integer products with AVX2 and with AVX-512: bit for bit what [`crate::product::rows_scalar`] computes.
//!
//! Eight units of a row are taken at a time, one for each partial sum. Within a unit all sums are integers, so their
//! order is free; the eight results then meet the eight partial sums in one fused multiply-add. Units beyond the end of
//! a row count as zeros, which change no sum: a partial sum is never -0.
//!
//! Levels are multiplied as unsigned bytes wherever a constant offset makes them so without the 16-bit sums of the
//! multiplication overflowing; the offset times the activations' sum is subtracted once a unit.
//!
//! Formats are taken apart by the same code for both; the loops around it are compiled twice, with multiplications of 32
//! or of 64 bytes.

use crate::activations::Activations;
use crate::product::rows_scalar;
use crate::units::Layout;
use std::arch::x86_64::*;
use strata_gguf::GgmlType;

mod books;
pub(crate) mod floats;
mod k;
mod long;
mod nibbles;
mod short;

macro_rules! rows_with {
    ($(#[$doc:meta])* $name:ident $features:literal $level:ident) => {
        $(#[$doc])*
        #[target_feature(enable = $features)]
        pub(crate) fn $name(ty: GgmlType, layout: Layout, bytes: &[u8], scale: f32, x: &Activations, out: &mut [f32]) {
            match ty {
                GgmlType::Q8_0 => short::$level::product::<nibbles::Q8_0, 34>(bytes, scale, x, out),
                GgmlType::Q4_0 => short::$level::product::<nibbles::Q4_0, 18>(bytes, scale, x, out),
                GgmlType::Q4_1 => short::$level::product::<nibbles::Q4_1, 20>(bytes, scale, x, out),
                GgmlType::Q5_0 => short::$level::product::<nibbles::Q5_0, 22>(bytes, scale, x, out),
                GgmlType::Q5_1 => short::$level::product::<nibbles::Q5_1, 24>(bytes, scale, x, out),
                GgmlType::IQ4_NL => short::$level::product::<nibbles::Iq4Nl, 18>(bytes, scale, x, out),
                GgmlType::MXFP4 => short::$level::product::<nibbles::Mxfp4, 17>(bytes, scale, x, out),
                GgmlType::Q2_0 => short::$level::product::<nibbles::Q2_0, 18>(bytes, scale, x, out),
                GgmlType::Q2_K => long::$level::product::<k::Q2K, 84>(bytes, scale, x, out),
                GgmlType::Q3_K => long::$level::product::<k::Q3K, 110>(bytes, scale, x, out),
                GgmlType::Q4_K => long::$level::product::<k::Q4K, 144>(bytes, scale, x, out),
                GgmlType::Q5_K => long::$level::product::<k::Q5K, 176>(bytes, scale, x, out),
                GgmlType::Q6_K => long::$level::product::<k::Q6K, 210>(bytes, scale, x, out),
                GgmlType::IQ4_XS => long::$level::product::<k::Iq4Xs, 136>(bytes, scale, x, out),
                GgmlType::IQ1_S => long::$level::product::<books::Iq1S, 50>(bytes, scale, x, out),
                GgmlType::IQ1_M => long::$level::product::<books::Iq1M, 56>(bytes, scale, x, out),
                GgmlType::IQ2_XXS => long::$level::product::<books::Iq2Xxs, 66>(bytes, scale, x, out),
                GgmlType::IQ2_XS => long::$level::product::<books::Iq2Xs, 74>(bytes, scale, x, out),
                GgmlType::IQ2_S => long::$level::product::<books::Iq2S, 82>(bytes, scale, x, out),
                GgmlType::IQ3_XXS => long::$level::product::<books::Iq3Xxs, 98>(bytes, scale, x, out),
                GgmlType::IQ3_S => long::$level::product::<books::Iq3S, 110>(bytes, scale, x, out),
                // NVFP4's runs of 16 have no kernel of their own; float types do not come here.
                GgmlType::NVFP4 | GgmlType::F32 | GgmlType::F16 | GgmlType::BF16 => {
                    rows_scalar(ty, layout, bytes, scale, x, out);
                }
            }
        }
    };
}

rows_with!(
    /// [`rows_scalar`] for processors with AVX2, FMA and F16C.
    rows "avx2,fma,f16c" avx2
);
rows_with!(
    /// [`rows_scalar`] for processors with AVX-512 F, BW, VL, DQ and VNNI.
    rows_wide "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni" avx512
);

/// How levels become bytes for the multiplication, whose one side is unsigned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    /// Levels plus this are not negative, and the products of two of them with activations fit 16 bits.
    Offset(i16),
    /// Levels are multiplied by magnitude, their signs given to the activations.
    Apart,
}

/// `N` bytes from an offset on, which the block has.
#[inline(always)]
fn at<const N: usize, const BYTES: usize>(block: &[u8; BYTES], offset: usize) -> &[u8; N] {
    crate::units::field(block, offset)
}

/// The little-endian word at an offset, which the block has.
#[inline(always)]
fn word<const BYTES: usize>(block: &[u8; BYTES], offset: usize) -> u32 {
    u32::from_le_bytes(*at(block, offset))
}

/// Sixteen bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn load16(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: the array holds 16 bytes.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// 32 bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn load32(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: the array holds 32 bytes.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// 32 activations.
#[inline]
#[target_feature(enable = "avx2")]
fn load_values(values: &[i8; 32]) -> __m256i {
    // SAFETY: the array holds 32 bytes.
    unsafe { _mm256_loadu_si256(values.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_floats(values: &[f32; 8]) -> __m256 {
    // SAFETY: the array holds eight floats.
    unsafe { _mm256_loadu_ps(values.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_floats(v: __m256) -> [f32; 8] {
    let mut out = [0.0; 8];
    // SAFETY: the array holds eight floats.
    unsafe { _mm256_storeu_ps(out.as_mut_ptr(), v) };
    out
}

/// [`crate::dot::join`] of eight partial sums in order.
#[inline]
#[target_feature(enable = "avx2")]
fn join(sums: __m256) -> f32 {
    let four = _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps::<1>(sums));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_sums(sums: &[i16; 16]) -> __m256i {
    // SAFETY: the array holds 32 bytes.
    unsafe { _mm256_loadu_si256(sums.as_ptr().cast()) }
}

/// The little-endian half in two bytes.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn half(bytes: [u8; 2]) -> f32 {
    _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(u16::from_le_bytes(bytes).into())))
}

/// Every byte shifted right by `n < 8`, with bits of its neighbour shifted in.
#[inline]
#[target_feature(enable = "avx2")]
fn shift_right(v: __m256i, n: usize) -> __m256i {
    _mm256_srl_epi16(v, _mm_cvtsi32_si128(n as i32))
}

/// Each byte of a word eight times.
#[inline]
#[target_feature(enable = "avx2")]
fn eight_each(word: u32) -> __m256i {
    let spread = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
    _mm256_shuffle_epi8(_mm256_set1_epi32(word as i32), spread)
}

/// -1 in every byte whose bit of a word is set.
#[inline]
#[target_feature(enable = "avx2")]
fn spread_bits(word: u32) -> __m256i {
    let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    _mm256_cmpeq_epi8(_mm256_and_si256(eight_each(word), bit), bit)
}

/// A table that nibbles number, in both halves of a vector.
#[inline]
#[target_feature(enable = "avx2")]
fn table(entries: &[i8; 16]) -> __m256i {
    // SAFETY: the array holds 16 bytes.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(entries.as_ptr().cast()) })
}

/// Products of 32 bytes with activations, added in pairs: 16 integers of 16 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn pairs(sign: Sign, bytes: __m256i, x: __m256i) -> __m256i {
    match sign {
        Sign::Offset(_) => _mm256_maddubs_epi16(bytes, x),
        // At most 2 * 128 * 127.
        Sign::Apart => _mm256_maddubs_epi16(_mm256_abs_epi8(bytes), _mm256_sign_epi8(x, bytes)),
    }
}

/// [`pairs`] of 64 bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn pairs_wide(sign: Sign, bytes: __m512i, x: __m512i) -> __m512i {
    match sign {
        Sign::Offset(_) => _mm512_maddubs_epi16(bytes, x),
        Sign::Apart => {
            let flipped = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(bytes), _mm512_setzero_si512(), x);
            _mm512_maddubs_epi16(_mm512_abs_epi8(bytes), flipped)
        }
    }
}

/// Two vectors as one.
#[inline]
#[target_feature(enable = "avx512f")]
fn join_halves(low: __m256i, high: __m256i) -> __m512i {
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
}

/// 64 activations.
#[inline]
#[target_feature(enable = "avx512f")]
fn load_wide(values: &[i8; 64]) -> __m512i {
    // SAFETY: the array holds 64 bytes.
    unsafe { _mm512_loadu_si512(values.as_ptr().cast()) }
}
