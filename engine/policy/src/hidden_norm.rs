//! Which reading of the draft layer's hidden norm is accepted more often.
//!
//! The norm before the draft layer's hidden projection has one weight over all residual streams, and its shape does not
//! say whether the root mean square is taken once over all of them or once per stream. Published engines differ. Drafts
//! never change what is generated, so it can be tried: [`Trial`] alternates between the two round by round, counts how
//! often the first draft of each is accepted, and keeps the better one.
//!
//! The trial ends when both readings were tried [`MIN_TRIALS`] times and their rates differ by 3 standard errors, or
//! after [`MAX_TRIALS`] tries of each. Published rates are 0.64 for one mean and 0.72 for one per stream; telling them
//! apart at 3 standard errors takes about 640 tries of each. If they are accepted equally often then,
//! [`HiddenNorm::PerStream`] is kept: no measurement is known in which the other did better.

use serde::{Deserialize, Serialize};

/// Over what the hidden norm's mean square is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HiddenNorm {
    /// One mean over all streams.
    Pooled,
    /// One mean per stream.
    PerStream,
}

/// First drafts of each reading before the trial may end.
pub const MIN_TRIALS: u32 = 64;

/// First drafts of each reading after which the trial ends.
pub const MAX_TRIALS: u32 = 640;

/// Square of the standard errors between two rates that end a trial early.
const DECISIVE_Z2: f64 = 9.0;

/// A count of accepted first drafts for each reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Trial {
    pooled: Tally,
    per_stream: Tally,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Tally {
    tried: u32,
    accepted: u32,
}

impl Tally {
    fn rate(self) -> f64 {
        f64::from(self.accepted) / f64::from(self.tried.max(1))
    }
}

impl Trial {
    /// A trial that has seen nothing.
    pub fn new() -> Trial {
        Trial::default()
    }

    /// The reading to draft with next: the kept one, or else the one tried less often so far.
    pub fn next(&self) -> HiddenNorm {
        match self.kept() {
            Some(kept) => kept,
            None if self.pooled.tried < self.per_stream.tried => HiddenNorm::Pooled,
            None => HiddenNorm::PerStream,
        }
    }

    /// Counts a round's first draft that was made under `norm`. Once a reading is kept, nothing more is counted.
    pub fn record(&mut self, norm: HiddenNorm, accepted: bool) {
        if self.kept().is_some() {
            return;
        }
        let tally = match norm {
            HiddenNorm::Pooled => &mut self.pooled,
            HiddenNorm::PerStream => &mut self.per_stream,
        };
        tally.tried = tally.tried.saturating_add(1);
        tally.accepted = tally.accepted.saturating_add(u32::from(accepted));
    }

    /// The reading that the trial settled on, once it has.
    pub fn kept(&self) -> Option<HiddenNorm> {
        let tried = self.pooled.tried.min(self.per_stream.tried);
        let difference = self.pooled.rate() - self.per_stream.rate();
        // Both rates are compared under the hypothesis that they are one: variance p (1 - p) (1 / n + 1 / m).
        let (n, m) = (f64::from(self.pooled.tried.max(1)), f64::from(self.per_stream.tried.max(1)));
        let p = f64::from(self.pooled.accepted) + f64::from(self.per_stream.accepted);
        let p = p / (n + m);
        let variance = p * (1.0 - p) * (1.0 / n + 1.0 / m);
        let decisive = difference * difference > DECISIVE_Z2 * variance;
        if tried < MIN_TRIALS || (tried < MAX_TRIALS && !decisive) {
            return None;
        }
        Some(if difference > 0.0 { HiddenNorm::Pooled } else { HiddenNorm::PerStream })
    }

    /// Accepted share of the first drafts so far: one mean over all streams, one per stream; 0 before any.
    pub fn rates(&self) -> (f64, f64) {
        (self.pooled.rate(), self.per_stream.rate())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a trial to its end; every `n`-th first draft of a reading is rejected.
    fn run(pooled: u32, per_stream: u32) -> (HiddenNorm, u32) {
        let mut trial = Trial::new();
        let mut made = [0u32; 2];
        while trial.kept().is_none() {
            let norm = trial.next();
            let (i, n) = if norm == HiddenNorm::Pooled { (0, pooled) } else { (1, per_stream) };
            made[i] += 1;
            trial.record(norm, !made[i].is_multiple_of(n));
        }
        assert!(made[0].abs_diff(made[1]) <= 1, "readings alternate");
        (trial.kept().unwrap(), made[0].min(made[1]))
    }

    #[test]
    fn the_better_reading_is_kept() {
        assert_eq!(run(2, 8).0, HiddenNorm::PerStream);
        assert_eq!(run(8, 2).0, HiddenNorm::Pooled);
        // A plain difference ends the trial early.
        assert_eq!(run(1, 1000).1, MIN_TRIALS);
    }

    #[test]
    fn equal_rates_keep_one_mean_per_stream() {
        assert_eq!(run(3, 3), (HiddenNorm::PerStream, MAX_TRIALS));
        assert_eq!(run(1, 1), (HiddenNorm::PerStream, MAX_TRIALS));
    }

    #[test]
    fn what_was_kept_stays() {
        let mut trial = Trial::new();
        for _ in 0..MIN_TRIALS {
            trial.record(HiddenNorm::Pooled, true);
            trial.record(HiddenNorm::PerStream, false);
        }
        for _ in 0..5000 {
            trial.record(HiddenNorm::Pooled, false);
            trial.record(HiddenNorm::PerStream, true);
        }
        assert_eq!((trial.next(), trial.rates()), (HiddenNorm::Pooled, (1.0, 0.0)));
    }
}
