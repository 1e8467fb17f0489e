//! Products with float weights: bit for bit what [`crate::dot`] computes.
//!
//! The 32 partial sums of several inputs stay in registers while a row of weights goes by.

use crate::ahead::fetch_ahead;
use crate::dot::{LANES, decode, join};
use std::arch::x86_64::*;
use strata_gguf::GgmlType;

/// A type of float weights.
trait Float {
    const TYPE: GgmlType;
    /// Bytes of a value.
    const BYTES: usize;

    /// Eight values from 8 * [`BYTES`](Float::BYTES) bytes on.
    ///
    /// # Safety
    /// The processor has AVX2 and F16C; the bytes can be read.
    unsafe fn eight(from: *const u8) -> __m256;

    /// Sixteen values from 16 * [`BYTES`](Float::BYTES) bytes on.
    ///
    /// # Safety
    /// The processor has AVX-512 F; the bytes can be read.
    unsafe fn sixteen(from: *const u8) -> __m512;
}

struct F32;
struct F16;
struct BF16;

impl Float for F32 {
    const TYPE: GgmlType = GgmlType::F32;
    const BYTES: usize = 4;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn eight(from: *const u8) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_loadu_ps(from.cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn sixteen(from: *const u8) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_loadu_ps(from.cast()) }
    }
}

impl Float for F16 {
    const TYPE: GgmlType = GgmlType::F16;
    const BYTES: usize = 2;

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn eight(from: *const u8) -> __m256 {
        // SAFETY: the caller's promise.
        _mm256_cvtph_ps(unsafe { _mm_loadu_si128(from.cast()) })
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn sixteen(from: *const u8) -> __m512 {
        // SAFETY: the caller's promise.
        _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(from.cast()) })
    }
}

impl Float for BF16 {
    const TYPE: GgmlType = GgmlType::BF16;
    const BYTES: usize = 2;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn eight(from: *const u8) -> __m256 {
        // SAFETY: the caller's promise.
        let halves = unsafe { _mm_loadu_si128(from.cast()) };
        _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn sixteen(from: *const u8) -> __m512 {
        // SAFETY: the caller's promise.
        let halves = unsafe { _mm256_loadu_si256(from.cast()) };
        _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16))
    }
}

macro_rules! level {
    (
        $(#[$doc:meta])* $name:ident $of:ident $features:literal, $many:literal inputs, $width:literal values,
        $zero:ident $weights:ident $load:ident $fma:ident $store:ident
    ) => {
        $(#[$doc])*
        #[target_feature(enable = $features)]
        pub(crate) fn $name(ty: GgmlType, rows: &[u8], cols: usize, scale: f32, x: &[f32], out: &mut [f32]) {
            match ty {
                GgmlType::BF16 => $of::<BF16>(rows, cols, scale, x, out),
                GgmlType::F16 => $of::<F16>(rows, cols, scale, x, out),
                _ => $of::<F32>(rows, cols, scale, x, out),
            }
        }

        #[target_feature(enable = $features)]
        fn $of<F: Float>(rows: &[u8], cols: usize, scale: f32, x: &[f32], out: &mut [f32]) {
            /// Vectors of partial sums.
            const VECTORS: usize = LANES / $width;

            /// Columns `first` to `first + N - 1` of the output.
            #[target_feature(enable = $features)]
            fn columns<F: Float, const N: usize>(
                rows: &[u8],
                cols: usize,
                scale: f32,
                x: &[f32],
                first: usize,
                out: &mut [f32],
            ) {
                let inputs = x.len() / cols;
                let x: [&[f32]; N] = std::array::from_fn(|n| &x[(first + n) * cols..(first + n + 1) * cols]);
                let whole = cols / LANES * LANES;
                let (mut rest, len) = ([0.0; LANES], cols - whole);
                for (row, out) in rows.chunks_exact(cols * F::BYTES).zip(out.chunks_exact_mut(inputs)) {
                    let mut sums = [[$zero(); VECTORS]; N];
                    for at in (0..whole).step_by(LANES) {
                        fetch_ahead(&row[at * F::BYTES..(at + LANES) * F::BYTES]);
                        for v in 0..VECTORS {
                            let i = at + v * $width;
                            // SAFETY: the row and the inputs have `cols` values, and a vector's end is at most `whole`.
                            let weights = unsafe { F::$weights(row.as_ptr().add(i * F::BYTES)) };
                            for n in 0..N {
                                // SAFETY: as above.
                                let x = unsafe { $load(x[n].as_ptr().add(i)) };
                                sums[n][v] = $fma(weights, x, sums[n][v]);
                            }
                        }
                    }
                    // Most rows have no values beyond whole vectors.
                    if len > 0 {
                        decode(F::TYPE, &row[whole * F::BYTES..], &mut rest[..len]);
                    }
                    for n in 0..N {
                        let mut lanes = [0.0; LANES];
                        for (v, lanes) in lanes.as_chunks_mut::<$width>().0.iter_mut().enumerate() {
                            // SAFETY: the array holds a vector.
                            unsafe { $store(lanes.as_mut_ptr(), sums[n][v]) };
                        }
                        for ((lane, weight), x) in lanes.iter_mut().zip(&rest[..len]).zip(&x[n][whole..]) {
                            *lane = weight.mul_add(*x, *lane);
                        }
                        out[first + n] = join(lanes) * scale;
                    }
                }
            }

            let inputs = x.len() / cols.max(1);
            let mut first = 0;
            while first + $many <= inputs {
                columns::<F, $many>(rows, cols, scale, x, first, out);
                first += $many;
            }
            while first < inputs {
                columns::<F, 1>(rows, cols, scale, x, first, out);
                first += 1;
            }
        }
    };
}

level!(
    /// `out[r][t] = scale * (row r) · x[t]`, with AVX2: twelve registers hold the sums of three inputs.
    rows rows_of "avx2,fma,f16c", 3 inputs, 8 values,
    _mm256_setzero_ps eight _mm256_loadu_ps _mm256_fmadd_ps _mm256_storeu_ps
);
level!(
    /// `out[r][t] = scale * (row r) · x[t]`, with AVX-512: sixteen registers hold the sums of eight inputs.
    rows_wide rows_wide_of "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni", 8 inputs, 16 values,
    _mm512_setzero_ps sixteen _mm512_loadu_ps _mm512_fmadd_ps _mm512_storeu_ps
);
