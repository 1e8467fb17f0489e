//! Answers that are being made: who can stop them, and whether they get on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// An answer that is being made.
pub(super) struct Running {
    /// The request's name.
    pub(super) id: String,
    /// Ends it within one round or chunk.
    pub(super) cancel: AtomicBool,
    since: Instant,
    /// Milliseconds from `since` to the last round or chunk.
    last: AtomicU64,
    stuck: AtomicBool,
}

impl Running {
    pub(super) fn new(id: String) -> Running {
        let (since, last) = (Instant::now(), AtomicU64::new(0));
        Running { id, cancel: AtomicBool::new(false), since, last, stuck: AtomicBool::new(false) }
    }

    /// It gets on.
    pub(super) fn progress(&self) {
        self.last.store(millis(self.since.elapsed()), Ordering::Relaxed);
        self.stuck.store(false, Ordering::Relaxed);
    }

    /// How long it has not got on.
    pub(super) fn idle(&self) -> Duration {
        self.since.elapsed().saturating_sub(Duration::from_millis(self.last.load(Ordering::Relaxed)))
    }

    /// Whether it has not got on for so long, and that is news.
    pub(super) fn stuck(&self, after: Duration) -> bool {
        self.idle() > after && !self.stuck.swap(true, Ordering::Relaxed)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
