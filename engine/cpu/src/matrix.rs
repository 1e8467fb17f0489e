//! Products with weight matrices in any block type, read in place.

use crate::activations::{Activations, Block, LONG_BLOCK};
use crate::{Cpu, Rows, dot, product, units};
use strata_gguf::{GgmlType, Tensor, quant};

/// Output rows worth handing to another thread.
const GRAIN: usize = 16;

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
    fn rows(&self) -> usize {
        match self {
            Inputs::Floats { x, cols } => x.len() / cols.max(&1),
            Inputs::Integers(a) => a.rows(),
        }
    }
}

/// The blocks in which activations are quantised beside weights of this type; `None` for float weights.
pub(crate) fn block_for(ty: GgmlType) -> Option<Block> {
    units::layout(ty).map(|layout| if layout.values == LONG_BLOCK { Block::Long } else { Block::Short })
}

/// The form of `x` that weights of this type are multiplied with.
pub(crate) fn inputs_for<'a>(cpu: &Cpu, ty: GgmlType, x: &'a Rows, cols: usize) -> Inputs<'a> {
    match block_for(ty) {
        None => Inputs::Floats { x, cols },
        Some(block) => Inputs::Integers(x.quantised(cpu.isa(), cols, block)),
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

    /// `y[t] = W x[t]` for each row t; `x` is `[rows][in_len]`, `y` is `[rows][out_len]`.
    pub fn mul(&self, cpu: &Cpu, x: &Rows, y: &mut [f32]) {
        let inputs = inputs_for(cpu, self.tensor.ty(), x, self.in_len());
        let rows = inputs.rows();
        let stride = self.tensor.row_bytes() as usize;
        let data = self.tensor.data();
        let product = |first: usize, out: &mut [f32]| {
            let bytes = &data[first * stride..(first + out.len() / rows) * stride];
            mul_rows(cpu, self.tensor.ty(), bytes, self.scale, inputs, out);
        };
        if rows == 1 {
            cpu.pool().rows(y, 1, GRAIN, product);
        } else if rows > 1 {
            // Threads own whole output rows, so they write [out_len][rows]; callers want [rows][out_len].
            let mut columns = vec![0.0; y.len()];
            cpu.pool().rows(&mut columns, rows, GRAIN, product);
            transpose(&columns, rows, y);
        }
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

/// `out[r][t] = scale * (row r of the weights) · x[t]`, where `bytes` holds `out.len() / t` rows of type `ty`.
pub(crate) fn mul_rows(cpu: &Cpu, ty: GgmlType, bytes: &[u8], scale: f32, inputs: Inputs<'_>, out: &mut [f32]) {
    match inputs {
        Inputs::Integers(x) => product::rows(cpu.isa(), ty, bytes, scale, x, out),
        Inputs::Floats { x, cols } => dot::rows(cpu.isa(), ty, bytes, cols, scale, x, out),
    }
}

/// `to[c][r] = from[r][c]`, where `from` has rows of `columns` values.
pub(crate) fn transpose(from: &[f32], columns: usize, to: &mut [f32]) {
    let rows = from.len() / columns;
    for (r, row) in from.chunks_exact(columns).enumerate() {
        for (c, &v) in row.iter().enumerate() {
            to[c * rows + r] = v;
        }
    }
}
