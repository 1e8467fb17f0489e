//! What a pass needs to know while it is recorded.

use super::link::Link;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strata_cuda::{DeviceRouting, Exchange, First, Floats, Note, Outbox, Turns};

/// What a mutex guards, also after a panic elsewhere: what is guarded here is whole at any time.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A pass that is being recorded.
pub(super) struct Recording {
    /// Rows of the window.
    pub(super) rows: usize,
    /// The word with the first row's position, and the position while it is recorded.
    pub(super) position: (Floats, usize),
    /// Positions that a row can attend to.
    pub(super) width: usize,
    /// The rows' rotations.
    pub(super) turns: Turns,
    /// Those of the blocks of positions that the rows may complete.
    pub(super) block_turns: Turns,
    /// Rows of tables in the order in which they are asked for.
    pub(super) inputs: VecDeque<Floats>,
    /// Two words: where the first value that is no number was found.
    pub(super) found: Floats,
    /// For each check the values of a row and a place in words.
    pub(super) checks: Vec<(usize, String)>,
    /// The router's choice that no experts have used yet.
    pub(super) routed: Option<DeviceRouting>,
    pub(super) exchange: Arc<Exchange>,
    pub(super) link: Option<Arc<Link>>,
    pub(super) outbox: Arc<Outbox>,
}

impl Recording {
    /// Where the window begins.
    pub(super) fn first(&self) -> First<'_> {
        First::Word(&self.position.0, self.position.1)
    }

    /// The next rows of a table. If they are not as many values as were foreseen, that shows in the operation that uses
    /// them.
    pub(super) fn input(&mut self, len: usize) -> Floats {
        let input = self.inputs.pop_front();
        input.filter(|input| input.len() == len).unwrap_or_else(|| Floats::zeros(self.found.device(), 0))
    }

    /// Records a check.
    pub(super) fn note(&mut self, buf: &Floats, row_len: usize, place: String, largest: f32) {
        let site = self.site(row_len, place);
        buf.note_nonfinite(Note { found: &self.found, site, largest });
    }

    /// The number of a further place that is checked, of rows of so many values.
    pub(super) fn site(&mut self, row_len: usize, place: String) -> u32 {
        self.checks.push((row_len, place));
        self.checks.len() as u32 - 1
    }
}
