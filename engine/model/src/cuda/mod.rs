//! The operations on an NVIDIA GPU.
//!
//! Long windows run operation by operation, as on the CPU. Windows of up to eight rows are *recorded*: the same pass runs
//! once with a recording device, and what it starts becomes a graph that serves every later window of that size, its
//! positions and inputs being values in memory ([`program`]).

mod adapt;
mod experts;
mod fused;
mod host;
mod link;
mod prefill;
mod program;
mod recording;
mod residency;

use adapt::Adapting;
pub use adapt::{CacheStart, CacheUse};
pub(crate) use experts::LayerExperts;
use experts::Source;
use host::looked_up;
use prefill::Bringer;
pub use prefill::RING;
pub(crate) use program::Programs;

use crate::config::{Indexer, ModelConfig};
use crate::error::{Error, Result};
use crate::forward::{Model, Observer, Output};
use crate::ops::{Advance, DeltaUpdates, ExpertTensors, Ops, Routing, SharedExpert};
use crate::state::State;
use crate::weights::{DeltaWeights, Mixer};
use crate::window::DeltaNotes;
use link::Link;
use recording::{Recording, lock};
use residency::Residency;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use strata_cpu::Cpu;
use strata_cpu::attention::AttentionShape;
use strata_cpu::delta::DeltaShape;
use strata_cpu::rope::Rope;
use strata_cuda::{Act, Cache, DeltaInputs, Device, First, Floats, Matrix, Note, Selection, Turns};
use strata_gguf::Tensor;
use strata_policy::cache::Phase;
use strata_policy::split::SplitRule;

/// Norms add up squares in f32: those of larger numbers overflow, and what overflows there becomes a silent zero.
const LARGEST: f32 = 1e18;

/// Rows of the longest window that is recorded.
const RECORDED: usize = 8;

/// Where routed experts are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpertPlace {
    /// All in the GPU's memory.
    Device,
    /// All in the host's memory, where the CPU computes them; some, once [`Model::keep_experts`] says which, in the GPU's
    /// too.
    Host,
}

/// Runs the model on a GPU. Rows of tables are looked up where the file's mapping has them, and copied.
pub struct CudaOps {
    device: Device,
    cpu: Cpu,
    place: ExpertPlace,
    /// Layers of experts so far.
    layers: AtomicUsize,
    recorded: AtomicBool,
    recording: Mutex<Option<Recording>>,
    residency: Mutex<Option<Arc<Residency>>>,
    /// How misses are split, and the link, once something was recorded.
    rule: Mutex<SplitRule>,
    link: Mutex<Option<Arc<Link>>>,
    turns: Mutex<Option<(Range<usize>, Arc<Turns>)>>,
    /// The experts of all layers in the host's memory, and what brings them for prompts.
    sources: Mutex<Vec<Arc<Source>>>,
    bringer: Mutex<Option<Bringer>>,
    ring: AtomicUsize,
    adapting: Mutex<Option<Adapting>>,
}

impl CudaOps {
    /// On a device, with threads for what the host computes.
    pub fn new(device: Device, cpu: Cpu, place: ExpertPlace) -> CudaOps {
        CudaOps {
            device,
            cpu,
            place,
            layers: AtomicUsize::new(0),
            recorded: AtomicBool::new(true),
            recording: Mutex::new(None),
            residency: Mutex::new(None),
            rule: Mutex::new(SplitRule::Measured),
            link: Mutex::new(None),
            turns: Mutex::new(None),
            sources: Mutex::default(),
            bringer: Mutex::new(None),
            ring: AtomicUsize::new(RING),
            adapting: Mutex::new(None),
        }
    }

    /// What is recorded, if anything is.
    fn recording<T>(&self, f: impl FnOnce(&mut Recording) -> T) -> Option<T> {
        lock(&self.recording).as_mut().map(f)
    }
}

impl From<strata_cuda::Error> for Error {
    fn from(e: strata_cuda::Error) -> Error {
        Error::Device(e.to_string())
    }
}

impl Ops for CudaOps {
    type Buf = Floats;
    type Matrix = Matrix;
    type Table = strata_cpu::Matrix;
    type Experts = LayerExperts;
    type Cache = Cache;
    type Selection = Selection;
    type Kept = Programs;

    fn verify(
        model: &Model<CudaOps>,
        state: &mut State<CudaOps>,
        tokens: &[u32],
        observer: &mut dyn Observer,
    ) -> Result<Output<CudaOps>> {
        // Residuals are watched from inside a pass.
        if tokens.len() > model.ops().quick_rows() || observer.wants_residuals() {
            return model.verify_step_by_step(state, tokens, observer);
        }
        model.verify_recorded(state, tokens, observer)
    }

    fn quick_rows(&self) -> usize {
        if self.recorded.load(Ordering::Relaxed) { RECORDED } else { 0 }
    }

    fn begin(&self, config: &ModelConfig, rows: usize) {
        if self.recording(|_| ()).is_none() {
            self.borrow(config, rows);
            self.device.use_loan(true);
            self.forget_uses();
        }
    }

    fn end(&self, well: bool, observer: &mut dyn Observer) {
        self.device.use_loan(false);
        if well && self.recording(|_| ()).is_none() {
            self.boundary(Phase::Prefill, observer);
        }
    }

    fn found(&self) -> Vec<(u64, u64)> {
        self.found_by_layer()
    }

    fn failure(&self) -> Option<Error> {
        self.device.failure().map(Error::from)
    }

    fn zeros(&self, len: usize) -> Floats {
        Floats::zeros(&self.device, len)
    }

    fn upload(&self, values: &[f32]) -> Floats {
        Floats::upload(&self.device, values)
    }

    fn download(&self, buf: &Floats) -> Vec<f32> {
        if self.recording(|r| r.outbox.put(buf)).is_some() { Vec::new() } else { buf.download() }
    }

    fn assign(&self, to: &mut Floats, from: &Floats) {
        to.overwrite(from);
    }

    fn duplicate(&self, buf: &Floats) -> Floats {
        buf.duplicate()
    }

    fn tail(&self, buf: &Floats, len: usize) -> Floats {
        buf.slice(buf.len().saturating_sub(len)..buf.len())
    }

    fn slice(&self, buf: &Floats, range: Range<usize>) -> Floats {
        buf.slice(range)
    }

    fn len(&self, buf: &Floats) -> usize {
        buf.len()
    }

    fn concat(&self, parts: &[Floats]) -> Floats {
        Floats::concat(&self.device, parts)
    }

    fn table(&self, tensor: &Tensor) -> Result<strata_cpu::Matrix> {
        Ok(strata_cpu::Matrix::new(tensor.clone(), 1.0))
    }

    fn matrix(&self, tensor: &Tensor, scale: f32) -> Result<Matrix> {
        Ok(Matrix::new(&self.device, tensor, scale)?)
    }

    fn experts(&self, t: ExpertTensors) -> Result<LayerExperts> {
        let layer = self.layers.fetch_add(1, Ordering::Relaxed);
        let experts = LayerExperts::new(&self.device, &self.cpu, t, self.place, layer)?;
        lock(&self.sources).push(Arc::clone(&experts.source));
        Ok(experts)
    }

    fn cache(&self, row_len: usize, capacity: usize) -> Cache {
        Cache::new(&self.device, row_len, capacity)
    }

    fn append(&self, cache: &mut Cache, rows: &Floats) {
        if self.recording(|r| cache.append_at(r.first(), rows)).is_none() {
            cache.append(rows);
        }
    }

    fn truncate(&self, cache: &mut Cache, rows: usize, _row_len: usize) {
        cache.truncate(rows);
    }

    fn cached(&self, cache: &Cache, rows: Range<usize>, _row_len: usize) -> Vec<f32> {
        cache.rows(rows)
    }

    fn cache_bytes(&self, cache: &Cache) -> usize {
        cache.bytes()
    }

    fn nonfinite(&self, buf: &Floats, row_len: usize, place: &dyn Fn() -> String) -> Option<(usize, &'static str)> {
        if self.recording(|r| r.note(buf, row_len, place(), LARGEST)).is_some() {
            return None;
        }
        let found = buf.nonfinite(LARGEST)?;
        Some((found.index / row_len.max(1), found.value))
    }

    fn gather(&self, table: &strata_cpu::Matrix, rows: &[u64]) -> Floats {
        if let Some(input) = self.recording(|r| r.input(rows.len() * table.in_len())) {
            return input;
        }
        self.upload(&looked_up(table, rows))
    }

    fn repeat(&self, x: &Floats, width: usize, times: usize) -> Floats {
        x.repeat(width, times)
    }

    fn mul(&self, w: &Matrix, x: &Floats) -> Floats {
        w.mul(x)
    }

    fn mul_all<const N: usize>(&self, matrices: [&Matrix; N], x: &Floats) -> [Floats; N] {
        Matrix::mul_all(matrices.map(|w| (w, Act::None)), x, 1.0)
    }

    fn group_norm(&self, x: &Floats, gamma: &Floats, groups: usize, eps: f32) -> Floats {
        x.group_norm(gamma, groups, eps)
    }

    fn norm_rope(&self, x: &mut Floats, gamma: &Floats, eps: f32, rope: &Rope, heads: usize, first: usize) {
        let rows = x.len() / (heads * gamma.len()).max(1);
        if self.recording(|r| x.norm_rope(gamma, eps, &r.turns, heads)).is_none() {
            x.norm_rope(gamma, eps, &self.turns(rope, first..first + rows), heads);
        }
    }

    fn silu_scaled(&self, x: &mut Floats, divisor: f32) {
        x.silu_scaled(divisor);
    }

    fn inject_weights(&self, x: &mut Floats, divisor: f32) {
        x.inject_weights(divisor);
    }

    fn mix_streams(&self, gate: &Floats, n: &Floats, streams: usize, width: usize) -> Floats {
        gate.mix_streams(n, streams, width)
    }

    fn add_to_streams(&self, r: &mut Floats, a: &Floats, y: &Floats, width: usize) {
        r.add_to_streams(a, y, width, None);
    }

    fn mix(&self, w: &Mixer<CudaOps>, r: &Floats, c: &ModelConfig) -> (Floats, Option<Floats>) {
        self.read_streams(w, r, c)
    }

    fn write(
        &self,
        r: &mut Floats,
        weights: Option<&Floats>,
        y: &Floats,
        next: Option<&Mixer<CudaOps>>,
        c: &ModelConfig,
        place: &dyn Fn() -> String,
    ) -> Option<(usize, &'static str)> {
        self.write_streams(r, weights, y, next, c, place)
    }

    fn add(&self, x: &mut Floats, y: &Floats) {
        x.add(y);
    }

    fn conv_silu(
        &self,
        x: &Floats,
        w: &Floats,
        taps: usize,
        dilation: usize,
        channels: usize,
        history: &mut Floats,
    ) -> Floats {
        let out = x.conv_silu(w, taps, dilation, channels, history);
        history.conv_advance(x, x.len() / channels.max(1), channels);
        out
    }

    fn conv_silu_noting(
        &self,
        x: &Floats,
        w: &Floats,
        taps: usize,
        dilation: usize,
        channels: usize,
        history: &Floats,
        inputs: &mut Floats,
    ) -> Floats {
        inputs.overwrite(x);
        x.conv_silu(w, taps, dilation, channels, history)
    }

    fn conv_advance(&self, history: &mut Floats, inputs: &Floats, rows: usize, channels: usize) {
        history.conv_advance(inputs, rows, channels);
    }

    fn delta_scan(
        &self,
        shape: DeltaShape,
        qkv: Floats,
        beta: &Floats,
        alpha: &Floats,
        a: &Floats,
        dt: &Floats,
        state: &mut Floats,
    ) -> Floats {
        DeltaInputs { qkv, beta, alpha, a, dt }.scan(shape, state)
    }

    fn delta_scan_noting(
        &self,
        shape: DeltaShape,
        qkv: Floats,
        beta: &Floats,
        alpha: &Floats,
        a: &Floats,
        dt: &Floats,
        state: &Floats,
        updates: &mut DeltaUpdates<Floats>,
    ) -> Floats {
        DeltaInputs { qkv, beta, alpha, a, dt }.scan_noting(shape, state, updates)
    }

    fn advance(&self, shape: DeltaShape, mut layers: Vec<Advance<'_, Floats>>, rows: usize) {
        let histories = layers.iter_mut().map(|layer| (&mut *layer.conv, layer.inputs));
        Floats::conv_advance_all(histories, rows, shape.channels());
        Floats::delta_replay_all(layers.into_iter().map(|layer| (layer.state, layer.updates)), shape, rows);
    }

    fn delta_replay(&self, shape: DeltaShape, updates: &DeltaUpdates<Floats>, rows: usize, state: &mut Floats) {
        state.delta_replay(shape, updates, rows);
    }

    fn gated_norm(&self, o: &mut Floats, gamma: &Floats, z: &Floats, eps: f32) {
        o.gated_norm(gamma, z, eps);
    }

    fn delta_noting(
        &self,
        w: &DeltaWeights<CudaOps>,
        c: &ModelConfig,
        projected: [Floats; 4],
        conv: &Floats,
        state: &Floats,
        notes: &mut DeltaNotes<Floats>,
    ) -> Floats {
        fused::delta_window(w, c, projected, conv, state, notes)
    }

    fn split_heads(&self, x: &Floats, dim: usize) -> (Floats, Floats) {
        x.split_heads(dim)
    }

    fn pool_blocks(
        &self,
        raw: &Cache,
        blocks: &mut Cache,
        gamma: &Floats,
        eps: f32,
        rope: &Rope,
        block: usize,
        range: Range<usize>,
    ) {
        if self.recording(|r| blocks.pool_blocks(raw, gamma, eps, &r.block_turns, block, r.first(), r.rows)).is_some() {
            return;
        }
        let values = Turns::values(rope, range.clone().map(|b| b * block));
        let turns = Turns::within(self.upload(&values), range.len());
        let first = First::At(range.start * block);
        blocks.pool_blocks(raw, gamma, eps, &turns, block, first, range.len() * block);
    }

    fn select_all(&self, first: usize, rows: usize) -> Selection {
        self.recording(|r| Selection::all(&self.device, r.first(), rows, r.width))
            .unwrap_or_else(|| Selection::all(&self.device, First::At(first), rows, first + rows))
    }

    fn select(&self, q: &Floats, blocks: &Cache, indexer: &Indexer, first: usize) -> Selection {
        let best = |first: First<'_>| Selection::best(q, blocks, indexer.heads, indexer.block, indexer.budget, first);
        self.recording(|r| best(r.first())).unwrap_or_else(|| best(First::At(first)))
    }

    fn attend(
        &self,
        shape: AttentionShape,
        q: &Floats,
        gate: &Floats,
        keys: &Cache,
        values: &Cache,
        selection: &Selection,
    ) -> Floats {
        selection.attend(shape, q, gate, keys, values)
    }

    fn ngram_gate(&self, k: &Floats, q: &Floats, v: &Floats, width: usize) -> Floats {
        k.ngram_gate(q, v, width)
    }

    fn route(
        &self,
        logits: &Floats,
        experts: usize,
        used: usize,
        place: &dyn Fn() -> String,
    ) -> std::result::Result<Routing, (usize, &'static str)> {
        let record = |r: &mut Recording| {
            let note = Note { site: r.site(experts, place()), found: &r.found, largest: LARGEST };
            r.routed = Some(logits.routed(experts, used, Some(note)));
        };
        if self.recording(record).is_some() {
            return Ok(Routing { used, ids: Vec::new(), weights: Vec::new() });
        }
        if let Some(found) = self.nonfinite(logits, experts, place) {
            return Err(found);
        }
        let (ids, weights) = logits.route(experts, used);
        Ok(Routing { used, ids, weights })
    }

    fn expert_sum(
        &self,
        experts: &LayerExperts,
        shared: &SharedExpert<Matrix>,
        opening: &Floats,
        x: &Floats,
        routing: &Routing,
    ) -> Floats {
        let SharedExpert { gate, up, down } = shared;
        let shared = strata_cuda::SharedExpert { gate, up, down, opening };
        let recorded = self.recording(|r| {
            let streams = r.link.as_ref().map(|link| link.slots());
            r.routed.take().map(|routed| experts.record(&r.exchange, x, &routed, &shared, streams))
        });
        match recorded.flatten() {
            Some(sum) => sum,
            None => experts.forward(self, x, routing, &shared),
        }
    }
}
