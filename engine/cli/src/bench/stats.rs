//! The median of some samples, and how far it can be trusted.
//!
//! The interval is a percentile bootstrap of the median (B. Efron, "Bootstrap Methods: Another Look at the Jackknife",
//! Annals of Statistics 7, 1979): as many samples as there are, drawn with replacement, [`RESAMPLES`] times, by a
//! generator with a fixed seed, so that the same samples always give the same interval. Its ends are the 2.5 % and 97.5 %
//! quantiles of the medians. It assumes nothing about how times are distributed, which is skewed, since others can only
//! make a run slower. From fewer than about eight samples it is too narrow rather than too wide, and from fewer than
//! [`LEAST`] none is given: there even the whole range of the samples misses the true median in more than 5 % of cases
//! (2 / 2^n, all samples on one side of it).

use serde::Serialize;

/// How often the samples are drawn anew.
const RESAMPLES: usize = 10_000;

/// The fewest samples that an interval is made of.
pub(crate) const LEAST: usize = 6;

/// The share of medians left out at each end.
const TAIL: f64 = 0.025;

/// Where the generator starts.
const SEED: u64 = 1;

/// A median with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Summary {
    /// The middle sample, or the mean of the two in the middle.
    pub(crate) median: f64,
    /// The 95 % interval of the median, low end first; `None` when there are fewer than [`LEAST`] samples.
    pub(crate) interval: Option<[f64; 2]>,
}

impl Summary {
    /// What `samples` have to say; `None` when there are none or one of them is not a number.
    pub(crate) fn of(samples: &[f64]) -> Option<Summary> {
        if samples.is_empty() || samples.iter().any(|v| v.is_nan()) {
            return None;
        }
        let median = median(&mut samples.to_vec());
        let interval = (samples.len() >= LEAST).then(|| interval(samples));
        Some(Summary { median, interval })
    }
}

/// The median of values that are not empty. Sorts them.
fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { f64::midpoint(values[half - 1], values[half]) }
}

fn interval(samples: &[f64]) -> [f64; 2] {
    let mut random = Random::new(SEED);
    let mut drawn = vec![0.0; samples.len()];
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            drawn.fill_with(|| samples[random.below(samples.len())]);
            median(&mut drawn)
        })
        .collect();
    medians.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| medians[((RESAMPLES - 1) as f64 * share).round() as usize];
    [at(TAIL), at(1.0 - TAIL)]
}

/// SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
pub(crate) struct Random(u64);

impl Random {
    /// The numbers that begin at `seed`.
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 random bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`. That some come up more often, by one in 2^64 / n, does not matter here.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn medians_are_middles() {
        let of = |v: &[f64]| Summary::of(v).unwrap().median;
        assert_eq!(of(&[3.0]), 3.0);
        assert_eq!(of(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn nothing_is_said_of_nothing() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn few_samples_make_no_interval() {
        let samples: Vec<f64> = (1..=LEAST).map(|n| n as f64).collect();
        assert!(Summary::of(&samples).unwrap().interval.is_some());
        for few in 1..LEAST {
            assert_eq!(Summary::of(&samples[..few]).unwrap().interval, None);
        }
    }

    /// In 95 of 100 experiments the interval should hold the true median, which is 0.5 here.
    #[test]
    fn intervals_hold_the_true_median_about_as_often_as_they_say() {
        let mut random = Random::new(7);
        let mut held = 0;
        for _ in 0..60 {
            let samples: Vec<f64> = (0..25).map(|_| random.next() as f64 / u64::MAX as f64).collect();
            let [low, high] = Summary::of(&samples).unwrap().interval.unwrap();
            held += usize::from((low..=high).contains(&0.5));
        }
        assert!((52..=60).contains(&held), "{held} of 60");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]

        #[test]
        fn intervals_lie_around_the_median_and_within_the_samples(
            samples in proptest::collection::vec(0.1f64..1e6, LEAST..40),
        ) {
            let summary = Summary::of(&samples).unwrap();
            let [low, high] = summary.interval.unwrap();
            let least = samples.iter().copied().fold(f64::MAX, f64::min);
            let most = samples.iter().copied().fold(0.0, f64::max);
            prop_assert!(least <= low && low <= summary.median && summary.median <= high && high <= most);
            // The order of the samples does not matter to the median, nor a second look to either.
            prop_assert_eq!(Summary::of(&samples).unwrap(), summary);
            let turned: Vec<f64> = samples.iter().rev().copied().collect();
            prop_assert_eq!(Summary::of(&turned).unwrap().median, summary.median);
        }

        #[test]
        fn numbers_stay_below_their_bound(seed in any::<u64>(), n in 1usize..1000) {
            prop_assert!(Random::new(seed).below(n) < n);
        }
    }
}
