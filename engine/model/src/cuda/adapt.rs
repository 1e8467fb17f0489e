//! What is resident follows what is used: the cache that the simulator replays decides at the boundary behind each window, and copies run
//! beside the next one.

use super::CudaOps;
use super::experts::Source;
use super::recording::lock;
use super::residency::Residency;
use crate::error::{Error, Result};
use crate::forward::Model;
use std::collections::HashMap;
use std::sync::Arc;
use strata_cuda::Courier;
use strata_policy::cache::{Admission, Cache, CacheParams, Capacity, Key, Phase, Shape, Start};

/// One in so many slots takes copies under way where victims stay until those have landed.
const SPARE: usize = 16;

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
    counts: CacheUse,
}

impl Model<CudaOps> {
    /// From now on, what is in slots follows what windows use. What [`Model::keep_experts`] put there is the start; the capacity of
    /// `params` is as many slots as there are, whatever it says. Answers do not change, bit for bit.
    ///
    /// # Errors
    /// A setting is out of range or knows the future, or there is no room on the device.
    pub fn adapt_experts(&self, params: &CacheParams) -> Result<()> {
        let ops = self.ops();
        ops.stop_bringing();
        *lock(&ops.adapting) = None;
        let Some(residency) = lock(&ops.residency).clone() else { return Ok(()) };
        let sources: Vec<Arc<Source>> = lock(&ops.sources).clone();
        let count = residency.slots().count();
        let spare = match params.admission {
            Admission::EvictFirst => 0,
            Admission::WaitForCopy => count / SPARE,
        };
        let wrong = |e: strata_policy::cache::CacheError| Error::Cache(e.to_string());
        params.must_be_causal().map_err(wrong)?;
        let bytes = sources.iter().map(|source| source.shapes.iter().map(|s| s.file_bytes() as u64).sum()).collect();
        let experts = sources.iter().map(|source| source.host.count).max().unwrap_or(0);
        let shape = Shape::new(sources.len(), experts, bytes).map_err(wrong)?;
        let params = CacheParams { capacity: Capacity::Slots(count - spare), ..*params };
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
            counts: CacheUse::default(),
        });
        Ok(())
    }
}

impl CudaOps {
    /// Takes note of a layer's experts in a pass, in routing order, row by row.
    pub(super) fn used_experts(&self, layer: usize, ids: &[u16]) {
        if let Some(adapting) = &mut *lock(&self.adapting) {
            let shape = adapting.cache.shape();
            adapting.used.extend(ids.iter().map(|&id| shape.key(layer, usize::from(id))));
        }
    }

    /// Forgets what a pass used that did not come to its end.
    pub(super) fn forget_uses(&self) {
        if let Some(adapting) = &mut *lock(&self.adapting) {
            adapting.used.clear();
        }
    }

    /// The boundary behind a pass that came to its end.
    pub(super) fn boundary(&self, phase: Phase) {
        let residency = lock(&self.residency).clone();
        if let (Some(adapting), Some(residency)) = (&mut *lock(&self.adapting), residency) {
            adapting.boundary(phase, &residency);
        }
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
        let changes = self.cache.round(phase, &self.used, &mut self.hits).to_vec();
        self.used.clear();
        self.counts.accesses += self.hits.len() as u64;
        self.counts.hits += self.hits.iter().map(|&hit| u64::from(hit)).sum::<u64>();
        let begun = self.cache.begun().to_vec();
        let Adapting { cache, courier, sources, free, coming, counts, .. } = self;
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
