//! The kept tokens of a trace in order, and what can be asked about them.

use super::WINDOWS;
use crate::round::Phase;
use crate::trace::Trace;
use std::ops::Range;

/// Parts of a [`Sequence`]: ranges of its tokens.
pub type Parts = Vec<Range<usize>>;

/// The tokens of a trace that were kept, request by request.
#[derive(Debug, Clone)]
pub struct Sequence<'a> {
    trace: &'a Trace,
    /// Indices into the trace's tokens.
    tokens: Vec<usize>,
    /// Each request's part of them; none is empty.
    requests: Vec<Range<usize>>,
}

/// All (layer, expert) pairs, the most used first.
#[derive(Debug, Clone)]
pub struct Ranking {
    pairs: Vec<u32>,
}

/// How far apart uses of an expert are.
#[derive(Debug, Clone)]
pub struct Distances {
    /// Uses with so many distinct other experts of the layer since the expert's last one.
    counts: Vec<u64>,
    /// Uses without one before in their request.
    pub firsts: u64,
}

impl<'a> Sequence<'a> {
    /// The kept tokens of a trace: of its answers, or of its prompts if it has no answers.
    pub fn new(trace: &'a Trace) -> Sequence<'a> {
        let decode = trace.rounds.iter().any(|round| round.phase == Phase::Decode && round.committed > 0);
        let phase = if decode { Phase::Decode } else { Phase::Prefill };
        // Rounds of several requests may take turns.
        let mut order: Vec<usize> = (0..trace.rounds.len()).filter(|r| trace.rounds[*r].phase == phase).collect();
        order.sort_by_key(|round| trace.rounds[*round].request);
        let mut sequence = Sequence { trace, tokens: Vec::new(), requests: Vec::new() };
        let same = |a: &usize, b: &usize| trace.rounds[*a].request == trace.rounds[*b].request;
        for request in order.chunk_by(same) {
            let start = sequence.tokens.len();
            for round in request {
                sequence.tokens.extend(trace.tokens_of(*round).filter(|token| trace.tokens[*token].committed));
            }
            if sequence.tokens.len() > start {
                sequence.requests.push(start..sequence.tokens.len());
            }
        }
        sequence
    }

    pub(super) fn trace(&self) -> &Trace {
        self.trace
    }

    /// Its tokens, as indices into the trace's.
    pub(super) fn all(&self) -> impl Iterator<Item = usize> + '_ {
        self.tokens.iter().copied()
    }

    /// How many tokens there are.
    pub fn tokens(&self) -> usize {
        self.tokens.len()
    }

    /// How many requests there are.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// The requests in two halves, every other one in each; of a single request the tokens' halves. Parts of
    /// [`Sequence::ranking`] and [`Sequence::hits`]. `None` with fewer than two tokens.
    pub fn halves(&self) -> Option<(Parts, Parts)> {
        if let [only] = self.requests.as_slice() {
            let middle = only.start + only.len() / 2;
            let part = |range| std::iter::once(range).collect();
            return (only.len() > 1).then(|| (part(only.start..middle), part(middle..only.end)));
        }
        let every = |first: usize| self.requests.iter().skip(first).step_by(2).cloned().collect();
        (!self.requests.is_empty()).then(|| (every(0), every(1)))
    }

    /// All pairs by how often these parts use them; those used as often in their order.
    pub fn ranking(&self, parts: &[Range<usize>]) -> Ranking {
        let experts = self.trace.meta.experts;
        let mut counts = vec![0u32; self.trace.meta.layers * experts];
        self.uses(parts, |layer, expert| counts[layer * experts + usize::from(expert)] += 1);
        let mut pairs: Vec<u32> = (0..counts.len() as u32).collect();
        pairs.sort_by_key(|pair| (std::cmp::Reverse(counts[*pair as usize]), *pair));
        Ranking { pairs }
    }

    /// Share of the uses in these parts whose pair is resident (`[layers][experts]`); 0 where there are none.
    pub fn hits(&self, resident: &[bool], parts: &[Range<usize>]) -> f64 {
        let (mut hits, mut uses) = (0u64, 0u64);
        let experts = self.trace.meta.experts;
        self.uses(parts, |layer, expert| {
            uses += 1;
            hits += u64::from(resident[layer * experts + usize::from(expert)]);
        });
        if uses == 0 { 0.0 } else { hits as f64 / uses as f64 }
    }

    /// The first so many distinct pairs that these parts use, as `[layers][experts]`: what a cache holds that takes in
    /// whatever comes until it is full.
    pub fn first_used(&self, parts: &[Range<usize>], pairs: usize) -> Vec<bool> {
        let experts = self.trace.meta.experts;
        let mut resident = vec![false; self.trace.meta.layers * experts];
        let mut left = pairs;
        self.uses(parts, |layer, expert| {
            let place = &mut resident[layer * experts + usize::from(expert)];
            if left > 0 && !*place {
                *place = true;
                left -= 1;
            }
        });
        resident
    }

    /// Calls `f` with the layer and expert of every use in these parts, token by token.
    fn uses(&self, parts: &[Range<usize>], mut f: impl FnMut(usize, u16)) {
        for token in parts.iter().flat_map(|part| &self.tokens[part.clone()]) {
            for layer in 0..self.trace.meta.layers {
                self.trace.chosen(*token, layer).iter().for_each(|expert| f(layer, *expert));
            }
        }
    }

    /// Share of a token's experts that are also the previous token's; `None` without two tokens in a request.
    pub fn reuse(&self) -> Option<f64> {
        let (mut same, mut all) = (0u64, 0u64);
        for pair in self.requests.iter().flat_map(|request| self.tokens[request.clone()].windows(2)) {
            for layer in 0..self.trace.meta.layers {
                let (before, now) = (self.trace.chosen(pair[0], layer), self.trace.chosen(pair[1], layer));
                same += now.iter().filter(|expert| before.contains(expert)).count() as u64;
                all += now.len() as u64;
            }
        }
        (all > 0).then(|| same as f64 / all as f64)
    }

    /// Mean number of distinct experts of a layer in windows of 1 to [`WINDOWS`] consecutive tokens of a request, all
    /// windows of a length counting alike; with `resident` (`[layers][experts]`) of experts that are not resident.
    pub fn union(&self, resident: Option<&[bool]>) -> [Option<f64>; WINDOWS] {
        let (layers, experts) = (self.trace.meta.layers, self.trace.meta.experts);
        let (mut sums, mut windows) = ([0u64; WINDOWS], [0u64; WINDOWS]);
        for layer in 0..layers {
            // The window in which each expert was last seen.
            let mut seen = vec![u32::MAX; experts];
            let mut window = 0u32;
            for request in &self.requests {
                for start in request.clone() {
                    let mut distinct = 0;
                    for (i, token) in self.tokens[start..request.end.min(start + WINDOWS)].iter().enumerate() {
                        for expert in self.trace.chosen(*token, layer).iter().map(|e| usize::from(*e)) {
                            let new = seen[expert] != window && resident.is_none_or(|r| !r[layer * experts + expert]);
                            distinct += u64::from(new);
                            seen[expert] = window;
                        }
                        sums[i] += distinct;
                        windows[i] += 1;
                    }
                    window += 1;
                }
            }
        }
        std::array::from_fn(|i| (windows[i] > 0).then(|| sums[i] as f64 / windows[i] as f64))
    }

    /// Distances between the uses of each expert, in distinct other experts of the layer, of the first `tokens` tokens
    /// of each request.
    pub fn distances(&self, tokens: usize) -> Distances {
        let mut distances = Distances { counts: vec![0; self.trace.meta.experts], firsts: 0 };
        // The layer's experts, the one used last in front.
        let mut stack: Vec<u16> = Vec::with_capacity(self.trace.meta.experts);
        for layer in 0..self.trace.meta.layers {
            for request in &self.requests {
                stack.clear();
                for token in &self.tokens[request.start..request.end.min(request.start.saturating_add(tokens))] {
                    for expert in self.trace.chosen(*token, layer) {
                        match stack.iter().position(|e| e == expert) {
                            Some(depth) => {
                                distances.counts[depth] += 1;
                                stack[..=depth].rotate_right(1);
                            }
                            None => {
                                distances.firsts += 1;
                                stack.insert(0, *expert);
                            }
                        }
                    }
                }
            }
        }
        distances
    }

    /// What neighbouring pieces of a request have in common, and pieces of neighbouring requests.
    pub(super) fn overlaps(&self, piece: usize) -> (Option<f64>, Option<f64>) {
        let (layers, experts) = (self.trace.meta.layers, self.trace.meta.experts);
        let pieces: Vec<Vec<Range<usize>>> = self
            .requests
            .iter()
            .map(|r| (0..r.len() / piece).map(|i| r.start + i * piece..r.start + (i + 1) * piece).collect())
            .collect();
        let uses = (piece * layers * self.trace.meta.used) as u64;
        let counts = |part: &Range<usize>| {
            let mut counts = vec![0u32; layers * experts];
            self.uses(std::slice::from_ref(part), |layer, expert| counts[layer * experts + usize::from(expert)] += 1);
            counts
        };
        let common = |a: &[u32], b: &[u32]| a.iter().zip(b).map(|(a, b)| u64::from(*a.min(b))).sum::<u64>();
        let (mut near, mut nears, mut far, mut fars) = (0, 0u64, 0, 0u64);
        let mut last: Vec<Vec<u32>> = Vec::new();
        for pieces in &pieces {
            let now: Vec<Vec<u32>> = pieces.iter().map(counts).collect();
            for pair in now.windows(2) {
                near += common(&pair[0], &pair[1]);
                nears += 1;
            }
            for (a, b) in last.iter().zip(&now) {
                far += common(a, b);
                fars += 1;
            }
            last = now;
        }
        let mean = |sum: u64, n: u64| (n > 0).then(|| sum as f64 / (n * uses) as f64);
        (mean(near, nears), mean(far, fars))
    }
}

impl Ranking {
    /// The best so many pairs, as `[layers][experts]`.
    pub fn best(&self, pairs: usize) -> Vec<bool> {
        let mut resident = vec![false; self.pairs.len()];
        self.pairs.iter().take(pairs).for_each(|pair| resident[*pair as usize] = true);
        resident
    }
}

impl Distances {
    /// Uses but first ones.
    pub fn reuses(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Hits of LRU with so many slots in each layer, empty at the start of each request: 0 to 1.
    pub fn hits(&self, slots: usize) -> f64 {
        let hits: u64 = self.counts.iter().take(slots).sum();
        let uses = self.reuses() + self.firsts;
        if uses == 0 { 0.0 } else { hits as f64 / uses as f64 }
    }

    /// The distance that this part of all reuses does not exceed; 0 where there are none.
    pub fn quantile(&self, part: f64) -> usize {
        let wanted = part.clamp(0.0, 1.0) * self.reuses() as f64;
        let mut sum = 0;
        let reached = self.counts.iter().position(|count| {
            sum += count;
            sum as f64 >= wanted
        });
        reached.unwrap_or(0)
    }
}
