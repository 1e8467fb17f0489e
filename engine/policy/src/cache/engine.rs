//! The cache as the engine runs it: round by round.

use super::Policy;
use super::adaptive::Adaptive;
use super::belady::Belady;
use super::error::CacheError;
use super::fixed::Fixed;
use super::future::Future;
use super::lfu::Lfu;
use super::lru::Lru;
use super::params::{CacheParams, Rule};
use super::s3fifo::S3Fifo;
use super::saving::{Costs, Saving};
use super::shape::{Key, Shape};
use super::store::{Change, State, Store};
use std::sync::Arc;
use strata_trace::Phase;

/// What a cache starts from.
#[derive(Debug, Clone, Default)]
pub struct Start<'a> {
    /// Experts to fill the cache with, best first. Those that do not fit are passed over; empty = a cold cache.
    pub ranking: &'a [Key],
    /// What misses and copies cost, for [`Rule::Saving`]; `None` = [`Costs::by_size`].
    pub costs: Option<&'a Costs>,
    /// The future of the very accesses that will be replayed, for [`Rule::Belady`].
    pub future: Option<Arc<Future>>,
}

/// What a trace says that the cache held before its first round, as [`Start::ranking`].
pub fn resident(meta: &strata_trace::Meta, shape: &Shape) -> Vec<Key> {
    let layers = meta.resident.iter().enumerate();
    layers.flat_map(|(layer, ids)| ids.iter().map(move |&id| shape.key(layer, usize::from(id)))).collect()
}

#[derive(Debug, Clone)]
enum Ruling {
    Fixed(Fixed),
    Lru(Lru),
    Lfu(Lfu),
    Adaptive(Adaptive),
    S3Fifo(S3Fifo),
    Saving(Saving),
    Belady(Belady),
}

/// An expert cache.
#[derive(Debug, Clone)]
pub struct Cache {
    shape: Shape,
    params: CacheParams,
    store: Store,
    ruling: Ruling,
    missed: Vec<Key>,
}

impl Cache {
    /// A cache before its first round.
    ///
    /// # Errors
    /// A setting is out of range, the ranking names an expert twice or one that there is not, costs are not one for each
    /// layer, or the rule needs a future and there is none.
    pub fn new(shape: &Shape, params: &CacheParams, start: &Start<'_>) -> Result<Cache, CacheError> {
        params.check()?;
        let mut store = Store::new(shape, params);
        let rooms: Vec<u64> = (0..store.pools()).map(|pool| store.free(pool)).collect();
        let mut ranked = vec![false; shape.keys()];
        for (i, &key) in start.ranking.iter().enumerate() {
            let place = || format!("start ranking, entry {i}");
            let known = ranked.get_mut(key as usize);
            let known = known.ok_or_else(|| {
                CacheError::invalid(&place(), format!("expert {key}"), format!("one below {}", shape.keys()))
            })?;
            if std::mem::replace(known, true) {
                return Err(CacheError::invalid(&place(), format!("expert {key} again"), "each expert once"));
            }
            store.start_with(key);
        }
        let ranking = start.ranking;
        let ruling = match params.rule {
            Rule::Static | Rule::Infinite => Ruling::Fixed(Fixed::new(shape)),
            Rule::Lru => Ruling::Lru(Lru::new(shape, &store, ranking)),
            Rule::Lfu { .. } => Ruling::Lfu(Lfu::new(shape, params, ranking)),
            Rule::Adaptive { .. } => Ruling::Adaptive(Adaptive::new(shape, params)),
            Rule::S3Fifo => Ruling::S3Fifo(S3Fifo::new(shape, &store, &rooms, ranking)),
            Rule::Saving { .. } => {
                let by_size = start.costs.is_none().then(|| Costs::by_size(shape));
                let costs = start.costs.or(by_size.as_ref());
                let complete = |c: &&Costs| c.miss.len() == shape.layers() && c.copy.len() == shape.layers();
                let costs = costs.filter(complete).ok_or_else(|| {
                    let expected = format!("one of each for each of {} layers", shape.layers());
                    CacheError::invalid("costs", "another number of misses or copies", expected)
                })?;
                Ruling::Saving(Saving::new(shape, params, &store, costs))
            }
            Rule::Belady { .. } => {
                let future = start.future.clone().ok_or_else(|| {
                    CacheError::invalid("policy", "belady and no future", "a recorded trace to look ahead in")
                })?;
                Ruling::Belady(Belady::new(shape, params, future))
            }
        };
        Ok(Cache { shape: shape.clone(), params: *params, store, ruling, missed: Vec::new() })
    }

    /// One round: its accesses in the order of time, repeats included, each below [`Shape::keys`].
    ///
    /// Appends to `hits`, for each access, whether its expert is resident as the round begins, and returns what changes
    /// at the boundary behind it. A prompt's round counts if the settings say so; otherwise copies land at its end, and
    /// nothing else happens. An access that names no expert misses and does nothing else.
    pub fn round(&mut self, phase: Phase, accesses: &[Key], hits: &mut Vec<bool>) -> &[Change] {
        let counts = phase == Phase::Decode || self.params.count_prefill;
        let Cache { store, missed, .. } = self;
        match &mut self.ruling {
            Ruling::Fixed(p) => round(p, store, missed, counts, accesses, hits),
            Ruling::Lru(p) => round(p, store, missed, counts, accesses, hits),
            Ruling::Lfu(p) => round(p, store, missed, counts, accesses, hits),
            Ruling::Adaptive(p) => round(p, store, missed, counts, accesses, hits),
            Ruling::S3Fifo(p) => round(p, store, missed, counts, accesses, hits),
            Ruling::Saving(p) => round(p, store, missed, counts, accesses, hits),
            Ruling::Belady(p) => round(p, store, missed, counts, accesses, hits),
        }
        self.store.changes()
    }

    /// The copies that began at the last boundary, in the order in which they land.
    pub fn begun(&self) -> &[Key] {
        self.store.begun()
    }

    /// The copies under way, in the order in which they land.
    pub fn copying(&self) -> impl Iterator<Item = Key> + '_ {
        self.store.copying()
    }

    /// Whether an access to an expert would hit now.
    pub fn holds(&self, key: Key) -> bool {
        self.store.entries.get(key as usize).is_some_and(|entry| entry.state.hits())
    }

    /// What is resident, in the order of keys.
    pub fn residents(&self) -> impl Iterator<Item = Key> + '_ {
        (0..self.shape.keys() as Key).filter(|&key| self.holds(key))
    }

    /// Room taken by what is resident: experts where the capacity is a number of slots, else bytes.
    pub fn taken(&self) -> u64 {
        self.store.resident_units()
    }

    /// The model.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The settings.
    pub fn params(&self) -> &CacheParams {
        &self.params
    }
}

fn round<P: Policy>(
    policy: &mut P,
    store: &mut Store,
    missed: &mut Vec<Key>,
    counts: bool,
    accesses: &[Key],
    hits: &mut Vec<bool>,
) {
    if !counts {
        hits.extend(accesses.iter().map(|&key| store.entries.get(key as usize).is_some_and(|e| e.state.hits())));
        policy.skip(accesses.len());
        store.land();
        return;
    }
    store.begin_round();
    missed.clear();
    hits.extend(accesses.iter().map(|&key| {
        let Some(&entry) = store.entries.get(key as usize) else {
            policy.skip(1);
            return false;
        };
        let first = entry.used != store.now;
        if first {
            store.use_first(key, entry);
            if entry.state == State::Absent {
                missed.push(key);
            }
        }
        policy.used(key, entry.state, first);
        entry.state.hits()
    }));
    store.land();
    policy.decide(store, missed);
}
