//! Integer products with AVX2: bit for bit what [`crate::product::rows_scalar`] computes.
//!
//! Eight units of a row are taken at a time, one for each partial sum. Their levels are unpacked once into a buffer
//! that stays in the first-level cache and are multiplied with every input row from there. Within a unit all sums are
//! integers, so their order is free; the eight results then meet the eight partial sums in one fused multiply-add.
//! A row that ends within eight units is filled up with zeros, which change no sum: a partial sum is never -0.

use crate::activations::{Activations, SUM};
use crate::dot::join;
use crate::product::{PARTIALS, rows_scalar};
use crate::units::{GROUP, LONGEST, Layout, Scales, grid, k};
use std::arch::x86_64::*;

mod unpack;

use strata_gguf::GgmlType;

/// Eight units, taken apart.
#[repr(C, align(32))]
struct Chunk<const LEVELS: usize> {
    levels: [i8; LEVELS],
    /// For each unit the scales of even groups, then those of odd ones.
    scales: [[i16; LONGEST / GROUP]; PARTIALS],
    mins: [[i16; LONGEST / GROUP]; PARTIALS],
    d: [f32; PARTIALS],
    d_min: [f32; PARTIALS],
}

/// How a type is unpacked, as a type: so that the loop around it is compiled for it alone.
trait Format {
    /// Values of a unit: 32 or 256.
    const VALUES: usize;
    /// Units of a block.
    const PER_BLOCK: usize = 1;
    /// Whether there are minimums.
    const MINS: bool = false;
    fn unpack(block: &[u8], unit: usize, levels: &mut [i8], scales: &mut Scales);
}

macro_rules! formats {
    ($($name:ident: $values:literal $per_block:literal $mins:literal $unpack:path;)*) => {
        $(
            struct $name;
            impl Format for $name {
                const VALUES: usize = $values;
                const PER_BLOCK: usize = $per_block;
                const MINS: bool = $mins;
                #[inline(always)]
                fn unpack(block: &[u8], unit: usize, levels: &mut [i8], scales: &mut Scales) {
                    $unpack(block, unit, levels, scales);
                }
            }
        )*
    };
}

formats! {
    Q8_0: 32 1 false unpack::q8_0;
    Q4_0: 32 1 false unpack::q4_0;
    Q4_1: 32 1 true unpack::q4_1;
    Q5_0: 32 1 false unpack::q5_0;
    Q5_1: 32 1 true unpack::q5_1;
    Iq4Nl: 32 1 false unpack::iq4_nl;
    Mxfp4: 32 1 false unpack::mxfp4;
    Q2_0: 32 2 false unpack::q2_0;
    Q2K: 256 1 true k::q2_k;
    Q3K: 256 1 false k::q3_k;
    Q4K: 256 1 true k::q4_k;
    Q5K: 256 1 true k::q5_k;
    Q6K: 256 1 false k::q6_k;
    Iq1S: 256 1 false grid::iq1_s;
    Iq1M: 256 1 false grid::iq1_m;
    Iq2Xxs: 256 1 false grid::iq2_xxs;
    Iq2Xs: 256 1 false grid::iq2_xs;
    Iq2S: 256 1 false grid::iq2_s;
    Iq3Xxs: 256 1 false grid::iq3_xxs;
    Iq3S: 256 1 false grid::iq3_s;
    Iq4Xs: 256 1 false unpack::iq4_xs;
}

/// [`rows_scalar`] for processors with AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn rows(ty: GgmlType, layout: Layout, bytes: &[u8], scale: f32, x: &Activations, out: &mut [f32]) {
    let b = ty.block_bytes();
    match ty {
        GgmlType::Q8_0 => short::<Q8_0>(b, bytes, scale, x, out),
        GgmlType::Q4_0 => short::<Q4_0>(b, bytes, scale, x, out),
        GgmlType::Q4_1 => short::<Q4_1>(b, bytes, scale, x, out),
        GgmlType::Q5_0 => short::<Q5_0>(b, bytes, scale, x, out),
        GgmlType::Q5_1 => short::<Q5_1>(b, bytes, scale, x, out),
        GgmlType::IQ4_NL => short::<Iq4Nl>(b, bytes, scale, x, out),
        GgmlType::MXFP4 => short::<Mxfp4>(b, bytes, scale, x, out),
        GgmlType::Q2_0 => short::<Q2_0>(b, bytes, scale, x, out),
        GgmlType::Q2_K => long::<Q2K>(b, bytes, scale, x, out),
        GgmlType::Q3_K => long::<Q3K>(b, bytes, scale, x, out),
        GgmlType::Q4_K => long::<Q4K>(b, bytes, scale, x, out),
        GgmlType::Q5_K => long::<Q5K>(b, bytes, scale, x, out),
        GgmlType::Q6_K => long::<Q6K>(b, bytes, scale, x, out),
        GgmlType::IQ1_S => long::<Iq1S>(b, bytes, scale, x, out),
        GgmlType::IQ1_M => long::<Iq1M>(b, bytes, scale, x, out),
        GgmlType::IQ2_XXS => long::<Iq2Xxs>(b, bytes, scale, x, out),
        GgmlType::IQ2_XS => long::<Iq2Xs>(b, bytes, scale, x, out),
        GgmlType::IQ2_S => long::<Iq2S>(b, bytes, scale, x, out),
        GgmlType::IQ3_XXS => long::<Iq3Xxs>(b, bytes, scale, x, out),
        GgmlType::IQ3_S => long::<Iq3S>(b, bytes, scale, x, out),
        GgmlType::IQ4_XS => long::<Iq4Xs>(b, bytes, scale, x, out),
        // NVFP4's runs of 16 have no kernel of their own; float types do not come here.
        GgmlType::NVFP4 | GgmlType::F32 | GgmlType::F16 | GgmlType::BF16 => {
            rows_scalar(ty, layout, bytes, scale, x, out);
        }
    }
}

/// Types whose units have 32 values.
#[target_feature(enable = "avx2,fma,f16c")]
fn short<F: Format>(block_bytes: usize, bytes: &[u8], scale: f32, x: &Activations, out: &mut [f32]) {
    product::<F, { 32 * PARTIALS }>(block_bytes, bytes, scale, x, out);
}

/// Types whose units have 256 values.
#[target_feature(enable = "avx2,fma,f16c")]
fn long<F: Format>(block_bytes: usize, bytes: &[u8], scale: f32, x: &Activations, out: &mut [f32]) {
    product::<F, { 256 * PARTIALS }>(block_bytes, bytes, scale, x, out);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn product<F: Format, const LEVELS: usize>(
    block_bytes: usize,
    bytes: &[u8],
    scale: f32,
    x: &Activations,
    out: &mut [f32],
) {
    let units = x.cols() / F::VALUES;
    let stride = units / F::PER_BLOCK * block_bytes;
    let mut chunk = Chunk::<LEVELS> {
        levels: [0; LEVELS],
        scales: [[0; 16]; PARTIALS],
        mins: [[0; 16]; PARTIALS],
        d: [0.0; PARTIALS],
        d_min: [0.0; PARTIALS],
    };
    let mut sums = vec![[0.0f32; PARTIALS]; x.rows()];
    for (row, out) in bytes.chunks_exact(stride).zip(out.chunks_exact_mut(x.rows())) {
        sums.fill([0.0; PARTIALS]);
        for first in (0..units).step_by(PARTIALS) {
            let n = PARTIALS.min(units - first);
            // All but the last chunk are whole: for those the number of units is known to the compiler.
            if n == PARTIALS {
                fill::<F, LEVELS>(&mut chunk, row, block_bytes, first, PARTIALS);
                for (t, sums) in sums.iter_mut().enumerate() {
                    multiply::<F, LEVELS>(&chunk, x, t, first, PARTIALS, sums);
                }
            } else {
                fill::<F, LEVELS>(&mut chunk, row, block_bytes, first, n);
                for (t, sums) in sums.iter_mut().enumerate() {
                    multiply::<F, LEVELS>(&chunk, x, t, first, n, sums);
                }
            }
        }
        for (out, sums) in out.iter_mut().zip(&sums) {
            *out = join(*sums) * scale;
        }
    }
}

/// Takes `n` units of a row apart, from unit `first` on; those beyond count as zeros.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn fill<F: Format, const LEVELS: usize>(
    chunk: &mut Chunk<LEVELS>,
    row: &[u8],
    block_bytes: usize,
    first: usize,
    n: usize,
) {
    let mut scales = Scales::PLAIN;
    for i in 0..n {
        let u = first + i;
        let block = &row[u / F::PER_BLOCK * block_bytes..][..block_bytes];
        let levels = &mut chunk.levels[i * F::VALUES..(i + 1) * F::VALUES];
        F::unpack(block, u % F::PER_BLOCK, levels, &mut scales);
        (chunk.d[i], chunk.d_min[i]) = (scales.d, scales.d_min);
        if F::VALUES == LONGEST {
            for g in 0..8 {
                (chunk.scales[i][g], chunk.scales[i][8 + g]) = (scales.scales[2 * g], scales.scales[2 * g + 1]);
            }
            chunk.mins[i] = scales.mins;
        }
    }
    for i in n..PARTIALS {
        (chunk.d[i], chunk.d_min[i]) = (0.0, 0.0);
    }
}

/// Multiplies a chunk with row `t` of the inputs.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn multiply<F: Format, const LEVELS: usize>(
    chunk: &Chunk<LEVELS>,
    x: &Activations,
    t: usize,
    first: usize,
    n: usize,
    sums: &mut [f32; PARTIALS],
) {
    let x = x.row(t);
    let at = first * F::VALUES;
    let (values, group_sums) = (&x.values[at..at + n * F::VALUES], &x.sums[at / SUM..(at + n * F::VALUES) / SUM]);
    let zero = _mm256_setzero_si256();
    let (mut products, mut mins) = ([zero; PARTIALS], [zero; PARTIALS]);
    let ones = _mm256_set1_epi16(1);
    let mut a = [0.0f32; PARTIALS];
    for i in 0..n {
        if F::VALUES == 32 {
            let pairs = pair_products(&chunk.levels[32 * i..], &values[32 * i..]);
            products[i] = _mm256_madd_epi16(pairs, ones);
            a[i] = x.scales[first + i];
        } else {
            // SAFETY: the array holds 32 bytes.
            let scales = unsafe { _mm256_loadu_si256(chunk.scales[i].as_ptr().cast()) };
            let mut sum = zero;
            for c in 0..8 {
                let pairs = pair_products(&chunk.levels[256 * i + 32 * c..], &values[256 * i + 32 * c..]);
                // Group 2c in the low half, group 2c + 1 in the high half, as the values lie.
                let pick = _mm256_set1_epi16(0x0100 + 0x0202 * c as i16);
                sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_shuffle_epi8(scales, pick)));
            }
            products[i] = sum;
            a[i] = x.scales[(first + i) * 8];
            if F::MINS {
                // SAFETY: the array holds 32 bytes, and the row 16 sums for each unit of 256.
                let (m, s) = unsafe {
                    let s = group_sums[16 * i..16 * i + 16].as_ptr();
                    (_mm256_loadu_si256(chunk.mins[i].as_ptr().cast()), _mm256_loadu_si256(s.cast()))
                };
                mins[i] = _mm256_madd_epi16(m, s);
            }
        }
    }
    // SAFETY: each array holds eight floats.
    let (d, d_min, a, mut acc) = unsafe {
        let load = |p: &[f32; 8]| _mm256_loadu_ps(p.as_ptr());
        (load(&chunk.d), load(&chunk.d_min), load(&a), load(sums))
    };
    acc = _mm256_fmadd_ps(_mm256_mul_ps(d, a), _mm256_cvtepi32_ps(total(&products)), acc);
    if F::MINS {
        let m = if F::VALUES == 32 {
            let mut by_unit = [0i32; PARTIALS];
            for i in 0..n {
                by_unit[i] = i32::from(group_sums[2 * i]) + i32::from(group_sums[2 * i + 1]);
            }
            // SAFETY: the array holds eight integers.
            unsafe { _mm256_loadu_si256(by_unit.as_ptr().cast()) }
        } else {
            total(&mins)
        };
        acc = _mm256_fnmadd_ps(_mm256_mul_ps(d_min, a), _mm256_cvtepi32_ps(m), acc);
    }
    // SAFETY: the array holds eight floats.
    unsafe { _mm256_storeu_ps(sums.as_mut_ptr(), acc) };
}

/// Products of 32 levels and activations, added in pairs: at most 2 * 128 * 127, which 16 bits hold.
#[inline]
#[target_feature(enable = "avx2")]
fn pair_products(levels: &[i8], values: &[i8]) -> __m256i {
    let (levels, values) = (&levels[..32], &values[..32]);
    // SAFETY: both slices hold 32 bytes.
    let (w, x) = unsafe { (_mm256_loadu_si256(levels.as_ptr().cast()), _mm256_loadu_si256(values.as_ptr().cast())) };
    // The instruction wants one unsigned side: |w| and x with w's sign.
    _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
}

/// The sum of each of eight vectors, in order.
#[inline]
#[target_feature(enable = "avx2")]
fn total(v: &[__m256i; 8]) -> __m256i {
    let pairs = |i: usize| _mm256_hadd_epi32(v[i], v[i + 1]);
    let (low, high) = (_mm256_hadd_epi32(pairs(0), pairs(2)), _mm256_hadd_epi32(pairs(4), pairs(6)));
    _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31))
}
