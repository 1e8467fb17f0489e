//! What drafting is worth under the present estimates; the formulas are in the [module's documentation](super).

use super::acceptance::{Lookup, Outlook};
use super::{MAX_ROWS, Match};

/// Times that the best rate is refined; it converges quadratically.
const REFINEMENTS: usize = 4;

/// The estimates that a round's decisions rest on.
#[derive(Debug)]
pub(super) struct View<'a> {
    /// Seconds of windows of 1, 2, ... rows.
    pub(super) window: [f64; MAX_ROWS],
    /// Seconds of 1, 2, ... steps of the draft layer.
    pub(super) steps: [f64; MAX_ROWS],
    pub(super) outlook: [Outlook; MAX_ROWS],
    pub(super) lookup: &'a Lookup,
    /// The most rows a window may have now, from 1 to [`MAX_ROWS`].
    pub(super) rows: usize,
}

/// Further drafts: how many, and what they add.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Gain {
    pub(super) drafts: usize,
    pub(super) tokens: f64,
    pub(super) seconds: f64,
    /// `tokens - rate * seconds`, never below 0: no drafts are always possible.
    pub(super) value: f64,
}

impl Gain {
    fn better(self, drafts: usize, tokens: f64, seconds: f64, rate: f64) -> Gain {
        let value = tokens - rate * seconds;
        if value > self.value { Gain { drafts, tokens, seconds, value } } else { self }
    }
}

impl View<'_> {
    /// Seconds of a window of `rows` rows.
    pub(super) fn cost(&self, rows: usize) -> f64 {
        self.window.get(rows.saturating_sub(1)).copied().unwrap_or(f64::INFINITY)
    }

    /// Seconds of the draft layer's step after `done` steps.
    pub(super) fn step(&self, done: usize) -> f64 {
        let after = self.steps.get(done).copied().unwrap_or(f64::INFINITY);
        let before = done.checked_sub(1).and_then(|i| self.steps.get(i)).copied().unwrap_or(0.0);
        (after - before).max(0.0)
    }

    /// Rate of plain decoding in tokens per second.
    pub(super) fn plain(&self) -> f64 {
        1.0 / self.cost(1)
    }

    /// Best continuation of `done` drafts of the draft layer, all accepted with probability `reach`, by further ones up
    /// to `most`.
    pub(super) fn chain(&self, done: usize, most: usize, reach: f64, rate: f64) -> Gain {
        let every = self.chain_of(done, most, reach, rate, false);
        let chosen = self.chain_of(done, most, reach, rate, true);
        if every.value > chosen.value { every } else { chosen }
    }

    /// The chain that keeps every draft, or the one that ends before the first draft whose row is not worth its cost.
    fn chain_of(&self, done: usize, most: usize, reach: f64, rate: f64, choosy: bool) -> Gain {
        // The mean reach of the chains that go on, and the share of chains that do.
        let (mut reach, mut going) = (reach, 1.0);
        let (mut tokens, mut seconds, mut best) = (0.0, 0.0, Gain::default());
        for (k, outlook) in self.outlook.iter().enumerate().take(most.min(self.rows - 1)).skip(done) {
            let row = self.cost(k + 2) - self.cost(k + 1);
            let (mut kept, mut kept_reach) = (0.0, 0.0);
            for (share, accepted) in outlook.share.iter().zip(&outlook.accepted) {
                let reach = reach * accepted;
                if !choosy || reach > rate * row {
                    kept += share;
                    kept_reach += share * reach;
                }
            }
            tokens += going * kept_reach;
            seconds += going * (self.step(k) + kept * row);
            best = best.better(k + 1 - done, tokens, seconds, rate);
            going *= kept;
            if going < 1e-3 {
                break;
            }
            reach = kept_reach / kept;
        }
        best
    }

    /// The best rate that plain decoding and the draft layer reach together with up to `most` drafts, in tokens per second.
    pub(super) fn best_rate(&self, most: usize) -> f64 {
        let mut rate = self.plain();
        for _ in 0..REFINEMENTS {
            let gain = self.chain(0, most, 1.0, rate);
            let refined = (1.0 + gain.tokens) / (self.cost(1) + gain.seconds);
            if gain.drafts == 0 || refined <= rate {
                break;
            }
            rate = refined;
        }
        rate
    }

    /// The number of lookup's drafts with the best rate if nothing else is drafted, and that rate.
    pub(super) fn replace(&self, found: Match) -> (usize, f64) {
        let (mut best, mut reach, mut tokens) = ((0, 0.0), 1.0, 1.0);
        for m in 1..=found.drafts.min(self.rows - 1).min(self.lookup.longest(found.length)) {
            reach *= self.lookup.alone(found.length + m - 1);
            tokens += reach;
            let rate = tokens / self.cost(m + 1);
            if rate > best.1 {
                best = (m, rate);
            }
        }
        best
    }

    /// The best rate of one draft of the draft layer with lookup's drafts behind it, where the two agree; a window of
    /// one row is taken where they do not.
    pub(super) fn extend(&self, found: Match) -> f64 {
        let agrees = self.lookup.agrees(found.length);
        let first = self.outlook.first().map_or(0.0, Outlook::mean).max(self.lookup.alone(found.length));
        let (mut best, mut reach, mut tokens) = (0.0f64, first, first);
        for m in 1..=found.drafts.min(self.rows - 1).min(self.lookup.longest(found.length)) {
            let seconds = self.step(0) + agrees * self.cost(m + 1) + (1.0 - agrees) * self.cost(1);
            best = best.max((1.0 + agrees * tokens) / seconds);
            reach *= self.lookup.confirmed(found.length + m);
            tokens += reach;
        }
        best
    }

    /// Best continuation of `done` drafts of the draft layer by those of lookup that follow them.
    pub(super) fn tail(&self, done: usize, reach: f64, rate: f64, found: Match) -> Gain {
        let (mut reach, mut tokens, mut best) = (reach, 0.0, Gain::default());
        for m in done + 1..=found.drafts.min(self.rows - 1).min(self.lookup.longest(found.length)) {
            reach *= self.lookup.confirmed(found.length + m - 1);
            tokens += reach;
            best = best.better(m - done, tokens, self.cost(m + 1) - self.cost(done + 1), rate);
        }
        best
    }

    /// How likely drafts of the draft layer with these probabilities are to be accepted, all of them.
    pub(super) fn reach(&self, probabilities: &[f32], agreeing: Option<Match>) -> f64 {
        let each = self.outlook.iter().zip(probabilities).enumerate().map(|(k, (outlook, &p))| {
            let lookup = agreeing.map_or(0.0, |m| self.lookup.alone(m.length + k));
            outlook.of(p).max(lookup)
        });
        each.product()
    }
}
