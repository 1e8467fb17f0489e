//! What may be spent on finding out, and when drafting is tried again.

use serde::{Deserialize, Serialize};

/// Rounds without drafts after which the draft layer is tried for the first time.
const FIRST: u32 = 8;
/// Least and most rounds between tries. A try is one step of the draft layer, some 5 % of a round, so every 64 rounds
/// costs less than 0.1 %.
const SOONEST: u32 = 1;
const LATEST: u32 = 64;
/// The most seconds that can be saved up for probes, in windows of one row.
const SAVINGS: f64 = 2.0;

/// Seconds that probes may cost: a share of all seconds, so whatever probes find, they lose no more than that share.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Credit {
    seconds: f64,
}

impl Credit {
    /// Whether a probe that may lose `seconds` can be paid for.
    pub(super) fn affords(self, seconds: f64) -> bool {
        self.seconds >= seconds
    }

    /// A round added `earned` seconds; `window` is the cost of one row.
    pub(super) fn earn(&mut self, earned: f64, window: f64) {
        self.seconds = (self.seconds + earned).min(SAVINGS * window);
    }

    /// A probe lost up to `seconds`.
    pub(super) fn spend(&mut self, seconds: f64) {
        self.seconds -= seconds;
    }
}

/// When to try the draft layer again while it is not worth its cost: twice as late after each failure, four times as
/// soon after each success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Backoff {
    interval: u32,
    /// Rounds since drafts were made.
    idle: u32,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { interval: FIRST, idle: 0 }
    }
}

impl Backoff {
    pub(super) fn due(self) -> bool {
        self.idle >= self.interval
    }

    /// A round without drafts went by.
    pub(super) fn rest(&mut self) {
        self.idle = self.idle.saturating_add(1);
    }

    /// Drafts were made: to find out whether they are accepted, or because they are.
    pub(super) fn tried(&mut self, probe: bool, accepted: bool) {
        self.idle = 0;
        self.interval = match (probe, accepted) {
            (false, _) => FIRST,
            (true, true) => (self.interval / 4).max(SOONEST),
            (true, false) => self.interval.saturating_mul(2).min(LATEST),
        };
    }

    /// The text changed: the next round is a good time.
    pub(super) fn now(&mut self) {
        *self = Backoff { interval: FIRST, idle: FIRST };
    }
}
