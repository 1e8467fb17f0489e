//! The gated delta rule: the recurrence of the linear-attention layers.

use crate::isa::{Isa, per_isa};
use crate::math::{exp, sigmoid, softplus};
use crate::stripes::stripes;
use crate::{Cpu, norm};

/// Added to the sum of squares when queries and keys are brought to unit length.
const L2_EPS: f32 = 1e-6;

/// Partial sums over keys.
const PARTIALS: usize = 4;

/// Values of a state row worked on at a time; columns do not touch each other, so this changes no result.
const COLUMNS: usize = 32;

/// Values worth normalising on another thread.
const ROWS: usize = 16 * 1024;

/// The shape of a gated delta-net layer. Value head `j` reads key head `j mod key_heads` (the order of GGUF files).
#[derive(Debug, Clone, Copy)]
pub struct DeltaShape {
    /// Key and query heads.
    pub key_heads: usize,
    /// Value heads.
    pub value_heads: usize,
    /// Width of a head, of keys and values alike.
    pub dim: usize,
}

impl DeltaShape {
    /// Channels of the projected and convolved input: queries, keys, values.
    pub fn channels(&self) -> usize {
        (2 * self.key_heads + self.value_heads) * self.dim
    }

    /// Values of the recurrent state, `[value_heads][key dim][value dim]`.
    pub fn state_len(&self) -> usize {
        self.value_heads * self.dim * self.dim
    }
}

/// Runs the recurrence over consecutive tokens and leaves the state behind the last.
///
/// `qkv` is `[rows][channels]` after convolution (queries and keys are normalised here, in place); `beta` and `alpha`
/// are the projections `[rows][value_heads]` before their activations; `a` is `-exp(A_log)` and `dt` the bias of
/// alpha, per value head; `out` is `[rows][value_heads * dim]`. The order within a token is decay, read, delta, write,
/// output; the output is read after the write.
pub fn scan(
    cpu: &Cpu,
    shape: DeltaShape,
    qkv: &mut [f32],
    beta: &[f32],
    alpha: &[f32],
    a: &[f32],
    dt: &[f32],
    state: &mut [f32],
    out: &mut [f32],
) {
    let DeltaShape { key_heads, value_heads, dim } = shape;
    let channels = shape.channels();
    let isa = cpu.isa();
    cpu.pool().rows(qkv, channels, ROWS.div_ceil(channels), |_, rows| {
        for row in rows.chunks_exact_mut(channels) {
            let (q, kv) = row.split_at_mut(key_heads * dim);
            norm::l2_heads(isa, q, dim, L2_EPS, 1.0 / (dim as f32).sqrt());
            norm::l2_heads(isa, &mut kv[..key_heads * dim], dim, L2_EPS, 1.0);
        }
    });
    let qkv = &*qkv;
    let heads: Vec<_> = state.chunks_exact_mut(dim * dim).zip(stripes(out, value_heads * dim, dim)).collect();
    cpu.pool().each(heads, |(state, mut out)| {
        let j = out.first() / dim;
        let key = j % key_heads;
        for (t, out) in out.rows().enumerate() {
            let row = &qkv[t * channels..(t + 1) * channels];
            let q = &row[key * dim..][..dim];
            let k = &row[(key_heads + key) * dim..][..dim];
            let v = &row[(2 * key_heads + j) * dim..][..dim];
            let at = t * value_heads + j;
            let decay = exp(a[j] * softplus(alpha[at] + dt[j]));
            step(isa, state, q, k, v, decay, sigmoid(beta[at]), out);
        }
    });
}

per_isa! {
    /// One token of one head: `S *= decay; d = beta (v - S^T k); S += k d^T; out = S^T q`.
    ///
    /// The two sums over keys are kept as four partial sums, key i in sum `i mod 4`, joined as `(0 + 2) + (1 + 3)`: a
    /// GPU runs four threads per value, and a CPU hides the latency of fused multiply-add.
    fn step(
        isa: Isa,
        state: &mut [f32],
        q: &[f32],
        k: &[f32],
        v: &[f32],
        decay: f32,
        beta: f32,
        out: &mut [f32],
    ) {
        let dim = v.len();
        let whole = dim / COLUMNS * COLUMNS;
        for column in (0..whole).step_by(COLUMNS) {
            columns::<COLUMNS>(state, dim, column, q, k, v, decay, beta, out);
        }
        for column in whole..dim {
            columns::<1>(state, dim, column, q, k, v, decay, beta, out);
        }
    }
}

/// [`step`] for `N` columns of the state from `column` on, which touch no others.
#[inline(always)]
fn columns<const N: usize>(
    state: &mut [f32],
    dim: usize,
    column: usize,
    q: &[f32],
    k: &[f32],
    v: &[f32],
    decay: f32,
    beta: f32,
    out: &mut [f32],
) {
    let mut sums = [[0.0f32; N]; PARTIALS];
    // A constant number of keys at a time, so that the sums stay in registers.
    for (rows, k) in state.chunks(PARTIALS * dim).zip(k.chunks(PARTIALS)) {
        for ((row, &k), sum) in rows.chunks_exact(dim).zip(k).zip(&mut sums) {
            for (sum, s) in sum.iter_mut().zip(&row[column..column + N]) {
                // The decayed value is not stored: the second pass makes the same again.
                *sum = (s * decay).mul_add(k, *sum);
            }
        }
    }
    let read = total(&sums);
    let mut delta = [0.0; N];
    for c in 0..N {
        delta[c] = beta * (v[column + c] - read[c]);
    }
    let mut sums = [[0.0f32; N]; PARTIALS];
    for ((rows, k), q) in state.chunks_mut(PARTIALS * dim).zip(k.chunks(PARTIALS)).zip(q.chunks(PARTIALS)) {
        for (((row, &k), &q), sum) in rows.chunks_exact_mut(dim).zip(k).zip(q).zip(&mut sums) {
            let row = &mut row[column..column + N];
            for c in 0..N {
                row[c] = k.mul_add(delta[c], row[c] * decay);
                sum[c] = row[c].mul_add(q, sum[c]);
            }
        }
    }
    out[column..column + N].copy_from_slice(&total(&sums));
}

/// Joins partial sums.
#[inline(always)]
fn total<const N: usize>(sums: &[[f32; N]; PARTIALS]) -> [f32; N] {
    let mut total = [0.0; N];
    for c in 0..N {
        total[c] = (sums[0][c] + sums[2][c]) + (sums[1][c] + sums[3][c]);
    }
    total
}

/// `o[t][j] = rms(o[t][j]) * gamma * sigmoid(z[t][j])` for every head in place.
pub fn gated_norm(isa: Isa, o: &mut [f32], gamma: &[f32], z: &[f32], eps: f32) {
    norm::rms_heads(isa, o, gamma, eps);
    gate(isa, o, z);
}

per_isa! {
    /// `x * sigmoid(z)` in place.
    pub(crate) fn gate(isa: Isa, x: &mut [f32], z: &[f32]) {
        for (x, &z) in x.iter_mut().zip(z) {
            *x *= sigmoid(z);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_split_and_any_thread_count_give_the_same_bits() {
        let shape = DeltaShape { key_heads: 2, value_heads: 4, dim: 8 };
        let rows = 11;
        let wave = |n: usize, f: f32| -> Vec<f32> { (0..n).map(|i| (i as f32 * f).sin()).collect() };
        let (qkv, beta, alpha) = (wave(rows * shape.channels(), 0.37), wave(rows * 4, 0.9), wave(rows * 4, 1.3));
        let (a, dt) = (vec![-0.5, -1.0, -2.0, -0.1], vec![0.1, 0.2, 0.3, 0.4]);
        let run = |threads: usize, piece: usize| {
            let cpu = Cpu::exactly(threads, if piece == 3 { Isa::SCALAR } else { Isa::detect() });
            let (mut state, mut out) = (vec![0.0; shape.state_len()], Vec::new());
            for first in (0..rows).step_by(piece) {
                let n = piece.min(rows - first);
                let mut x = qkv[first * shape.channels()..(first + n) * shape.channels()].to_vec();
                let mut o = vec![0.0; n * 4 * 8];
                let (b, al) = (&beta[first * 4..(first + n) * 4], &alpha[first * 4..(first + n) * 4]);
                scan(&cpu, shape, &mut x, b, al, &a, &dt, &mut state, &mut o);
                out.extend(o);
            }
            (state, out)
        };
        let whole = run(1, rows);
        for (threads, piece) in [(1, 1), (2, 3), (3, 4), (2, rows)] {
            assert_eq!(run(threads, piece), whole, "{threads} threads, pieces of {piece}");
        }
    }

    #[test]
    fn a_fresh_state_returns_the_value_along_its_key() {
        let shape = DeltaShape { key_heads: 1, value_heads: 1, dim: 2 };
        let mut qkv = [1.0, 0.0, 1.0, 0.0, 3.0, 5.0];
        let (mut state, mut out) = ([0.0; 4], [0.0; 2]);
        // beta = sigmoid(30) = 1: the write stores v under k, and q = k / sqrt(2) reads it back.
        scan(&Cpu::new(1, Isa::detect()), shape, &mut qkv, &[30.0], &[0.0], &[-1.0], &[0.0], &mut state, &mut out);
        let half = 1.0 / 2.0f32.sqrt();
        assert!((out[0] - 3.0 * half).abs() < 1e-5 && (out[1] - 5.0 * half).abs() < 1e-5, "{out:?}");
    }
}
