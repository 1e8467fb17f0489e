//! Everything one sequence carries from token to token.

use crate::config::{LayerKind, ModelConfig};
use crate::error::{Error, Result};
use crate::fingerprint::Fingerprint;
use crate::ops::Ops;
use crate::window::Window;

/// What one layer carries.
pub(crate) enum LayerState<O: Ops> {
    /// Delta-net: the last inputs of the short convolution, and the recurrent state.
    Delta { conv: O::Buf, state: O::Buf },
    /// Attention: keys and values per token, and the indexer's keys per token and per complete block.
    Attention { keys: O::Cache, values: O::Cache, index: Option<IndexState<O>> },
}

/// The indexer's part of an attention layer's state.
pub(crate) struct IndexState<O: Ops> {
    pub(crate) raw: O::Cache,
    pub(crate) blocks: O::Cache,
}

/// The state of one sequence: all that must be carried, and rolled back, is here and nowhere else.
pub struct State<O: Ops> {
    pub(crate) tokens: Vec<u32>,
    /// A number per token that no other token of this state ever had: tells histories apart.
    pub(crate) stamps: Vec<u64>,
    pub(crate) next_stamp: u64,
    pub(crate) layers: Vec<LayerState<O>>,
    /// Past inputs of the n-gram module's convolution.
    pub(crate) ngram: Option<O::Buf>,
    pub(crate) capacity: usize,
    /// A pass began and did not end: caches and recurrent states disagree.
    pub(crate) broken: bool,
    /// A window that was read and not committed: its rows are in the caches and nowhere else.
    pub(crate) window: Window<O>,
    /// What the device keeps with it.
    pub(crate) kept: O::Kept,
}

/// A point that a [`State`] can return to.
///
/// It holds copies of what cannot be cut back (recurrent states and convolution histories) and the length of what can
/// (keys and values), so it is only good for the state it was taken of, while the tokens up to it are unchanged.
pub struct Snapshot<O: Ops> {
    pub(crate) len: usize,
    pub(crate) stamp: Option<u64>,
    pub(crate) delta: Vec<(O::Buf, O::Buf)>,
    pub(crate) ngram: Option<O::Buf>,
}

impl<O: Ops> Snapshot<O> {
    /// Tokens of the sequence at this point.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is the start of the sequence.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<O: Ops> State<O> {
    /// The state before the first token, for at most `capacity` tokens.
    pub(crate) fn new(config: &ModelConfig, ops: &O, capacity: usize) -> State<O> {
        let (a, d) = (config.attention, config.delta);
        let layer = |&kind: &LayerKind| match kind {
            LayerKind::Delta => {
                let shape = d.shape();
                LayerState::Delta {
                    conv: ops.zeros((d.taps - 1) * shape.channels()),
                    state: ops.zeros(shape.state_len()),
                }
            }
            LayerKind::Attention => LayerState::Attention {
                keys: ops.cache(a.kv_heads * a.dim, capacity),
                values: ops.cache(a.kv_heads * a.dim, capacity),
                index: a.indexer.map(|i| IndexState {
                    raw: ops.cache(i.dim, capacity),
                    blocks: ops.cache(i.dim, capacity / i.block),
                }),
            },
        };
        State {
            tokens: Vec::new(),
            stamps: Vec::new(),
            next_stamp: 0,
            layers: config.layers.iter().map(layer).collect(),
            ngram: config.ngram.as_ref().map(|n| ops.zeros((n.taps - 1) * n.longest * config.residual_len())),
            capacity,
            broken: false,
            window: Window::new(),
            kept: O::Kept::default(),
        }
    }

    /// The tokens read so far, without those of a window that is not committed.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Tokens it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The tokens of the window that [`Model::verify`](crate::Model::verify) read and that is not committed yet; empty
    /// when there is none.
    pub fn window(&self) -> &[u32] {
        self.window.tokens()
    }

    /// An error while there is a window that is not committed.
    pub(crate) fn refuse_window(&self) -> Result<()> {
        if self.window().is_empty() {
            Ok(())
        } else {
            Err(Error::State("the state has a window that is not committed; commit it first, or none of its rows"))
        }
    }

    /// Takes note of tokens that a pass has read completely.
    pub(crate) fn commit(&mut self, tokens: &[u32]) {
        self.tokens.extend_from_slice(tokens);
        self.stamps.extend(self.next_stamp..self.next_stamp + tokens.len() as u64);
        self.next_stamp += tokens.len() as u64;
    }

    /// Remembers this point.
    ///
    /// # Errors
    /// The state is unusable after a failed pass, or has a window that is not committed.
    pub fn snapshot(&self, ops: &O) -> Result<Snapshot<O>> {
        if self.broken {
            return Err(Error::State("a state left by a failed pass cannot be saved"));
        }
        self.refuse_window()?;
        let delta = self.layers.iter().filter_map(|layer| match layer {
            LayerState::Delta { conv, state } => Some((ops.duplicate(conv), ops.duplicate(state))),
            LayerState::Attention { .. } => None,
        });
        Ok(Snapshot {
            len: self.tokens.len(),
            stamp: self.stamps.last().copied(),
            delta: delta.collect(),
            ngram: self.ngram.as_ref().map(|n| ops.duplicate(n)),
        })
    }

    /// Returns to a snapshot of this state; works after a failed pass too, and drops a window that is not committed.
    ///
    /// # Errors
    /// The tokens up to the snapshot were taken back since, so its keys and values are gone.
    pub fn restore(&mut self, config: &ModelConfig, ops: &O, snapshot: &Snapshot<O>) -> Result<()> {
        let same = match snapshot.len.checked_sub(1) {
            None => true,
            Some(last) => self.stamps.get(last).copied() == snapshot.stamp,
        };
        if !same {
            return Err(Error::State("the snapshot is of a history that this state no longer has"));
        }
        let mut saved = snapshot.delta.iter();
        for layer in &mut self.layers {
            if let LayerState::Delta { conv, state } = layer
                && let Some((saved_conv, saved_state)) = saved.next()
            {
                ops.assign(conv, saved_conv);
                ops.assign(state, saved_state);
            }
        }
        self.cut_caches(config, ops, snapshot.len);
        self.window.clear();
        if let (Some(ngram), Some(saved)) = (&mut self.ngram, &snapshot.ngram) {
            ops.assign(ngram, saved);
        }
        self.tokens.truncate(snapshot.len);
        self.stamps.truncate(snapshot.len);
        self.broken = false;
        Ok(())
    }

    /// Keeps the keys and values of the first `len` tokens, and the indexer's of the tokens and whole blocks in them.
    pub(crate) fn cut_caches(&mut self, config: &ModelConfig, ops: &O, len: usize) {
        let row = config.attention.kv_heads * config.attention.dim;
        for layer in &mut self.layers {
            let LayerState::Attention { keys, values, index } = layer else { continue };
            ops.truncate(keys, len, row);
            ops.truncate(values, len, row);
            if let (Some(index), Some(i)) = (index, config.attention.indexer) {
                ops.truncate(&mut index.raw, len, i.dim);
                ops.truncate(&mut index.blocks, len / i.block, i.dim);
            }
        }
    }
}

impl State<crate::CpuOps> {
    /// A number for everything the state holds, bit for bit: equal states have equal numbers. It covers the caches' rows
    /// of a window that is not committed, so compare states without one.
    pub fn fingerprint(&self) -> u64 {
        let mut print = Fingerprint::default();
        let mut all = |values: &[f32]| print.add(values);
        for layer in &self.layers {
            match layer {
                LayerState::Delta { conv, state } => {
                    all(conv);
                    all(state);
                }
                LayerState::Attention { keys, values, index } => {
                    all(keys);
                    all(values);
                    if let Some(index) = index {
                        all(&index.raw);
                        all(&index.blocks);
                    }
                }
            }
        }
        if let Some(ngram) = &self.ngram {
            all(ngram);
        }
        self.tokens.iter().for_each(|&t| print.word(t));
        print.0
    }
}
