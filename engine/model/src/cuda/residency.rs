//! Which experts the device keeps.

use super::recording::lock;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use strata_cuda::{Shape, Slots};

/// No slot.
const NONE: u32 = u32::MAX;

/// Slots, and the experts in them.
pub(crate) struct Residency {
    slots: Slots,
    experts: usize,
    /// For each layer and expert its slot, or [`NONE`].
    table: Vec<AtomicU32>,
    /// Slots whose experts are on their way, and those experts.
    coming: Mutex<HashMap<usize, (usize, usize)>>,
    /// For each layer all experts, those that are used most first.
    ranked: Vec<Vec<u16>>,
    /// The last slots so many of which something else has for now.
    lent: AtomicUsize,
}

impl Residency {
    pub(super) fn new(slots: Slots, layers: usize, experts: usize) -> Residency {
        let table = (0..layers * experts).map(|_| AtomicU32::new(NONE)).collect();
        let ranked = vec![Vec::new(); layers];
        Residency { slots, experts, table, coming: Mutex::default(), ranked, lent: AtomicUsize::new(0) }
    }

    /// Takes note of (layer, expert) pairs in the order of their use; those that are not named come last.
    pub(super) fn rank(&mut self, ranking: &[(usize, usize)]) {
        let (layers, experts) = (self.ranked.len(), self.experts);
        let mut ranked = vec![Vec::with_capacity(experts); layers];
        let mut named = vec![false; layers * experts];
        let others = (0..layers).flat_map(|layer| (0..experts).map(move |expert| (layer, expert)));
        for (layer, expert) in ranking.iter().copied().chain(others) {
            if let (Some(of), Some(named)) = (ranked.get_mut(layer), named.get_mut(layer * experts + expert))
                && expert < experts
                && let Ok(id) = u16::try_from(expert)
                && !std::mem::replace(named, true)
            {
                of.push(id);
            }
        }
        self.ranked = ranked;
    }

    fn entry(&self, layer: usize, expert: usize) -> Option<&AtomicU32> {
        self.table.get(layer * self.experts + expert)
    }

    /// Takes note that a slot has an expert.
    pub(super) fn put(&self, layer: usize, expert: usize, slot: usize) {
        lock(&self.coming).remove(&slot);
        if let Some(entry) = self.entry(layer, expert) {
            entry.store(u32::try_from(slot).unwrap_or(NONE), Ordering::Relaxed);
        }
    }

    /// Takes note that an expert is on its way to a slot.
    pub(super) fn expect(&self, layer: usize, expert: usize, slot: usize) {
        lock(&self.coming).insert(slot, (layer, expert));
    }

    /// Takes note that an expert is not resident any more. Returns the slot it had.
    pub(super) fn remove(&self, layer: usize, expert: usize) -> Option<usize> {
        let slot = self.entry(layer, expert)?.swap(NONE, Ordering::Relaxed);
        (slot != NONE).then_some(slot as usize)
    }

    pub(super) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// The slots that are not lent.
    pub(super) fn here(&self) -> usize {
        self.slots.count() - self.lent()
    }

    fn slot(&self, layer: usize, expert: usize) -> Option<usize> {
        let slot = self.entry(layer, expert)?.load(Ordering::Relaxed) as usize;
        (slot < self.here()).then_some(slot)
    }

    /// Addresses of an expert's matrices, which have these shapes, if it is resident.
    pub(super) fn addresses(&self, layer: usize, expert: usize, shapes: &[Shape; 3]) -> Option<[u64; 3]> {
        Some(self.slots.addresses(self.slot(layer, expert)?, shapes))
    }

    /// The experts of a layer that are not resident now, those first that are used most.
    pub(super) fn absent(&self, layer: usize) -> impl Iterator<Item = usize> + '_ {
        let ranked = self.ranked.get(layer).into_iter().flatten().map(|&id| usize::from(id));
        ranked.filter(move |&expert| self.slot(layer, expert).is_none())
    }

    /// Each layer, expert and slot that has one.
    pub(super) fn held(&self) -> Vec<(usize, usize, usize)> {
        let slots = self.table.iter().map(|slot| slot.load(Ordering::Relaxed));
        let held = slots.enumerate().filter(|&(_, slot)| slot != NONE);
        held.map(|(at, slot)| (at / self.experts, at % self.experts, slot as usize)).collect()
    }

    /// Lends the last slots, at most `most` and half of all.
    pub(super) fn lend(&self, most: usize) -> Slots {
        let slots = self.slots.last(self.lendable(most));
        self.lent.store(slots.count(), Ordering::Relaxed);
        slots
    }

    /// How many of `most` slots can be lent.
    pub(super) fn lendable(&self, most: usize) -> usize {
        most.min(self.slots.count() / 2)
    }

    /// How many are lent.
    pub(super) fn lent(&self) -> usize {
        self.lent.load(Ordering::Relaxed)
    }

    /// Takes them back. Returns what they had or were about to get, each layer, expert and slot, which must be put there again before
    /// anything else happens.
    pub(super) fn take_back(&self) -> Vec<(usize, usize, usize)> {
        let here = self.here();
        self.lent.store(0, Ordering::Relaxed);
        let mut held = self.held();
        held.extend(lock(&self.coming).iter().map(|(&slot, &(layer, expert))| (layer, expert, slot)));
        held.retain(|&(_, _, slot)| slot >= here);
        held
    }
}
