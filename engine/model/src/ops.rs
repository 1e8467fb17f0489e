//! The operations the forward pass is made of.

use crate::config::ModelConfig;
use crate::error::Result;
use crate::forward::{Model, Observer, Output};
use crate::state::State;
use crate::weights::{DeltaWeights, Mixer};
use crate::window::DeltaNotes;
use strata_cpu::attention::AttentionShape;
use strata_cpu::delta::DeltaShape;
use strata_cpu::rope::Rope;
use strata_gguf::Tensor;

/// The tensors of a layer's routed experts.
pub struct ExpertTensors {
    /// Gate and up projections, apart or fused.
    pub gate_up: strata_cpu::experts::GateUp,
    /// Down projections.
    pub down: Tensor,
    /// Factors on gate, up and down products.
    pub scales: [f32; 3],
    /// Number of experts.
    pub count: usize,
    /// Length of a token's vector.
    pub hidden: usize,
    /// Width of an expert.
    pub width: usize,
}

/// The matrices of the expert that every token uses.
pub struct SharedExpert<M> {
    /// Gate projection, `[width][hidden]`.
    pub gate: M,
    /// Up projection, `[width][hidden]`.
    pub up: M,
    /// Down projection, `[hidden][width]`.
    pub down: M,
}

/// The experts chosen for the rows of a window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Routing {
    /// Experts per row.
    pub used: usize,
    /// `[rows][used]`, best first.
    pub ids: Vec<u16>,
    /// `[rows][used]`, summing to 1 in each row.
    pub weights: Vec<f32>,
}

/// What the rows of a window did to a delta-net layer's recurrent state; see [`strata_cpu::delta::Updates`] for the
/// layout. The buffers may have room for more rows than the window had.
pub type DeltaUpdates<B> = strata_cpu::delta::Updates<B>;

/// A delta-net layer's history and state, and what the rows of a window did to them.
pub struct Advance<'a, B> {
    /// The convolution's history.
    pub conv: &'a mut B,
    /// The convolution's inputs, a row each.
    pub inputs: &'a B,
    /// The recurrent state.
    pub state: &'a mut B,
    /// What the rows do to it.
    pub updates: &'a DeltaUpdates<B>,
}

/// A device that can run the model.
///
/// Buffers hold f32 rows, one row per token of the window; the number of rows follows from their length. The rule that
/// every implementation keeps: a row's result does not depend on the other rows of its window, bit for bit.
pub trait Ops {
    /// Values on the device.
    type Buf;
    /// A weight matrix on the device, or where the device can read it.
    type Matrix;
    /// A table of which single rows are looked up, wherever it lies.
    type Table;
    /// The routed experts of one layer.
    type Experts;
    /// Rows that grow with the sequence: keys, values, indexer keys.
    type Cache;
    /// The positions each row attends to.
    type Selection;
    /// What a device keeps with a state, such as recorded passes over it.
    type Kept: Default + Send;

    /// Reads a window as [`Model::verify`] promises, the tokens being admitted and at least one.
    ///
    /// # Errors
    /// A value stopped being a number, or the device failed. The state is unchanged.
    fn verify(
        model: &Model<Self>,
        state: &mut State<Self>,
        tokens: &[u32],
        observer: &mut dyn Observer,
    ) -> Result<Output<Self>>
    where
        Self: Sized,
    {
        model.verify_step_by_step(state, tokens, observer)
    }

    /// Windows of up to so many rows are faster than a plain pass; 0 if they are not.
    fn quick_rows(&self) -> usize {
        0
    }

    /// Makes room for a pass over so many rows.
    fn begin(&self, _config: &ModelConfig, _rows: usize) {}

    /// A pass has ended, `well` or not.
    fn end(&self, _well: bool, _observer: &mut dyn Observer) {}

    /// How often each layer's experts were used, and of these uses those that found theirs on the device, where what is there follows what
    /// is used; empty elsewhere.
    fn found(&self) -> Vec<(u64, u64)> {
        Vec::new()
    }

    /// What failed first on the device, after which results are worth nothing. Asked at the end of a pass, and after
    /// loading.
    fn failure(&self) -> Option<crate::error::Error> {
        None
    }

    // Moving things onto and off the device.

    /// `len` zeros.
    fn zeros(&self, len: usize) -> Self::Buf;
    /// A copy of host values.
    fn upload(&self, values: &[f32]) -> Self::Buf;
    /// A copy of device values.
    fn download(&self, buf: &Self::Buf) -> Vec<f32>;
    /// Makes `to` a copy of `from`, in place if it can: a device may know a buffer by its address.
    fn assign(&self, to: &mut Self::Buf, from: &Self::Buf) {
        *to = self.duplicate(from);
    }
    /// A copy on the device.
    fn duplicate(&self, buf: &Self::Buf) -> Self::Buf;
    /// The last `len` values of a buffer.
    fn tail(&self, buf: &Self::Buf, len: usize) -> Self::Buf;
    /// A copy of a range of a buffer, which holds that range.
    fn slice(&self, buf: &Self::Buf, range: std::ops::Range<usize>) -> Self::Buf;
    /// Values in a buffer.
    fn len(&self, buf: &Self::Buf) -> usize;
    /// Several buffers as one.
    fn concat(&self, parts: &[Self::Buf]) -> Self::Buf;
    /// Makes a table of a tensor without reading it: the n-gram table may be larger than memory.
    ///
    /// # Errors
    /// The device cannot read rows of its type.
    fn table(&self, tensor: &Tensor) -> Result<Self::Table>;
    /// Makes a matrix of a tensor, ready for use by every token; products are multiplied by `scale`.
    ///
    /// # Errors
    /// The device has no room or no kernel for it.
    fn matrix(&self, tensor: &Tensor, scale: f32) -> Result<Self::Matrix>;
    /// Makes the experts of a layer.
    ///
    /// # Errors
    /// The device has no room or no kernel for them.
    fn experts(&self, tensors: ExpertTensors) -> Result<Self::Experts>;
    /// An empty cache for at most `capacity` rows of `row_len` values.
    fn cache(&self, row_len: usize, capacity: usize) -> Self::Cache;
    /// Appends the rows of a buffer.
    fn append(&self, cache: &mut Self::Cache, rows: &Self::Buf);
    /// Keeps the first `rows` rows of `row_len` values.
    fn truncate(&self, cache: &mut Self::Cache, rows: usize, row_len: usize);
    /// A copy of these rows of `row_len` values, exactly as they would be appended again.
    fn cached(&self, cache: &Self::Cache, rows: std::ops::Range<usize>, row_len: usize) -> Vec<f32>;
    /// Bytes of memory that a cache holds, its room for further rows included.
    fn cache_bytes(&self, cache: &Self::Cache) -> usize;
    /// Index of the first row, of `row_len` values, that holds no number or one whose square is none, and what it holds.
    /// A device that cannot tell yet keeps `place` until it can.
    fn nonfinite(&self, buf: &Self::Buf, row_len: usize, place: &dyn Fn() -> String) -> Option<(usize, &'static str)>;

    // Dense operations.

    /// The rows of a table with these numbers, one after another.
    fn gather(&self, table: &Self::Table, rows: &[u64]) -> Self::Buf;
    /// Each row of `width` values repeated `times` times.
    fn repeat(&self, x: &Self::Buf, width: usize, times: usize) -> Self::Buf;
    /// `W x` for each row.
    fn mul(&self, w: &Self::Matrix, x: &Self::Buf) -> Self::Buf;
    /// `W x` for each row with several matrices, none of which waits for another.
    fn mul_all<const N: usize>(&self, matrices: [&Self::Matrix; N], x: &Self::Buf) -> [Self::Buf; N];
    /// Root-mean-square norm of each of `groups` parts of each row; `gamma` is as long as a row.
    fn group_norm(&self, x: &Self::Buf, gamma: &Self::Buf, groups: usize, eps: f32) -> Self::Buf;
    /// Root-mean-square norm of each head with one shared `gamma`, then rotation; row t is at position `first + t`.
    fn norm_rope(&self, x: &mut Self::Buf, gamma: &Self::Buf, eps: f32, rope: &Rope, heads: usize, first: usize);
    /// `silu(x / divisor)` in place.
    fn silu_scaled(&self, x: &mut Self::Buf, divisor: f32);
    /// `2 sigmoid(x / divisor)` in place.
    fn inject_weights(&self, x: &mut Self::Buf, divisor: f32);
    /// `mean over streams of sigmoid(gate) * n`: from `[rows][streams][width]` to `[rows][width]`.
    fn mix_streams(&self, gate: &Self::Buf, n: &Self::Buf, streams: usize, width: usize) -> Self::Buf;
    /// `r[stream] += a[stream] * y` for each row of `width` values in `y`.
    fn add_to_streams(&self, r: &mut Self::Buf, a: &Self::Buf, y: &Self::Buf, width: usize);
    /// `x += y`.
    fn add(&self, x: &mut Self::Buf, y: &Self::Buf);
    /// `silu` of a causal depthwise convolution with weights `[taps][channels]`; moves `history` on.
    fn conv_silu(
        &self,
        x: &Self::Buf,
        w: &Self::Buf,
        taps: usize,
        dilation: usize,
        channels: usize,
        history: &mut Self::Buf,
    ) -> Self::Buf;
    /// [`Ops::conv_silu`] that leaves `history` as it is and copies the rows of `x` to the front of `inputs`, which has
    /// room for them.
    fn conv_silu_noting(
        &self,
        x: &Self::Buf,
        w: &Self::Buf,
        taps: usize,
        dilation: usize,
        channels: usize,
        history: &Self::Buf,
        inputs: &mut Self::Buf,
    ) -> Self::Buf;
    /// Moves `history` on behind the first `rows` rows of `inputs`, as [`Ops::conv_silu`] of those rows would have.
    fn conv_advance(&self, history: &mut Self::Buf, inputs: &Self::Buf, rows: usize, channels: usize);

    // Several of these together, for devices that do better than one after another.

    /// A hyper-connection's read of residual streams `r`: the gated mean of the normalised streams, and the weights of the write
    /// that follows.
    fn mix(&self, w: &Mixer<Self>, r: &Self::Buf, c: &ModelConfig) -> (Self::Buf, Option<Self::Buf>)
    where
        Self: Sized,
    {
        // The trained formulas divide both projections by the number of streams.
        let divisor = c.streams as f32;
        let n = self.group_norm(r, &w.norm, c.streams, c.eps);
        let (mut low, weights) = match &w.inject {
            None => (self.mul(&w.down, &n), None),
            Some(inject) => {
                let [low, mut weights] = self.mul_all([&w.down, inject], &n);
                self.inject_weights(&mut weights, divisor);
                (low, Some(weights))
            }
        };
        self.silu_scaled(&mut low, divisor);
        let gate = self.mul(&w.up, &low);
        (self.mix_streams(&gate, &n, c.streams, c.hidden), weights)
    }
    /// A hyper-connection's write, [`Ops::add_to_streams`], if it has weights, and [`Ops::nonfinite`] of rows of streams. `next` is what
    /// reads the streams as they are then, if that is known: a device may begin with it.
    fn write(
        &self,
        r: &mut Self::Buf,
        weights: Option<&Self::Buf>,
        y: &Self::Buf,
        _next: Option<&Mixer<Self>>,
        c: &ModelConfig,
        place: &dyn Fn() -> String,
    ) -> Option<(usize, &'static str)>
    where
        Self: Sized,
    {
        if let Some(a) = weights {
            self.add_to_streams(r, a, y, c.hidden);
        }
        self.nonfinite(r, c.residual_len(), place)
    }

    // Mixers.

    /// The gated delta rule over the rows; moves `state` on. Returns `[rows][value_heads * dim]`.
    fn delta_scan(
        &self,
        shape: DeltaShape,
        qkv: Self::Buf,
        beta: &Self::Buf,
        alpha: &Self::Buf,
        a: &Self::Buf,
        dt: &Self::Buf,
        state: &mut Self::Buf,
    ) -> Self::Buf;
    /// [`Ops::delta_scan`] that leaves `state` as it is and notes at the front of `updates`, which has room for the
    /// rows, what they would have done to it.
    fn delta_scan_noting(
        &self,
        shape: DeltaShape,
        qkv: Self::Buf,
        beta: &Self::Buf,
        alpha: &Self::Buf,
        a: &Self::Buf,
        dt: &Self::Buf,
        state: &Self::Buf,
        updates: &mut DeltaUpdates<Self::Buf>,
    ) -> Self::Buf;
    /// Does to `state` what the first `rows` rows noted in `updates`: for each in turn `S = fma(k, d, S * decay)`, so
    /// the bits that [`Ops::delta_scan`] of those rows would have left. One pass over the state, and no sums.
    fn delta_replay(&self, shape: DeltaShape, updates: &DeltaUpdates<Self::Buf>, rows: usize, state: &mut Self::Buf);
    /// [`Ops::conv_advance`] and [`Ops::delta_replay`] of several layers.
    fn advance(&self, shape: DeltaShape, layers: Vec<Advance<'_, Self::Buf>>, rows: usize) {
        for Advance { conv, inputs, state, updates } in layers {
            self.conv_advance(conv, inputs, rows, shape.channels());
            self.delta_replay(shape, updates, rows, state);
        }
    }
    /// Norm of each head with `gamma`, times `sigmoid(z)`, in place.
    fn gated_norm(&self, o: &mut Self::Buf, gamma: &Self::Buf, z: &Self::Buf, eps: f32);
    /// What a delta-net layer does between its projections, for rows that may be taken back: [`Ops::conv_silu_noting`],
    /// [`Ops::delta_scan_noting`] and [`Ops::gated_norm`]. `projected` are those of the queries, keys and values, then z, beta and
    /// alpha. Returns the inputs of the last projection.
    fn delta_noting(
        &self,
        w: &DeltaWeights<Self>,
        c: &ModelConfig,
        projected: [Self::Buf; 4],
        conv: &Self::Buf,
        state: &Self::Buf,
        notes: &mut DeltaNotes<Self::Buf>,
    ) -> Self::Buf
    where
        Self: Sized,
    {
        let [qkv, z, beta, alpha] = projected;
        let (shape, DeltaNotes { inputs, updates }) = (c.delta.shape(), notes);
        let qkv = self.conv_silu_noting(&qkv, &w.conv, c.delta.taps, 1, shape.channels(), conv, inputs);
        let mut o = self.delta_scan_noting(shape, qkv, &beta, &alpha, &w.a, &w.dt, state, updates);
        self.gated_norm(&mut o, &w.norm, &z, c.eps);
        o
    }
    /// Splits heads of `2 * dim` values into their first and second halves.
    fn split_heads(&self, x: &Self::Buf, dim: usize) -> (Self::Buf, Self::Buf);
    /// Appends the keys of blocks `from..to` to `blocks`: mean of the block's raw keys, norm, rotation at the block's
    /// first position.
    fn pool_blocks(
        &self,
        raw: &Self::Cache,
        blocks: &mut Self::Cache,
        gamma: &Self::Buf,
        eps: f32,
        rope: &Rope,
        block: usize,
        range: std::ops::Range<usize>,
    );
    /// Every earlier position and its own, for rows at `first`, `first + 1`, ...
    fn select_all(&self, first: usize, rows: usize) -> Self::Selection;
    /// The positions of the best `budget` blocks and of the incomplete one, for each row of indexer queries.
    fn select(
        &self,
        q: &Self::Buf,
        blocks: &Self::Cache,
        indexer: &crate::config::Indexer,
        first: usize,
    ) -> Self::Selection;
    /// Attention of each row over its selection, times `sigmoid(gate)`.
    fn attend(
        &self,
        shape: AttentionShape,
        q: &Self::Buf,
        gate: &Self::Buf,
        keys: &Self::Cache,
        values: &Self::Cache,
        selection: &Self::Selection,
    ) -> Self::Buf;
    /// The n-gram module's gated value for each row: `[rows][streams][width]`.
    fn ngram_gate(&self, k: &Self::Buf, q: &Self::Buf, v: &Self::Buf, width: usize) -> Self::Buf;

    // Experts.

    /// The `used` best experts of each row of router logits, with renormalised weights; or what [`Ops::nonfinite`] finds
    /// in the logits.
    ///
    /// # Errors
    /// A logit is no number: its row, and what it is.
    fn route(
        &self,
        logits: &Self::Buf,
        experts: usize,
        used: usize,
        place: &dyn Fn() -> String,
    ) -> std::result::Result<Routing, (usize, &'static str)>;
    /// The weighted sum of the routed experts' outputs in routing order, then of the shared expert's, whose weight is
    /// `sigmoid(opening)`; `opening` has one value per row.
    fn expert_sum(
        &self,
        experts: &Self::Experts,
        shared: &SharedExpert<Self::Matrix>,
        opening: &Self::Buf,
        x: &Self::Buf,
        routing: &Routing,
    ) -> Self::Buf;
}
