//! What is resident follows what is used: the cache that the simulator replays decides at the boundary behind each window, and copies run
//! beside the next one.

use super::CudaOps;
use super::experts::Source;
use super::recording::lock;
use super::residency::Residency;
use crate::error::{Error, Result};
use crate::forward::{CacheRound, Model, Observer};
use std::collections::HashMap;
use std::sync::Arc;
use strata_cuda::Courier;
use strata_policy::cache::{Admission, Cache, CacheParams, Capacity, Change, Key, Phase, Rule, Shape, Start};

/// One in so many slots takes copies under way where victims stay until those have landed and nothing says how many may come at a time.
const SPARE: usize = 16;

/// The slots that are kept for copies under way, of `count`, and how many copies may begin at a boundary: no more than there will be
/// slots for, so that what the cache holds is what is there.
fn spare(count: usize, params: &CacheParams) -> (usize, Option<u32>) {
    let rounds = params.copy_rounds as usize;
    if params.admission == Admission::EvictFirst || rounds == 0 {
        return (0, params.insert_budget);
    }
    let asked =
        params.insert_budget.map_or((count / SPARE).max(rounds), |budget| rounds.saturating_mul(budget as usize));
    let at_a_time = asked.min(count / 2) / rounds;
    (at_a_time * rounds, u32::try_from(at_a_time).ok())
}

/// Uses of experts, those of prompts included, and what followed from them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// Uses of experts.
    pub accesses: u64,
    /// Of these, those whose expert was resident.
    pub hits: u64,
    /// Experts that were brought into slots.
    pub inserts: u64,
}

/// The cache, and where its experts are.
pub(crate) struct Adapting {
    cache: Cache,
    courier: Courier,
    sources: Vec<Arc<Source>>,
    /// Slots that no expert has.
    free: Vec<usize>,
    /// Experts on their way, and their slots.
    coming: HashMap<Key, usize>,
    /// What the current window used, in the order of time, and whether it was there.
    used: Vec<Key>,
    hits: Vec<bool>,
    /// What came and left at the last boundary.
    changes: Vec<Change>,
    counts: CacheUse,
    /// For each layer uses, and those that found their expert.
    layers: Vec<(u64, u64)>,
    /// What was asked for.
    asked: CacheParams,
}

/// An expert cache before its first round.
#[derive(Debug, Clone, PartialEq)]
pub struct CacheStart {
    /// Its settings, the capacity being what there is room for.
    pub params: CacheParams,
    /// For each layer the experts that it holds, in ascending order.
    pub resident: Vec<Vec<u16>>,
}

impl Model<CudaOps> {
    /// From now on, what is in slots follows what windows use. What [`Model::keep_experts`] put there is the start; the capacity of
    /// `params` is as many slots as there are, whatever it says; where victims stay until copies have landed, some slots are for those.
    /// Answers do not change, bit for bit.
    ///
    /// # Errors
    /// A setting is out of range or knows the future, or there is no room on the device.
    pub fn adapt_experts(&self, params: &CacheParams) -> Result<()> {
        let ops = self.ops();
        ops.stop_bringing();
        *lock(&ops.adapting) = None;
        let Some(residency) = lock(&ops.residency).clone() else { return Ok(()) };
        // Not those of a draft layer, which the CPU or the link has.
        let layers = self.weights.layers.len();
        let sources: Vec<Arc<Source>> = lock(&ops.sources).iter().take(layers).cloned().collect();
        let count = residency.slots().count();
        let (spare, insert_budget) = spare(count, params);
        let wrong = |e: strata_policy::cache::CacheError| Error::Cache(e.to_string());
        params.must_be_causal().map_err(wrong)?;
        let bytes = sources.iter().map(|source| source.shapes.iter().map(|s| s.file_bytes() as u64).sum()).collect();
        let experts = sources.iter().map(|source| source.host.count).max().unwrap_or(0);
        let shape = Shape::new(sources.len(), experts, bytes).map_err(wrong)?;
        if params.rule == Rule::Infinite && count < shape.keys() {
            let (keys, here) = (shape.keys(), count);
            return Err(Error::Cache(format!(
                "the policy `infinite` needs a slot for each of {keys} experts; there are {here}"
            )));
        }
        let asked = *params;
        let params = CacheParams { capacity: Capacity::Slots(count - spare), insert_budget, ..asked };
        let held = residency.held();
        let ranking: Vec<Key> = held.iter().map(|&(layer, expert, _)| shape.key(layer, expert)).collect();
        let cache = Cache::new(&shape, &params, &Start { ranking: &ranking, ..Start::default() }).map_err(wrong)?;
        // What the cache did not take, since each layer has its own part of it, leaves; so do those in the spare slots.
        for &(layer, expert, _) in &held {
            if !cache.holds(shape.key(layer, expert)) {
                residency.remove(layer, expert);
            }
        }
        let mut taken = vec![false; count];
        for (_, _, slot) in residency.held() {
            taken.get_mut(slot).into_iter().for_each(|taken| *taken = true);
        }
        let free = (0..count).filter(|&slot| taken.get(slot) == Some(&false)).collect();
        let shapes: Vec<_> = sources.iter().map(|source| source.shapes).collect();
        let courier = Courier::new(ops.device(), &shapes)?;
        *lock(&ops.adapting) = Some(Adapting {
            cache,
            courier,
            sources,
            free,
            coming: HashMap::new(),
            used: Vec::new(),
            hits: Vec::new(),
            changes: Vec::new(),
            counts: CacheUse::default(),
            layers: vec![(0, 0); layers],
            asked,
        });
        Ok(())
    }

    /// Has the cache begin anew with what is in slots now, so that whoever watches its rounds from here on knows what it started from.
    /// `None` if what is in slots does not follow what is used.
    ///
    /// # Errors
    /// There is no room on the device.
    pub fn restart_cache(&self) -> Result<Option<CacheStart>> {
        let asked = lock(&self.ops().adapting).as_ref().map(|adapting| adapting.asked);
        let Some(asked) = asked else { return Ok(None) };
        self.adapt_experts(&asked)?;
        let adapting = lock(&self.ops().adapting);
        Ok(adapting.as_ref().map(|Adapting { cache, .. }| {
            let shape = cache.shape();
            let of = |layer| {
                let ids = 0..shape.experts();
                ids.filter(|&id| cache.holds(shape.key(layer, id))).filter_map(|id| u16::try_from(id).ok()).collect()
            };
            CacheStart { params: *cache.params(), resident: (0..shape.layers()).map(of).collect() }
        }))
    }
}

impl CudaOps {
    /// Takes note of a layer's experts in a pass, in routing order, row by row.
    pub(super) fn used_experts(&self, layer: usize, ids: &[u16]) {
        if let Some(adapting) = &mut *lock(&self.adapting) {
            let shape = adapting.cache.shape();
            if layer >= shape.layers() {
                return;
            }
            adapting.used.extend(ids.iter().map(|&id| shape.key(layer, usize::from(id))));
        }
    }

    /// Forgets what a pass used that did not come to its end.
    pub(super) fn forget_uses(&self) {
        if let Some(adapting) = &mut *lock(&self.adapting) {
            adapting.used.clear();
        }
    }

    /// The boundary behind a pass that came to its end, of this phase if the observer does not know better.
    pub(super) fn boundary(&self, phase: Phase, observer: &mut dyn Observer) {
        let residency = lock(&self.residency).clone();
        if let (Some(adapting), Some(residency)) = (&mut *lock(&self.adapting), residency) {
            adapting.boundary(observer.phase().unwrap_or(phase), &residency);
            let Adapting { cache, hits, changes, .. } = adapting;
            observer.cache(&CacheRound { hits, changes, shape: cache.shape() });
        }
    }

    pub(super) fn found_by_layer(&self) -> Vec<(u64, u64)> {
        lock(&self.adapting).as_ref().map(|adapting| adapting.layers.clone()).unwrap_or_default()
    }

    /// What passes found in slots since [`Model::adapt_experts`]; `None` before that.
    pub fn cache_use(&self) -> Option<CacheUse> {
        lock(&self.adapting).as_ref().map(|adapting| adapting.counts)
    }
}

impl Adapting {
    /// The boundary behind a window, or a chunk of a prompt.
    pub(super) fn boundary(&mut self, phase: Phase, residency: &Residency) {
        self.hits.clear();
        self.changes.clear();
        self.changes.extend_from_slice(self.cache.round(phase, &self.used, &mut self.hits));
        for (&key, &hit) in self.used.iter().zip(&self.hits) {
            if let Some((uses, found)) = self.layers.get_mut(self.cache.shape().layer_of(key)) {
                *uses += 1;
                *found += u64::from(hit);
            }
        }
        self.used.clear();
        self.counts.accesses += self.hits.len() as u64;
        self.counts.hits += self.hits.iter().map(|&hit| u64::from(hit)).sum::<u64>();
        let begun = self.cache.begun().to_vec();
        let Adapting { cache, courier, sources, free, coming, changes, counts, .. } = self;
        let shape = cache.shape();
        let place = |key: Key| (shape.layer_of(key), shape.expert_of(key));
        for left in changes.iter().filter_map(|change| change.left) {
            let (layer, expert) = place(left);
            free.extend(residency.remove(layer, expert));
        }
        // What has landed left before what begins now.
        let landed = changes.iter().filter_map(|change| change.came);
        if landed.clone().any(|key| coming.contains_key(&key)) {
            courier.wait();
        }
        let sent: Vec<(Key, usize)> = begun.into_iter().map_while(|key| Some((key, free.pop()?))).collect();
        if !sent.is_empty() {
            counts.inserts += sent.len() as u64;
            // What is lent is filled when it comes back.
            let experts = sent.iter().filter_map(|&(key, slot)| {
                let (layer, expert) = place(key);
                residency.expect(layer, expert, slot);
                let source = sources.get(layer).filter(|_| slot < residency.here())?;
                Some((slot, source.shapes, source.matrices(expert)))
            });
            courier.send(residency.slots(), experts);
            if landed.clone().any(|key| sent.iter().any(|&(begun, _)| begun == key)) {
                courier.wait();
            }
            coming.extend(sent);
        }
        for key in landed {
            if let Some(slot) = coming.remove(&key) {
                let (layer, expert) = place(key);
                residency.put(layer, expert, slot);
            }
        }
    }
}
