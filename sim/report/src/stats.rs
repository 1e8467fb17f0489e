//! Estimates over draws, with 95 % intervals.
//!
//! From six draws on, the interval is a percentile bootstrap of the mean: draws are resampled with replacement, the same
//! ones for every configuration, since configurations share their draws. Fewer draws make such an interval too narrow,
//! so there the range of what each draw gives by itself stands in. One draw has no interval: what it gives is exact.

use strata_trace::synth::Random;

/// Resamples of a bootstrap; the ends of a 95 % interval are then read off 50 values each.
const RESAMPLES: usize = 2_000;

/// Draws from which resampling gives an interval that is not much too narrow.
pub const FEWEST: usize = 6;

/// A number and the interval that holds it.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Estimate {
    /// Over all draws.
    pub value: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

impl Estimate {
    /// A number that no draw changes.
    pub fn exact(value: f64) -> Estimate {
        Estimate { value, low: value, high: value }
    }

    /// Whether the interval has a width.
    pub fn is_wide(&self) -> bool {
        self.low < self.high
    }
}

/// Which draws stand in for all of them: once as they are, then resampled or, of few, each alone.
///
/// The sets are the same for every statistic over as many draws, so that statistics can be compared set by set.
pub fn resamples(draws: usize) -> Vec<Vec<usize>> {
    let all: Vec<usize> = (0..draws).collect();
    let mut sets = vec![all];
    if draws >= FEWEST {
        let mut random = Random::new(1);
        sets.extend((0..RESAMPLES).map(|_| (0..draws).map(|_| random.below(draws as u64) as usize).collect()));
    } else if draws > 1 {
        sets.extend((0..draws).map(|i| vec![i]));
    }
    sets
}

/// The estimate of a statistic from what each of the [`resamples`] gives; `None` where the whole set gives nothing.
pub fn estimate(draws: usize, of_each: &[Option<f64>]) -> Option<Estimate> {
    let value = of_each.first().copied().flatten()?;
    let mut drawn: Vec<f64> = of_each.iter().skip(1).copied().flatten().collect();
    if drawn.is_empty() {
        return Some(Estimate::exact(value));
    }
    let last = drawn.len() - 1;
    let (low, high) = if draws < FEWEST {
        (0, last)
    } else {
        let at = |share: f64| ((share * drawn.len() as f64) as usize).min(last);
        (at(0.025), at(0.975))
    };
    let mut ranked = |i: usize| *drawn.select_nth_unstable_by(i, f64::total_cmp).1;
    Some(Estimate { value, low: ranked(low).min(value), high: ranked(high).max(value) })
}

/// The mean of the chosen draws; `None` when one of them has no figure. Added in order, so always the same bits.
pub fn mean(samples: &[Option<f64>], chosen: &[usize]) -> Option<f64> {
    let mut sum = 0.0;
    for &i in chosen {
        sum += samples.get(i).copied().flatten()?;
    }
    if chosen.is_empty() { None } else { Some(sum / chosen.len() as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(samples: &[f64]) -> Estimate {
        let samples: Vec<_> = samples.iter().copied().map(Some).collect();
        let each: Vec<_> = resamples(samples.len()).iter().map(|set| mean(&samples, set)).collect();
        estimate(samples.len(), &each).unwrap()
    }

    #[test]
    fn one_draw_is_exact_and_few_give_their_range() {
        assert_eq!(of(&[2.5]), Estimate::exact(2.5));
        assert_eq!(of(&[1.0, 3.0]), Estimate { value: 2.0, low: 1.0, high: 3.0 });
        assert_eq!(of(&[1.0; 20]), Estimate::exact(1.0));
    }

    #[test]
    fn the_interval_of_a_mean_is_about_two_standard_errors_wide() {
        // 100 draws, evenly from 0 to 1: the standard error of the mean is 0.0290.
        let samples: Vec<f64> = (0..100).map(|i| (i as f64 + 0.5) / 100.0).collect();
        let e = of(&samples);
        assert!((e.value - 0.5).abs() < 1e-12);
        let width = e.high - e.low;
        assert!((width - 2.0 * 1.96 * 0.0289).abs() < 0.012, "{e:?}");
    }

    #[test]
    fn a_draw_without_a_figure_leaves_the_mean_without_one() {
        assert_eq!(mean(&[Some(1.0), None], &[0, 1]), None);
        assert_eq!(mean(&[Some(1.0), None], &[0]), Some(1.0));
    }
}
