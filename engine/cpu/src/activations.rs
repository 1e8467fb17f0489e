//! Activations as 8-bit integers, for products with integer weights.

use crate::arranged::{Chunk, Order, arrange};
use crate::isa::{Isa, per_isa};
use crate::product::PARTIALS;
use std::sync::OnceLock;

/// Values that share a scale beside weights of 256-value blocks.
pub(crate) const LONG_BLOCK: usize = 256;
/// Values that share a scale beside weights of shorter blocks, all of which are multiples of it or NVFP4's runs of 16.
pub(crate) const SHORT_BLOCK: usize = 32;

/// How many activations share a scale. It follows the type of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Block {
    /// 32 values.
    Short,
    /// 256 values.
    Long,
}
/// Values whose integers are added up for weights with an offset.
pub(crate) const SUM: usize = 16;

/// Blocks of magnitudes up to this are zeros: the reciprocal of less could overflow.
const TINY: f32 = 1e-30;

/// Rows of activations, quantised.
///
/// The rule: a block is 256 values beside weights of 256-value blocks (k-quants, i-quants), else 32. With `m` the largest magnitude
/// in the block, its scale is `m / 127` and each integer is `x * (127 / m)` rounded to nearest, ties to even. A block of
/// magnitudes up to 1e-30 has the scale 0. A block that holds NaN or infinity has the scale NaN, so that whatever is computed from it
/// is NaN too and is noticed.
#[derive(Debug, Clone, PartialEq)]
pub struct Activations {
    cols: usize,
    /// `[rows][cols]`
    values: Vec<i8>,
    /// `[rows][cols / 32]`: the scale that applies to each 32 values, equal within a block.
    scales: Vec<f32>,
    /// `[rows][cols / 16]`: the sum of each 16 integers.
    sums: Vec<i16>,
    forms: Forms,
}

/// The same in other forms, made when first wanted.
#[derive(Debug, Clone, Default, PartialEq)]
struct Forms {
    halves: OnceLock<Vec<Chunk>>,
    planes: OnceLock<Vec<Chunk>>,
    /// `[rows][cols / 256 rounded up to eights]`: the scale of each 256 values, then zeros.
    units: OnceLock<Vec<[f32; PARTIALS]>>,
}

/// One quantised row.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    pub(crate) values: &'a [i8],
    pub(crate) scales: &'a [f32],
    pub(crate) sums: &'a [i16],
}

impl Activations {
    /// Quantises rows of `cols` values; `cols` must be a multiple of the block, and values beyond whole rows are left out.
    pub fn new(isa: Isa, x: &[f32], cols: usize, block: Block) -> Activations {
        let rows = x.len() / cols.max(1);
        let mut a = Activations {
            cols,
            values: vec![0; rows * cols],
            scales: vec![0.0; rows * (cols / SHORT_BLOCK)],
            sums: vec![0; rows * (cols / SUM)],
            forms: Forms::default(),
        };
        let block = if block == Block::Long { LONG_BLOCK } else { SHORT_BLOCK };
        quantise(isa, x, block, &mut a.values, &mut a.scales, &mut a.sums);
        a
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.values.len() / self.cols.max(1)
    }

    /// Values in a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The rows in another order, each repeated [`tiles`] times: `tiles * cols / 256` chunks, rounded up.
    pub(crate) fn arranged(&self, order: Order) -> &[Chunk] {
        let form = match order {
            Order::Halves => &self.forms.halves,
            Order::Planes => &self.forms.planes,
        };
        form.get_or_init(|| {
            let tiles = tiles(self.cols / SHORT_BLOCK);
            let mut chunks = Vec::with_capacity(self.rows() * (tiles * self.cols).div_ceil(256));
            for t in 0..self.rows() {
                let row = self.row(t);
                if tiles == 1 {
                    arrange(order, row, &mut chunks);
                } else {
                    let (values, scales, sums) =
                        (row.values.repeat(tiles), row.scales.repeat(tiles), row.sums.repeat(tiles));
                    arrange(order, Row { values: &values, scales: &scales, sums: &sums }, &mut chunks);
                }
            }
            chunks
        })
    }

    /// The scale of each 256 values of row `t`, filled up with zeros to eights.
    pub(crate) fn unit_scales(&self, t: usize) -> &[[f32; PARTIALS]] {
        let (units, per_row) = (self.cols / LONG_BLOCK, (self.cols / LONG_BLOCK).div_ceil(PARTIALS));
        let all = self.forms.units.get_or_init(|| {
            let mut all = vec![[0.0; PARTIALS]; self.rows() * per_row];
            for (t, row) in all.chunks_exact_mut(per_row).enumerate() {
                let scales = self.row(t).scales.chunks_exact(LONG_BLOCK / SHORT_BLOCK);
                row.as_flattened_mut()[..units].iter_mut().zip(scales).for_each(|(to, from)| *to = from[0]);
            }
            all
        });
        &all[t * per_row..][..per_row]
    }

    #[inline]
    pub(crate) fn row(&self, t: usize) -> Row<'_> {
        let (scales, sums) = (self.cols / SHORT_BLOCK, self.cols / SUM);
        Row {
            values: &self.values[t * self.cols..][..self.cols],
            scales: &self.scales[t * scales..][..scales],
            sums: &self.sums[t * sums..][..sums],
        }
    }

    /// These rows, one after another.
    pub(crate) fn gather(&self, rows: impl Iterator<Item = usize> + Clone) -> Activations {
        let mut out = Activations {
            cols: self.cols,
            values: Vec::new(),
            scales: Vec::new(),
            sums: Vec::new(),
            forms: Forms::default(),
        };
        for t in rows {
            let row = self.row(t);
            out.values.extend_from_slice(row.values);
            out.scales.extend_from_slice(row.scales);
            out.sums.extend_from_slice(row.sums);
        }
        out
    }
}

/// How many rows of so many units are put one after another so that they fill whole chunks: 1 where rows have more units
/// than half a chunk, which do not.
///
/// A chunk that is not full costs as much as a full one: for rows of few units that is worth avoiding.
pub(crate) fn tiles(units: usize) -> usize {
    if (1..=PARTIALS / 2).contains(&units) { PARTIALS >> units.trailing_zeros() } else { 1 }
}

per_isa! {
    fn quantise(isa: Isa, x: &[f32], block: usize, values: &mut [i8], scales: &mut [f32], sums: &mut [i16]) {
        let (per_scale, per_sum) = (block / SHORT_BLOCK, block / SUM);
        let outputs = values
            .chunks_exact_mut(block)
            .zip(scales.chunks_exact_mut(per_scale))
            .zip(sums.chunks_exact_mut(per_sum));
        for (x, ((values, scales), sums)) in x.chunks_exact(block).zip(outputs) {
            // Zero times a number is zero, times NaN or infinity NaN.
            let (mut top, mut poison) = ([0.0f32; 16], [0.0f32; 16]);
            for x in x.as_chunks::<16>().0 {
                for lane in 0..16 {
                    let m = x[lane].abs();
                    top[lane] = if m > top[lane] { m } else { top[lane] };
                    poison[lane] += x[lane] * 0.0;
                }
            }
            let top = top.iter().fold(0.0f32, |a, &b| if b > a { b } else { a });
            let poison = poison.iter().fold(0.0f32, |a, &b| a + b);
            let (scale, inverse) = if top > TINY { (top / 127.0, 127.0 / top) } else { (0.0, 0.0) };
            scales.fill(scale + poison);
            for (values, x) in values.as_chunks_mut::<16>().0.iter_mut().zip(x.as_chunks::<16>().0) {
                for lane in 0..16 {
                    values[lane] = round(x[lane] * inverse);
                }
            }
            for (sum, values) in sums.iter_mut().zip(values.as_chunks::<SUM>().0) {
                *sum = values.iter().map(|&v| i16::from(v)).sum();
            }
        }
    }
}

/// The nearest integer to a number of magnitude up to 127, ties to even. Anything else gives some integer.
#[inline(always)]
fn round(x: f32) -> i8 {
    // 1.5 * 2^23: its sum with x has the integer in its low bits.
    (x + 12_582_912.0).to_bits() as i8
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ties_go_to_even_and_the_largest_becomes_127() {
        let mut x = vec![0.0; 32];
        (x[0], x[1], x[2], x[3], x[4]) = (127.0, 0.5, 1.5, -2.5, -127.0);
        let a = Activations::new(Isa::SCALAR, &x, 32, Block::Short);
        assert_eq!(a.values[..5], [127, 0, 2, -2, -127]);
        assert_eq!((a.scales[0], a.sums[0]), (1.0, 0));
    }

    #[test]
    fn blocks_of_zeros_and_of_no_numbers() {
        let a = Activations::new(Isa::SCALAR, &[0.0; 64], 64, Block::Short);
        assert_eq!((&a.scales[..], &a.values[..]), (&[0.0; 2][..], &[0; 64][..]));
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = vec![1.0; 512];
            x[300] = bad;
            let a = Activations::new(Isa::SCALAR, &x, 512, Block::Long);
            assert!(a.scales[..8].iter().all(|&s| s == 1.0 / 127.0));
            assert!(a.scales[8..].iter().all(|s| s.is_nan()), "{bad}");
        }
    }

    #[test]
    fn blocks_have_their_own_scales() {
        let x: Vec<f32> = (0..640).map(|i| i as f32).collect();
        let long = Activations::new(Isa::SCALAR, &x[..512], 256, Block::Long);
        assert_eq!((long.rows(), long.scales[0], long.scales[7]), (2, 255.0 / 127.0, 255.0 / 127.0));
        let short = Activations::new(Isa::SCALAR, &x, 640, Block::Short);
        assert_eq!((short.rows(), short.scales[0]), (1, 31.0 / 127.0));
    }

    proptest! {
        #[test]
        fn every_isa_gives_the_same_integers(
            x in prop::collection::vec(prop_oneof![-1e3f32..1e3, -1e-30f32..1e-30, Just(0.0), any::<f32>()], 512),
            long in any::<bool>(),
        ) {
            let block = if long { Block::Long } else { Block::Short };
            let scalar = Activations::new(Isa::SCALAR, &x, 256, block);
            for isa in Isa::available() {
                let other = Activations::new(isa, &x, 256, block);
                let bits = |a: &Activations| a.scales.iter().map(|s| if s.is_nan() { 1 } else { s.to_bits() }).collect::<Vec<_>>();
                prop_assert_eq!(bits(&other), bits(&scalar));
                // Integers of a block that is no number do not matter.
                for (i, (a, b)) in other.values.iter().zip(&scalar.values).enumerate() {
                    prop_assert!(a == b || scalar.scales[i / 32].is_nan());
                }
            }
        }
    }
}
