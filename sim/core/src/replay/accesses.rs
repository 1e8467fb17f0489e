//! A trace's accesses in the order of time, as dense keys.

use crate::error::SimError;
use std::sync::{Arc, OnceLock};
use strata_policy::cache::{CacheError, Future, Key, Shape};
use strata_trace::{Phase, Trace};

/// A round without its accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundSpan {
    /// Number of the request in its trace.
    pub request: u32,
    /// Reading or writing.
    pub phase: Phase,
    /// Tokens that were read.
    pub rows: u32,
    /// The first of them that were kept.
    pub committed: u32,
    /// Where its accesses end.
    end: usize,
}

/// The accesses of a trace by round, and within a round by layer, row and routing order.
#[derive(Debug, Clone)]
pub struct Accesses {
    shape: Shape,
    keys: Vec<Key>,
    rounds: Vec<RoundSpan>,
    /// Computed when first asked for: without prompts, and with them.
    futures: [OnceLock<Arc<Future>>; 2],
}

impl Accesses {
    /// Those of a trace.
    ///
    /// # Errors
    /// Its header describes no model.
    pub fn from_trace(trace: &Trace) -> Result<Accesses, SimError> {
        let meta = &trace.meta;
        let shape = Shape::new(meta.layers, meta.experts, meta.expert_bytes.clone())?;
        let mut accesses = Accesses::empty(shape);
        accesses.keys.reserve_exact(trace.len());
        for (i, round) in trace.rounds.iter().enumerate() {
            let key = |(_, layer, expert): (usize, usize, u16)| accesses.shape.key(layer, usize::from(expert));
            accesses.keys.extend(trace.accesses(i).map(key));
            accesses.rounds.push(RoundSpan {
                request: round.request,
                phase: round.phase,
                rows: round.rows,
                committed: round.committed,
                end: accesses.keys.len(),
            });
        }
        Ok(accesses)
    }

    /// A list of keys, cut into rounds of one token with `per_round` accesses each, all of one answer.
    ///
    /// # Errors
    /// A key is not in the model, or rounds have no access.
    pub fn from_keys(shape: Shape, keys: Vec<Key>, per_round: usize) -> Result<Accesses, SimError> {
        let invalid = |found: String, expected: String| SimError::Invalid { place: "accesses".into(), found, expected };
        if per_round == 0 {
            return Err(invalid("rounds of 0 accesses".into(), "at least 1".into()));
        }
        if let Some(i) = keys.iter().position(|&key| key as usize >= shape.keys()) {
            return Err(invalid(format!("expert {} at access {i}", keys[i]), format!("one below {}", shape.keys())));
        }
        let mut accesses = Accesses::empty(shape);
        let ends = (1..=keys.len().div_ceil(per_round)).map(|n| (n * per_round).min(keys.len()));
        let round = |end| RoundSpan { request: 0, phase: Phase::Decode, rows: 1, committed: 1, end };
        accesses.rounds = ends.map(round).collect();
        accesses.keys = keys;
        Ok(accesses)
    }

    fn empty(shape: Shape) -> Accesses {
        Accesses { shape, keys: Vec::new(), rounds: Vec::new(), futures: Default::default() }
    }

    /// The rounds that `keep` keeps, by number and span: requests left out, a part held out.
    pub fn only(&self, keep: impl Fn(usize, &RoundSpan) -> bool) -> Accesses {
        let mut kept = Accesses::empty(self.shape.clone());
        for (i, round) in self.rounds.iter().enumerate().filter(|(i, round)| keep(*i, round)) {
            kept.keys.extend_from_slice(self.round(i));
            kept.rounds.push(RoundSpan { end: kept.keys.len(), ..*round });
        }
        kept
    }

    /// The same accesses of a model whose experts have other sizes.
    ///
    /// # Errors
    /// There is not one size for each layer, or one cannot be.
    pub fn sized(&self, bytes: Vec<u64>) -> Result<Accesses, SimError> {
        let shape = Shape::new(self.shape.layers(), self.shape.experts(), bytes)?;
        Ok(Accesses { shape, ..self.clone() })
    }

    /// The model.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// All accesses in the order of time.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// The rounds in time.
    pub fn rounds(&self) -> &[RoundSpan] {
        &self.rounds
    }

    /// The accesses of a round; none for one that there is not.
    pub fn round(&self, round: usize) -> &[Key] {
        let start = round.checked_sub(1).and_then(|before| self.rounds.get(before)).map_or(0, |before| before.end);
        self.rounds.get(round).and_then(|r| self.keys.get(start..r.end)).unwrap_or(&[])
    }

    /// When each expert is used next, with or without the accesses of prompts; computed once.
    ///
    /// # Errors
    /// There are more accesses than it can hold.
    pub fn future(&self, count_prefill: bool) -> Result<Arc<Future>, CacheError> {
        let slot = &self.futures[usize::from(count_prefill)];
        if let Some(future) = slot.get() {
            return Ok(future.clone());
        }
        let mut counts = Vec::new();
        if !count_prefill && self.rounds.iter().any(|round| round.phase == Phase::Prefill) {
            for (i, round) in self.rounds.iter().enumerate() {
                counts.resize(counts.len() + self.round(i).len(), round.phase == Phase::Decode);
            }
        }
        let future = Arc::new(Future::new(&self.keys, self.shape.keys(), |i| counts.get(i) != Some(&false))?);
        // Another thread may have been faster; both have found the same.
        Ok(slot.get_or_init(|| future).clone())
    }
}
