//! Where an engine keeps its recorder while nobody answers.

use super::Recorder;
use super::drain::Shared;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

enum State {
    /// Nothing is recorded.
    Off,
    Idle(Box<Recorder>),
    /// An answer has it.
    Busy(Arc<Shared>),
}

/// The place of a recorder. An answer takes it out and brings it back, so that it is locked twice for each answer and
/// not in between.
pub(crate) struct Slot(Mutex<State>);

impl Slot {
    pub(crate) fn new() -> Slot {
        Slot(Mutex::new(State::Off))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // It is replaced as a whole, so a panic elsewhere leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records from now on, in place of what was recorded to before.
    pub(crate) fn put(&self, recorder: Box<Recorder>) {
        *self.state() = State::Idle(recorder);
    }

    /// Takes the recorder for an answer. If another answer has it, this one is counted as missed.
    pub(crate) fn take(&self) -> Option<Box<Recorder>> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, State::Off) {
            State::Off => None,
            State::Idle(mut recorder) => {
                *state = State::Busy(Arc::clone(&recorder.shared));
                recorder.begin();
                Some(recorder)
            }
            State::Busy(shared) => {
                shared.missed.fetch_add(1, Ordering::Relaxed);
                *state = State::Busy(shared);
                None
            }
        }
    }

    /// Brings the recorder back, unless another one is recorded to by now.
    pub(crate) fn give(&self, recorder: Box<Recorder>) {
        let mut state = self.state();
        if matches!(&*state, State::Busy(shared) if Arc::ptr_eq(shared, &recorder.shared)) {
            *state = State::Idle(recorder);
        }
    }

    /// Records no more.
    pub(crate) fn clear(&self) {
        *self.state() = State::Off;
    }
}
