//! What is noted of a round while it runs.

use super::About;
use super::clock::{Times, nanos};
use std::time::Instant;
use strata_model::{CacheRound, Routing};
use strata_trace::{BRANCHES, Branch, DraftSource, LayerTimes, Meta, Move, Phase, Record, Round, Token, gate_to_fixed};

/// What is known of a pass besides what was watched.
pub(crate) struct Pass<'a> {
    pub(crate) phase: Phase,
    pub(crate) source: DraftSource,
    /// The tokens that it read, the first of them at this position.
    pub(crate) tokens: &'a [u32],
    pub(crate) first: usize,
    /// How many of them were kept.
    pub(crate) committed: usize,
    /// Whether logits were asked for.
    pub(crate) head: bool,
}

/// A round as far as it came, in memory that is made once.
pub(super) struct Notes {
    meta: Meta,
    head_bytes: u64,
    request: u32,
    round: u32,
    rows: usize,
    tokens: Vec<Token>,
    /// `[rows][layers][used]`
    ids: Vec<u16>,
    gates: Vec<u16>,
    times: Vec<LayerTimes>,
    /// When the last thing that is timed was over.
    mark: Instant,
    /// A bit for each expert of a layer.
    seen: Vec<u64>,
    /// Bytes of the distinct experts so far.
    expert_bytes: u64,
    answers: u32,
    phase: Phase,
    /// Whether the device's expert cache said what it did: where the record has its experts, whether they were resident; and what
    /// changed.
    cached: bool,
    hits: Vec<bool>,
    moves: Vec<Move>,
}

impl Notes {
    pub(super) fn new(about: &About, rows: usize) -> Notes {
        let meta = about.meta.clone();
        let accesses = rows * meta.layers * meta.used;
        Notes {
            head_bytes: about.head_bytes,
            request: 0,
            round: 0,
            rows: 0,
            tokens: Vec::with_capacity(rows),
            ids: Vec::with_capacity(accesses),
            gates: Vec::with_capacity(accesses),
            times: vec![LayerTimes::default(); meta.layers],
            mark: Instant::now(),
            seen: vec![0; meta.experts.div_ceil(64)],
            expert_bytes: 0,
            answers: 0,
            phase: Phase::Prefill,
            cached: false,
            hits: Vec::with_capacity(if meta.resident.is_empty() { 0 } else { accesses }),
            moves: Vec::with_capacity(most_moves(&meta)),
            meta,
        }
    }

    /// Where its memory is, and how much.
    #[cfg(test)]
    pub(super) fn memory(&self) -> [(usize, usize); 4] {
        let (tokens, times) = (self.tokens.as_ptr() as usize, self.times.as_ptr() as usize);
        let (ids, gates) = (self.ids.as_ptr() as usize, self.gates.as_ptr() as usize);
        [
            (tokens, self.tokens.capacity()),
            (times, self.times.capacity()),
            (ids, self.ids.capacity()),
            (gates, self.gates.capacity()),
        ]
    }

    /// Another answer begins.
    pub(super) fn begin(&mut self) {
        (self.request, self.round) = (self.answers, 0);
        self.answers += 1;
    }

    /// Another round of the same answer begins.
    pub(super) fn next(&mut self) {
        self.round += 1;
    }

    /// A pass over so many rows begins.
    pub(super) fn watch(&mut self, rows: usize, phase: Phase) {
        let accesses = rows * self.meta.layers * self.meta.used;
        self.rows = rows;
        self.ids.resize(accesses, 0);
        self.gates.resize(accesses, 0);
        self.expert_bytes = 0;
        (self.phase, self.cached) = (phase, false);
        self.mark = Instant::now();
    }

    /// What the pass is for.
    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// The device's expert cache is at the boundary behind the pass.
    pub(super) fn cache(&mut self, round: &CacheRound<'_>) {
        let (layers, used, rows) = (self.meta.layers, self.meta.used, self.rows);
        // A trace whose header does not say what the cache held at the start has no use for what it did.
        if self.meta.resident.is_empty() || round.hits.len() != rows * layers * used {
            return;
        }
        self.hits.clear();
        self.hits.resize(round.hits.len(), false);
        for (at, hits) in round.hits.chunks_exact(used).enumerate() {
            let (layer, row) = (at / rows, at % rows);
            if let Some(place) =
                self.hits.get_mut((row * layers + layer) * used..).and_then(|rest| rest.get_mut(..used))
            {
                place.copy_from_slice(hits);
            }
        }
        self.moves.clear();
        self.moves.extend(round.changes.iter().map(|change| change.to_move(round.shape)));
        self.cached = true;
    }

    /// A layer chose its experts.
    pub(super) fn routing(&mut self, layer: usize, routing: &Routing) {
        let now = Instant::now();
        let (layers, used) = (self.meta.layers, self.meta.used);
        if let Some(times) = self.times.get_mut(layer) {
            times.dense = nanos(now - self.mark);
        }
        self.seen.fill(0);
        let chosen = routing.ids.chunks_exact(used).zip(routing.weights.chunks_exact(used));
        for (row, (ids, weights)) in chosen.enumerate() {
            let start = (row * layers + layer) * used;
            if let Some(place) = self.ids.get_mut(start..start + used) {
                place.copy_from_slice(ids);
            }
            if let Some(place) = self.gates.get_mut(start..start + used) {
                place.iter_mut().zip(weights).for_each(|(gate, &weight)| *gate = gate_to_fixed(weight));
            }
            for &id in ids {
                if let Some(word) = self.seen.get_mut(usize::from(id) / 64) {
                    *word |= 1 << (id % 64);
                }
            }
        }
        let distinct: u64 = self.seen.iter().map(|word| u64::from(word.count_ones())).sum();
        self.expert_bytes += distinct * self.meta.expert_bytes.get(layer).copied().unwrap_or(0);
        // What this took is no part of the experts' time.
        self.mark = Instant::now();
    }

    /// A layer's experts are added up.
    pub(super) fn experts(&mut self, layer: usize) {
        let now = Instant::now();
        if let Some(times) = self.times.get_mut(layer) {
            times.cpu = nanos(now - self.mark);
        }
        self.mark = now;
    }

    /// The round, with what is known of it now.
    pub(super) fn record(&mut self, pass: &Pass<'_>, times: Times) -> Record<'_> {
        let decoding = pass.phase == Phase::Decode;
        self.tokens.clear();
        self.tokens.extend(pass.tokens.iter().enumerate().map(|(row, &id)| Token {
            id,
            position: (pass.first + row) as u32,
            drafted: decoding && row > 0,
            committed: row < pass.committed,
        }));
        let experts = self.times.iter().map(|layer| layer.cpu).sum();
        let timed = experts + times.draft + times.commit;
        let (mut nanos, mut bytes) = ([0; BRANCHES.len()], [0; BRANCHES.len()]);
        nanos[Branch::CpuExperts as usize] = experts;
        nanos[Branch::Draft as usize] = times.draft;
        nanos[Branch::Commit as usize] = times.commit;
        nanos[Branch::Other as usize] = times.total.saturating_sub(timed);
        bytes[Branch::CpuExperts as usize] = self.expert_bytes;
        let unread = if pass.head { 0 } else { self.head_bytes };
        bytes[Branch::Other as usize] = self.meta.dense_bytes.saturating_sub(unread);
        let round = Round {
            request: self.request,
            round: self.round,
            phase: pass.phase,
            source: pass.source,
            rows: self.rows as u32,
            committed: pass.committed as u32,
            total_nanos: times.total,
            nanos,
            bytes,
        };
        Record {
            round,
            tokens: &self.tokens,
            ids: &self.ids,
            gates: &self.gates,
            layer_times: Some(&self.times),
            hits: self.cached.then_some(&self.hits),
            moves: self.cached.then_some(&self.moves),
        }
    }
}

/// Changes of a round at most, where a device's expert cache says what it did: each expert comes and leaves.
pub(super) fn most_moves(meta: &Meta) -> usize {
    if meta.resident.is_empty() { 0 } else { 2 * meta.layers * meta.experts }
}
