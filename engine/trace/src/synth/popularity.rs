//! How often the ranks of a layer are used, and the weights that make it so.
//!
//! The expert of rank r is to be among a token's experts with the probability p(r) = c exp(-t r / E) / r^s, cut at
//! [`MOST`], where E is the number of experts, with c such that the probabilities add up to the number of experts used. A token keeps some experts of the token before it and
//! draws the others from those that were not there. In the long run an expert then comes as often as it leaves:
//! an expert that is there leaves with a probability l(r), so one that is not has to come with p(r) l(r) / (1 - p(r)).
//!
//! l(r) = k (1 - z p(r)), with k such that the asked share of experts stays. With z = 1 coming is in proportion to p(r), and
//! the chain is a mixture: now and then everything is drawn afresh, otherwise everything stays. That reuses at least
//! what two independent draws have in common, the sum of p(r)^2 over the number used; for less, z is the part of it that is
//! asked for, and k is 1.
//!
//! Experts are drawn one by one by weight from those not drawn yet. That is the order of clocks that ring at random, each
//! at a rate of its weight, and by a given time a clock has rung with the probability 1 - exp(-weight x time). So the
//! weight for a probability q is -ln(1 - q).

use super::numbers::{exp, ln};

/// The largest probability of an expert: no router always takes the same.
const MOST: f64 = 0.95;

/// The largest probability that a weight stands for: that of 1 is infinite.
const SUREST: f64 = 0.999;

/// Weights are whole numbers that add up to about this.
const SCALE: f64 = (1u64 << 40) as f64;

/// The weights of a layer's ranks.
#[derive(Debug, Clone)]
pub(crate) struct Popularity {
    /// In proportion to how likely each rank leaves.
    pub(crate) leave: Vec<u64>,
    /// In proportion to how likely each rank comes, with those of all ranks before it: increasing.
    pub(crate) come: Vec<u64>,
}

impl Popularity {
    /// The weights for `experts` ranks of which a token uses `used`, fewer than all, with exponent `zipf`, fall
    /// `tail` and next-token reuse `reuse`.
    pub(crate) fn new(experts: usize, used: usize, zipf: f64, tail: f64, reuse: f64) -> Popularity {
        let p = probabilities(&logarithms(experts), used, zipf, tail);
        let used = used as f64;
        let chance = p.iter().map(|p| p * p).sum::<f64>() / used;
        let part = if chance > reuse { reuse / chance } else { 1.0 };
        let scale = (1.0 - reuse) * used / p.iter().map(|p| p * (1.0 - part * p)).sum::<f64>();
        let leave: Vec<f64> = p.iter().map(|p| scale * (1.0 - part * p)).collect();
        let come: Vec<f64> = p.iter().zip(&leave).map(|(p, l)| weight(p * l / (1.0 - p))).collect();
        let leave: Vec<f64> = leave.into_iter().map(weight).collect();
        let whole = |weights: &[f64]| -> Vec<u64> {
            let sum = weights.iter().sum::<f64>();
            // With all experts reused none leaves or comes, whatever the weights.
            let factor = if sum > 0.0 { SCALE / sum } else { 0.0 };
            weights.iter().map(|w| (w * factor) as u64 + 1).collect()
        };
        let mut come = whole(&come);
        let mut sum = 0;
        for weight in &mut come {
            sum += *weight;
            *weight = sum;
        }
        Popularity { leave: whole(&leave), come }
    }

    /// The weight with which a rank comes.
    pub(crate) fn come(&self, rank: usize) -> u64 {
        self.come[rank] - if rank == 0 { 0 } else { self.come[rank - 1] }
    }
}

/// The weight of an expert that should be drawn with this probability.
fn weight(probability: f64) -> f64 {
    ln(1.0 / (1.0 - probability.clamp(0.0, SUREST)))
}

/// The logarithms of the ranks 1, 2 and so on.
pub(crate) fn logarithms(experts: usize) -> Vec<f64> {
    (1..=experts).map(|rank| ln(rank as f64)).collect()
}

/// The probability of each rank to be used by a token, with the ranks' logarithms; the sum is `used`, or nearly all
/// experts' when that is less.
pub(crate) fn probabilities(logarithms: &[f64], used: usize, zipf: f64, tail: f64) -> Vec<f64> {
    // Where a token uses most experts, the cut lies halfway between their mean and 1.
    let most = MOST.max((1.0 + used as f64 / logarithms.len() as f64) / 2.0);
    let fall = tail / logarithms.len() as f64;
    let powers: Vec<f64> = logarithms.iter().enumerate().map(|(i, l)| exp(-zipf * l - fall * i as f64)).collect();
    let sum = |c: f64| powers.iter().map(|p| (c * p).min(most)).sum::<f64>();
    // The sum grows with c; the interval is halved until no number lies within.
    let (mut low, mut high) = (0.0, 1.0);
    while sum(high) < used as f64 && high < 1e300 {
        (low, high) = (high, high * 2.0);
    }
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if sum(middle) < used as f64 { low = middle } else { high = middle }
    }
    powers.iter().map(|p| (high * p).min(most)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_fall_as_asked_and_add_up() {
        for (experts, used, zipf, tail) in
            [(512, 10, 0.0, 0.0), (512, 10, 0.65, 0.0), (512, 10, 2.0, 50.0), (8, 7, 1.0, 3.0), (4, 1, 3.0, 0.0)]
        {
            let p = probabilities(&logarithms(experts), used, zipf, tail);
            assert!((p.iter().sum::<f64>() - used as f64).abs() < 1e-6, "{experts} {used} {zipf}: {p:?}");
            assert!(p.windows(2).all(|w| w[0] >= w[1]) && p[0] < 1.0);
        }
        let p = probabilities(&logarithms(512), 10, 0.5, 0.0);
        assert!((p[0] / p[3] - 2.0).abs() < 1e-9);
        let p = probabilities(&logarithms(512), 10, 0.0, 3.0);
        assert!((p[0] / p[256] - 1.5f64.exp()).abs() < 1e-9);
    }
}
