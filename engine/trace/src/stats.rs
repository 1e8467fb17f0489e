//! Statistics of a trace: how skewed, how sticky and how fickle its routing is.
//!
//! They are of the tokens that were kept, in the order of their requests, and of answers only if there are any. Counts
//! are sums of whole numbers, and logarithms are our own, so equal traces give equal bits on every machine.
//!
//! [`Stats::of`] measures what a report shows. [`Sequence`] answers single questions: a ranking's share of hits in
//! requests that it was not made from, hits of LRU for every size at once, distinct experts of a window.

mod sequence;
mod skew;

pub use sequence::{Distances, Parts, Ranking, Sequence};

use crate::trace::Trace;

/// Windows whose distinct experts are counted: of 1 to this many tokens.
pub const WINDOWS: usize = 8;

/// Shares of all (layer, expert) pairs whose hits are reported.
pub const SHARES: [f64; 5] = [0.05, 0.10, 0.18, 0.30, 0.50];

/// Parts of all reuses whose distance is reported.
pub const QUANTILES: [f64; 5] = [0.10, 0.25, 0.50, 0.75, 0.90];

/// Tokens of a piece of a request whose experts are compared with those of another piece.
const PIECE: usize = 64;

/// What a trace's routing is like. A figure that the trace is too short for is `None`.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Stats {
    /// Requests with tokens that were kept.
    pub requests: usize,
    /// Tokens that were kept.
    pub tokens: usize,
    /// For each layer the exponent s of probabilities in proportion to 1 / rank^s, cut at 0.95, under which two uses in
    /// different pieces of the trace are of the same expert as often as they are in the trace. It says how concentrated
    /// popularity is, also where it does not follow a power law.
    pub zipf: Vec<f64>,
    /// For each of [`SHARES`] the hits, 0 to 1, of so many pairs, ranked over all layers by one half of the requests and
    /// tried on the other half; the mean of both ways.
    pub coverage: Option<[f64; SHARES.len()]>,
    /// Share of a token's experts that are also the previous token's in the same layer.
    pub reuse: Option<f64>,
    /// Mean number of distinct experts of a layer in windows of 1, 2 and so on consecutive tokens of a request.
    pub union: [Option<f64>; WINDOWS],
    /// Distinct experts of a layer that were used since the same one was last used, at each of [`QUANTILES`] of all uses
    /// but first ones. LRU with so many places more than that hits.
    pub reuse_distance: Option<[usize; QUANTILES.len()]>,
    /// Share of uses that are the first of their expert in their request.
    pub first_uses: f64,
    /// For some numbers of slots in each layer: hits of LRU that is empty at the start of each request.
    pub lru: Vec<(usize, f64)>,
    /// What the experts of two neighbouring pieces of 64 tokens have in common, 0 to 1: the smaller count of each expert.
    pub near: Option<f64>,
    /// The same for pieces of neighbouring requests. The less it is than `near`, the more a text's topic decides.
    pub far: Option<f64>,
}

impl Stats {
    /// Measures a trace. A trace without kept tokens has no figures.
    pub fn of(trace: &Trace) -> Stats {
        let sequence = Sequence::new(trace);
        let distances = sequence.distances(usize::MAX);
        let (uses, firsts) = (distances.reuses() + distances.firsts, distances.firsts);
        let slots = SHARES.map(|share| ((trace.meta.experts as f64 * share).round() as usize).max(1));
        let (near, far) = sequence.overlaps(PIECE);
        Stats {
            requests: sequence.requests(),
            tokens: sequence.tokens(),
            zipf: sequence.zipf(),
            coverage: sequence.halves().map(|(one, other)| {
                let (first, second) = (sequence.ranking(&one), sequence.ranking(&other));
                SHARES.map(|share| {
                    let pairs = ((trace.meta.layers * trace.meta.experts) as f64 * share).round() as usize;
                    (sequence.hits(&first.best(pairs), &other) + sequence.hits(&second.best(pairs), &one)) / 2.0
                })
            }),
            reuse: sequence.reuse(),
            union: sequence.union(None),
            reuse_distance: (distances.reuses() > 0).then(|| QUANTILES.map(|q| distances.quantile(q))),
            first_uses: if uses == 0 { 0.0 } else { firsts as f64 / uses as f64 },
            lru: slots.map(|slots| (slots, distances.hits(slots))).to_vec(),
            near,
            far,
        }
    }

    /// The mean of the layers' exponents.
    pub fn mean_zipf(&self) -> f64 {
        self.zipf.iter().sum::<f64>() / self.zipf.len().max(1) as f64
    }
}
