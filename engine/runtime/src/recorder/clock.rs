//! Times in whole nanoseconds, so that what decisions use is what traces hold.

use crate::session::Pace;
use std::time::{Duration, Instant};

/// A duration as traces have it.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Nanoseconds as the policies have them.
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// A clock that tells the time since it was last asked.
pub(crate) struct Lap(Instant);

impl Lap {
    pub(crate) fn start() -> Lap {
        Lap(Instant::now())
    }

    /// Nanoseconds since the last call, or the start.
    pub(crate) fn next(&mut self) -> u64 {
        let now = Instant::now();
        let since = nanos(now - self.0);
        self.0 = now;
        since
    }
}

/// Nanoseconds of a round.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Times {
    /// From the end of the round before to the end of the commit.
    pub(crate) total: u64,
    /// The draft layer's part.
    pub(crate) draft: u64,
    /// The commit's part.
    pub(crate) commit: u64,
}

impl Times {
    /// Seconds of the draft layer, as the window policy learns them.
    pub(crate) fn seconds_draft(&self) -> f64 {
        seconds(self.draft)
    }

    /// Seconds of the rest of the round, as the window policy learns them.
    pub(crate) fn seconds_verify(&self) -> f64 {
        seconds(self.total.saturating_sub(self.draft))
    }

    /// The same for who is told of each round.
    pub(crate) fn pace(&self, window: usize, committed: usize) -> Pace {
        let (draft_seconds, commit_seconds) = (seconds(self.draft), seconds(self.commit));
        Pace { window, committed, seconds: seconds(self.total), draft_seconds, commit_seconds }
    }
}
