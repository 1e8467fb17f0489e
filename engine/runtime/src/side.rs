//! The draft layer beside a sequence: what it has read along, and what it still has to.

use strata_model::{DraftLayer, DraftSnapshot, DraftState, HiddenNorm, Model, Ops, Result};

/// Rows that may wait to be read along. Reading several together is cheaper, and while nothing is drafted nobody needs
/// them; a row of the published model's residual streams is 40 KB.
const WAITING: usize = 64;

/// Rows that are kept waiting while nothing is drafted: what a draft sees when it is tried again. Every row brings experts of
/// its own (of the published layer 52 MB in Q8_0), so a try costs more by the rows that it reads first than by its step.
const RESTART: usize = 8;

/// The draft layer's side of a sequence.
pub(crate) struct Side<O: Ops> {
    /// Position of its first token: where reading along began. Its attention is over what it has seen.
    base: usize,
    pub(crate) state: DraftState<O>,
    /// Tokens that the model has read and the layer has not, and the residual streams behind them.
    tokens: Vec<u32>,
    residual: Vec<O::Buf>,
}

/// A point that a [`Side`] can return to.
pub(crate) struct SidePoint<O: Ops> {
    base: usize,
    snapshot: DraftSnapshot<O>,
}

impl<O: Ops> Side<O> {
    /// One that begins at position `base` of a sequence of at most `room` tokens.
    pub(crate) fn new(layer: &DraftLayer<O>, model: &Model<O>, base: usize, room: usize) -> Side<O> {
        let state = layer.new_state(model, room.saturating_sub(base));
        Side { base, state, tokens: Vec::new(), residual: Vec::new() }
    }

    /// Tokens of the sequence up to where it has read along, or could at once.
    pub(crate) fn end(&self) -> usize {
        self.base + self.state.len() + self.tokens.len()
    }

    /// Takes note of the tokens behind [`end`](Side::end) and of the pass that read them, whose further rows do not count.
    pub(crate) fn note(&mut self, model: &Model<O>, tokens: &[u32], residual: &O::Buf) {
        let values = tokens.len() * model.config().residual_len();
        self.tokens.extend_from_slice(tokens);
        self.residual.push(model.ops().slice(residual, 0..values));
    }

    /// Whether so much waits that it should be read now.
    pub(crate) fn full(&self) -> bool {
        self.tokens.len() >= WAITING
    }

    /// Whether more waits than a draft must see.
    pub(crate) fn behind(&self) -> bool {
        self.tokens.len() > RESTART
    }

    /// The same place without the past, but for the last few rows that wait: nothing was read for what is left out, and
    /// nothing will be.
    pub(crate) fn restarted(mut self, layer: &DraftLayer<O>, model: &Model<O>) -> Side<O> {
        let (end, room) = (self.end(), self.base + self.state.capacity());
        let (len, mut rows) = (model.config().residual_len(), 0);
        let mut residual = Vec::new();
        // Whole passes are kept or left out, so it may be some more.
        while rows < RESTART
            && let Some(pass) = self.residual.pop()
        {
            rows += model.ops().len(&pass) / len;
            residual.insert(0, pass);
        }
        let tokens = self.tokens.split_off(self.tokens.len().saturating_sub(rows));
        Side { tokens, residual, ..Side::new(layer, model, end - rows, room) }
    }

    /// Reads what waits.
    ///
    /// # Errors
    /// The layer fails; what it has read is then of no use any more.
    pub(crate) fn catch_up(&mut self, layer: &DraftLayer<O>, model: &Model<O>, norm: HiddenNorm) -> Result<()> {
        self.state.set_hidden_norm(norm);
        if self.tokens.is_empty() {
            return Ok(());
        }
        let (tokens, residual) = (std::mem::take(&mut self.tokens), std::mem::take(&mut self.residual));
        let first = self.state.len();
        match residual.as_slice() {
            [one] => layer.catch_up(model, &mut self.state, first, &tokens, one),
            several => layer.catch_up(model, &mut self.state, first, &tokens, &model.ops().concat(several)),
        }
    }

    /// Where it is, nothing waiting.
    pub(crate) fn point(&self, model: &Model<O>) -> SidePoint<O> {
        SidePoint { base: self.base, snapshot: self.state.snapshot(model.ops()) }
    }

    /// Returns to a point.
    ///
    /// # Errors
    /// The point is of another history.
    pub(crate) fn restore(&mut self, model: &Model<O>, point: &SidePoint<O>) -> Result<()> {
        if self.base != point.base {
            return Err(strata_model::Error::State("the point is of a draft layer that began elsewhere"));
        }
        self.tokens.clear();
        self.residual.clear();
        self.state.restore(model.ops(), &point.snapshot)
    }
}
