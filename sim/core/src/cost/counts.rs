//! Distinct experts of a layer in a window: from a trace, or expected where there is none.

use crate::check::{invalid, not_negative, positive, share};
use crate::error::SimError;

/// Distinct experts that one layer needs for a window.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LayerCounts {
    /// Those in VRAM.
    pub hits: f64,
    /// The others.
    pub misses: f64,
    /// Rows times experts used: with how many inputs all of them are multiplied.
    pub entries: f64,
}

impl LayerCounts {
    /// Refuses counts that cannot be.
    ///
    /// # Errors
    /// A count is negative or no number.
    pub fn check(&self) -> Result<(), SimError> {
        not_negative("distinct hits of a layer", self.hits)?;
        not_negative("distinct misses of a layer", self.misses)?;
        not_negative("entries of a layer", self.entries)
    }
}

/// How the number of distinct experts grows with the rows of a window, as powers of the rows. In the
/// original engine's decode traces the union of misses is 1, 1.75, 2.4 and 3.05 times that of one row, and a window of
/// four has about 1.5 tokens for each distinct expert. Misses overlap less than hits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unions {
    /// Power for all experts: 4^0.708 = 2.67.
    pub all: f64,
    /// Power for missed ones: 2^0.805 = 1.75, 4^0.805 = 3.05.
    pub missed: f64,
}

impl Default for Unions {
    fn default() -> Unions {
        Unions { all: 0.708, missed: 0.805 }
    }
}

/// Hits of a look-up by the share of pairs that have a slot: `1 - (1 - share)^power`. The power is fitted to one
/// published point, 64.5 % at 4,105 of 24,576 slots; the curve stays within a few points of the others (10 to 12 % at
/// 2 to 3 %, 35 % at 8.6 %, 83 to 90 % at 32 %, 95 to 99 % at 52 %).
pub const HIT_POWER: f64 = 5.667;

/// The share of look-ups that hit with `slots` slots for `pairs` pairs.
///
/// # Errors
/// There is no pair, or more slots than pairs.
pub fn hit_rate(slots: f64, pairs: f64, power: f64) -> Result<f64, SimError> {
    positive("pairs of layer and expert", pairs)?;
    positive("power of the hit curve", power)?;
    not_negative("slots", slots)?;
    if slots > pairs {
        return Err(invalid("slots", slots, format!("at most the {pairs} pairs of layer and expert")));
    }
    Ok(1.0 - (1.0 - slots / pairs).powf(power))
}

/// Expected counts of `layers` layers for a window of `rows` rows that each use `used` of `experts` experts and hit with
/// probability `hits`. The number of misses differs from layer to layer: the layers get the evenly spaced quantiles of
/// a binomial distribution, so their spread is that of independent experts. Measured spreads are wider; with a trace
/// they are exact.
///
/// # Errors
/// A number cannot be.
pub fn expected(
    layers: usize,
    experts: usize,
    used: usize,
    rows: f64,
    hits: f64,
    unions: Unions,
) -> Result<Vec<LayerCounts>, SimError> {
    share("hit rate", hits)?;
    positive("rows of a window", rows)?;
    if rows < 1.0 {
        return Err(invalid("rows of a window", rows, "at least 1"));
    }
    share("power of the union", unions.all)?;
    share("power of the union of misses", unions.missed)?;
    if used > experts {
        return Err(invalid("experts used", used, format!("at most the {experts} there are")));
    }
    let distinct = (used as f64 * rows.powf(unions.all)).min(experts as f64);
    let misses = ((1.0 - hits) * used as f64 * rows.powf(unions.missed)).min(distinct);
    let entries = rows * used as f64;
    Ok(spread(layers, distinct, misses)
        .into_iter()
        .map(|misses| LayerCounts { hits: distinct - misses, misses, entries })
        .collect())
}

/// Whole numbers of mean `mean` for `layers` layers, the quantiles of a binomial distribution of `of` draws, then
/// corrected by at most one each so that their mean is `mean` to half a unit over all layers.
pub(crate) fn spread(layers: usize, of: f64, mean: f64) -> Vec<f64> {
    let draws = of.floor().max(0.0);
    let chance = if draws > 0.0 { (mean / draws).clamp(0.0, 1.0) } else { 0.0 };
    let mut values = Vec::with_capacity(layers);
    // The distribution is walked once: P(k + 1) = P(k) (n - k) / (k + 1) p / (1 - p).
    let (mut k, mut at_most, mut here) = (0.0, (1.0 - chance).powf(draws), (1.0 - chance).powf(draws));
    for layer in 0..layers {
        let quantile = (layer as f64 + 0.5) / layers as f64;
        while at_most < quantile && k < draws {
            here = if chance < 1.0 { here * (draws - k) / (k + 1.0) * chance / (1.0 - chance) } else { 0.0 };
            k += 1.0;
            at_most += here;
            if chance >= 1.0 {
                k = draws;
            }
        }
        values.push(k);
    }
    settle(&mut values, mean, draws);
    values
}

/// Moves the sum to the nearest whole number of `mean` times the count, from the middle outwards.
fn settle(values: &mut [f64], mean: f64, most: f64) {
    let count = values.len();
    let wanted = (mean.min(most) * count as f64).round();
    let mut missing = wanted - values.iter().sum::<f64>();
    let mut at = count / 2;
    let mut tries = 0;
    while missing != 0.0 && tries < 4 * count {
        let step = missing.signum();
        let changed = values[at] + step;
        if (0.0..=most).contains(&changed) {
            values[at] = changed;
            missing -= step;
        }
        at = (at + 1) % count;
        tries += 1;
    }
}
