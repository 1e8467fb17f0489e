//! Tokens of a round from how often drafts are accepted.

use crate::check::{invalid, share};
use crate::error::SimError;

/// How drafts fare. A window of at most `W` rows has `W - 1` drafts; the chain of drafts ends early where one is too
/// unsure to be offered.
#[derive(Debug, Clone, PartialEq)]
pub struct Acceptance {
    /// Probability that draft `i` is offered, given that the ones before it were.
    pub offered: Vec<f64>,
    /// Probability that draft `i` is accepted, given that it was offered and the ones before it were accepted.
    pub accepted: Vec<f64>,
}

/// Rounds of a fixed largest window, on average.
#[derive(Debug, Clone, PartialEq)]
pub struct Rounds {
    /// Share of the rounds with 1, 2, ... rows.
    pub rows: Vec<f64>,
    /// Mean rows of a round.
    pub mean_rows: f64,
    /// Mean tokens kept of a round.
    pub tokens: f64,
}

/// Rows of a window in the original engine's runs with at most three drafts, from its published range of 2.4 to 3.2
/// tokens a round at 61.9 to 86.4 % of the offered drafts accepted: tokens = 1 + accepted (rows - 1) gives 3.26 and 3.55.
fn published_rows(accepted: f64) -> f64 {
    3.26 + (accepted - 0.619) * (3.55 - 3.26) / (0.864 - 0.619)
}

impl Acceptance {
    /// The same probabilities for every draft.
    ///
    /// # Errors
    /// One is not from 0 to 1.
    pub fn constant(offered: f64, accepted: f64) -> Result<Acceptance, SimError> {
        let curve = Acceptance { offered: vec![offered], accepted: vec![accepted] };
        curve.check().map(|()| curve)
    }

    /// The curve behind a published share of accepted drafts, of windows of at most four rows whose drafts end below a
    /// probability of 0.5. Both probabilities are taken to be the same for every draft.
    ///
    /// # Errors
    /// The share is not from 0 to 1.
    pub fn published(accepted: f64) -> Result<Acceptance, SimError> {
        share("share of drafts accepted", accepted)?;
        let drafts = (published_rows(accepted) - 1.0).clamp(0.0, 3.0);
        let chain = |p: f64| p + p * p + p * p * p;
        let offered = root(chain, drafts);
        // Accepted drafts are the chain of offered-and-accepted.
        let both = root(chain, accepted * drafts);
        Acceptance::constant(offered, if offered > 0.0 { (both / offered).min(1.0) } else { 0.0 })
    }

    /// Refuses probabilities that cannot be.
    ///
    /// # Errors
    /// One is not from 0 to 1, or there is none.
    pub fn check(&self) -> Result<(), SimError> {
        for (field, values) in [("offered", &self.offered), ("accepted", &self.accepted)] {
            if values.is_empty() {
                return Err(invalid(format!("acceptance, field {field}"), "no value", "one for each draft"));
            }
            for (i, &value) in values.iter().enumerate() {
                share(&format!("acceptance, field {field}, draft {}", i + 1), value)?;
            }
        }
        Ok(())
    }

    /// Steps of the draft layer in a round of `rows` rows at most `window`: a chain that ended early has one more, the
    /// draft that was too unsure to be offered.
    pub fn steps(rows: usize, window: usize) -> usize {
        if rows < window { rows } else { window.saturating_sub(1) }
    }

    /// Rounds with at most `window` rows. Drafts beyond the last one listed fare like it.
    ///
    /// # Errors
    /// A probability is not from 0 to 1, or the window has no row.
    pub fn rounds(&self, window: usize) -> Result<Rounds, SimError> {
        self.check()?;
        if window == 0 {
            return Err(invalid("rows of a window", window, "at least 1"));
        }
        let of = |values: &[f64], draft: usize| values[draft.min(values.len() - 1)];
        let mut rows = Vec::with_capacity(window);
        let (mut reached, mut kept, mut tokens, mut mean_rows) = (1.0, 1.0, 1.0, 1.0);
        for draft in 0..window - 1 {
            let offered = of(&self.offered, draft);
            rows.push(reached * (1.0 - offered));
            reached *= offered;
            kept *= offered * of(&self.accepted, draft);
            mean_rows += reached;
            tokens += kept;
        }
        rows.push(reached);
        Ok(Rounds { rows, mean_rows, tokens })
    }
}

/// Where an increasing function on 0 to 1 has this value, by halving.
fn root(f: impl Fn(f64) -> f64, value: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if f(middle) < value { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}
