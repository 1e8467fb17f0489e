//! The operations on the CPU.

use crate::config::Indexer;
use crate::error::Result;
use crate::ops::{DeltaUpdates, ExpertTensors, Ops, Routing, SharedExpert};
use std::ops::Range;
use strata_cpu::attention::{self, AttentionShape, Selection};
use strata_cpu::delta::{self, DeltaShape};
use strata_cpu::experts::{Choices, Experts, Shared};
use strata_cpu::rope::Rope;
use strata_cpu::{Cpu, Isa, Matrix, Rows, conv, elementwise, norm, router};
use strata_gguf::Tensor;

/// Norms add up squares in f32: those of larger numbers overflow, and what overflows there becomes a silent zero.
const LARGEST: f32 = 1e18;

/// No system that this runs on has smaller pages.
const PAGE: usize = 4096;

/// Runs the model on the CPU, with weights read in place.
pub struct CpuOps {
    cpu: Cpu,
    read_ahead: bool,
}

impl CpuOps {
    /// With this many threads; 0 means what suits this machine. See [`strata_cpu::Pool::new`].
    pub fn new(threads: usize) -> CpuOps {
        CpuOps::on(Cpu::new(threads, Isa::detect()))
    }

    /// On these threads and this instruction set.
    pub fn on(cpu: Cpu) -> CpuOps {
        CpuOps { cpu, read_ahead: true }
    }

    /// Loads models without reading their dense weights: enough to see whether a model can be loaded.
    pub fn without_reading(self) -> CpuOps {
        CpuOps { read_ahead: false, ..self }
    }

    /// What the threads and the instruction set are.
    pub fn cpu(&self) -> &Cpu {
        &self.cpu
    }

    /// Threads at work.
    pub fn threads(&self) -> usize {
        self.cpu.pool().threads()
    }
}

/// Values worth handing to another thread: a few microseconds for what is done to each.
const GRAIN: usize = 8 * 1024;

/// Rows of so many values that are worth handing to another thread.
fn grain(row_len: usize) -> usize {
    GRAIN.div_ceil(row_len.max(1))
}

/// Rows that grow with the sequence.
type Cache = Vec<f32>;

impl Ops for CpuOps {
    type Buf = Rows;
    type Matrix = Matrix;
    type Table = Matrix;
    type Experts = Experts;
    type Cache = Cache;
    type Selection = Vec<Selection>;
    type Kept = ();

    fn zeros(&self, len: usize) -> Rows {
        vec![0.0; len].into()
    }

    fn upload(&self, values: &[f32]) -> Rows {
        values.to_vec().into()
    }

    fn download(&self, buf: &Rows) -> Vec<f32> {
        buf.to_vec()
    }

    fn duplicate(&self, buf: &Rows) -> Rows {
        buf.clone()
    }

    fn tail(&self, buf: &Rows, len: usize) -> Rows {
        buf[buf.len().saturating_sub(len)..].to_vec().into()
    }

    fn slice(&self, buf: &Rows, range: Range<usize>) -> Rows {
        buf.get(range).unwrap_or_default().to_vec().into()
    }

    fn len(&self, buf: &Rows) -> usize {
        buf.len()
    }

    fn concat(&self, parts: &[Rows]) -> Rows {
        parts.iter().flat_map(|part| part.iter().copied()).collect::<Vec<f32>>().into()
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

    fn cache(&self, _row_len: usize, _capacity: usize) -> Cache {
        Cache::new()
    }

    fn append(&self, cache: &mut Cache, rows: &Rows) {
        // Room for an eighth more, where a vector by itself would double: caches are most of what a long conversation
        // takes, and what is planned with must be near what is held.
        if cache.len() + rows.len() > cache.capacity() {
            cache.reserve_exact(rows.len().max(cache.len() / 8));
        }
        cache.extend_from_slice(rows);
    }

    fn truncate(&self, cache: &mut Cache, rows: usize, row_len: usize) {
        cache.truncate(rows * row_len);
    }

    fn cached(&self, cache: &Cache, rows: Range<usize>, row_len: usize) -> Vec<f32> {
        cache[rows.start * row_len..rows.end * row_len].to_vec()
    }

    fn cache_bytes(&self, cache: &Cache) -> usize {
        cache.capacity() * size_of::<f32>()
    }

    fn nonfinite(&self, buf: &Rows, row_len: usize, _place: &dyn Fn() -> String) -> Option<(usize, &'static str)> {
        let at = elementwise::first_beyond(&self.cpu, buf, LARGEST)?;
        let value = match buf[at] {
            v if v.is_nan() => "NaN",
            v if v.is_infinite() => "infinity",
            _ => "a number beyond 1e18",
        };
        Some((at / row_len.max(1), value))
    }

    fn gather(&self, table: &Matrix, rows: &[u64]) -> Rows {
        let mut out = vec![0.0; rows.len() * table.in_len()];
        let len = table.in_len();
        // Rows that are not in memory are waited for side by side.
        self.cpu.pool().rows(&mut out, len, grain(len), |first, out| {
            for (&row, out) in rows[first..].iter().zip(out.chunks_exact_mut(len)) {
                table.row(row as usize, out);
            }
        });
        out.into()
    }

    fn repeat(&self, x: &Rows, width: usize, times: usize) -> Rows {
        let mut out = Vec::with_capacity(x.len() * times);
        for row in x.chunks_exact(width) {
            (0..times).for_each(|_| out.extend_from_slice(row));
        }
        out.into()
    }

    fn mul(&self, w: &Matrix, x: &Rows) -> Rows {
        let mut y = vec![0.0; x.len() / w.in_len() * w.out_len()];
        w.mul(&self.cpu, x, &mut y);
        y.into()
    }

    fn mul_all<const N: usize>(&self, matrices: [&Matrix; N], x: &Rows) -> [Rows; N] {
        let mut outputs = matrices.map(|w| vec![0.0; x.len() / w.in_len() * w.out_len()]);
        Matrix::mul_all(&self.cpu, matrices, x, outputs.each_mut().map(Vec::as_mut_slice));
        outputs.map(Rows::from)
    }

    fn group_norm(&self, x: &Rows, gamma: &Rows, groups: usize, eps: f32) -> Rows {
        let mut y = vec![0.0; x.len()];
        let len = gamma.len();
        self.cpu.pool().rows(&mut y, len, grain(len), |first, y| {
            for (x, y) in x[first * len..].chunks_exact(len).zip(y.chunks_exact_mut(len)) {
                norm::rms(self.cpu.isa(), x, gamma, groups, eps, y);
            }
        });
        y.into()
    }

    fn norm_rope(&self, x: &mut Rows, gamma: &Rows, eps: f32, rope: &Rope, heads: usize, first: usize) {
        let dim = gamma.len();
        let len = heads * dim;
        self.cpu.pool().rows(x, len, grain(len), |from, x| {
            for (position, row) in (first + from..).zip(x.chunks_exact_mut(len)) {
                norm::rms_heads(self.cpu.isa(), row, gamma, eps);
                rope.at(position).apply(self.cpu.isa(), row, dim);
            }
        });
    }

    fn silu_scaled(&self, x: &mut Rows, divisor: f32) {
        self.cpu.pool().rows(x, 1, GRAIN, |_, x| elementwise::silu_scaled(self.cpu.isa(), x, divisor));
    }

    fn inject_weights(&self, x: &mut Rows, divisor: f32) {
        elementwise::inject_weights(self.cpu.isa(), x, divisor);
    }

    fn mix_streams(&self, gate: &Rows, n: &Rows, streams: usize, width: usize) -> Rows {
        let mut out = vec![0.0; n.len() / streams];
        let len = streams * width;
        self.cpu.pool().rows(&mut out, width, grain(len), |first, out| {
            let rows = gate[first * len..].chunks_exact(len).zip(n[first * len..].chunks_exact(len));
            for ((gate, n), out) in rows.zip(out.chunks_exact_mut(width)) {
                elementwise::mix_streams(self.cpu.isa(), gate, n, streams, out);
            }
        });
        out.into()
    }

    fn add_to_streams(&self, r: &mut Rows, a: &Rows, y: &Rows, width: usize) {
        let rows = y.len() / width;
        let streams = a.len() / rows.max(1);
        let len = streams * width;
        self.cpu.pool().rows(r, len, grain(len), |first, r| {
            let rows = a[first * streams..].chunks_exact(streams).zip(y[first * width..].chunks_exact(width));
            for (r, (a, y)) in r.chunks_exact_mut(len).zip(rows) {
                elementwise::add_to_streams(self.cpu.isa(), r, a, y);
            }
        });
    }

    fn add(&self, x: &mut Rows, y: &Rows) {
        self.cpu.pool().rows(x, 1, GRAIN, |first, x| x.iter_mut().zip(&y[first..]).for_each(|(x, y)| *x += y));
    }

    fn conv_silu(&self, x: &Rows, w: &Rows, taps: usize, dilation: usize, channels: usize, history: &mut Rows) -> Rows {
        let mut out = vec![0.0; x.len()];
        conv::causal_silu(&self.cpu, x, w, taps, dilation, channels, history, &mut out);
        out.into()
    }

    fn conv_silu_noting(
        &self,
        x: &Rows,
        w: &Rows,
        _taps: usize,
        dilation: usize,
        channels: usize,
        history: &Rows,
        inputs: &mut Rows,
    ) -> Rows {
        inputs[..x.len()].copy_from_slice(x);
        let mut out = vec![0.0; x.len()];
        conv::silu_behind(&self.cpu, x, w, dilation, channels, history, &mut out);
        out.into()
    }

    fn conv_advance(&self, history: &mut Rows, inputs: &Rows, rows: usize, channels: usize) {
        conv::advance(history, &inputs[..rows * channels], channels);
    }

    fn delta_scan(
        &self,
        shape: DeltaShape,
        mut qkv: Rows,
        beta: &Rows,
        alpha: &Rows,
        a: &Rows,
        dt: &Rows,
        state: &mut Rows,
    ) -> Rows {
        let mut out = vec![0.0; beta.len() * shape.dim];
        delta::scan(&self.cpu, shape, &mut qkv, beta, alpha, a, dt, state, &mut out);
        out.into()
    }

    fn delta_scan_noting(
        &self,
        shape: DeltaShape,
        mut qkv: Rows,
        beta: &Rows,
        alpha: &Rows,
        a: &Rows,
        dt: &Rows,
        state: &Rows,
        updates: &mut DeltaUpdates<Rows>,
    ) -> Rows {
        let rows = beta.len() / shape.value_heads;
        let mut out = vec![0.0; beta.len() * shape.dim];
        let updates = DeltaUpdates {
            keys: &mut updates.keys[..rows * shape.key_heads * shape.dim],
            deltas: &mut updates.deltas[..out.len()],
            decays: &mut updates.decays[..beta.len()],
        };
        delta::scan_noting(&self.cpu, shape, &mut qkv, beta, alpha, a, dt, state, updates, &mut out);
        out.into()
    }

    fn delta_replay(&self, shape: DeltaShape, updates: &DeltaUpdates<Rows>, rows: usize, state: &mut Rows) {
        let DeltaShape { key_heads, value_heads, dim } = shape;
        let updates = DeltaUpdates {
            keys: &updates.keys[..rows * key_heads * dim],
            deltas: &updates.deltas[..rows * value_heads * dim],
            decays: &updates.decays[..rows * value_heads],
        };
        delta::replay(&self.cpu, shape, updates, state);
    }

    fn gated_norm(&self, o: &mut Rows, gamma: &Rows, z: &Rows, eps: f32) {
        let dim = gamma.len();
        self.cpu.pool().rows(o, dim, grain(dim), |first, o| {
            delta::gated_norm(self.cpu.isa(), o, gamma, &z[first * dim..][..o.len()], eps);
        });
    }

    fn split_heads(&self, x: &Rows, dim: usize) -> (Rows, Rows) {
        let half = |offset: usize| {
            let mut half = vec![0.0; x.len() / 2];
            self.cpu.pool().rows(&mut half, dim, grain(dim), |first, half| {
                for (x, half) in x[first * 2 * dim..].chunks_exact(2 * dim).zip(half.chunks_exact_mut(dim)) {
                    half.copy_from_slice(&x[offset..offset + dim]);
                }
            });
            half.into()
        };
        (half(0), half(dim))
    }

    fn pool_blocks(
        &self,
        raw: &Cache,
        blocks: &mut Cache,
        gamma: &Rows,
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
            norm::rms_heads(self.cpu.isa(), &mut key, gamma, eps);
            rope.at(b * block).apply(self.cpu.isa(), &mut key, dim);
            blocks.extend(key);
        }
    }

    fn select_all(&self, first: usize, rows: usize) -> Vec<Selection> {
        (first + 1..=first + rows).map(Selection::All).collect()
    }

    fn select(&self, q: &Rows, blocks: &Cache, indexer: &Indexer, first: usize) -> Vec<Selection> {
        let Indexer { heads, dim, block, budget } = *indexer;
        let mut selections = vec![Selection::All(0); q.len() / (heads * dim)];
        let rows: Vec<_> = q.chunks_exact(heads * dim).zip(&mut selections).enumerate().collect();
        let select = |(t, (q, selection)): (usize, (&[f32], &mut Selection))| {
            *selection = attention::select(&self.cpu, q, blocks, dim, block, budget, first + t + 1);
        };
        // Each row shares its blocks out; enough rows are shared out themselves.
        if rows.len() < self.threads() {
            rows.into_iter().for_each(select)
        } else {
            self.cpu.pool().each(rows, select)
        }
        selections
    }

    fn attend(
        &self,
        shape: AttentionShape,
        q: &Rows,
        gate: &Rows,
        keys: &Cache,
        values: &Cache,
        selection: &Vec<Selection>,
    ) -> Rows {
        let mut out = vec![0.0; q.len()];
        attention::attend(&self.cpu, shape, q, gate, keys, values, selection, &mut out);
        out.into()
    }

    fn ngram_gate(&self, k: &Rows, q: &Rows, v: &Rows, width: usize) -> Rows {
        let mut out = vec![0.0; k.len()];
        let row = k.len() / (v.len() / width).max(1);
        self.cpu.pool().rows(&mut out, row, grain(row), |first, out| {
            let k = k[first * row..].chunks_exact(row);
            let inputs = k.zip(q[first * row..].chunks_exact(row)).zip(v[first * width..].chunks_exact(width));
            for (((k, q), v), out) in inputs.zip(out.chunks_exact_mut(row)) {
                elementwise::ngram_gate(self.cpu.isa(), k, q, v, out);
            }
        });
        out.into()
    }

    fn route(
        &self,
        logits: &Rows,
        experts: usize,
        used: usize,
        place: &dyn Fn() -> String,
    ) -> std::result::Result<Routing, (usize, &'static str)> {
        if let Some(found) = self.nonfinite(logits, experts, place) {
            return Err(found);
        }
        let rows = logits.len() / experts;
        let mut routing = Routing { used, ids: vec![0; rows * used], weights: vec![0.0; rows * used] };
        let some = grain(experts);
        let choices = routing.ids.chunks_mut(some * used).zip(routing.weights.chunks_mut(some * used));
        self.cpu.pool().each(logits.chunks(some * experts).zip(choices).collect(), |(logits, (ids, weights))| {
            let choices = ids.chunks_exact_mut(used).zip(weights.chunks_exact_mut(used));
            for (logits, (ids, weights)) in logits.chunks_exact(experts).zip(choices) {
                router::top_k(logits, ids, weights);
            }
        });
        Ok(routing)
    }

    fn expert_sum(
        &self,
        experts: &Experts,
        shared: &SharedExpert<Matrix>,
        opening: &Rows,
        x: &Rows,
        routing: &Routing,
    ) -> Rows {
        let mut out = vec![0.0; x.len()];
        let choices = Choices { used: routing.used, ids: &routing.ids, weights: &routing.weights };
        let shared = Shared { gate: &shared.gate, up: &shared.up, down: &shared.down, opening };
        experts.forward(&self.cpu, x, choices, Some(shared), &mut out);
        out.into()
    }
}
