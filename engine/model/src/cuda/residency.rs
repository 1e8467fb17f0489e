//! Which experts the device keeps.

use std::sync::atomic::{AtomicUsize, Ordering};
use strata_cuda::{Shape, Slots};

/// Slots, and the experts in them.
pub(crate) struct Residency {
    slots: Slots,
    experts: usize,
    /// For each layer and expert its slot.
    table: Vec<Option<u32>>,
    /// For each layer all experts, those that are used most first.
    ranked: Vec<Vec<u16>>,
    /// The last slots so many of which something else has for now.
    lent: AtomicUsize,
}

impl Residency {
    pub(super) fn new(slots: Slots, layers: usize, experts: usize) -> Residency {
        let (table, ranked) = (vec![None; layers * experts], vec![Vec::new(); layers]);
        Residency { slots, experts, table, ranked, lent: AtomicUsize::new(0) }
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

    /// Takes note that a slot has an expert.
    pub(super) fn put(&mut self, layer: usize, expert: usize, slot: usize) {
        if let Some(place) = self.table.get_mut(layer * self.experts + expert) {
            *place = u32::try_from(slot).ok();
        }
    }

    pub(super) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Addresses of an expert's matrices, which have these shapes, if it is resident.
    pub(super) fn addresses(&self, layer: usize, expert: usize, shapes: &[Shape; 3]) -> Option<[u64; 3]> {
        let slot = (*self.table.get(layer * self.experts + expert)?)?;
        let here = self.slots.count() - self.lent();
        if slot as usize >= here {
            return None;
        }
        Some(self.slots.addresses(slot as usize, shapes))
    }

    /// The experts of a layer that are not resident now, those first that are used most.
    pub(super) fn absent(&self, layer: usize) -> impl Iterator<Item = usize> + '_ {
        let here = self.slots.count() - self.lent();
        let ranked = self.ranked.get(layer).into_iter().flatten().map(|&id| usize::from(id));
        ranked.filter(move |expert| {
            let slot = self.table.get(layer * self.experts + expert).copied().flatten();
            slot.is_none_or(|slot| slot as usize >= here)
        })
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

    /// Takes them back. Returns what they had, each layer, expert and slot, which must be put there again before anything else
    /// happens.
    pub(super) fn take_back(&self) -> Vec<(usize, usize, usize)> {
        let here = self.slots.count() - self.lent.swap(0, Ordering::Relaxed);
        let held = self.table.iter().enumerate();
        let held = held.filter_map(|(at, slot)| Some((at / self.experts, at % self.experts, (*slot)? as usize)));
        held.filter(|&(_, _, slot)| slot >= here).collect()
    }
}
