//! Products with weight matrices in any block type, read in place.

use crate::activations::{Activations, Block, LONG_BLOCK};
use crate::stripes::stripes;
use crate::{Cpu, Isa, Rows, dot, product, units};
use strata_gguf::{GgmlType, Tensor, quant};

/// Multiply-adds worth handing to another thread: a few microseconds.
pub(crate) const WORK: usize = 48 * 1024;

/// Output rows are handed out in multiples of this: their values fill a cache line, so that no two threads write to
/// one.
pub(crate) const ROWS: usize = 16;

/// Values that are computed column by column before they are turned into rows: few enough to stay in a core's cache.
const BLOCK: usize = 16 * 1024;

/// A weight matrix `[out_len][in_len]` as the file holds it.
#[derive(Clone)]
pub struct Matrix {
    tensor: Tensor,
    scale: f32,
}

/// Input rows in the form that a weight type is multiplied with.
#[derive(Clone, Copy)]
pub(crate) enum Inputs<'a> {
    /// For float weights.
    Floats { x: &'a [f32], cols: usize },
    /// For integer weights.
    Integers(&'a Activations),
}

impl Inputs<'_> {
    pub(crate) fn rows(&self) -> usize {
        match self {
            Inputs::Floats { x, cols } => x.len() / cols.max(&1),
            Inputs::Integers(a) => a.rows(),
        }
    }
}

/// Consecutive rows of weights, in place.
#[derive(Clone, Copy)]
pub(crate) struct Weights<'a> {
    ty: GgmlType,
    bytes: &'a [u8],
    /// Bytes of a row.
    stride: usize,
    scale: f32,
}

impl<'a> Weights<'a> {
    /// `count` rows of a tensor from row `first` on; products are multiplied by `scale`.
    pub(crate) fn of(tensor: &'a Tensor, first: usize, count: usize, scale: f32) -> Weights<'a> {
        let stride = tensor.row_bytes() as usize;
        Weights { ty: tensor.ty(), bytes: &tensor.data()[first * stride..(first + count) * stride], stride, scale }
    }

    pub(crate) fn ty(&self) -> GgmlType {
        self.ty
    }

    pub(crate) fn rows(&self) -> usize {
        self.bytes.len() / self.stride
    }

    /// `out[r][t] = (row first + r) · x[t]` for as many rows as `out` has room for.
    pub(crate) fn mul(&self, isa: Isa, first: usize, x: Inputs<'_>, out: &mut [f32]) {
        let bytes = &self.bytes[first * self.stride..(first + out.len() / x.rows()) * self.stride];
        match x {
            Inputs::Integers(x) => product::rows(isa, self.ty, bytes, self.scale, x, out),
            Inputs::Floats { x, cols } => dot::rows(isa, self.ty, bytes, cols, self.scale, x, out),
        }
    }
}

/// The blocks in which activations are quantised beside weights of this type; `None` for float weights.
pub fn block_for(ty: GgmlType) -> Option<Block> {
    units::layout(ty).map(|layout| if layout.values == LONG_BLOCK { Block::Long } else { Block::Short })
}

/// The form of `x` that weights of this type are multiplied with.
pub(crate) fn inputs_for(isa: Isa, ty: GgmlType, x: &Rows, cols: usize) -> Inputs<'_> {
    match block_for(ty) {
        None => Inputs::Floats { x, cols },
        Some(block) => Inputs::Integers(x.quantised(isa, cols, block)),
    }
}

impl Matrix {
    /// A matrix over a tensor; products are multiplied by `scale` (1 for all but NVFP4 files with a companion scale).
    pub fn new(tensor: Tensor, scale: f32) -> Matrix {
        Matrix { tensor, scale }
    }

    /// Length of the input vectors.
    pub fn in_len(&self) -> usize {
        self.tensor.row_len() as usize
    }

    /// Length of the output vectors.
    pub fn out_len(&self) -> usize {
        self.tensor.rows() as usize
    }

    pub(crate) fn weights(&self) -> Weights<'_> {
        Weights::of(&self.tensor, 0, self.out_len(), self.scale)
    }

    /// `y[t] = W x[t]` for each row t; `x` is `[rows][in_len]`, `y` is `[rows][out_len]`.
    pub fn mul(&self, cpu: &Cpu, x: &Rows, y: &mut [f32]) {
        Matrix::mul_all(cpu, [self], x, [y]);
    }

    /// [`mul`](Matrix::mul) of several matrices with the same rows, in one round of the threads.
    pub fn mul_all<const N: usize>(cpu: &Cpu, matrices: [&Matrix; N], x: &Rows, outputs: [&mut [f32]; N]) {
        let isa = cpu.isa();
        let inputs = matrices.map(|m| inputs_for(isa, m.tensor.ty(), x, m.in_len()));
        let work = outputs.iter().zip(matrices).map(|(y, m)| y.len() * m.in_len()).sum();
        let piece = cpu.pool().piece(work, WORK);
        let mut jobs = Vec::new();
        for ((matrix, inputs), y) in matrices.iter().zip(inputs).zip(outputs) {
            let (weights, rows) = (matrix.weights(), inputs.rows().max(1));
            let width = piece / (matrix.in_len() * rows);
            // A single row of outputs needs no turning.
            let width = if rows > 1 { width.min(BLOCK / rows) } else { width };
            let width = evenly(matrix.out_len(), width);
            jobs.extend(stripes(y, matrix.out_len(), width).map(|stripe| (weights, inputs, stripe)));
        }
        cpu.pool().each(jobs, |(weights, inputs, stripe)| {
            let first = stripe.first();
            stripe.by_columns(|block| weights.mul(isa, first, inputs, block));
        });
    }

    /// Row `i`, decoded; zeros when there is no such row.
    pub fn row(&self, i: usize, out: &mut [f32]) {
        let bytes = self.tensor.row(i as u64).unwrap_or(&[]);
        // Sizes were checked when the tensor was opened.
        if quant::decode(self.tensor.ty(), bytes, out).is_err() {
            out.fill(0.0);
        }
        out.iter_mut().for_each(|v| *v *= self.scale);
    }
}

/// The size of pieces that `rows` rows are cut into: about `most`, equal but for the last, a multiple of [`ROWS`].
pub(crate) fn evenly(rows: usize, most: usize) -> usize {
    let pieces = rows.div_ceil(most.max(ROWS)).max(1);
    rows.div_ceil(pieces).next_multiple_of(ROWS)
}

/// `to[c][r] = from[r][c]`, where `from` has rows of `columns` values.
pub(crate) fn transpose(from: &[f32], columns: usize, to: &mut [f32]) {
    let rows = from.len() / columns;
    for (c, to) in to.chunks_exact_mut(rows).enumerate() {
        for (to, from) in to.iter_mut().zip(from.iter().skip(c).step_by(columns)) {
            *to = *from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_gguf::{Gguf, Writer};

    #[test]
    fn together_or_alone_on_any_number_of_threads_products_have_the_same_bits() {
        let types = [GgmlType::Q4_0, GgmlType::BF16, GgmlType::IQ3_S];
        let lens = [1000usize, 33, 1];
        let mut w = Writer::new();
        for (ty, len) in types.into_iter().zip(lens) {
            let bytes = 256 / ty.block_values() * ty.block_bytes() * len;
            let byte = |i: usize| (i as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] & 0x2f;
            w.tensor(ty.name(), &[256, len as u64], ty, (0..bytes).map(byte).collect()).unwrap();
        }
        let gguf = Gguf::from_bytes("matrices", w.to_bytes().unwrap()).unwrap();
        let matrices = types.map(|ty| Matrix::new(gguf.require(ty.name()).unwrap().clone(), 0.5));
        for rows in [1, 5, 40] {
            let x: Vec<f32> = (0..rows * 256).map(|i| (i as f32 * 0.37).sin()).collect();
            let alone = matrices.each_ref().map(|m| {
                let row = |x: &[f32]| {
                    let (x, mut y) = (Rows::from(x.to_vec()), vec![0.0; m.out_len()]);
                    m.weights().mul(Isa::SCALAR, 0, inputs_for(Isa::SCALAR, m.weights().ty(), &x, 256), &mut y);
                    y
                };
                x.chunks(256).flat_map(row).collect::<Vec<f32>>()
            });
            for threads in [1, 2, 3, 7, 16] {
                let cpu = Cpu::exactly(threads, Isa::detect());
                let mut together = lens.map(|len| vec![f32::NAN; rows * len]);
                let x = Rows::from(x.clone());
                Matrix::mul_all(&cpu, matrices.each_ref(), &x, together.each_mut().map(Vec::as_mut_slice));
                let bits = |y: &[Vec<f32>; 3]| y.concat().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                assert!(bits(&together) == bits(&alone), "{rows} rows, {threads} threads");
            }
        }
    }

    #[test]
    fn pieces_are_equal_and_whole_cache_lines() {
        assert_eq!([evenly(640, 100), evenly(640, 5), evenly(1, 99), evenly(0, 9)], [96, 16, 16, 0]);
        let mut turned = [0; 6].map(|_| 0.0);
        transpose(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3, &mut turned);
        assert_eq!(turned, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    }
}
