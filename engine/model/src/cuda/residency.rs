//! Which experts the device keeps.

use strata_cuda::{Shape, Slots};

/// Slots, and the experts in them.
pub(crate) struct Residency {
    slots: Slots,
    experts: usize,
    /// For each layer and expert its slot.
    table: Vec<Option<u32>>,
}

impl Residency {
    pub(super) fn new(slots: Slots, layers: usize, experts: usize) -> Residency {
        Residency { slots, experts, table: vec![None; layers * experts] }
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
        Some(self.slots.addresses(slot as usize, shapes))
    }
}
