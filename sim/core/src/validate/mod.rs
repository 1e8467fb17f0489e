//! Predicted beside measured: how good the cost model is on what it was not fitted to.

mod plan;
mod stats;
mod text;

pub use plan::{Group, PLANS, Plan, Report};

use crate::replay::Interval;

pub use stats::{Pair, kendall_tau, mape, p95, regret, with_interval};
pub use text::{fit_markdown, report_csv, report_markdown};

use crate::error::SimError;
use crate::fit::{Residual, Term};

/// How good the predictions of one figure are.
#[derive(Debug, Clone, PartialEq)]
pub struct Quality {
    /// The figure: a column of the recordings, or `tok_s`.
    pub metric: &'static str,
    /// Pairs of prediction and measurement.
    pub pairs: usize,
    /// Groups of pairs that are not independent of each other.
    pub blocks: usize,
    /// Mean size of the errors, a share.
    pub mape: Interval,
    /// The error size that 95 % of the pairs do not exceed.
    pub p95: Interval,
    /// Kendall's tau: 1 for the same ranking.
    pub tau: Interval,
    /// What choosing by prediction costs against the best measured configuration, a share.
    pub regret: Interval,
}

/// The quality of each figure that occurs in held-out predictions, `tok_s` last. `groups` are held-out groups of
/// predictions; whole groups are resampled, or single pairs where there is but one group.
///
/// # Errors
/// A prediction is no number.
pub fn quality(groups: &[(String, Vec<Residual>)], seed: u64) -> Result<Vec<Quality>, SimError> {
    let mut all = Vec::new();
    for term in Term::ALL {
        let of = |r: &Residual| (r.term == term).then_some(Pair { predicted: r.predicted, measured: r.measured });
        all.extend(one(term.name(), groups, seed, true, of)?);
    }
    let speed = |r: &Residual| {
        let tokens = r.tokens.filter(|_| r.term == Term::Window)?;
        Some(Pair { predicted: 1e3 * tokens / r.predicted, measured: 1e3 * tokens / r.measured })
    };
    all.extend(one("tok_s", groups, seed, false, speed)?);
    Ok(all)
}

fn one(
    metric: &'static str,
    groups: &[(String, Vec<Residual>)],
    seed: u64,
    smaller: bool,
    of: impl Fn(&Residual) -> Option<Pair>,
) -> Result<Option<Quality>, SimError> {
    let blocks: Vec<Vec<Pair>> = groups
        .iter()
        .map(|(_, left)| left.iter().filter_map(&of).collect())
        .filter(|b: &Vec<_>| !b.is_empty())
        .collect();
    let pairs = blocks.iter().map(Vec::len).sum();
    if pairs == 0 {
        return Ok(None);
    }
    Ok(Some(Quality {
        metric,
        pairs,
        blocks: blocks.len(),
        mape: with_interval(&blocks, seed, mape)?,
        p95: with_interval(&blocks, seed, p95)?,
        tau: with_interval(&blocks, seed, kendall_tau)?,
        regret: with_interval(&blocks, seed, |p| regret(p, smaller))?,
    }))
}

#[cfg(test)]
mod tests;
