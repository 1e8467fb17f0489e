//! The operations on the CPU.

use crate::config::Indexer;
use crate::error::Result;
use crate::ops::{ExpertTensors, Ops, Routing};
use std::ops::Range;
use strata_cpu::attention::{self, AttentionShape, Selection};
use strata_cpu::delta::{self, DeltaShape};
use strata_cpu::experts::Experts;
use strata_cpu::rope::Rope;
use strata_cpu::{Matrix, Pool, conv, elementwise, norm, router};
use strata_gguf::Tensor;

/// No system that this runs on has smaller pages.
const PAGE: usize = 4096;

/// Runs the model on the CPU, with weights read in place.
pub struct CpuOps {
    pool: Pool,
    read_ahead: bool,
}

impl CpuOps {
    /// With this many threads; 0 means one per available core.
    pub fn new(threads: usize) -> CpuOps {
        CpuOps { pool: Pool::new(threads), read_ahead: true }
    }

    /// Loads models without reading their dense weights: enough to see whether a model can be loaded.
    pub fn without_reading(self) -> CpuOps {
        CpuOps { read_ahead: false, ..self }
    }

    /// Threads at work.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }
}

impl Ops for CpuOps {
    type Buf = Vec<f32>;
    type Matrix = Matrix;
    type Table = Matrix;
    type Experts = Experts;
    type Cache = Vec<f32>;
    type Selection = Vec<Selection>;

    fn zeros(&self, len: usize) -> Vec<f32> {
        vec![0.0; len]
    }

    fn upload(&self, values: &[f32]) -> Vec<f32> {
        values.to_vec()
    }

    fn download(&self, buf: &Vec<f32>) -> Vec<f32> {
        buf.clone()
    }

    fn duplicate(&self, buf: &Vec<f32>) -> Vec<f32> {
        buf.clone()
    }

    fn tail(&self, buf: &Vec<f32>, len: usize) -> Vec<f32> {
        buf[buf.len().saturating_sub(len)..].to_vec()
    }

    fn table(&self, tensor: &Tensor) -> Result<Matrix> {
        Ok(Matrix::new(tensor.clone(), 1.0))
    }

    fn matrix(&self, tensor: &Tensor, scale: f32) -> Result<Matrix> {
        // Every token needs every dense weight: read them now, in file order and under the progress bar, rather than
        // page by page during the first answer.
        if self.read_ahead {
            let byte_per_page = tensor.data().iter().step_by(PAGE);
            std::hint::black_box(byte_per_page.fold(0, |all, byte| all ^ byte));
        }
        Ok(Matrix::new(tensor.clone(), scale))
    }

    fn experts(&self, t: ExpertTensors) -> Result<Experts> {
        let ExpertTensors { gate_up, down, scales, count, hidden, width } = t;
        Ok(Experts { gate_up, down, scales, count, hidden, width })
    }

    fn cache(&self, _row_len: usize, _capacity: usize) -> Vec<f32> {
        Vec::new()
    }

    fn append(&self, cache: &mut Vec<f32>, rows: &Vec<f32>) {
        cache.extend_from_slice(rows);
    }

    fn truncate(&self, cache: &mut Vec<f32>, rows: usize, row_len: usize) {
        cache.truncate(rows * row_len);
    }

    fn nonfinite(&self, buf: &Vec<f32>, row_len: usize) -> Option<(usize, &'static str)> {
        // A sum is finite only if all its terms are; the exact place is looked for only when it is not.
        if buf.iter().map(|v| v * 0.0).sum::<f32>() == 0.0 {
            return None;
        }
        let at = buf.iter().position(|v| !v.is_finite())?;
        Some((at / row_len.max(1), if buf[at].is_nan() { "NaN" } else { "infinity" }))
    }

    fn gather(&self, table: &Matrix, rows: &[u64]) -> Vec<f32> {
        let mut out = vec![0.0; rows.len() * table.in_len()];
        for (&row, out) in rows.iter().zip(out.chunks_exact_mut(table.in_len())) {
            table.row(row as usize, out);
        }
        out
    }

    fn repeat(&self, x: &Vec<f32>, width: usize, times: usize) -> Vec<f32> {
        x.chunks_exact(width).flat_map(|row| std::iter::repeat_n(row, times).flatten()).copied().collect()
    }

    fn mul(&self, w: &Matrix, x: &Vec<f32>) -> Vec<f32> {
        let mut y = vec![0.0; x.len() / w.in_len() * w.out_len()];
        w.mul(&self.pool, x, &mut y);
        y
    }

    fn group_norm(&self, x: &Vec<f32>, gamma: &Vec<f32>, groups: usize, eps: f32) -> Vec<f32> {
        let mut y = vec![0.0; x.len()];
        for (x, y) in x.chunks_exact(gamma.len()).zip(y.chunks_exact_mut(gamma.len())) {
            norm::rms(x, gamma, groups, eps, y);
        }
        y
    }

    fn norm_rope(&self, x: &mut Vec<f32>, gamma: &Vec<f32>, eps: f32, rope: &Rope, heads: usize, first: usize) {
        let dim = gamma.len();
        for (t, row) in x.chunks_exact_mut(heads * dim).enumerate() {
            norm::rms_heads(row, gamma, eps);
            rope.at(first + t).apply(row, dim);
        }
    }

    fn silu_scaled(&self, x: &mut Vec<f32>, divisor: f32) {
        elementwise::silu_scaled(x, divisor);
    }

    fn inject_weights(&self, x: &mut Vec<f32>, divisor: f32) {
        elementwise::inject_weights(x, divisor);
    }

    fn mix_streams(&self, gate: &Vec<f32>, n: &Vec<f32>, streams: usize, width: usize) -> Vec<f32> {
        let mut out = vec![0.0; n.len() / streams];
        let rows = gate.chunks_exact(streams * width).zip(n.chunks_exact(streams * width));
        for ((gate, n), out) in rows.zip(out.chunks_exact_mut(width)) {
            elementwise::mix_streams(gate, n, streams, out);
        }
        out
    }

    fn add_to_streams(&self, r: &mut Vec<f32>, a: &Vec<f32>, y: &Vec<f32>, width: usize) {
        let rows = y.len() / width;
        let streams = a.len() / rows.max(1);
        for ((r, a), y) in r.chunks_exact_mut(streams * width).zip(a.chunks_exact(streams)).zip(y.chunks_exact(width)) {
            elementwise::add_to_streams(r, a, y);
        }
    }

    fn add(&self, x: &mut Vec<f32>, y: &Vec<f32>) {
        x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
    }

    fn swiglu(&self, mut gate: Vec<f32>, up: &Vec<f32>) -> Vec<f32> {
        elementwise::swiglu(&mut gate, up);
        gate
    }

    fn add_gated(&self, out: &mut Vec<f32>, gate: &Vec<f32>, y: &Vec<f32>) {
        let width = y.len() / gate.len().max(1);
        for ((out, &g), y) in out.chunks_exact_mut(width).zip(gate).zip(y.chunks_exact(width)) {
            let weight = elementwise::sigmoid(g);
            out.iter_mut().zip(y).for_each(|(o, &y)| *o += weight * y);
        }
    }

    fn conv_silu(
        &self,
        x: &Vec<f32>,
        w: &Vec<f32>,
        taps: usize,
        dilation: usize,
        channels: usize,
        history: &mut Vec<f32>,
    ) -> Vec<f32> {
        let mut out = vec![0.0; x.len()];
        conv::causal_silu(x, w, taps, dilation, channels, history, &mut out);
        out
    }

    fn delta_scan(
        &self,
        shape: DeltaShape,
        mut qkv: Vec<f32>,
        beta: &Vec<f32>,
        alpha: &Vec<f32>,
        a: &Vec<f32>,
        dt: &Vec<f32>,
        state: &mut Vec<f32>,
    ) -> Vec<f32> {
        let mut out = vec![0.0; beta.len() * shape.dim];
        delta::scan(&self.pool, shape, &mut qkv, beta, alpha, a, dt, state, &mut out);
        out
    }

    fn gated_norm(&self, o: &mut Vec<f32>, gamma: &Vec<f32>, z: &Vec<f32>, eps: f32) {
        delta::gated_norm(o, gamma, z, eps);
    }

    fn split_heads(&self, x: &Vec<f32>, dim: usize) -> (Vec<f32>, Vec<f32>) {
        let half = |offset: usize| x.chunks_exact(2 * dim).flat_map(|h| &h[offset..offset + dim]).copied().collect();
        (half(0), half(dim))
    }

    fn pool_blocks(
        &self,
        raw: &Vec<f32>,
        blocks: &mut Vec<f32>,
        gamma: &Vec<f32>,
        eps: f32,
        rope: &Rope,
        block: usize,
        range: Range<usize>,
    ) {
        let dim = gamma.len();
        for b in range {
            let mut key = vec![0.0; dim];
            for row in raw[b * block * dim..(b + 1) * block * dim].chunks_exact(dim) {
                key.iter_mut().zip(row).for_each(|(k, &r)| *k += r);
            }
            key.iter_mut().for_each(|k| *k /= block as f32);
            norm::rms_heads(&mut key, gamma, eps);
            rope.at(b * block).apply(&mut key, dim);
            blocks.extend(key);
        }
    }

    fn select_all(&self, first: usize, rows: usize) -> Vec<Selection> {
        (first + 1..=first + rows).map(Selection::All).collect()
    }

    fn select(&self, q: &Vec<f32>, blocks: &Vec<f32>, indexer: &Indexer, first: usize) -> Vec<Selection> {
        let Indexer { heads, dim, block, budget } = *indexer;
        let row = |(t, q)| attention::select(q, blocks, dim, block, budget, first + t + 1);
        q.chunks_exact(heads * dim).enumerate().map(row).collect()
    }

    fn attend(
        &self,
        shape: AttentionShape,
        q: &Vec<f32>,
        gate: &Vec<f32>,
        keys: &Vec<f32>,
        values: &Vec<f32>,
        selection: &Vec<Selection>,
    ) -> Vec<f32> {
        let mut out = vec![0.0; q.len()];
        attention::attend(&self.pool, shape, q, gate, keys, values, selection, &mut out);
        out
    }

    fn ngram_gate(&self, k: &Vec<f32>, q: &Vec<f32>, v: &Vec<f32>, width: usize) -> Vec<f32> {
        let mut out = vec![0.0; k.len()];
        let row = k.len() / (v.len() / width).max(1);
        for (((k, q), v), out) in
            k.chunks_exact(row).zip(q.chunks_exact(row)).zip(v.chunks_exact(width)).zip(out.chunks_exact_mut(row))
        {
            elementwise::ngram_gate(k, q, v, out);
        }
        out
    }

    fn route(&self, logits: &Vec<f32>, experts: usize, used: usize) -> Routing {
        let rows = logits.len() / experts;
        let mut routing = Routing { used, ids: vec![0; rows * used], weights: vec![0.0; rows * used] };
        let choices = routing.ids.chunks_exact_mut(used).zip(routing.weights.chunks_exact_mut(used));
        for (logits, (ids, weights)) in logits.chunks_exact(experts).zip(choices) {
            router::top_k(logits, ids, weights);
        }
        routing
    }

    fn expert_sum(&self, experts: &Experts, x: &Vec<f32>, routing: &Routing) -> Vec<f32> {
        let mut out = vec![0.0; x.len()];
        experts.forward(&self.pool, x, &routing.ids, &routing.weights, routing.used, &mut out);
        out
    }
}
