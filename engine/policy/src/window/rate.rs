//! Counts that decay, so that estimates follow a conversation.

use serde::{Deserialize, Serialize};

/// Weight that older observations keep when one is added: some 50 of them count. The original engine keeps 0.97 for
/// lookup; with that, estimates near the worth of a row cross it too often by chance.
pub(super) const DECAY: f64 = 0.98;
/// Observations that a prior is worth at first, as in the original engine. It fades as observations come.
pub(super) const PRIOR_WEIGHT: f64 = 4.0;
/// What remains of all counts when the text changes.
pub(super) const CARRIED_OVER: f64 = 0.25;
/// How unlikely a run of rejected first drafts must be for what was learned to be doubted.
const SURPRISE: f64 = 1e-3;

/// The most buckets that a [`Factor`] tells apart.
pub(super) const BUCKETS: usize = 8;

/// What remains of a count; one that has all but vanished is none, since numbers near the least that there are take long
/// to compute with.
pub(super) fn decayed(count: f64, kept: f64) -> f64 {
    let count = count * kept;
    if count < 1e-9 { 0.0 } else { count }
}

/// A decaying count of successes among tries, with a prior that decays alike.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Rate {
    hits: f64,
    pub(super) tries: f64,
    /// Tries that the prior is worth.
    pub(super) prior: f64,
}

impl Default for Rate {
    fn default() -> Rate {
        Rate { hits: 0.0, tries: 0.0, prior: PRIOR_WEIGHT }
    }
}

impl Rate {
    pub(super) fn add(&mut self, hits: f64, tries: f64) {
        self.decay(DECAY);
        self.hits += hits;
        self.tries += tries;
    }

    /// Keeps a share of what was learned and returns to the prior for the rest.
    pub(super) fn fade(&mut self) {
        self.decay(CARRIED_OVER);
        self.prior += PRIOR_WEIGHT * (1.0 - CARRIED_OVER);
    }

    /// Keeps the estimate, but lets new observations weigh more. A count of few already does.
    pub(super) fn doubt(&mut self) {
        if self.tries + self.prior > PRIOR_WEIGHT {
            self.decay(CARRIED_OVER);
        }
    }

    fn decay(&mut self, kept: f64) {
        self.hits = decayed(self.hits, kept);
        self.tries = decayed(self.tries, kept);
        self.prior = decayed(self.prior, kept);
    }

    pub(super) fn estimate(&self, prior: f64) -> f64 {
        (self.hits + self.prior * prior) / (self.tries + self.prior)
    }
}

/// By which factor drafts of one kind (a position, a source) are accepted more or less often than their buckets say.
///
/// What the buckets say is taken as it is now, not as it was when a draft was made: else a change that the buckets
/// follow would be counted twice.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Factor {
    hits: f64,
    /// Tries in each bucket, of which lookup has fewer.
    tries: [f64; BUCKETS],
    /// Expected hits that a factor of the prior is worth.
    prior: f64,
}

impl Default for Factor {
    fn default() -> Factor {
        Factor { hits: 0.0, tries: [0.0; BUCKETS], prior: PRIOR_WEIGHT }
    }
}

impl Factor {
    pub(super) fn add(&mut self, bucket: usize, hits: f64) {
        self.decay(DECAY);
        if let Some(tries) = self.tries.get_mut(bucket) {
            *tries += 1.0;
        }
        self.hits += hits;
    }

    /// Keeps a share of what was learned and returns to the prior for the rest.
    pub(super) fn fade(&mut self, kept: f64) {
        self.decay(kept);
        self.prior += PRIOR_WEIGHT * (1.0 - kept);
    }

    /// Keeps the estimate, but lets new observations weigh more.
    pub(super) fn doubt(&mut self) {
        self.decay(CARRIED_OVER);
    }

    fn decay(&mut self, kept: f64) {
        self.hits = decayed(self.hits, kept);
        self.tries.iter_mut().for_each(|t| *t = decayed(*t, kept));
        self.prior = decayed(self.prior, kept);
    }

    /// The factor, where `buckets` is the acceptance of each bucket. The last term keeps a factor of nothing finite.
    pub(super) fn estimate(&self, buckets: &[f64], prior: f64) -> f64 {
        let expected: f64 = self.tries.iter().zip(buckets).map(|(t, b)| t * b).sum();
        let weight = self.prior + 0.1;
        (self.hits + weight * prior) / (expected + weight)
    }
}

/// A run of rejected first drafts: how likely it was.
///
/// Decay alone follows a sudden change, as from code to prose, in some 40 rounds. A run that the estimates make this
/// unlikely says that they no longer hold.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Run(f64);

impl Default for Run {
    fn default() -> Run {
        Run(1.0)
    }
}

impl Run {
    /// Takes in a first draft and says whether the run has become a surprise, after which another one begins.
    pub(super) fn surprises(&mut self, hit: bool, expected: f64) -> bool {
        self.0 = if hit { 1.0 } else { self.0 * (1.0 - expected).clamp(0.01, 1.0) };
        let surprise = self.0 < SURPRISE;
        if surprise {
            self.0 = 1.0;
        }
        surprise
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_stay_numbers_whatever_happens_how_often() {
        let (mut rate, mut factor) = (Rate::default(), Factor::default());
        for i in 0..100_000 {
            rate.doubt();
            factor.doubt();
            if i % 1000 == 999 {
                rate.add(1.0, 1.0);
                factor.add(0, 1.0);
            }
            let (rate, factor) = (rate.estimate(0.5), factor.estimate(&[rate.estimate(0.5)], 1.0));
            assert!((0.0..=1.0).contains(&rate) && factor.is_finite(), "{rate} {factor}");
        }
        for _ in 0..100_000 {
            rate.add(0.0, 1.0);
        }
        assert_eq!((rate.hits, rate.prior, rate.estimate(0.5)), (0.0, 0.0, 0.0));
        for _ in 0..1000 {
            rate.fade();
        }
        assert!((rate.estimate(0.5) - 0.5).abs() < 1e-9 && (rate.prior - PRIOR_WEIGHT).abs() < 1e-9);
    }

    #[test]
    fn a_run_of_rejections_surprises_sooner_the_likelier_hits_were() {
        let length = |expected| {
            let mut run = Run::default();
            (1..100).find(|_| run.surprises(false, expected))
        };
        assert_eq!((length(0.95), length(0.85), length(0.5), length(0.0)), (Some(3), Some(4), Some(10), None));
        let mut run = Run::default();
        assert!((0..100).all(|i| !run.surprises(i % 3 == 0, 0.9)));
    }
}
