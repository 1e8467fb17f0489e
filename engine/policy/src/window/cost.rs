//! What a window of each size costs, learned from measured rounds.
//!
//! A cost is the product of a level, common to all sizes (the context grows, the expert cache warms up, another program
//! takes a core), and a ratio of its own. A measurement differs from what was expected by some factor; level and ratio
//! each take a share of that in proportion to how uncertain they are, the gain of a Kalman filter with a diagonal
//! covariance. So a size that was not measured lately keeps its ratio and follows the level, and its uncertainty grows
//! until it is worth measuring again.
//!
//! A size that was never measured is scaled from the measured ones: the prior shape's increments over one row, times
//! the factor by which the measured increments differ from the prior's.

use serde::{Deserialize, Serialize};

use super::MAX_ROWS;

/// Prior cost of windows of 1, 2, 3, ... rows relative to one row, as the original engine assumes.
const WINDOW_SHAPE: [f64; 8] = [1.0, 1.35, 1.7, 2.05, 2.45, 2.85, 3.25, 3.6];
/// Increment for each row beyond those: the mean of the increments above.
const WINDOW_STEP: f64 = 0.37;

/// Variance of one measurement, relative: windows of the same size differ by 10 %, chiefly by their experts.
const NOISE: f64 = 0.01;
/// Growth of the level's variance per round. With [`NOISE`] it makes the gain 0.1, the original engine's weight of a
/// new cost.
const LEVEL_DRIFT: f64 = 1e-4;
/// Growth of a ratio's variance per round. From 3 measurements to [`STALE`] it takes about 300 rounds, after which the
/// original engine measures a size again.
const RATIO_DRIFT: f64 = 5e-6;
/// Variance of a ratio that is no more than the prior shape: 25 %.
const PRIOR: f64 = 0.0625;
/// Variance from which on a size deserves another measurement.
const STALE: f64 = 0.005;
/// The most that one measurement may differ from its estimate, as a factor: a hiccup is no new cost.
const OUTLIER: f64 = 2.0;
/// Weight of the prior shape's increments against measured ones, where a measured window of two rows weighs 0.35.
const SHAPE_WEIGHT: f64 = 0.2;
/// Longest time taken for a measurement, in seconds.
const LONGEST: f64 = 3600.0;

/// Seconds if they can be a measured time: finite, above zero and no more than an hour.
pub(super) fn measured(seconds: f64) -> Option<f64> {
    (seconds > 0.0 && seconds <= LONGEST).then_some(seconds)
}

/// Which shape costs have before they are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Shape {
    /// Rows of a window.
    Window,
    /// Steps of the draft layer, one after the other.
    Steps,
}

impl Shape {
    fn prior(self, size: usize) -> f64 {
        match self {
            Shape::Steps => size as f64,
            Shape::Window => match WINDOW_SHAPE.get(size.saturating_sub(1)) {
                Some(&cost) => cost,
                None => WINDOW_SHAPE[7] + WINDOW_STEP * (size as f64 - 8.0),
            },
        }
    }
}

/// Costs of sizes from 1 to [`MAX_ROWS`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct CostTable {
    shape: Shape,
    /// Seconds of a size whose ratio is 1, and the level's relative variance.
    level: f64,
    level_variance: f64,
    ratios: [Ratio; MAX_ROWS],
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Ratio {
    ratio: f64,
    variance: f64,
    seen: bool,
}

impl CostTable {
    /// Costs of which the shape is known alone; the first size costs `level` seconds.
    pub(super) fn new(shape: Shape, level: f64) -> CostTable {
        let unseen = Ratio { ratio: 1.0, variance: PRIOR, seen: false };
        CostTable { shape, level, level_variance: PRIOR, ratios: [unseen; MAX_ROWS] }
    }

    /// Whether any size was measured.
    pub(super) fn any_seen(&self) -> bool {
        self.ratios.iter().any(|r| r.seen)
    }

    /// Sets the level while nothing was measured.
    pub(super) fn assume(&mut self, level: f64) {
        if !self.any_seen() {
            self.level = level;
        }
    }

    /// Takes in that `size` took `seconds`; what cannot be a size or a time is ignored.
    pub(super) fn observe(&mut self, size: usize, seconds: f64) {
        let Some(seconds) = measured(seconds) else { return };
        let first = !self.any_seen();
        let expected = self.estimates();
        let Some((&expected, ratio)) = size.checked_sub(1).and_then(|i| expected.get(i).zip(self.ratios.get_mut(i)))
        else {
            return;
        };
        if first {
            *ratio = Ratio { ratio: self.shape.prior(size), variance: NOISE, seen: true };
            self.level = seconds / ratio.ratio;
            return;
        }
        if !ratio.seen {
            ratio.ratio = expected / self.level;
            ratio.seen = true;
        }
        let off = (seconds / expected).clamp(1.0 / OUTLIER, OUTLIER) - 1.0;
        let sum = self.level_variance + ratio.variance + NOISE;
        let (level_gain, ratio_gain) = (self.level_variance / sum, ratio.variance / sum);
        self.level *= 1.0 + level_gain * off;
        self.level_variance *= 1.0 - level_gain;
        ratio.ratio *= 1.0 + ratio_gain * off;
        ratio.variance *= 1.0 - ratio_gain;
        // Bounds that no machine reaches, so that no sequence of records makes a cost zero or infinite.
        self.level = self.level.clamp(1e-9, 1e6);
        ratio.ratio = ratio.ratio.clamp(1e-3, 1e3);
    }

    /// A round went by: everything known is a little less certain.
    pub(super) fn age(&mut self) {
        self.level_variance = (self.level_variance + LEVEL_DRIFT).min(PRIOR);
        for ratio in &mut self.ratios {
            ratio.variance = (ratio.variance + RATIO_DRIFT).min(PRIOR);
        }
    }

    /// Expected seconds of every size; the first element is that of size 1.
    pub(super) fn estimates(&self) -> [f64; MAX_ROWS] {
        let seen = |i: usize| self.ratios.get(i).filter(|r| r.seen).map(|r| r.ratio);
        let prior = |i: usize| self.shape.prior(i + 1);
        // Size 1, or what the smallest measured size says about it.
        let base = (0..MAX_ROWS).find_map(|i| seen(i).map(|r| r / prior(i))).unwrap_or(1.0);
        let (mut increments, mut expected) = (SHAPE_WEIGHT, SHAPE_WEIGHT);
        for i in 1..MAX_ROWS {
            if let Some(ratio) = seen(i) {
                increments += ratio / base - 1.0;
                expected += prior(i) - 1.0;
            }
        }
        let stretch = (increments / expected).max(0.02);
        let mut costs = [0.0; MAX_ROWS];
        let mut below: f64 = 0.0;
        for i in 0..MAX_ROWS {
            let ratio = match seen(i) {
                Some(ratio) => ratio,
                None => {
                    // Between two measured sizes an unmeasured one costs something between.
                    let above = (i + 1..MAX_ROWS).find_map(seen).unwrap_or(f64::INFINITY);
                    (base * (1.0 + stretch * (prior(i) - 1.0))).min(above).max(below)
                }
            };
            below = if seen(i).is_some() { ratio } else { below };
            costs[i] = self.level * ratio;
        }
        costs
    }

    /// The least that `size` may well cost, if it deserves another measurement: one standard deviation below what is
    /// expected, but not below a smaller size.
    pub(super) fn optimistic(&self, size: usize, estimates: &[f64; MAX_ROWS]) -> Option<f64> {
        let i = size.checked_sub(1)?;
        let ratio = self.ratios.get(i).filter(|r| r.variance > STALE)?;
        let smaller = estimates.iter().take(i).fold(0.0, |most: f64, &c| most.max(c));
        let expected = *estimates.get(i)?;
        Some((expected * (1.0 - ratio.variance.sqrt())).max(smaller)).filter(|&least| least < expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmeasured_sizes_follow_the_prior_shape_and_then_the_measured_increments() {
        let mut costs = CostTable::new(Shape::Window, 1.0);
        costs.observe(4, 0.0205);
        let known = costs.estimates();
        assert!((known[0] - 0.010).abs() < 1e-12 && (known[1] - 0.0135).abs() < 1e-12);
        let mut costs = CostTable::new(Shape::Window, 1.0);
        // Rows that are nearly free make all further rows cheap.
        for _ in 0..20 {
            costs.observe(1, 0.010);
            costs.observe(3, 0.0105);
        }
        let known = costs.estimates();
        assert!(known[3] < 0.0135, "{known:?}");
    }

    #[test]
    fn an_idle_size_follows_the_level_and_becomes_uncertain() {
        let mut costs = CostTable::new(Shape::Window, 1.0);
        for _ in 0..20 {
            costs.observe(1, 0.010);
            costs.observe(4, 0.030);
            costs.age();
        }
        assert_eq!(costs.optimistic(4, &costs.estimates()), None);
        for _ in 0..1200 {
            costs.observe(1, 0.020);
            costs.age();
        }
        let known = costs.estimates();
        assert!((known[0] - 0.020).abs() < 1e-3 && known[3] > 0.045, "{known:?}");
        assert!(costs.optimistic(4, &known).is_some_and(|c| c < known[3] && c >= known[0]));
    }

    #[test]
    fn what_is_no_time_is_ignored_and_hiccups_are_bounded() {
        let mut costs = CostTable::new(Shape::Steps, 1.0);
        costs.observe(1, 0.001);
        let before = costs.clone();
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            costs.observe(1, seconds);
        }
        costs.observe(0, 0.001);
        costs.observe(MAX_ROWS + 1, 0.001);
        assert_eq!(costs, before);
        costs.observe(1, 100.0);
        assert!(costs.estimates()[0] <= 0.002);
    }
}
