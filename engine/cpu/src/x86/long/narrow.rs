//! Levels and products 32 at a time.

use super::*;

/// Runs of a unit.
pub(super) const RUNS: usize = 8;

/// 32 levels and their scales.
#[derive(Clone, Copy)]
pub(super) struct Run {
    bytes: __m256i,
    scales: __m256i,
}

/// Run `r` of a unit.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn run<F: Long<BYTES>, const BYTES: usize>(
    block: &[u8; BYTES],
    entries: &Entries,
    spread: __m256i,
    r: usize,
) -> Run {
    // SAFETY: this function is compiled for that feature, so it runs on a processor that has it.
    Run { bytes: unsafe { F::bytes(block, entries, r) }, scales: pick(spread, r) }
}

/// Multiplies unit `u` of a row, number `i` of its chunk.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn multiply<F: Long<BYTES>, const BYTES: usize, const N: usize>(
    runs: impl Iterator<Item = Run>,
    offset: __m256i,
    mins: __m256i,
    x: [Input<'_>; N],
    u: usize,
    i: usize,
    results: &mut Results<N>,
) {
    let mut products = results.begin::<F, BYTES>(offset, mins, x, u, i);
    let mut values = [&[[0; 32]; 0][..]; N];
    for t in 0..N {
        values[t] = x[t].values[u].as_chunks().0;
    }
    for (r, run) in runs.enumerate().take(RUNS) {
        for t in 0..N {
            let pairs = pairs(F::SIGN, run.bytes, load_values(&values[t][r]));
            products[t] = _mm256_add_epi32(products[t], _mm256_madd_epi16(pairs, run.scales));
        }
    }
    for t in 0..N {
        results.products[t][i] = products[t];
    }
}
