//! What the draft layer carries from token to token.

use super::HiddenNorm;
use crate::error::{Error, Result};
use crate::ops::Ops;

/// The draft layer's state of one sequence, beside the model's.
///
/// After n tokens it holds n - 1 cells, and the model's residual streams of the last position, whose cell waits for
/// its token.
pub struct DraftState<O: Ops> {
    pub(crate) keys: O::Cache,
    pub(crate) values: O::Cache,
    /// Values in a row of either.
    row: usize,
    /// The model's residual streams of the last position, `[streams][hidden]`.
    pub(crate) last: Option<O::Buf>,
    /// A number per token that no other token of this state ever had: tells histories apart.
    stamps: Vec<u64>,
    next_stamp: u64,
    capacity: usize,
    /// The token with which a draft made the last position's cell, which is then in the caches.
    drafted: Option<u32>,
    norm: HiddenNorm,
}

/// A point that a [`DraftState`] can return to; to be taken and restored together with the model's
/// [`Snapshot`](crate::Snapshot).
pub struct DraftSnapshot<O: Ops> {
    len: usize,
    stamp: Option<u64>,
    last: Option<O::Buf>,
}

impl<O: Ops> DraftState<O> {
    pub(crate) fn new(ops: &O, row: usize, capacity: usize, norm: HiddenNorm) -> DraftState<O> {
        DraftState {
            keys: ops.cache(row, capacity),
            values: ops.cache(row, capacity),
            row,
            last: None,
            stamps: Vec::new(),
            next_stamp: 0,
            capacity,
            drafted: None,
            norm,
        }
    }

    /// How the residual streams that enter a cell are normalised.
    pub fn hidden_norm(&self) -> HiddenNorm {
        self.norm
    }

    /// Changes that from here on. Cells made before stay as they are: a draft is none the wiser for it, but a comparison
    /// of the two readings is blurred.
    pub fn set_hidden_norm(&mut self, norm: HiddenNorm) {
        self.norm = norm;
    }

    /// Tokens taken note of.
    pub fn len(&self) -> usize {
        self.stamps.len()
    }

    /// Whether it is the start of a sequence.
    pub fn is_empty(&self) -> bool {
        self.stamps.is_empty()
    }

    /// Tokens it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Remembers this point.
    pub fn snapshot(&self, ops: &O) -> DraftSnapshot<O> {
        let last = self.last.as_ref().map(|r| ops.duplicate(r));
        DraftSnapshot { len: self.len(), stamp: self.stamps.last().copied(), last }
    }

    /// Returns to a snapshot of this state.
    ///
    /// # Errors
    /// The tokens up to the snapshot were taken back since, so their cells are gone.
    pub fn restore(&mut self, ops: &O, snapshot: &DraftSnapshot<O>) -> Result<()> {
        let last = snapshot.len.checked_sub(1).and_then(|last| self.stamps.get(last));
        if last.copied() != snapshot.stamp {
            return Err(Error::State("the snapshot is of a history that the draft layer's state no longer has"));
        }
        self.stamps.truncate(snapshot.len);
        self.last = snapshot.last.as_ref().map(|r| ops.duplicate(r));
        self.drop_drafts(ops);
        Ok(())
    }

    /// Cells made of what the model has read.
    fn cells(&self) -> usize {
        self.len().saturating_sub(1)
    }

    fn truncate(&mut self, ops: &O, cells: usize) {
        ops.truncate(&mut self.keys, cells, self.row);
        ops.truncate(&mut self.values, cells, self.row);
    }

    /// Takes back the cells of guesses.
    pub(crate) fn drop_drafts(&mut self, ops: &O) {
        self.drafted = None;
        self.truncate(ops, self.cells());
    }

    /// Takes back the cells of guesses but for the first, which was made of the last position's residual and `token`.
    pub(crate) fn end_draft(&mut self, ops: &O, token: u32) {
        self.drafted = Some(token);
        self.truncate(ops, self.len());
    }

    /// Whether the last position's cell is here already, made with this token; takes it back when it was another.
    pub(crate) fn keep_first_draft(&mut self, ops: &O, token: u32) -> bool {
        let keep = self.drafted == Some(token);
        if !keep {
            self.drop_drafts(ops);
        }
        keep
    }

    /// Takes note of tokens whose cells were made, and of the residual streams of the last.
    pub(crate) fn commit(&mut self, tokens: usize, last: O::Buf) {
        self.stamps.extend(self.next_stamp..self.next_stamp + tokens as u64);
        self.next_stamp += tokens as u64;
        self.last = Some(last);
        self.drafted = None;
    }
}

impl DraftState<crate::CpuOps> {
    /// A number for everything that a later call sees, bit for bit: equal states have equal numbers.
    pub fn fingerprint(&self) -> u64 {
        let mut print = crate::fingerprint::Fingerprint::default();
        let len = self.cells() * self.row;
        for cache in [&self.keys, &self.values] {
            print.add(cache.get(..len).unwrap_or_default());
        }
        if let Some(last) = &self.last {
            print.add(last);
        }
        print.0
    }
}
