//! Types whose units have 32 values.

use super::{Sign, join_halves, load_floats, load_values, load_wide, pairs};
use crate::activations::{Activations, Row, tiles};
use crate::ahead::fetch_ahead;
use crate::arranged::{self, Order};
use crate::product::PARTIALS;
use std::arch::x86_64::*;

/// How eight units of a type are taken apart. `BYTES` is the size of a block.
pub(super) trait Short<const BYTES: usize> {
    /// Units in a block.
    const PER_BLOCK: usize = 1;
    /// The order of values in which [`bytes`](Short::bytes) come.
    const ORDER: Order = Order::Halves;
    const SIGN: Sign;
    /// Whether the type has minimums.
    const MINS: bool = false;

    /// The levels of eight units in the type's order, with the offset of [`SIGN`](Short::SIGN) added.
    ///
    /// # Safety
    /// The processor has AVX2.
    unsafe fn bytes(blocks: &Blocks<'_, BYTES>) -> [__m256i; 8];

    /// The scales of eight units, in lane order.
    ///
    /// # Safety
    /// The processor has AVX2 and F16C.
    unsafe fn d(blocks: &Blocks<'_, BYTES>) -> __m256;

    /// The scales of the minimums, in lane order.
    ///
    /// # Safety
    /// The processor has AVX2 and F16C.
    #[inline]
    unsafe fn d_min(_: &Blocks<'_, BYTES>) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_setzero_ps() }
    }
}

/// The blocks of eight units: beyond the end of a row the last one again.
pub(super) type Blocks<'a, const BYTES: usize> = [&'a [u8; BYTES]; PARTIALS];

/// Eight units, taken apart.
#[derive(Clone, Copy)]
struct Taken {
    bytes: [__m256i; 8],
    d: __m256,
    d_min: __m256,
}

/// Inputs that a row is multiplied with before it is taken apart anew.
const FEW: usize = 4;

/// Units whose results are kept before they are given to rows.
const AT_ONCE: usize = 128;

/// Results of units in their order, whichever rows they belong to. Behind the last there is room for a chunk.
struct Flat {
    d: Vec<f32>,
    d_min: Vec<f32>,
    products: Vec<f32>,
}

impl Flat {
    fn new(units: usize) -> Flat {
        let zeros = || vec![0.0; units.next_multiple_of(PARTIALS) + PARTIALS];
        Flat { d: zeros(), d_min: zeros(), products: zeros() }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn put_scales<F: Short<BYTES>, const BYTES: usize>(&mut self, c: usize, taken: &Taken) {
        put(&mut self.d, c, in_unit_order(F::ORDER, taken.d));
        if F::MINS {
            put(&mut self.d_min, c, in_unit_order(F::ORDER, taken.d_min));
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn put_products<F: Short<BYTES>, const BYTES: usize>(&mut self, c: usize, product: __m256i) {
        put(&mut self.products, c, in_unit_order(F::ORDER, _mm256_cvtepi32_ps(product)));
    }

    /// The product of the row whose first unit is `first` with an input.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn row<F: Short<BYTES>, const BYTES: usize>(&self, first: usize, x: &Lanes) -> f32 {
        // Scales of the next row may be infinite, and infinity times zero is no zero.
        let (a, counts) = (load_floats(&x.scales), load_floats(&x.counts));
        let d = _mm256_and_ps(get(&self.d, first), counts);
        let mut sums = _mm256_fmadd_ps(_mm256_mul_ps(d, a), get(&self.products, first), _mm256_setzero_ps());
        if F::MINS {
            let d_min = _mm256_and_ps(get(&self.d_min, first), counts);
            sums = _mm256_fnmadd_ps(_mm256_mul_ps(d_min, a), load_floats(&x.sums), sums);
        }
        super::join(sums)
    }
}

/// The units of an input, at most eight, in order.
struct Lanes {
    scales: [f32; PARTIALS],
    /// Sums of each unit's values.
    sums: [f32; PARTIALS],
    /// All bits set where there is a unit.
    counts: [f32; PARTIALS],
}

impl Lanes {
    fn new(x: Row<'_>) -> Lanes {
        let mut lanes = Lanes { scales: [0.0; PARTIALS], sums: [0.0; PARTIALS], counts: [0.0; PARTIALS] };
        for (lane, (&scale, &[a, b])) in x.scales.iter().zip(x.sums.as_chunks().0).enumerate().take(PARTIALS) {
            lanes.scales[lane] = scale;
            lanes.sums[lane] = f32::from(a) + f32::from(b);
            lanes.counts[lane] = f32::from_bits(u32::MAX);
        }
        lanes
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn put(values: &mut [f32], c: usize, v: __m256) {
    if let Some(values) = values.as_chunks_mut::<PARTIALS>().0.get_mut(c) {
        // SAFETY: the array holds eight floats.
        unsafe { _mm256_storeu_ps(values.as_mut_ptr(), v) };
    }
}

/// Eight values from `at` on, which there are.
#[inline]
#[target_feature(enable = "avx2")]
fn get(values: &[f32], at: usize) -> __m256 {
    values.get(at..).and_then(|v| v.first_chunk()).map_or(_mm256_setzero_ps(), |v| load_floats(v))
}

/// From lane order to the order of units.
#[inline]
#[target_feature(enable = "avx2")]
fn in_unit_order(order: Order, v: __m256) -> __m256 {
    let lanes = match order {
        Order::Halves => _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7),
        Order::Planes => _mm256_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7),
    };
    _mm256_permutevar8x32_ps(v, lanes)
}

/// The loops around taking apart and multiplying, compiled for an instruction set.
macro_rules! loops {
    ($level:ident $features:literal $integers:ident) => {
        pub(super) mod $level {
            use super::*;

            /// `out[r][t] = scale * (row r) · x[t]`
            #[target_feature(enable = $features)]
            pub(in crate::x86) fn product<F: Short<BYTES>, const BYTES: usize>(
                bytes: &[u8],
                scale: f32,
                x: &Activations,
                out: &mut [f32],
            ) {
                let rows = Rows::<BYTES> { blocks: bytes.as_chunks().0, per_row: x.cols() / 32 / F::PER_BLOCK, scale };
                let units = x.cols() / 32;
                if tiles(units) > 1 {
                    return rows.across::<F>(x, out);
                }
                let chunks_per_row = units.div_ceil(PARTIALS);
                let x: Vec<&[arranged::Chunk]> = x.arranged(F::ORDER).chunks_exact(chunks_per_row).collect();
                match *x.as_slice() {
                    [a] => rows.by_few::<F, 1>([a], out),
                    [a, b] => rows.by_few::<F, 2>([a, b], out),
                    [a, b, c] => rows.by_few::<F, 3>([a, b, c], out),
                    [a, b, c, d] => rows.by_few::<F, FEW>([a, b, c, d], out),
                    _ => rows.by_many::<F>(&x, chunks_per_row, out),
                }
            }

            /// Rows of weights.
            struct Rows<'a, const BYTES: usize> {
                blocks: &'a [[u8; BYTES]],
                per_row: usize,
                scale: f32,
            }

            impl<const BYTES: usize> Rows<'_, BYTES> {
                /// Nothing is written to memory between unpacking and multiplication.
                #[inline]
                #[target_feature(enable = $features)]
                fn by_few<F: Short<BYTES>, const N: usize>(&self, x: [&[arranged::Chunk]; N], out: &mut [f32]) {
                    for (row, out) in self.blocks.chunks_exact(self.per_row).zip(out.as_chunks_mut::<N>().0) {
                        let mut sums = [_mm256_setzero_ps(); N];
                        let mut c = 0;
                        each_chunk::<F, BYTES>(row, |taken| {
                            for (x, sums) in x.iter().zip(&mut sums) {
                                *sums =
                                    add::<F, BYTES>(&taken, &x[c], super::$integers::<F, BYTES>(&taken, &x[c]), *sums);
                            }
                            c += 1;
                        });
                        *out = finish::<F, BYTES, N>(sums, self.scale);
                    }
                }

                /// Rows of few units: chunks go on from one row to the next, and their results are given to rows
                /// afterwards.
                #[target_feature(enable = $features)]
                fn across<F: Short<BYTES>>(&self, x: &Activations, out: &mut [f32]) {
                    let (inputs, units) = (x.rows(), x.cols() / 32);
                    let tiles = tiles(units);
                    let period = tiles * units / PARTIALS;
                    let tiled = x.arranged(F::ORDER);
                    let lanes: Vec<Lanes> = (0..inputs).map(|t| Lanes::new(x.row(t))).collect();
                    let group = tiles * (AT_ONCE / (tiles * units)).max(1);
                    let mut taken = Vec::with_capacity(group * units / PARTIALS);
                    let mut flat = Flat::new(group * units);
                    let blocks = self.blocks.chunks(group * self.per_row);
                    for (blocks, out) in blocks.zip(out.chunks_mut(group * inputs)) {
                        taken.clear();
                        each_chunk::<F, BYTES>(blocks, |chunk| {
                            flat.put_scales::<F, BYTES>(taken.len(), &chunk);
                            taken.push(chunk);
                        });
                        let inputs_of = tiled.chunks_exact(period).zip(&lanes);
                        for (t, (x_chunks, lanes)) in inputs_of.enumerate() {
                            for (c, (taken, x)) in taken.iter().zip(x_chunks.iter().cycle()).enumerate() {
                                flat.put_products::<F, BYTES>(c, super::$integers::<F, BYTES>(taken, x));
                            }
                            for (r, out) in out.chunks_exact_mut(inputs).enumerate() {
                                out[t] = flat.row::<F, BYTES>(r * units, lanes) * self.scale;
                            }
                        }
                    }
                }

                /// Each row is taken apart once.
                #[target_feature(enable = $features)]
                fn by_many<F: Short<BYTES>>(&self, x: &[&[arranged::Chunk]], chunks: usize, out: &mut [f32]) {
                    let mut taken = Vec::with_capacity(chunks);
                    for (row, out) in self.blocks.chunks_exact(self.per_row).zip(out.chunks_exact_mut(x.len())) {
                        taken.clear();
                        each_chunk::<F, BYTES>(row, |chunk| taken.push(chunk));
                        let (x, last_x) = x.as_chunks::<FEW>();
                        let (out, last_out) = out.as_chunks_mut::<FEW>();
                        for (&x, out) in x.iter().zip(out) {
                            *out = times::<F, BYTES, FEW>(&taken, x, self.scale);
                        }
                        for (&x, out) in last_x.iter().zip(last_out) {
                            [*out] = times::<F, BYTES, 1>(&taken, [x], self.scale);
                        }
                    }
                }
            }

            /// A row that was taken apart, times some inputs.
            #[inline]
            #[target_feature(enable = $features)]
            fn times<F: Short<BYTES>, const BYTES: usize, const N: usize>(
                row: &[Taken],
                x: [&[arranged::Chunk]; N],
                scale: f32,
            ) -> [f32; N] {
                let mut sums = [_mm256_setzero_ps(); N];
                for (c, taken) in row.iter().enumerate() {
                    for (x, sums) in x.iter().zip(&mut sums) {
                        *sums = add::<F, BYTES>(taken, &x[c], super::$integers::<F, BYTES>(taken, &x[c]), *sums);
                    }
                }
                finish::<F, BYTES, N>(sums, scale)
            }

            /// Takes a row apart, eight units at a time.
            #[inline]
            #[target_feature(enable = $features)]
            fn each_chunk<F: Short<BYTES>, const BYTES: usize>(row: &[[u8; BYTES]], mut f: impl FnMut(Taken)) {
                let blocks = PARTIALS / F::PER_BLOCK;
                let mut rest = row;
                while let Some((chunk, others)) = rest.split_at_checked(blocks) {
                    rest = others;
                    fetch_ahead(chunk);
                    f(take::<F, BYTES>(std::array::from_fn(|i| &chunk[i % blocks]), PARTIALS));
                }
                if let Some(last) = rest.last() {
                    f(take::<F, BYTES>(
                        std::array::from_fn(|i| rest.get(i).unwrap_or(last)),
                        rest.len() * F::PER_BLOCK,
                    ));
                }
            }

            /// Takes eight units apart, of which the first `n` count.
            #[inline]
            #[target_feature(enable = $features)]
            fn take<F: Short<BYTES>, const BYTES: usize>(blocks: Blocks<'_, BYTES>, n: usize) -> Taken {
                // SAFETY: this function is compiled for those features, so it runs on a processor that has them.
                let (bytes, mut d, mut d_min) = unsafe { (F::bytes(&blocks), F::d(&blocks), F::d_min(&blocks)) };
                if n < PARTIALS {
                    // The scale of a block that was read again may be infinite, and infinity times zero is no zero.
                    let lanes = F::ORDER.lanes().map(|unit| if unit < n { -1.0f32 } else { 0.0 });
                    let there = _mm256_cmp_ps::<_CMP_LT_OQ>(load_floats(&lanes), _mm256_setzero_ps());
                    (d, d_min) = (_mm256_and_ps(d, there), _mm256_and_ps(d_min, there));
                }
                Taken { bytes, d, d_min }
            }
        }
    };
}

loops!(avx2 "avx2,fma,f16c" integers);
loops!(avx512 "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni" integers_wide);

/// Adds eight units to the eight partial sums, in lane order, given their integer products.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn add<F: Short<BYTES>, const BYTES: usize>(w: &Taken, x: &arranged::Chunk, product: __m256i, sums: __m256) -> __m256 {
    let a = load_floats(&x.scales);
    let sums = _mm256_fmadd_ps(_mm256_mul_ps(w.d, a), _mm256_cvtepi32_ps(product), sums);
    if F::MINS {
        // SAFETY: the array holds eight integers.
        let mins = unsafe { _mm256_loadu_si256(x.sums.as_ptr().cast()) };
        _mm256_fnmadd_ps(_mm256_mul_ps(w.d_min, a), _mm256_cvtepi32_ps(mins), sums)
    } else {
        sums
    }
}

/// The integer products of eight units, in lane order.
#[inline]
#[target_feature(enable = "avx2")]
fn integers<F: Short<BYTES>, const BYTES: usize>(w: &Taken, x: &arranged::Chunk) -> __m256i {
    let ones = _mm256_set1_epi16(1);
    let values = x.values.as_chunks::<32>().0;
    let pairs = |j: usize| pairs(F::SIGN, w.bytes[j], load_values(&values[j]));
    // 16-bit sums of four products still fit wherever levels are small enough to be made unsigned.
    let both = |a: __m256i, b: __m256i| match F::SIGN {
        Sign::Offset(_) => _mm256_madd_epi16(_mm256_add_epi16(a, b), ones),
        Sign::Apart => _mm256_add_epi32(_mm256_madd_epi16(a, ones), _mm256_madd_epi16(b, ones)),
    };
    let mut product = match F::ORDER {
        Order::Halves => {
            let unit_pair = |j: usize| both(pairs(j), pairs(j + 2));
            _mm256_hadd_epi32(
                _mm256_hadd_epi32(unit_pair(0), unit_pair(1)),
                _mm256_hadd_epi32(unit_pair(4), unit_pair(5)),
            )
        }
        Order::Planes => {
            let four =
                |j: usize| both(_mm256_add_epi16(pairs(j), pairs(j + 2)), _mm256_add_epi16(pairs(j + 4), pairs(j + 6)));
            _mm256_hadd_epi32(four(0), four(1))
        }
    };
    // SAFETY: the array holds eight integers.
    let sum = unsafe { _mm256_loadu_si256(x.sums.as_ptr().cast()) };
    if let Sign::Offset(offset) = F::SIGN {
        // A multiplication by a power of two, which the compiler makes a shift.
        product = _mm256_sub_epi32(product, _mm256_mullo_epi32(sum, _mm256_set1_epi32(offset.into())));
    }
    product
}

/// [`integers`] with AVX-512.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn integers_wide<F: Short<BYTES>, const BYTES: usize>(w: &Taken, x: &arranged::Chunk) -> __m256i {
    let values = x.values.as_chunks::<64>().0;
    // The instruction takes unsigned bytes and has 32 bits for sums, so an offset makes any levels unsigned.
    let offset = match F::SIGN {
        Sign::Offset(offset) => offset,
        Sign::Apart => 128,
    };
    let times = |sum: __m512i, j: usize| {
        let mut bytes = join_halves(w.bytes[2 * j], w.bytes[2 * j + 1]);
        if F::SIGN == Sign::Apart {
            bytes = _mm512_xor_si512(bytes, _mm512_set1_epi8(i8::MIN));
        }
        _mm512_dpbusd_epi32(sum, bytes, load_wide(&values[j]))
    };
    let halves = |v: __m512i| _mm256_hadd_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64::<1>(v));
    let zero = _mm512_setzero_si512();
    let product = match F::ORDER {
        Order::Halves => _mm256_hadd_epi32(halves(times(times(zero, 0), 1)), halves(times(times(zero, 2), 3))),
        Order::Planes => halves(times(times(times(times(zero, 0), 1), 2), 3)),
    };
    // SAFETY: the array holds eight integers.
    let sum = unsafe { _mm256_loadu_si256(x.sums.as_ptr().cast()) };
    _mm256_sub_epi32(product, _mm256_mullo_epi32(sum, _mm256_set1_epi32(offset.into())))
}

/// The partial sums joined, times the tensor's factor.
#[inline]
#[target_feature(enable = "avx2")]
fn finish<F: Short<BYTES>, const BYTES: usize, const N: usize>(sums: [__m256; N], scale: f32) -> [f32; N] {
    let mut out = [0.0; N];
    for (out, sums) in out.iter_mut().zip(sums) {
        *out = super::join(in_unit_order(F::ORDER, sums)) * scale;
    }
    out
}
