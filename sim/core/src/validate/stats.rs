//! How far predictions are from measurements.

use crate::check::{invalid, positive};
use crate::error::SimError;
use crate::replay::Interval;
use strata_trace::synth::Random;

/// A prediction beside its measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// What was predicted.
    pub predicted: f64,
    /// What was measured; above 0.
    pub measured: f64,
}

impl Pair {
    /// The error as a share of the measurement, with its sign.
    pub fn error(&self) -> f64 {
        self.predicted / self.measured - 1.0
    }
}

/// Mean of the errors' sizes, as a share.
pub fn mape(pairs: &[Pair]) -> f64 {
    pairs.iter().map(|p| p.error().abs()).sum::<f64>() / pairs.len() as f64
}

/// The error size that 95 % of the pairs do not exceed: the smallest such one that occurs.
pub fn p95(pairs: &[Pair]) -> f64 {
    let mut errors: Vec<f64> = pairs.iter().map(|p| p.error().abs()).collect();
    errors.sort_by(f64::total_cmp);
    errors[((errors.len() as f64 * 0.95).ceil() as usize).clamp(1, errors.len()) - 1]
}

/// Kendall's tau-b: pairs of pairs in the same order less those in the opposite one, 1 for the same ranking. No number
/// where all predictions or all measurements are equal.
pub fn kendall_tau(pairs: &[Pair]) -> f64 {
    let (mut agree, mut by_prediction, mut by_measurement) = (0.0, 0.0, 0.0);
    for (i, a) in pairs.iter().enumerate() {
        for b in &pairs[..i] {
            let sign = |x: f64, y: f64| if x == y { 0.0 } else { (x - y).signum() };
            let (p, m) = (sign(a.predicted, b.predicted), sign(a.measured, b.measured));
            agree += p * m;
            by_prediction += p * p;
            by_measurement += m * m;
        }
    }
    agree / f64::sqrt(by_prediction * by_measurement)
}

/// How much worse than the best measured one the configuration is that was predicted to be best, as a share; less is
/// better where `smaller`. Of equal predictions the first counts.
pub fn regret(pairs: &[Pair], smaller: bool) -> f64 {
    let sign = if smaller { 1.0 } else { -1.0 };
    let least = |value: fn(&Pair) -> f64| {
        pairs.iter().min_by(|a, b| (sign * value(a)).total_cmp(&(sign * value(b)))).map_or(f64::NAN, |p| p.measured)
    };
    let (chosen, best) = (least(|p| p.predicted), least(|p| p.measured));
    if smaller { chosen / best - 1.0 } else { 1.0 - chosen / best }
}

/// Resamples of a bootstrap.
const RESAMPLES: usize = 2000;

/// A figure of pairs with its 95 % bootstrap interval. Whole blocks are drawn, since pairs of one block (a machine, a
/// request) are not independent; with a single block its pairs are drawn one by one. Resamples for which the figure is
/// no number are left out.
///
/// # Errors
/// There is no pair, or one is no number or was measured as 0 or below.
pub fn with_interval(blocks: &[Vec<Pair>], seed: u64, figure: impl Fn(&[Pair]) -> f64) -> Result<Interval, SimError> {
    let all: Vec<Pair> = blocks.iter().flatten().copied().collect();
    if all.is_empty() {
        return Err(invalid("pairs of prediction and measurement", "none", "at least one"));
    }
    for pair in &all {
        positive("a measurement", pair.measured)?;
        if !pair.predicted.is_finite() {
            return Err(invalid("a prediction", pair.predicted, "a finite number"));
        }
    }
    let singles: Vec<Vec<Pair>>;
    let blocks = if blocks.iter().filter(|b| !b.is_empty()).count() > 1 {
        blocks
    } else {
        singles = all.iter().map(|&p| vec![p]).collect();
        &singles
    };
    let mut random = Random::new(seed);
    let mut figures = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        let mut drawn = Vec::with_capacity(all.len());
        for _ in 0..blocks.len() {
            drawn.extend_from_slice(&blocks[random.below(blocks.len() as u64) as usize]);
        }
        if !drawn.is_empty() {
            let value = figure(&drawn);
            if !value.is_nan() {
                figures.push(value);
            }
        }
    }
    figures.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let last = figures.len().checked_sub(1);
        last.map_or(f64::NAN, |last| figures[(share * last as f64).round() as usize])
    };
    Ok(Interval { value: figure(&all), low: at(0.025), high: at(0.975) })
}
