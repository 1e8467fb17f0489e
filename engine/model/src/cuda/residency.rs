//! Which experts the device keeps.

use std::sync::atomic::{AtomicUsize, Ordering};
use strata_cuda::{Shape, Slots};

/// Slots, and the experts in them.
pub(crate) struct Residency {
    slots: Slots,
    experts: usize,
    /// For each layer and expert its slot.
    table: Vec<Option<u32>>,
    /// The last slots so many of which something else has for now.
    lent: AtomicUsize,
}

impl Residency {
    pub(super) fn new(slots: Slots, layers: usize, experts: usize) -> Residency {
        Residency { slots, experts, table: vec![None; layers * experts], lent: AtomicUsize::new(0) }
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
        let here = self.slots.count() - self.lent.load(Ordering::Relaxed);
        if slot as usize >= here {
            return None;
        }
        Some(self.slots.addresses(slot as usize, shapes))
    }

    /// Lends the last slots, at most `most` and half of all.
    pub(super) fn lend(&self, most: usize) -> Slots {
        let slots = self.slots.last(most.min(self.slots.count() / 2));
        self.lent.store(slots.count(), Ordering::Relaxed);
        slots
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
