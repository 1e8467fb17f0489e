//! Integer results of units, and how they become floats.

use super::*;

/// The integer results of eight units for `N` inputs: of each eight sums, whose total counts.
///
/// What a chunk of fewer units leaves from earlier ones is multiplied with scales of zero.
pub(super) struct Results<const N: usize> {
    pub(super) products: [[__m256i; PARTIALS]; N],
    mins: [[__m256i; PARTIALS]; N],
}

impl<const N: usize> Results<N> {
    // SAFETY: zero bits are vectors of integers.
    pub(super) const ZERO: Results<N> = unsafe { std::mem::zeroed() };

    /// What unit `u`, number `i` of its chunk, adds beside its levels: the minimums, and as the products' first part
    /// what the offset of the levels is too much.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn begin<F: Long<BYTES>, const BYTES: usize>(
        &mut self,
        offset: __m256i,
        mins: __m256i,
        x: [Input<'_>; N],
        u: usize,
        i: usize,
    ) -> [__m256i; N] {
        let mut products = [_mm256_setzero_si256(); N];
        for t in 0..N {
            match F::SIGN {
                Sign::Offset(o) if o != 0 => products[t] = _mm256_madd_epi16(offset, load_sums(&x[t].sums[u])),
                _ => {}
            }
            if F::MINS {
                self.mins[t][i] = _mm256_madd_epi16(mins, load_sums(&x[t].sums[u]));
            }
        }
        products
    }

    /// Adds the results of chunk `c` to the eight partial sums of each input.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    pub(super) fn add<F: Long<BYTES>, const BYTES: usize>(
        &self,
        d: &[f32; PARTIALS],
        d_min: &[f32; PARTIALS],
        x: [Input<'_>; N],
        c: usize,
        sums: &mut [__m256; N],
    ) {
        for t in 0..N {
            let (d, d_min, a) = (load_floats(d), load_floats(d_min), load_floats(&x[t].scales[c]));
            sums[t] = self.onto::<F, BYTES>(t, d, d_min, a, sums[t]);
        }
    }

    /// The outputs of eight rows of a unit each, for each input.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    pub(super) fn singles<F: Long<BYTES>, const BYTES: usize>(
        &self,
        d: &[f32; PARTIALS],
        d_min: &[f32; PARTIALS],
        x: [Input<'_>; N],
        scale: f32,
    ) -> [[f32; PARTIALS]; N] {
        let mut out = [[0.0; PARTIALS]; N];
        for t in 0..N {
            let a = _mm256_set1_ps(x[t].scales[0][0]);
            let sums = self.onto::<F, BYTES>(t, load_floats(d), load_floats(d_min), a, _mm256_setzero_ps());
            out[t] = store_floats(_mm256_mul_ps(sums, _mm256_set1_ps(scale)));
        }
        out
    }

    /// Adds the results for input `t` to eight partial sums.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn onto<F: Long<BYTES>, const BYTES: usize>(
        &self,
        t: usize,
        d: __m256,
        d_min: __m256,
        a: __m256,
        sums: __m256,
    ) -> __m256 {
        let product = _mm256_cvtepi32_ps(total(&self.products[t]));
        let sums = _mm256_fmadd_ps(_mm256_mul_ps(d, a), product, sums);
        if F::MINS {
            let mins = _mm256_cvtepi32_ps(total(&self.mins[t]));
            _mm256_fnmadd_ps(_mm256_mul_ps(d_min, a), mins, sums)
        } else {
            sums
        }
    }
}

/// The sum of each of eight vectors, in order.
#[inline]
#[target_feature(enable = "avx2")]
fn total(v: &[__m256i; 8]) -> __m256i {
    let pairs = |i: usize| _mm256_hadd_epi32(v[i], v[i + 1]);
    let (low, high) = (_mm256_hadd_epi32(pairs(0), pairs(2)), _mm256_hadd_epi32(pairs(4), pairs(6)));
    _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31))
}
