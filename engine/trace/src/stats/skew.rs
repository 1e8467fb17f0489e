//! The exponent of a layer's popularity.

use super::Sequence;
use crate::synth::{logarithms, probabilities};

/// Exponents that are told apart: those from 0 to this.
const STEEPEST: f64 = 8.0;

/// Exponents that are tried first, evenly from 0 to the steepest.
const STEPS: usize = 160;

/// Halvings of the interval between two of them.
const HALVINGS: usize = 20;

/// Tokens of a piece of the trace, longer than an expert stays in use.
const LONGEST: usize = 64;

impl Sequence<'_> {
    /// For each layer the exponent of [`super::Stats::zipf`]. Without tokens 0.
    ///
    /// The trace is cut into pieces, and two uses, one of an even piece and one of an odd one, are compared: how often are
    /// they of the same expert? That chance is the sum of the squares of the experts' shares, and since the two are counted
    /// apart, it does not take noise for skew, as sorting experts by how often they happen to be used does.
    pub fn zipf(&self) -> Vec<f64> {
        let meta = &self.trace().meta;
        let logarithms = logarithms(meta.experts);
        let table: Vec<f64> =
            (0..=STEPS).map(|i| same(&logarithms, meta.used, STEEPEST * i as f64 / STEPS as f64)).collect();
        let exponent = |found: f64| {
            // The chance grows with the exponent.
            let above = table.partition_point(|chance| *chance < found);
            if above == 0 || above > STEPS {
                return if above == 0 { 0.0 } else { STEEPEST };
            }
            let step = STEEPEST / STEPS as f64;
            let (mut low, mut high) = ((above - 1) as f64 * step, above as f64 * step);
            for _ in 0..HALVINGS {
                let middle = (low + high) / 2.0;
                if same(&logarithms, meta.used, middle) < found { low = middle } else { high = middle }
            }
            high
        };
        (0..meta.layers).map(|layer| self.chance(layer).map_or(0.0, exponent)).collect()
    }

    /// The chance that a use in an even piece and one in an odd piece are of the same expert of a layer.
    fn chance(&self, layer: usize) -> Option<f64> {
        let experts = self.trace().meta.experts;
        let piece = (self.tokens() / 8).clamp(1, LONGEST);
        let mut counts = [vec![0u64; experts], vec![0u64; experts]];
        for (i, token) in self.all().enumerate() {
            for expert in self.trace().chosen(token, layer) {
                counts[i / piece % 2][usize::from(*expert)] += 1;
            }
        }
        let [even, odd] = &counts;
        let pairs = u128::from(even.iter().sum::<u64>()) * u128::from(odd.iter().sum::<u64>());
        let same: u128 = even.iter().zip(odd).map(|(a, b)| u128::from(*a) * u128::from(*b)).sum();
        (pairs > 0).then(|| same as f64 / pairs as f64)
    }
}

/// The same chance under an exponent.
fn same(logarithms: &[f64], used: usize, zipf: f64) -> f64 {
    let used = used.min(logarithms.len().saturating_sub(1)).max(1);
    let p = probabilities(logarithms, used, zipf, 0.0);
    let sum = p.iter().sum::<f64>();
    p.iter().map(|p| p * p).sum::<f64>() / (sum * sum)
}
