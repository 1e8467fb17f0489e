//! The expert cache of a machine without a GPU: it decides as it would with one, what it decides is recorded, and no byte
//! moves. What a GPU's cache did is only counted.
//!
//! It runs on the thread that writes, over the rounds in the order in which they are written. So it takes nothing from the
//! decode loop, and a round that was lost is lost to the cache too: the trace alone says what it saw.

use crate::error::Result;
use strata_policy::cache::{Cache, CacheParams, Key, Shape, Start, resident};
use strata_trace::{Meta, Move, Record};

/// What an expert cache counted. Prompts are in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct CacheCounts {
    /// Uses of experts.
    pub accesses: u64,
    /// Of these, those whose expert was resident.
    pub hits: u64,
    /// Copies that began.
    pub inserts: u64,
    /// Bytes of these copies.
    pub bytes: u64,
}

impl CacheCounts {
    fn add(&mut self, layers: &mut [LayerHits], layer: usize, hit: bool) {
        self.accesses += 1;
        self.hits += u64::from(hit);
        if let Some(layer) = layers.get_mut(layer) {
            layer.accesses += 1;
            layer.hits += u64::from(hit);
        }
    }
}

/// What one layer's part of an expert cache counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LayerHits {
    /// Uses of the layer's experts.
    pub accesses: u64,
    /// Of these, those whose expert was resident.
    pub hits: u64,
}

/// The cache with memory for one round.
pub(super) struct Shadow {
    cache: Cache,
    shape: Shape,
    counts: CacheCounts,
    layers: Vec<LayerHits>,
    /// The round's accesses in the order of time, and whether they hit.
    keys: Vec<Key>,
    timed: Vec<bool>,
    /// The same hits where the record has its experts.
    hits: Vec<bool>,
    moves: Vec<Move>,
}

impl Shadow {
    /// The cache that the settings in a trace's header ask for, with what the header says that it holds; `None` if they ask for none.
    ///
    /// # Errors
    /// A setting cannot be, or the policy knows the future.
    pub(super) fn of(meta: &Meta) -> Result<Option<Shadow>> {
        let Some(params) = CacheParams::from_meta(meta)? else { return Ok(None) };
        params.must_be_causal()?;
        let shape = Shape::new(meta.layers, meta.experts, meta.expert_bytes.clone())?;
        let ranking = resident(meta, &shape);
        let cache = Cache::new(&shape, &params, &Start { ranking: &ranking, ..Start::default() })?;
        let counts = CacheCounts::default();
        let layers = vec![LayerHits::default(); shape.layers()];
        let (keys, timed, hits, moves) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Ok(Some(Shadow { cache, shape, counts, layers, keys, timed, hits, moves }))
    }

    /// The cache sees a round. Returns the record with what it did.
    pub(super) fn see<'a>(&'a mut self, record: Record<'a>, meta: &Meta) -> Record<'a> {
        let Shadow { cache, shape, counts, layers, keys, timed, hits, moves } = self;
        keys.clear();
        keys.extend(record.accesses(meta).map(|(_, layer, expert)| shape.key(layer, usize::from(expert))));
        timed.clear();
        moves.clear();
        moves.extend(cache.round(record.round.phase, keys, timed).iter().map(|change| change.to_move(shape)));
        hits.clear();
        hits.resize(timed.len(), false);
        for ((at, layer, _), &hit) in record.accesses(meta).zip(&*timed) {
            if let Some(place) = hits.get_mut(at) {
                *place = hit;
            }
            counts.add(layers, layer, hit);
        }
        counts.inserts += cache.begun().len() as u64;
        counts.bytes += cache.begun().iter().map(|&key| shape.bytes_of(key)).sum::<u64>();
        Record { hits: Some(hits), moves: Some(moves), ..record }
    }

    /// Counts what a device's cache did in a round: copies when they have come.
    pub(super) fn count(&mut self, record: &Record<'_>, meta: &Meta) {
        for (at, layer, _) in record.accesses(meta) {
            let hit = record.hits.and_then(|hits| hits.get(at)).is_some_and(|&hit| hit);
            self.counts.add(&mut self.layers, layer, hit);
        }
        for come in record.moves.unwrap_or_default().iter().filter(|change| change.came.is_some()) {
            self.counts.inserts += 1;
            self.counts.bytes += meta.expert_bytes.get(usize::from(come.layer)).copied().unwrap_or(0);
        }
    }

    /// The same by layer.
    pub(super) fn layers(&self) -> &[LayerHits] {
        &self.layers
    }

    /// What it counted so far.
    pub(super) fn counts(&self) -> CacheCounts {
        self.counts
    }
}
