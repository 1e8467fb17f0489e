//! Running a cache over accesses.

use super::accesses::{Accesses, RoundSpan};
use super::counts::{Counts, LayerCounts, LayerRound, Missed};
use super::start::StartState;
use crate::error::SimError;
use strata_policy::cache::{Cache, CacheParams, Capacity, Change, Classic, Key, Rule, Scope, Start};
use strata_trace::Phase;

/// What a cache did with a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Replayed {
    /// Over the rounds of answers.
    pub decode: Counts,
    /// Over the chunks of prompts.
    pub prefill: Counts,
    /// Over the rounds of answers, by layer.
    pub layers: Vec<LayerCounts>,
    /// Each round, prompts included, in time.
    pub rounds: Vec<Counts>,
    /// Copies under way at the same time, at most; with [`strata_policy::cache::Admission::WaitForCopy`] they take room
    /// beside the capacity.
    pub most_copies: usize,
}

/// A round of a replay.
#[derive(Debug, Clone, Copy)]
pub struct Outcome<'a> {
    /// Its number in the trace.
    pub round: usize,
    /// Its request, phase and rows.
    pub span: &'a RoundSpan,
    /// Its accesses in the order of time.
    pub accesses: &'a [Key],
    /// Whether each of them hit.
    pub hits: &'a [bool],
    /// By layer.
    pub layers: &'a [LayerRound],
    /// The distinct misses in order of first use; those of a layer are together.
    pub missed: &'a [Missed],
    /// What changed at its end.
    pub changes: &'a [Change],
    /// The copies that began at its end.
    pub begun: &'a [Key],
}

/// Replays all rounds and counts.
///
/// # Errors
/// The cache cannot be made: see [`Cache::new`].
pub fn replay(accesses: &Accesses, params: &CacheParams, start: &StartState) -> Result<Replayed, SimError> {
    let mut cache = cache(accesses, params, start)?;
    let mut totals = Totals::new(accesses);
    let mut hits = Vec::new();
    for (i, span) in accesses.rounds().iter().enumerate() {
        let keys = accesses.round(i);
        hits.clear();
        cache.round(span.phase, keys, &mut hits);
        totals.round(accesses, span, keys, &hits, &cache);
    }
    Ok(totals.replayed)
}

/// Replays all rounds, counts, and shows each round.
///
/// # Errors
/// As [`replay`].
pub fn replay_each(
    accesses: &Accesses,
    params: &CacheParams,
    start: &StartState,
    mut visit: impl FnMut(&Outcome<'_>),
) -> Result<Replayed, SimError> {
    let mut cache = cache(accesses, params, start)?;
    let mut totals = Totals::new(accesses);
    let mut detail = Detail::new(accesses);
    let (mut hits, mut changes) = (Vec::new(), Vec::new());
    for (i, span) in accesses.rounds().iter().enumerate() {
        let keys = accesses.round(i);
        hits.clear();
        changes.clear();
        changes.extend_from_slice(cache.round(span.phase, keys, &mut hits));
        totals.round(accesses, span, keys, &hits, &cache);
        detail.round(accesses, keys, &hits, cache.begun());
        visit(&Outcome {
            round: i,
            span,
            accesses: keys,
            hits: &hits,
            layers: &detail.layers,
            missed: &detail.missed,
            changes: &changes,
            begun: cache.begun(),
        });
    }
    Ok(totals.replayed)
}

/// Hits of the textbook cache, access by access, prompts included.
///
/// # Errors
/// As [`replay`].
pub fn replay_classic(
    accesses: &Accesses,
    rule: Rule,
    capacity: Capacity,
    scope: Scope,
    start: &StartState,
) -> Result<u64, SimError> {
    let future = if rule.is_causal() { None } else { Some(accesses.future(true)?) };
    let from = Start { ranking: &start.ranking, costs: start.costs.as_ref(), future };
    let mut cache = Classic::new(accesses.shape(), rule, capacity, scope, &from)?;
    Ok(cache.accesses(accesses.keys()))
}

/// The cache before the first round.
pub(crate) fn cache(accesses: &Accesses, params: &CacheParams, start: &StartState) -> Result<Cache, SimError> {
    let future = if params.rule.is_causal() { None } else { Some(accesses.future(params.count_prefill)?) };
    let from = Start { ranking: &start.ranking, costs: start.costs.as_ref(), future };
    Ok(Cache::new(accesses.shape(), params, &from)?)
}

struct Totals {
    replayed: Replayed,
}

impl Totals {
    fn new(accesses: &Accesses) -> Totals {
        let replayed = Replayed {
            decode: Counts::default(),
            prefill: Counts::default(),
            layers: vec![LayerCounts::default(); accesses.shape().layers()],
            rounds: Vec::with_capacity(accesses.rounds().len()),
            most_copies: 0,
        };
        Totals { replayed }
    }

    fn round(&mut self, accesses: &Accesses, span: &RoundSpan, keys: &[Key], hits: &[bool], cache: &Cache) {
        let shape = accesses.shape();
        let mut count = Counts {
            rounds: 1,
            rows: u64::from(span.rows),
            committed: u64::from(span.committed),
            accesses: keys.len() as u64,
            inserts: cache.begun().len() as u64,
            ..Counts::default()
        };
        let replayed = &mut self.replayed;
        let decode = span.phase == Phase::Decode;
        for_each_layer(shape.experts(), keys, |layer, range| {
            let hit = hits[range.clone()].iter().map(|&hit| u64::from(hit)).sum::<u64>();
            count.hits += hit;
            if decode {
                replayed.layers[layer].accesses += range.len() as u64;
                replayed.layers[layer].hits += hit;
            }
        });
        for &key in cache.begun() {
            let (layer, bytes) = (shape.layer_of(key), shape.bytes_of(key));
            count.bytes += bytes;
            if decode {
                replayed.layers[layer].inserts += 1;
                replayed.layers[layer].bytes += bytes;
            }
        }
        let phase = if decode { &mut replayed.decode } else { &mut replayed.prefill };
        phase.add(&count);
        replayed.rounds.push(count);
        replayed.most_copies = replayed.most_copies.max(cache.copying().count());
    }
}

/// Calls for each stretch of accesses of one layer. In a trace, a round has one for each layer.
fn for_each_layer(experts: usize, keys: &[Key], mut visit: impl FnMut(usize, std::ops::Range<usize>)) {
    let mut start = 0;
    while let Some(&key) = keys.get(start) {
        let layer = key as usize / experts;
        let own = (layer * experts) as Key..((layer + 1) * experts) as Key;
        let len = keys[start..].iter().position(|key| !own.contains(key)).unwrap_or(keys.len() - start);
        visit(layer, start..start + len);
        start += len;
    }
}

/// Where a key stands in the round's list of misses.
#[derive(Clone, Copy)]
struct Seen {
    /// One more than the number of the round that used it last.
    round: usize,
    missed: usize,
}

struct Detail {
    layers: Vec<LayerRound>,
    missed: Vec<Missed>,
    seen: Vec<Seen>,
    round: usize,
}

impl Detail {
    fn new(accesses: &Accesses) -> Detail {
        let shape = accesses.shape();
        Detail {
            layers: vec![LayerRound::default(); shape.layers()],
            missed: Vec::new(),
            seen: vec![Seen { round: 0, missed: 0 }; shape.keys()],
            round: 0,
        }
    }

    fn round(&mut self, accesses: &Accesses, keys: &[Key], hits: &[bool], begun: &[Key]) {
        let shape = accesses.shape();
        self.round += 1;
        self.missed.clear();
        self.layers.fill(LayerRound::default());
        for_each_layer(shape.experts(), keys, |layer, range| {
            let counts = &mut self.layers[layer];
            for (&key, &hit) in keys[range.clone()].iter().zip(&hits[range]) {
                let seen = &mut self.seen[key as usize];
                let first = seen.round != self.round;
                seen.round = self.round;
                counts.entries += 1;
                counts.hit_entries += u32::from(hit);
                counts.distinct_hits += u32::from(hit && first);
                counts.distinct_misses += u32::from(!hit && first);
                if !hit && first {
                    seen.missed = self.missed.len();
                    self.missed.push(Missed { key, tokens: 1 });
                } else if !hit {
                    self.missed[seen.missed].tokens += 1;
                }
            }
        });
        for &key in begun {
            self.layers[shape.layer_of(key)].inserts += 1;
        }
    }
}
