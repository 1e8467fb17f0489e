//! The forward pass.

use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::loader::{Loader, Progress};
use crate::ngram::NgramHash;
use crate::ops::{Ops, Routing};
use crate::state::{IndexState, LayerState, Snapshot, State};
use crate::weights::{AttentionWeights, DeltaWeights, Mixer, MoeWeights, NgramWeights, TokenMixer, Weights};
use crate::window::{DeltaNotes, Window};
use strata_cpu::attention::AttentionShape;
use strata_cpu::rope::Rope;
use strata_gguf::{Gguf, Tensor};
use strata_policy::cache::{Change, Phase, Shape};

/// Which rows of a window need logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// None: the window is a part of a prompt that others follow.
    Nothing,
    /// The last row.
    Last,
    /// Every row.
    All,
}

/// What a pass returns.
pub struct Output<O: Ops> {
    /// `[wanted rows][vocab]`.
    pub logits: Vec<f32>,
    /// The residual streams of every row before the last mix, `[rows][streams][hidden]`: the draft layer's input.
    pub residual: O::Buf,
}

/// Watches a pass from inside.
pub trait Observer {
    /// Whether [`Observer::residual`] is called; it costs a copy from the device per layer.
    fn wants_residuals(&self) -> bool {
        false
    }

    /// The residual streams behind a layer, `[rows][streams][hidden]`.
    fn residual(&mut self, _layer: usize, _values: &[f32]) {}

    /// The experts that a layer chose for the rows of the window. What the layer does before it is done.
    fn routing(&mut self, _layer: usize, _routing: &Routing) {}

    /// The outputs of a layer's experts are added up.
    fn experts(&mut self, _layer: usize) {}

    /// What the pass is for. `None`: one of more rows than windows have reads a prompt, others write.
    fn phase(&self) -> Option<Phase> {
        None
    }

    /// What the device's expert cache did at the boundary behind the pass, if there is one.
    fn cache(&mut self, _round: &CacheRound<'_>) {}
}

/// What an expert cache did in a pass.
#[derive(Debug, Clone, Copy)]
pub struct CacheRound<'a> {
    /// Whether each use of an expert found it resident: layer by layer, in a layer row by row, in a row in routing order.
    pub hits: &'a [bool],
    /// What came and left behind the pass.
    pub changes: &'a [Change],
    /// What the changes' keys mean.
    pub shape: &'a Shape,
}

/// An observer that looks away.
pub struct Silent;

impl Observer for Silent {}

/// A model on a device.
pub struct Model<O: Ops> {
    config: ModelConfig,
    pub(crate) weights: Weights<O>,
    ops: O,
    pub(crate) rope: Rope,
    hash: Option<NgramHash>,
    /// The n-gram table as the file holds it, for reading ahead.
    table: Option<Tensor>,
    warnings: Vec<String>,
}

/// The error of a value that was found in a row, if one was.
fn numbers(found: Option<(usize, &'static str)>, first: usize, place: impl Fn() -> String) -> Result<()> {
    match found {
        None => Ok(()),
        Some((row, value)) => Err(Error::NonFinite { value, place: place(), position: first + row }),
    }
}

impl<O: Ops> Model<O> {
    /// Loads the model of a file onto a device.
    ///
    /// # Errors
    /// The file is of another architecture, lacks a tensor or key, or holds one of the wrong shape; each is named.
    pub fn load(gguf: &Gguf, ops: O, progress: &mut dyn FnMut(Progress)) -> Result<Model<O>> {
        let config = ModelConfig::from_gguf(gguf)?;
        let loader = Loader::new(gguf, &config, &ops);
        let weights = loader.load(progress)?;
        ops.failure().map_or(Ok(()), Err)?;
        let mut warnings = config.warnings.clone();
        warnings.extend(loader.unknown());
        Ok(Model {
            rope: Rope::new(config.attention.n_rot, config.attention.rope_base),
            hash: config.ngram.clone().map(NgramHash::new),
            table: config.ngram.as_ref().and_then(|_| gguf.tensor("per_layer_token_embd.weight").cloned()),
            config,
            weights,
            ops,
            warnings,
        })
    }

    /// The dimensions.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The device.
    pub fn ops(&self) -> &O {
        &self.ops
    }

    /// What was odd about the file and how it was read.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// A state before the first token, for at most `capacity` tokens.
    pub fn new_state(&self, capacity: usize) -> State<O> {
        State::new(&self.config, &self.ops, capacity)
    }

    /// Remembers a point of a state. See [`State::snapshot`].
    ///
    /// # Errors
    /// The state is unusable after a failed pass, or has a window that is not committed.
    pub fn snapshot(&self, state: &State<O>) -> Result<Snapshot<O>> {
        state.snapshot(&self.ops)
    }

    /// Returns a state to a snapshot. See [`State::restore`].
    ///
    /// # Errors
    /// The snapshot is of another history.
    pub fn restore(&self, state: &mut State<O>, snapshot: &Snapshot<O>) -> Result<()> {
        state.restore(&self.config, &self.ops, snapshot)
    }

    /// Starts reading the n-gram rows that `next` will need behind the tokens of `state`, without waiting for them.
    pub fn prefetch(&self, state: &State<O>, next: &[u32]) {
        if let (Some(table), Some(_)) = (&self.table, &self.hash) {
            for row in self.ngram_rows(&state.tokens, next) {
                table.prefetch_rows(row, 1);
            }
        }
    }

    /// The n-gram rows of each of `tokens` behind `before`.
    pub(crate) fn ngram_rows(&self, before: &[u32], tokens: &[u32]) -> Vec<u64> {
        let Some(hash) = &self.hash else { return Vec::new() };
        // Only the last few predecessors enter the hash.
        let reach = hash.config().longest - 1;
        let mut sequence = before[before.len().saturating_sub(reach)..].to_vec();
        let mut rows = Vec::with_capacity(tokens.len() * hash.heads());
        for &token in tokens {
            sequence.push(token);
            hash.rows(&sequence, &mut rows);
        }
        rows
    }

    /// Reads `tokens` behind those of `state` in one causal pass and moves the state on.
    ///
    /// Any division of a sequence into windows gives the same logits and the same state, bit for bit.
    ///
    /// # Errors
    /// A token is outside the vocabulary, the context is full or the state has a window that is not committed (the state
    /// is unchanged), or a value stopped being a number (the state must be restored to a snapshot before it is used
    /// again).
    pub fn forward(
        &self,
        state: &mut State<O>,
        tokens: &[u32],
        want: Want,
        observer: &mut dyn Observer,
    ) -> Result<Output<O>> {
        self.admit(state, tokens)?;
        if tokens.is_empty() {
            return Ok(Output { logits: Vec::new(), residual: self.ops.zeros(0) });
        }
        if tokens.len() <= self.ops.quick_rows() {
            let mut output = O::verify(self, state, tokens, observer)?;
            self.commit(state, tokens.len())?;
            match want {
                Want::Nothing => output.logits.clear(),
                Want::Last => drop(output.logits.drain(..(tokens.len() - 1) * self.config.vocab)),
                Want::All => {}
            }
            return Ok(output);
        }
        state.broken = true;
        let output = self.pass(state, tokens, want, observer, None)?;
        state.commit(tokens);
        state.broken = false;
        Ok(output)
    }

    /// Whether `state` can read `tokens`.
    pub(crate) fn admit(&self, state: &State<O>, tokens: &[u32]) -> Result<()> {
        let (vocab, asked, capacity) = (self.config.vocab, state.tokens.len() + tokens.len(), state.capacity());
        if state.broken {
            return Err(Error::State("the state was left unusable by a failed pass; restore a snapshot first"));
        }
        state.refuse_window()?;
        if let Some(&id) = tokens.iter().find(|&&t| t as usize >= vocab) {
            return Err(Error::Token { id, vocab });
        }
        if asked > capacity {
            return Err(Error::ContextFull { asked, capacity });
        }
        Ok(())
    }

    /// Runs all layers over `tokens`, at least one. Caches get their rows; recurrent states and convolution histories
    /// are moved on, or left as they are and noted in `window`.
    pub(crate) fn pass(
        &self,
        state: &mut State<O>,
        tokens: &[u32],
        want: Want,
        observer: &mut dyn Observer,
        window: Option<&mut Window<O>>,
    ) -> Result<Output<O>> {
        self.ops.begin(&self.config, tokens.len());
        let output = self.layers(state, tokens, want, observer, window);
        self.ops.end(output.is_ok(), observer);
        output
    }

    /// [`Model::pass`], once there is room for it.
    fn layers(
        &self,
        state: &mut State<O>,
        tokens: &[u32],
        want: Want,
        observer: &mut dyn Observer,
        mut window: Option<&mut Window<O>>,
    ) -> Result<Output<O>> {
        let (c, ops, first) = (&self.config, &self.ops, state.tokens.len());
        let mut r = ops.repeat(&self.embed(tokens), c.hidden, c.streams);
        self.check(&r, first, || "the token embedding".into())?;
        for (i, layer) in self.weights.layers.iter().enumerate() {
            if let (Some(w), Some(n), Some(history)) = (&self.weights.ngram, &c.ngram, &mut state.ngram)
                && n.layer == i
            {
                let rows = self.ngram_rows(&state.tokens, tokens);
                let notes = window.as_deref_mut().and_then(Window::ngram);
                let added = self.ngram(w, &r, &rows, n.taps, n.longest, history, notes);
                ops.add(&mut r, &added);
                self.check(&r, first, || format!("layer {i} (n-gram module)"))?;
            }
            let (x, weights) = self.mix(&layer.mixer_in, &r);
            let y = match (&layer.mixer, &mut state.layers[i]) {
                (TokenMixer::Delta(w), LayerState::Delta { conv, state }) => {
                    self.delta(w, &x, conv, state, window.as_deref_mut().and_then(|w| w.layer(i)))
                }
                (TokenMixer::Attention(w), LayerState::Attention { keys, values, index }) => {
                    self.attention(i, w, &x, first, tokens.len(), keys, values, index.as_mut())?
                }
                _ => return Err(Error::State("the state was made for another model")),
            };
            let kind = match layer.mixer {
                TokenMixer::Delta(_) => "delta-net",
                TokenMixer::Attention(_) => "attention",
            };
            let place = || format!("layer {i} ({kind})");
            self.write(&mut r, weights.as_ref(), &y, Some(&layer.moe_in), first, place)?;

            let next = self.reader_behind(i);
            self.moe(i, &layer.moe_in, &layer.moe, &mut r, next, first, observer)?;
            if observer.wants_residuals() {
                observer.residual(i, &ops.download(&r));
            }
        }
        let logits = match want {
            Want::Nothing => Vec::new(),
            Want::Last => self.logits(&ops.tail(&r, c.residual_len()), first + tokens.len() - 1)?,
            Want::All => self.logits(&r, first)?,
        };
        ops.failure().map_or(Ok(Output { logits, residual: r }), Err)
    }

    /// What reads the residual streams as a layer leaves them. The n-gram module adds to them first.
    fn reader_behind(&self, layer: usize) -> Option<&Mixer<O>> {
        let next = layer + 1;
        let added = self.weights.ngram.is_some() && self.config.ngram.as_ref().is_some_and(|n| n.layer == next);
        let reader = self.weights.layers.get(next).map_or(&self.weights.head_in, |layer| &layer.mixer_in);
        (!added).then_some(reader)
    }

    /// The embeddings of tokens, `[rows][hidden]`.
    pub(crate) fn embed(&self, tokens: &[u32]) -> O::Buf {
        let rows: Vec<u64> = tokens.iter().map(|&t| t.into()).collect();
        self.ops.gather(&self.weights.embedding, &rows)
    }

    fn logits(&self, r: &O::Buf, first: usize) -> Result<Vec<f32>> {
        self.head(&self.weights.head_in, &self.weights.head, self.config.vocab, r, first)
    }

    /// The matrix that makes logits, for a draft layer too.
    pub(crate) fn head_matrix(&self) -> &O::Matrix {
        &self.weights.head
    }

    /// The logits of residual streams through a mixer and a head of `vocab` rows.
    pub(crate) fn head(
        &self,
        mixer: &Mixer<O>,
        head: &O::Matrix,
        vocab: usize,
        r: &O::Buf,
        first: usize,
    ) -> Result<Vec<f32>> {
        let (x, _) = self.mix(mixer, r);
        let logits = self.ops.mul(head, &x);
        self.check_rows(&logits, vocab, first, || "the head".into())?;
        Ok(self.ops.download(&logits))
    }

    /// A layer's mixture of experts, from its read of the residual streams to its write; `next` reads them then.
    pub(crate) fn moe(
        &self,
        i: usize,
        mixer: &Mixer<O>,
        w: &MoeWeights<O>,
        r: &mut O::Buf,
        next: Option<&Mixer<O>>,
        first: usize,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let (c, ops) = (&self.config, &self.ops);
        let (x, weights) = self.mix(mixer, r);
        let [logits, opening] = ops.mul_all([&w.router, &w.shared_gate], &x);
        let place = || format!("layer {i} (router)");
        let routing = ops
            .route(&logits, c.experts, c.experts_used, &place)
            .map_err(|(row, value)| Error::NonFinite { value, place: place(), position: first + row })?;
        observer.routing(i, &routing);
        let y = ops.expert_sum(&w.experts, &w.shared, &opening, &x, &routing);
        observer.experts(i);
        self.write(r, weights.as_ref(), &y, next, first, || format!("layer {i} (experts)"))
    }

    /// Whether the residual streams are numbers.
    pub(crate) fn check(&self, r: &O::Buf, first: usize, place: impl Fn() -> String) -> Result<()> {
        self.check_rows(r, self.config.residual_len(), first, place)
    }

    /// Whether rows of this length are numbers. Choices are made on them, and a choice hides what it was made on.
    fn check_rows(&self, rows: &O::Buf, len: usize, first: usize, place: impl Fn() -> String) -> Result<()> {
        numbers(self.ops.nonfinite(rows, len, &place), first, place)
    }

    /// A hyper-connection's read: the gated mean of the normalised streams, and the weights of the write that follows.
    pub(crate) fn mix(&self, w: &Mixer<O>, r: &O::Buf) -> (O::Buf, Option<O::Buf>) {
        self.ops.mix(w, r, &self.config)
    }

    /// A hyper-connection's write: the block's output into every stream, which must be numbers then, and are read by `next`.
    pub(crate) fn write(
        &self,
        r: &mut O::Buf,
        weights: Option<&O::Buf>,
        y: &O::Buf,
        next: Option<&Mixer<O>>,
        first: usize,
        place: impl Fn() -> String,
    ) -> Result<()> {
        numbers(self.ops.write(r, weights, y, next, &self.config, &place), first, place)
    }

    fn ngram(
        &self,
        w: &NgramWeights<O>,
        r: &O::Buf,
        rows: &[u64],
        taps: usize,
        dilation: usize,
        history: &mut O::Buf,
        notes: Option<&mut O::Buf>,
    ) -> O::Buf {
        let (c, ops) = (&self.config, &self.ops);
        let e = ops.gather(&w.table, rows);
        let [k, v] = ops.mul_all([&w.key, &w.value], &e);
        let k = ops.group_norm(&k, &w.norm_key, c.streams, c.eps);
        let q = ops.group_norm(r, &w.norm_query, c.streams, c.eps);
        let mut gated = ops.ngram_gate(&k, &q, &v, c.hidden);
        // The convolution sees the normalised value; what passes beside it is not normalised.
        let u = ops.group_norm(&gated, &w.norm_conv, c.streams, c.eps);
        let channels = c.residual_len();
        let y = match notes {
            None => ops.conv_silu(&u, &w.conv, taps, dilation, channels, history),
            Some(inputs) => ops.conv_silu_noting(&u, &w.conv, taps, dilation, channels, history, inputs),
        };
        ops.add(&mut gated, &y);
        gated
    }

    fn delta(
        &self,
        w: &DeltaWeights<O>,
        x: &O::Buf,
        conv: &mut O::Buf,
        state: &mut O::Buf,
        notes: Option<&mut DeltaNotes<O::Buf>>,
    ) -> O::Buf {
        let (c, ops) = (&self.config, &self.ops);
        let (d, shape) = (c.delta, c.delta.shape());
        let projected = ops.mul_all([&w.qkv, &w.z, &w.beta, &w.alpha], x);
        let o = match notes {
            None => {
                let [qkv, z, beta, alpha] = projected;
                let qkv = ops.conv_silu(&qkv, &w.conv, d.taps, 1, shape.channels(), conv);
                let mut o = ops.delta_scan(shape, qkv, &beta, &alpha, &w.a, &w.dt, state);
                ops.gated_norm(&mut o, &w.norm, &z, c.eps);
                o
            }
            Some(notes) => ops.delta_noting(w, c, projected, conv, state, notes),
        };
        ops.mul(&w.out, &o)
    }

    /// Appends a window's keys, normalised and rotated here, and its values.
    pub(crate) fn keep_keys(
        &self,
        w: &AttentionWeights<O>,
        mut k: O::Buf,
        v: &O::Buf,
        first: usize,
        keys: &mut O::Cache,
        values: &mut O::Cache,
    ) {
        self.ops.norm_rope(&mut k, &w.k_norm, self.config.eps, &self.rope, self.config.attention.kv_heads, first);
        self.ops.append(keys, &k);
        self.ops.append(values, v);
    }

    pub(crate) fn attention(
        &self,
        layer: usize,
        w: &AttentionWeights<O>,
        x: &O::Buf,
        first: usize,
        rows: usize,
        keys: &mut O::Cache,
        values: &mut O::Cache,
        index: Option<&mut IndexState<O>>,
    ) -> Result<O::Buf> {
        let (a, eps, ops, rope) = (self.config.attention, self.config.eps, &self.ops, &self.rope);
        let shape = AttentionShape { heads: a.heads, kv_heads: a.kv_heads, dim: a.dim };
        let [q, k, v] = ops.mul_all([&w.q, &w.k, &w.v], x);
        let (mut q, gate) = ops.split_heads(&q, a.dim);
        ops.norm_rope(&mut q, &w.q_norm, eps, rope, a.heads, first);
        self.keep_keys(w, k, &v, first, keys, values);
        let visible = first + rows;
        let selection = match (&w.indexer, a.indexer, index) {
            (Some(w), Some(i), Some(index)) => {
                let place = || format!("layer {layer} (indexer)");
                let k = ops.mul(&w.k, x);
                self.check_rows(&k, i.dim, first, place)?;
                ops.append(&mut index.raw, &k);
                let complete = first / i.block..visible / i.block;
                ops.pool_blocks(&index.raw, &mut index.blocks, &w.k_norm, eps, rope, i.block, complete);
                if visible / i.block <= i.budget {
                    ops.select_all(first, rows)
                } else {
                    let mut q = ops.mul(&w.q, x);
                    ops.norm_rope(&mut q, &w.q_norm, eps, rope, i.heads, first);
                    self.check_rows(&q, i.heads * i.dim, first, place)?;
                    ops.select(&q, &index.blocks, &i, first)
                }
            }
            _ => ops.select_all(first, rows),
        };
        let o = ops.attend(shape, &q, &gate, keys, values, &selection);
        Ok(ops.mul(&w.out, &o))
    }
}
