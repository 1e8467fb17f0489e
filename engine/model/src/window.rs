//! Windows of which only the first rows may be kept: speculative decoding.
//!
//! A window is the last known token and guesses at those that follow it. [`Model::verify`] reads it in one causal pass,
//! which tells of every guess whether it was right; [`Model::commit`] keeps the rows up to the first wrong one and takes
//! the rest back. Afterwards the state is that of reading the kept tokens one by one, bit for bit.
//!
//! Keys and values are cut back to the kept rows. A recurrent state cannot be: of the published model it is 3 MB in each
//! of 36 layers, too much for a copy per row. So the pass leaves recurrent states and convolution histories as they are
//! and notes what the rows would do to them:
//!
//! - of the delta rule each row's key, difference and decay, 33 KB a layer. The sums are in the difference already, so
//!   doing it again is a multiplication and a fused multiply-add per value, in one pass over the state for all kept
//!   rows. In memory traffic, a round reads the state twice and writes it once. A second state buffer, written by the
//!   pass and swapped in if all rows are kept, would read and write it once in that case, but twice each in all others,
//!   and would take 108 MiB;
//! - of the convolutions their inputs: the history behind the kept rows is a selection of rows.

use crate::config::{LayerKind, ModelConfig};
use crate::error::{Error, Result};
use crate::forward::{Model, Observer, Output, Want};
use crate::ops::{Advance, DeltaUpdates, Ops};
use crate::state::{LayerState, State};

/// Rows that there is room for from the first window on.
const ROOM: usize = 8;

/// A window that was read and not committed, and the buffers of windows, which serve again and again.
pub(crate) struct Window<O: Ops> {
    pub(crate) tokens: Vec<u32>,
    /// Rows that the buffers have room for; none before the first window, so that states without one pay nothing.
    room: usize,
    /// For each layer, if it is a delta-net layer.
    layers: Vec<Option<DeltaNotes<O::Buf>>>,
    /// Inputs of the n-gram module's convolution, `[room][streams * hidden]`.
    ngram: Option<O::Buf>,
}

/// What the rows of a window would do to a delta-net layer.
pub struct DeltaNotes<B> {
    /// Inputs of the short convolution, `[room][channels]`.
    pub(crate) inputs: B,
    /// Changes of the recurrent state.
    pub(crate) updates: DeltaUpdates<B>,
}

impl<O: Ops> Window<O> {
    pub(crate) fn new() -> Window<O> {
        Window { tokens: Vec::new(), room: 0, layers: Vec::new(), ngram: None }
    }

    pub(crate) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Forgets the rows.
    pub(crate) fn clear(&mut self) {
        self.tokens.clear();
    }

    /// Values that the buffers hold.
    pub(crate) fn values(&self, config: &ModelConfig) -> usize {
        let shape = config.delta.shape();
        let delta = shape.channels() + (shape.key_heads + shape.value_heads) * shape.dim + shape.value_heads;
        let layers = self.layers.iter().flatten().count();
        self.room * (layers * delta + self.ngram.as_ref().map_or(0, |_| config.residual_len()))
    }

    /// The notes of a layer.
    pub(crate) fn layer(&mut self, layer: usize) -> Option<&mut DeltaNotes<O::Buf>> {
        self.layers.get_mut(layer)?.as_mut()
    }

    /// The inputs of the n-gram module's convolution.
    pub(crate) fn ngram(&mut self) -> Option<&mut O::Buf> {
        self.ngram.as_mut()
    }

    /// Makes room for windows of so many rows, which is kept. Whether that took new buffers.
    pub(crate) fn reserve(&mut self, config: &ModelConfig, ops: &O, rows: usize) -> bool {
        if rows <= self.room {
            return false;
        }
        // The old buffers go before the new ones come.
        *self = Window::new();
        let (room, shape) = (rows.max(ROOM), config.delta.shape());
        let notes = |&kind: &LayerKind| {
            (kind == LayerKind::Delta).then(|| DeltaNotes {
                inputs: ops.zeros(room * shape.channels()),
                updates: DeltaUpdates {
                    keys: ops.zeros(room * shape.key_heads * shape.dim),
                    deltas: ops.zeros(room * shape.value_heads * shape.dim),
                    decays: ops.zeros(room * shape.value_heads),
                },
            })
        };
        self.layers = config.layers.iter().map(notes).collect();
        self.ngram = config.ngram.as_ref().map(|_| ops.zeros(room * config.residual_len()));
        self.room = room;
        true
    }
}

impl<O: Ops> Model<O> {
    /// Reads a window behind the tokens of `state`: logits `[tokens][vocab]` and residual streams of every row, each with
    /// the bits it would have if the tokens before it were read one by one.
    ///
    /// The state then waits for [`Model::commit`]: its tokens are still those before the window, and it refuses other
    /// passes and snapshots. [`Model::restore`] drops the window. Buffers are made for the first window, with room for
    /// eight rows, and for one that is larger than all before.
    ///
    /// # Errors
    /// There are no tokens, one is outside the vocabulary, they do not fit the context, the state already has a window or
    /// is unusable after a failed pass, or a value stopped being a number. In all cases the state is unchanged.
    pub fn verify(&self, state: &mut State<O>, tokens: &[u32], observer: &mut dyn Observer) -> Result<Output<O>> {
        self.admit(state, tokens)?;
        if tokens.is_empty() {
            return Err(Error::State("a window has at least one token"));
        }
        O::verify(self, state, tokens, observer)
    }

    /// [`Model::verify`] by one operation after another.
    pub(crate) fn verify_step_by_step(
        &self,
        state: &mut State<O>,
        tokens: &[u32],
        observer: &mut dyn Observer,
    ) -> Result<Output<O>> {
        let mut window = std::mem::replace(&mut state.window, Window::new());
        if window.reserve(self.config(), self.ops(), tokens.len()) {
            // What a device keeps may note rows in the buffers of before.
            state.kept = O::Kept::default();
        }
        state.broken = true;
        let output = self.pass(state, tokens, Want::All, observer, Some(&mut window));
        match &output {
            Ok(_) => window.tokens.extend_from_slice(tokens),
            // Nothing else was changed.
            Err(_) => state.cut_caches(self.config(), self.ops(), state.tokens.len()),
        }
        state.window = window;
        state.broken = false;
        output
    }

    /// Keeps the first `keep` rows of the window that [`Model::verify`] read and takes the others back. The state is then,
    /// bit for bit, what reading those tokens one by one would have made of it; 0 rows return it to where it was before
    /// the window.
    ///
    /// # Errors
    /// There is no window, or it has fewer rows. The state is unchanged, and a window can still be committed.
    pub fn commit(&self, state: &mut State<O>, keep: usize) -> Result<()> {
        let (config, ops, rows) = (self.config(), self.ops(), state.window.tokens.len());
        if rows == 0 {
            return Err(Error::State("there is no window to commit"));
        }
        if keep > rows {
            return Err(Error::Keep { keep, rows });
        }
        let shape = config.delta.shape();
        if keep > 0 {
            let layers = state.layers.iter_mut().zip(&state.window.layers);
            let layers = layers.filter_map(|(layer, notes)| match (layer, notes) {
                (LayerState::Delta { conv, state }, Some(DeltaNotes { inputs, updates })) => {
                    Some(Advance { conv, inputs, state, updates })
                }
                _ => None,
            });
            ops.advance(shape, layers.collect(), keep);
            if let (Some(history), Some(inputs)) = (&mut state.ngram, &state.window.ngram) {
                ops.conv_advance(history, inputs, keep, config.residual_len());
            }
        }
        state.cut_caches(config, ops, state.tokens.len() + keep);
        let mut tokens = std::mem::take(&mut state.window.tokens);
        state.commit(&tokens[..keep]);
        tokens.clear();
        state.window.tokens = tokens;
        Ok(())
    }
}
