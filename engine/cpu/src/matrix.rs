//! Products with weight matrices in any block type, read in place.

use crate::dot::Sums;
use crate::pool::Pool;
use strata_gguf::{GgmlType, Tensor, quant};

/// Values decoded at a time: the longest block, and a multiple of every block and of the dot product's lanes.
const PIECE: usize = 256;

/// Output rows worth handing to another thread.
const GRAIN: usize = 16;

/// A weight matrix `[out_len][in_len]` as the file holds it.
#[derive(Clone)]
pub struct Matrix {
    tensor: Tensor,
    scale: f32,
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

    /// The tensor behind it.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// `y[t] = W x[t]` for each row t; `x` is `[rows][in_len]`, `y` is `[rows][out_len]`.
    pub fn mul(&self, pool: &Pool, x: &[f32], y: &mut [f32]) {
        let (cols, out_len) = (self.in_len(), self.out_len());
        let rows = y.len() / out_len.max(1);
        let stride = self.tensor.row_bytes() as usize;
        let data = self.tensor.data();
        let product = |first: usize, out: &mut [f32]| {
            let count = out.len() / rows;
            let bytes = &data[first * stride..(first + count) * stride];
            mul_rows(self.tensor.ty(), bytes, cols, self.scale, x, out);
        };
        if rows == 1 {
            pool.rows(y, 1, GRAIN, product);
        } else {
            // Threads own whole output rows, so they write [out_len][rows]; callers want [rows][out_len].
            let mut columns = vec![0.0; y.len()];
            pool.rows(&mut columns, rows, GRAIN, product);
            transpose(&columns, rows, y);
        }
    }

    /// Row `i`, decoded; zeros when there is no such row.
    pub fn row(&self, i: usize, out: &mut [f32]) {
        let bytes = self.tensor.row(i as u64).unwrap_or(&[]);
        decode(self.tensor.ty(), bytes, out);
        if self.scale != 1.0 {
            out.iter_mut().for_each(|v| *v *= self.scale);
        }
    }
}

/// Decodes whole blocks. Sizes were checked when the tensor was opened; should they disagree, the result is zeros.
fn decode(ty: GgmlType, bytes: &[u8], out: &mut [f32]) {
    if quant::decode(ty, bytes, out).is_err() {
        debug_assert!(false, "{ty} block sizes disagree");
        out.fill(0.0);
    }
}

/// `out[r][t] = scale * (row r of the weights) · x[t]`: each weight row is decoded once for all inputs.
///
/// `bytes` holds `out.len() / t` rows of `cols` values of type `ty`; `x` is `[t][cols]`.
pub(crate) fn mul_rows(ty: GgmlType, bytes: &[u8], cols: usize, scale: f32, x: &[f32], out: &mut [f32]) {
    let inputs = x.len() / cols.max(1);
    let (per, size) = (ty.block_values(), ty.block_bytes());
    let stride = cols / per * size;
    let mut weights = [0.0f32; PIECE];
    let mut sums = vec![Sums::ZERO; inputs];
    for (row, out) in bytes.chunks_exact(stride).zip(out.chunks_exact_mut(inputs)) {
        sums.fill(Sums::ZERO);
        let mut at = 0;
        while at < cols {
            let n = PIECE.min(cols - at);
            decode(ty, &row[at / per * size..(at + n) / per * size], &mut weights[..n]);
            for (t, sums) in sums.iter_mut().enumerate() {
                sums.add(&weights[..n], &x[t * cols + at..t * cols + at + n]);
            }
            at += n;
        }
        for (out, sums) in out.iter_mut().zip(&sums) {
            *out = sums.total() * scale;
        }
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
