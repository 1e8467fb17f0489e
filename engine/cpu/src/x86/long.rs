//! Types whose units have 256 values with integer scales.

use super::{Sign, join, join_halves, load_floats, load_sums, load_values, load_wide, pairs, pairs_wide, store_floats};
use crate::activations::Activations;
use crate::ahead::fetch_ahead;
use crate::product::PARTIALS;
use results::Results;
use std::arch::x86_64::*;

mod narrow;
mod results;
mod wide;

/// How a unit of a type is taken apart. `BYTES` is its size.
pub(super) trait Long<const BYTES: usize> {
    const SIGN: Sign;
    /// Whether the type has minimums.
    const MINS: bool = false;

    /// Where levels are looked up.
    const BOOK: Book = Book::None;

    /// The rows of [`BOOK`](Long::BOOK) that make up a unit, and the changes of their levels. Numbers of rows must be
    /// within the book for any bytes.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[inline]
    unsafe fn numbers(_: &[u8; BYTES], _: &mut Entries) {}

    /// The scales of a unit.
    ///
    /// # Safety
    /// The processor has AVX2 and F16C.
    unsafe fn scales(block: &[u8; BYTES]) -> Scales;

    /// Levels `32 * run` to `32 * run + 31`, with the offset of [`SIGN`](Long::SIGN) added.
    ///
    /// # Safety
    /// The processor has AVX2.
    unsafe fn bytes(block: &[u8; BYTES], entries: &Entries, run: usize) -> __m256i;

    /// Levels `64 * run` to `64 * run + 63`, likewise.
    ///
    /// # Safety
    /// The processor has AVX2 and AVX-512 F and BW.
    #[inline]
    #[target_feature(enable = "avx2,avx512f,avx512bw")]
    unsafe fn wide_bytes(block: &[u8; BYTES], entries: &Entries, run: usize) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { join_halves(Self::bytes(block, entries, 2 * run), Self::bytes(block, entries, 2 * run + 1)) }
    }
}

/// A code book.
#[derive(Clone, Copy)]
pub(super) enum Book {
    None,
    /// Rows of four levels.
    Fours(&'static [u32]),
    /// Rows of eight levels.
    Eights(&'static [u64]),
}

/// What is looked up for a unit.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(super) struct Entries {
    /// 256 bytes, by rows of a code book.
    pub(super) levels: [u8; 256],
    /// For each 32 levels what changes them: signs, or shifts.
    pub(super) changes: [u32; 8],
    /// Numbers of rows.
    numbers: [u16; 64],
}

impl Entries {
    const ZERO: Entries = Entries { levels: [0; 256], changes: [0; 8], numbers: [0; 64] };

    /// Sixteen numbers of rows, from number `16 * part` on.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn set(&mut self, part: usize, numbers: __m256i) {
        // SAFETY: the array holds 32 bytes.
        unsafe { _mm256_storeu_si256(self.numbers.as_chunks_mut::<16>().0[part].as_mut_ptr().cast(), numbers) };
    }
}

/// The scales of a unit.
#[derive(Clone, Copy)]
pub(super) struct Scales {
    /// Integer scale of each group of 16 values.
    pub(super) scales: __m256i,
    /// Integer minimum of each group.
    pub(super) mins: __m256i,
    pub(super) d: f32,
    pub(super) d_min: f32,
}

impl Scales {
    /// Scales without minimums.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn plain(scales: __m256i, d: f32) -> Scales {
        Scales { scales, mins: _mm256_setzero_si256(), d, d_min: 0.0 }
    }
}

/// A row of activations.
#[derive(Clone, Copy)]
struct Input<'a> {
    values: &'a [[i8; 256]],
    sums: &'a [[i16; 16]],
    /// The scale of each unit, filled up with zeros to whole chunks.
    scales: &'a [[f32; PARTIALS]],
}

impl<'a> Input<'a> {
    fn new(x: &'a Activations, t: usize) -> Input<'a> {
        let row = x.row(t);
        Input { values: row.values.as_chunks().0, sums: row.sums.as_chunks().0, scales: x.unit_scales(t) }
    }
}

/// Inputs that a row is multiplied with before it is taken apart anew.
const FEW: usize = 4;

/// The loops around taking apart and multiplying, compiled for an instruction set.
macro_rules! loops {
    ($level:ident $features:literal $width:ident) => {
        pub(super) mod $level {
            use super::$width::{RUNS, Run, multiply, run};
            use super::*;

            /// `out[r][t] = scale * (row r) · x[t]`
            #[target_feature(enable = $features)]
            pub(in crate::x86) fn product<F: Long<BYTES>, const BYTES: usize>(
                bytes: &[u8],
                scale: f32,
                x: &Activations,
                out: &mut [f32],
            ) {
                let rows = Rows::<BYTES> { blocks: bytes.as_chunks().0, per_row: x.cols() / 256, scale };
                let x: Vec<Input<'_>> = (0..x.rows()).map(|t| Input::new(x, t)).collect();
                if rows.per_row == 1 {
                    return match *x.as_slice() {
                        [a] => rows.single_by_few::<F, 1>([a], out),
                        [a, b] => rows.single_by_few::<F, 2>([a, b], out),
                        [a, b, c] => rows.single_by_few::<F, 3>([a, b, c], out),
                        [a, b, c, d] => rows.single_by_few::<F, FEW>([a, b, c, d], out),
                        _ => rows.single_by_many::<F>(&x, out),
                    };
                }
                match *x.as_slice() {
                    [a] => rows.by_few::<F, 1>([a], out),
                    [a, b] => rows.by_few::<F, 2>([a, b], out),
                    [a, b, c] => rows.by_few::<F, 3>([a, b, c], out),
                    [a, b, c, d] => rows.by_few::<F, FEW>([a, b, c, d], out),
                    _ => rows.by_many::<F>(&x, out),
                }
            }

            /// A unit, taken apart.
            struct Taken {
                runs: [Run; RUNS],
                /// The scales of all groups, times the offset that levels have too much, negated.
                offset: __m256i,
                mins: __m256i,
            }

            /// Eight units, taken apart.
            #[derive(Default)]
            struct TakenChunk {
                units: Vec<Taken>,
                d: [f32; PARTIALS],
                d_min: [f32; PARTIALS],
            }

            /// Multiplies up to eight units where they are unpacked. `unit` says which of its row each one is; the
            /// scales of levels and minimums are returned.
            #[inline]
            #[target_feature(enable = $features)]
            fn each<F: Long<BYTES>, const BYTES: usize, const N: usize>(
                chunk: &[[u8; BYTES]],
                unit: impl Fn(usize) -> usize,
                x: [Input<'_>; N],
                entries: &mut [Entries; PARTIALS],
                results: &mut Results<N>,
            ) -> ([f32; PARTIALS], [f32; PARTIALS]) {
                look_up::<F, BYTES>(chunk, entries);
                let (mut d, mut d_min) = ([0.0; PARTIALS], [0.0; PARTIALS]);
                for (i, (block, entries)) in chunk.iter().zip(&*entries).enumerate() {
                    // SAFETY: this function is compiled for those features and runs where they are.
                    let s = unsafe { F::scales(block) };
                    let spread = spread(s.scales);
                    let runs = (0..RUNS).map(|r| run::<F, BYTES>(block, entries, spread, r));
                    multiply::<F, BYTES, N>(runs, offset::<F, BYTES>(s.scales), s.mins, x, unit(i), i, results);
                    (d[i], d_min[i]) = (s.d, s.d_min);
                }
                (d, d_min)
            }

            /// Takes up to eight units apart.
            #[target_feature(enable = $features)]
            fn take<F: Long<BYTES>, const BYTES: usize>(
                chunk: &[[u8; BYTES]],
                entries: &mut [Entries; PARTIALS],
                taken: &mut TakenChunk,
            ) {
                look_up::<F, BYTES>(chunk, entries);
                taken.units.clear();
                for (i, (block, entries)) in chunk.iter().zip(&*entries).enumerate() {
                    // SAFETY: this function is compiled for those features and runs where they are.
                    let s = unsafe { F::scales(block) };
                    let spread = spread(s.scales);
                    taken.units.push(Taken {
                        runs: std::array::from_fn(|r| run::<F, BYTES>(block, entries, spread, r)),
                        offset: offset::<F, BYTES>(s.scales),
                        mins: s.mins,
                    });
                    (taken.d[i], taken.d_min[i]) = (s.d, s.d_min);
                }
            }

            /// Rows of weights.
            struct Rows<'a, const BYTES: usize> {
                blocks: &'a [[u8; BYTES]],
                per_row: usize,
                scale: f32,
            }

            impl<const BYTES: usize> Rows<'_, BYTES> {
                /// Levels are multiplied where they are unpacked.
                #[target_feature(enable = $features)]
                fn by_few<F: Long<BYTES>, const N: usize>(&self, x: [Input<'_>; N], out: &mut [f32]) {
                    let mut entries = [Entries::ZERO; PARTIALS];
                    let mut results = Results::ZERO;
                    for (row, out) in self.blocks.chunks_exact(self.per_row).zip(out.as_chunks_mut::<N>().0) {
                        let mut sums = [_mm256_setzero_ps(); N];
                        for (c, chunk) in row.chunks(PARTIALS).enumerate() {
                            let unit = |i| c * PARTIALS + i;
                            let (d, d_min) = each::<F, BYTES, N>(chunk, unit, x, &mut entries, &mut results);
                            results.add::<F, BYTES>(&d, &d_min, x, c, &mut sums);
                        }
                        *out = sums.map(|sums| join(sums) * self.scale);
                    }
                }

                /// [`by_few`](Rows::by_few) for rows of one unit.
                ///
                /// Such a row has one partial sum that is not zero, so the eight units of a chunk may belong to eight
                /// rows.
                #[target_feature(enable = $features)]
                fn single_by_few<F: Long<BYTES>, const N: usize>(&self, x: [Input<'_>; N], out: &mut [f32]) {
                    let mut entries = [Entries::ZERO; PARTIALS];
                    let mut results = Results::ZERO;
                    for (chunk, out) in self.blocks.chunks(PARTIALS).zip(out.chunks_mut(PARTIALS * N)) {
                        let (d, d_min) = each::<F, BYTES, N>(chunk, |_| 0, x, &mut entries, &mut results);
                        for (t, sums) in results.singles::<F, BYTES>(&d, &d_min, x, self.scale).iter().enumerate() {
                            for (out, value) in out.as_chunks_mut::<N>().0.iter_mut().zip(sums) {
                                out[t] = *value;
                            }
                        }
                    }
                }

                /// [`by_many`](Rows::by_many) for rows of one unit.
                #[target_feature(enable = $features)]
                fn single_by_many<F: Long<BYTES>>(&self, x: &[Input<'_>], out: &mut [f32]) {
                    let mut entries = [Entries::ZERO; PARTIALS];
                    let mut taken = TakenChunk::default();
                    let (mut few, mut one) = (Results::ZERO, Results::ZERO);
                    let inputs = x.len();
                    let (tiles, rest) = x.as_chunks::<FEW>();
                    for (chunk, out) in self.blocks.chunks(PARTIALS).zip(out.chunks_mut(PARTIALS * inputs)) {
                        take::<F, BYTES>(chunk, &mut entries, &mut taken);
                        let mut put = |t: usize, rows: [f32; PARTIALS]| {
                            for (out, value) in out.chunks_exact_mut(inputs).zip(rows) {
                                out[t] = value;
                            }
                        };
                        for (tile, &x) in tiles.iter().enumerate() {
                            let results = times_rows::<F, BYTES, FEW>(&taken, x, self.scale, &mut few);
                            results.into_iter().enumerate().for_each(|(n, rows)| put(tile * FEW + n, rows));
                        }
                        for (n, &x) in rest.iter().enumerate() {
                            let [rows] = times_rows::<F, BYTES, 1>(&taken, [x], self.scale, &mut one);
                            put(tiles.len() * FEW + n, rows);
                        }
                    }
                }

                /// Each row is taken apart once.
                #[target_feature(enable = $features)]
                fn by_many<F: Long<BYTES>>(&self, x: &[Input<'_>], out: &mut [f32]) {
                    let mut entries = [Entries::ZERO; PARTIALS];
                    let mut taken = Vec::new();
                    taken.resize_with(self.per_row.div_ceil(PARTIALS), TakenChunk::default);
                    for (row, out) in self.blocks.chunks_exact(self.per_row).zip(out.chunks_exact_mut(x.len())) {
                        for (chunk, taken) in row.chunks(PARTIALS).zip(&mut taken) {
                            take::<F, BYTES>(chunk, &mut entries, taken);
                        }
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

            /// Eight rows of a unit each, times some inputs.
            #[inline]
            #[target_feature(enable = $features)]
            fn times_rows<F: Long<BYTES>, const BYTES: usize, const N: usize>(
                rows: &TakenChunk,
                x: [Input<'_>; N],
                scale: f32,
                results: &mut Results<N>,
            ) -> [[f32; PARTIALS]; N] {
                let all = std::hint::black_box(RUNS);
                for (i, taken) in rows.units.iter().enumerate() {
                    let runs = taken.runs.iter().copied().take(all);
                    multiply::<F, BYTES, N>(runs, taken.offset, taken.mins, x, 0, i, results);
                }
                results.singles::<F, BYTES>(&rows.d, &rows.d_min, x, scale)
            }

            /// A row that was taken apart, times some inputs.
            #[inline]
            #[target_feature(enable = $features)]
            fn times<F: Long<BYTES>, const BYTES: usize, const N: usize>(
                row: &[TakenChunk],
                x: [Input<'_>; N],
                scale: f32,
            ) -> [f32; N] {
                let mut sums = [_mm256_setzero_ps(); N];
                let mut results = Results::ZERO;
                // The compiler must not know how many there are: it would unroll the loop and run out of registers.
                let all = std::hint::black_box(RUNS);
                for (c, chunk) in row.iter().enumerate() {
                    for (i, taken) in chunk.units.iter().enumerate() {
                        let runs = taken.runs.iter().copied().take(all);
                        let u = c * PARTIALS + i;
                        multiply::<F, BYTES, N>(runs, taken.offset, taken.mins, x, u, i, &mut results);
                    }
                    results.add::<F, BYTES>(&chunk.d, &chunk.d_min, x, c, &mut sums);
                }
                sums.map(|sums| join(sums) * scale)
            }
        }
    };
}

loops!(avx2 "avx2,fma,f16c" narrow);
loops!(avx512 "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni" wide);

/// Looks up what eight units need.
///
/// In three passes, the third being the multiplication: single stores are slow to be read back as vectors, and numbers
/// are taken from memory faster than from vectors.
#[inline]
#[target_feature(enable = "avx2")]
fn look_up<F: Long<BYTES>, const BYTES: usize>(chunk: &[[u8; BYTES]], entries: &mut [Entries; PARTIALS]) {
    fetch_ahead(chunk);
    for (block, entries) in chunk.iter().zip(&mut *entries) {
        // SAFETY: this function is compiled for that feature, so it runs on a processor that has it.
        unsafe { F::numbers(block, entries) };
    }
    for Entries { levels, numbers, .. } in entries.iter_mut().take(chunk.len()) {
        match F::BOOK {
            Book::None => {}
            Book::Fours(book) => {
                for (levels, &n) in levels.as_chunks_mut::<4>().0.iter_mut().zip(&*numbers) {
                    // SAFETY: numbers are within the book. A comparison would be a quarter of the loop.
                    *levels = unsafe { book.get_unchecked(usize::from(n)) }.to_le_bytes();
                }
            }
            Book::Eights(book) => {
                for (levels, &n) in levels.as_chunks_mut::<8>().0.iter_mut().zip(&*numbers) {
                    // SAFETY: as above.
                    *levels = unsafe { book.get_unchecked(usize::from(n)) }.to_le_bytes();
                }
            }
        }
    }
}

/// Scales of even groups, then those of odd ones.
#[inline]
#[target_feature(enable = "avx2")]
fn spread(scales: __m256i) -> __m256i {
    let even_first = _mm256_setr_epi8(
        0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15,
    );
    _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_shuffle_epi8(scales, even_first))
}

/// The scales of 32 levels: group `2 run` in the low half, group `2 run + 1` in the high half, as the levels lie.
#[inline]
#[target_feature(enable = "avx2")]
fn pick(spread: __m256i, run: usize) -> __m256i {
    _mm256_shuffle_epi8(spread, _mm256_set1_epi16(0x0100 + 0x0202 * run as i16))
}

/// The scales of all groups, times the offset that levels have too much, negated.
#[inline]
#[target_feature(enable = "avx2")]
fn offset<F: Long<BYTES>, const BYTES: usize>(scales: __m256i) -> __m256i {
    match F::SIGN {
        Sign::Offset(offset) => _mm256_mullo_epi16(scales, _mm256_set1_epi16(-offset)),
        Sign::Apart => _mm256_setzero_si256(),
    }
}
