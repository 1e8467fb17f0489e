//! Levels and products 64 at a time.

use super::*;

/// Runs of a unit.
pub(super) const RUNS: usize = 4;

/// 64 levels and their scales.
#[derive(Clone, Copy)]
pub(super) struct Run {
    bytes: __m512i,
    scales: __m512i,
}

/// Run `r` of a unit.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) fn run<F: Long<BYTES>, const BYTES: usize>(
    block: &[u8; BYTES],
    entries: &Entries,
    spread: __m256i,
    r: usize,
) -> Run {
    Run {
        // SAFETY: this function is compiled for those features, so it runs on a processor that has them.
        bytes: unsafe { F::wide_bytes(block, entries, r) },
        scales: join_halves(pick(spread, 2 * r), pick(spread, 2 * r + 1)),
    }
}

/// Multiplies unit `u` of a row, number `i` of its chunk.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) fn multiply<F: Long<BYTES>, const BYTES: usize, const N: usize>(
    runs: impl Iterator<Item = Run>,
    offset: __m256i,
    mins: __m256i,
    x: [Input<'_>; N],
    u: usize,
    i: usize,
    results: &mut Results<N>,
) {
    let mut products = results.begin::<F, BYTES>(offset, mins, x, u, i).map(|p| _mm512_zextsi256_si512(p));
    let mut values = [&[[0; 64]; 0][..]; N];
    for t in 0..N {
        values[t] = x[t].values[u].as_chunks().0;
    }
    for (r, run) in runs.enumerate().take(RUNS) {
        for t in 0..N {
            let pairs = pairs_wide(F::SIGN, run.bytes, load_wide(&values[t][r]));
            products[t] = _mm512_add_epi32(products[t], _mm512_madd_epi16(pairs, run.scales));
        }
    }
    for t in 0..N {
        let (low, high) = (_mm512_castsi512_si256(products[t]), _mm512_extracti64x4_epi64::<1>(products[t]));
        results.products[t][i] = _mm256_add_epi32(low, high);
    }
}
