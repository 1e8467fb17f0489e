//! The exponent of a layer's popularity.

use super::Sequence;
use crate::synth::{logarithms, probabilities};

/// Exponents that are told apart: those from 0 to this.
const STEEPEST: f64 = 8.0;

/// Tokens of a piece; pieces are the ranking's and the count's in turn. Longer than an expert stays in use.
const LONGEST: usize = 64;

impl Sequence<'_> {
    /// For each layer the exponent of [`super::Stats::zipf`]. Without tokens 0.
    pub fn zipf(&self) -> Vec<f64> {
        let meta = &self.trace().meta;
        let logarithms = logarithms(meta.experts);
        let means = self.mean_logarithms(&logarithms);
        // Layers have their means, and a table of means serves them all.
        let steps = 160;
        let table: Vec<f64> =
            (0..=steps).map(|i| expected(&logarithms, meta.used, STEEPEST * f64::from(i) / f64::from(steps))).collect();
        let exponent = |mean: f64| {
            // Means fall as exponents grow.
            let above = table.partition_point(|m| *m > mean);
            if above == 0 {
                return 0.0;
            }
            let step = STEEPEST / f64::from(steps);
            let Some(next) = table.get(above) else { return STEEPEST };
            let (mut low, mut high) = ((above - 1) as f64 * step, above as f64 * step);
            if *next == mean {
                return high;
            }
            for _ in 0..20 {
                let middle = (low + high) / 2.0;
                if expected(&logarithms, meta.used, middle) > mean { low = middle } else { high = middle }
            }
            high
        };
        means.into_iter().map(|mean| mean.map_or(0.0, exponent)).collect()
    }

    /// For each layer the mean logarithm of the rank of what tokens use, ranked by every other piece of the tokens.
    fn mean_logarithms(&self, logarithms: &[f64]) -> Vec<Option<f64>> {
        let meta = &self.trace().meta;
        let piece = (self.tokens() / 8).clamp(1, LONGEST);
        let mut counts = [vec![0u32; meta.experts], vec![0u32; meta.experts]];
        let layer = |layer: usize| {
            counts.iter_mut().for_each(|counts| counts.fill(0));
            for (i, token) in self.all().enumerate() {
                for expert in self.trace().chosen(token, layer) {
                    counts[i / piece % 2][usize::from(*expert)] += 1;
                }
            }
            let (mut sum, mut uses) = (0.0, 0u64);
            for (ranked, counted) in [(&counts[0], &counts[1]), (&counts[1], &counts[0])] {
                let mut order: Vec<usize> = (0..meta.experts).collect();
                order.sort_by_key(|expert| (std::cmp::Reverse(ranked[*expert]), *expert));
                // Where the ranking is undecided, every order is as good: each place has the mean of the tie.
                for tie in order.chunk_by(|a, b| ranked[*a] == ranked[*b]).scan(0, |start, tie| {
                    *start += tie.len();
                    Some((*start - tie.len(), tie))
                }) {
                    let (start, experts) = tie;
                    let mean = logarithms[start..start + experts.len()].iter().sum::<f64>() / experts.len() as f64;
                    let here: u64 = experts.iter().map(|expert| u64::from(counted[*expert])).sum();
                    sum += mean * here as f64;
                    uses += here;
                }
            }
            (uses > 0).then(|| sum / uses as f64)
        };
        (0..meta.layers).map(layer).collect()
    }
}

/// The mean logarithm of the rank under an exponent.
fn expected(logarithms: &[f64], used: usize, zipf: f64) -> f64 {
    let p = probabilities(logarithms, used.min(logarithms.len().saturating_sub(1)).max(1), zipf, 0.0);
    p.iter().zip(logarithms).map(|(p, l)| p * l).sum::<f64>() / p.iter().sum::<f64>()
}
