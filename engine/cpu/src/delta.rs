//! The gated delta rule: the recurrence of the linear-attention layers.

use crate::isa::{Isa, per_isa};
use crate::math::{exp, sigmoid, softplus};
use crate::stripes::stripes;
use crate::{Cpu, norm, scratch};

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
    let DeltaShape { value_heads, dim, .. } = shape;
    let inputs = Inputs::new(cpu, shape, qkv, beta, alpha, a, dt);
    let heads: Vec<_> = state.chunks_exact_mut(dim * dim).zip(stripes(out, value_heads * dim, dim)).collect();
    cpu.pool().each(heads, |(state, mut out)| {
        let j = out.first() / dim;
        for (t, out) in out.rows().enumerate() {
            let x = inputs.token(t, j);
            step(cpu.isa(), state, x.q, x.k, x.v, x.decay, x.beta, None, out);
        }
    });
}

/// What consecutive tokens did to the state: with `d = beta (v - S^T k)`, each made `S = decay S + k d^T`.
pub struct Updates<T> {
    /// Normalised keys, `[rows][key_heads * dim]`.
    pub keys: T,
    /// The differences `d`, `[rows][value_heads * dim]`.
    pub deltas: T,
    /// The decays, `[rows][value_heads]`.
    pub decays: T,
}

/// [`scan`] that leaves the state as it is and notes what was done to it, for [`replay`].
///
/// Each head's state is copied to a buffer of its thread, which is small enough to stay in its cache: memory is read
/// once and not written.
pub fn scan_noting(
    cpu: &Cpu,
    shape: DeltaShape,
    qkv: &mut [f32],
    beta: &[f32],
    alpha: &[f32],
    a: &[f32],
    dt: &[f32],
    state: &[f32],
    updates: Updates<&mut [f32]>,
    out: &mut [f32],
) {
    let DeltaShape { key_heads, value_heads, dim } = shape;
    let inputs = Inputs::new(cpu, shape, qkv, beta, alpha, a, dt);
    let Updates { keys, deltas, decays } = updates;
    let rows = inputs.qkv.chunks_exact(shape.channels());
    for (row, keys) in rows.zip(keys.chunks_exact_mut(key_heads * dim)) {
        keys.copy_from_slice(&row[key_heads * dim..][..key_heads * dim]);
    }
    let values = stripes(out, value_heads * dim, dim).zip(stripes(deltas, value_heads * dim, dim));
    let heads = state.chunks_exact(dim * dim).zip(values.zip(stripes(decays, value_heads, 1)));
    cpu.pool().each(heads.collect(), |(state, ((mut out, mut deltas), mut decays))| {
        let j = decays.first();
        scratch::with(dim * dim, |moved| {
            moved.copy_from_slice(state);
            let rows = out.rows().zip(deltas.rows()).zip(decays.rows());
            for (t, ((out, deltas), decay)) in rows.enumerate() {
                let x = inputs.token(t, j);
                decay.fill(x.decay);
                step(cpu.isa(), moved, x.q, x.k, x.v, x.decay, x.beta, Some(deltas), out);
            }
        });
    });
}

/// Does to the state what [`scan_noting`] noted of some tokens: the same operations on every value as [`scan`] of those
/// tokens, so the same bits, but no sums and one pass over the state for all of them.
pub fn replay(cpu: &Cpu, shape: DeltaShape, updates: Updates<&[f32]>, state: &mut [f32]) {
    let len = shape.dim * shape.dim;
    cpu.pool().each(state.chunks_exact_mut(len).enumerate().collect(), |(j, state)| {
        replay_head(cpu.isa(), shape, j, &updates, state);
    });
}

per_isa! {
    /// [`replay`] for value head `j`. A row of the state stays in the nearest cache from token to token.
    fn replay_head(isa: Isa, shape: DeltaShape, j: usize, updates: &Updates<&[f32]>, state: &mut [f32]) {
        let DeltaShape { key_heads, value_heads, dim } = shape;
        let tokens = updates.decays.len() / value_heads;
        for (i, row) in state.chunks_exact_mut(dim).enumerate() {
            for t in 0..tokens {
                let k = updates.keys[(t * key_heads + j % key_heads) * dim + i];
                let d = &updates.deltas[(t * value_heads + j) * dim..][..row.len()];
                let decay = updates.decays[t * value_heads + j];
                for c in 0..row.len() {
                    row[c] = k.mul_add(d[c], row[c] * decay);
                }
            }
        }
    }
}

/// The inputs of consecutive tokens, queries and keys normalised.
struct Inputs<'a> {
    shape: DeltaShape,
    qkv: &'a [f32],
    beta: &'a [f32],
    alpha: &'a [f32],
    a: &'a [f32],
    dt: &'a [f32],
}

/// The inputs of one token for one head.
struct Token<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    decay: f32,
    beta: f32,
}

impl<'a> Inputs<'a> {
    fn new(
        cpu: &Cpu,
        shape: DeltaShape,
        qkv: &'a mut [f32],
        beta: &'a [f32],
        alpha: &'a [f32],
        a: &'a [f32],
        dt: &'a [f32],
    ) -> Inputs<'a> {
        let DeltaShape { key_heads, dim, .. } = shape;
        let (channels, isa) = (shape.channels(), cpu.isa());
        cpu.pool().rows(qkv, channels, ROWS.div_ceil(channels), |_, rows| {
            for row in rows.chunks_exact_mut(channels) {
                let (q, kv) = row.split_at_mut(key_heads * dim);
                norm::l2_heads(isa, q, dim, L2_EPS, 1.0 / (dim as f32).sqrt());
                norm::l2_heads(isa, &mut kv[..key_heads * dim], dim, L2_EPS, 1.0);
            }
        });
        Inputs { shape, qkv, beta, alpha, a, dt }
    }

    /// Row `t` for value head `j`.
    #[inline]
    fn token(&self, t: usize, j: usize) -> Token<'a> {
        let DeltaShape { key_heads, value_heads, dim } = self.shape;
        let channels = self.shape.channels();
        let row = &self.qkv[t * channels..(t + 1) * channels];
        let (key, at) = (j % key_heads, t * value_heads + j);
        Token {
            q: &row[key * dim..][..dim],
            k: &row[(key_heads + key) * dim..][..dim],
            v: &row[(2 * key_heads + j) * dim..][..dim],
            decay: exp(self.a[j] * softplus(self.alpha[at] + self.dt[j])),
            beta: sigmoid(self.beta[at]),
        }
    }
}

per_isa! {
    /// One token of one head: `S *= decay; d = beta (v - S^T k); S += k d^T; out = S^T q`.
    ///
    /// The two sums over keys are kept as four partial sums, key i in sum `i mod 4`, joined as `(0 + 2) + (1 + 3)`: a
    /// GPU runs four threads per value, and a CPU hides the latency of fused multiply-add. `deltas` takes `d`.
    fn step(
        isa: Isa,
        state: &mut [f32],
        q: &[f32],
        k: &[f32],
        v: &[f32],
        decay: f32,
        beta: f32,
        deltas: Option<&mut [f32]>,
        out: &mut [f32],
    ) {
        let (dim, mut deltas) = (v.len(), deltas);
        let whole = dim / COLUMNS * COLUMNS;
        for column in (0..whole).step_by(COLUMNS) {
            columns::<COLUMNS>(state, dim, column, q, k, v, decay, beta, deltas.as_deref_mut(), out);
        }
        for column in whole..dim {
            columns::<1>(state, dim, column, q, k, v, decay, beta, deltas.as_deref_mut(), out);
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
    deltas: Option<&mut [f32]>,
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
    if let Some(deltas) = deltas {
        deltas[column..column + N].copy_from_slice(&delta);
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
    fn noting_and_replaying_give_the_bits_of_scanning() {
        // Wide enough for whole groups of columns and a rest.
        let shape = DeltaShape { key_heads: 2, value_heads: 4, dim: COLUMNS + 5 };
        let (width, rows) = (4 * shape.dim, 7);
        let wave = |n: usize, f: f32| -> Vec<f32> { (0..n).map(|i| (i as f32 * f).sin()).collect() };
        let qkv = wave(rows * shape.channels(), 0.37);
        let (beta, alpha) = (wave(rows * 4, 0.9), wave(rows * 4, 1.3));
        let (a, dt) = (vec![-0.5, -1.0, -2.0, -0.1], vec![0.1, 0.2, 0.3, 0.4]);
        let before = wave(shape.state_len(), 0.011);
        let scanned = |keep: usize| {
            let (mut state, mut out) = (before.clone(), vec![0.0; keep * width]);
            let cpu = Cpu::exactly(1, Isa::SCALAR);
            let mut qkv = qkv[..keep * shape.channels()].to_vec();
            scan(&cpu, shape, &mut qkv, &beta[..keep * 4], &alpha[..keep * 4], &a, &dt, &mut state, &mut out);
            (state, out)
        };
        for isa in Isa::available() {
            let cpu = Cpu::exactly(3, isa);
            let (mut keys, mut deltas) = (vec![0.0; rows * 2 * shape.dim], vec![0.0; rows * width]);
            let (mut decays, mut out) = (vec![0.0; rows * 4], vec![0.0; rows * width]);
            let updates = Updates { keys: &mut keys[..], deltas: &mut deltas[..], decays: &mut decays[..] };
            scan_noting(&cpu, shape, &mut qkv.clone(), &beta, &alpha, &a, &dt, &before, updates, &mut out);
            assert!(out == scanned(rows).1, "outputs on {isa}");
            for keep in 0..=rows {
                let (keys, deltas) = (&keys[..keep * 2 * shape.dim], &deltas[..keep * width]);
                let mut state = before.clone();
                replay(&cpu, shape, Updates { keys, deltas, decays: &decays[..keep * 4] }, &mut state);
                assert!(state == scanned(keep).0, "state after {keep} rows on {isa}");
            }
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
