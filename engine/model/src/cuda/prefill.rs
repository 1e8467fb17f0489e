//! Prompts whose experts are in the host's memory: those that are not resident are brought while the device computes with others.

use super::experts::{LayerExperts, Source};
use super::recording::lock;
use super::{CudaOps, ExpertPlace};
use crate::config::ModelConfig;
use crate::ops::Routing;
use crate::plan::{ModelNumbers, PASSED, RESERVED};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strata_cuda::{ExpertSum, Ring, Slots};

/// Bytes in which experts pass through the device when prompts are read, where there are no slots to borrow.
pub const RING: usize = 256 << 20;

/// Rows from which on experts are brought. The CPU has those of fewer rows computed before they arrive.
const ROWS: usize = 32;

/// Uses of an expert of a layer on average from which on experts are brought before it is known which of the next layer's are wanted.
const AHEAD: usize = 2;

/// What brings experts, and which are under way for the next layer.
pub(crate) struct Bringer {
    ring: Ring,
    ahead: VecDeque<Batch>,
    /// The layer that they are of.
    layer: usize,
}

/// Experts that were brought together, and their addresses.
struct Batch {
    number: usize,
    experts: Vec<(usize, [u64; 3])>,
}

impl Bringer {
    fn bring(&mut self, source: &Source, experts: &[usize]) -> Batch {
        let number = self.ring.next();
        let matrices: Vec<_> = experts.iter().map(|&expert| source.matrices(expert)).collect();
        let places = self.ring.bring(&source.shapes, &matrices);
        Batch { number, experts: experts.iter().copied().zip(places).collect() }
    }
}

/// Whether missed experts of these rows are brought.
pub(super) fn brings(ops: &CudaOps, routing: &Routing) -> bool {
    routing.ids.len() >= ROWS * routing.used.max(1) && lock(&ops.bringer).is_some()
}

impl CudaOps {
    /// Makes room for a pass over some rows, operation by operation: experts will pass through borrowed slots, and intermediate results
    /// be in others. Where there are few slots, the ring has its own.
    pub(super) fn borrow(&self, config: &ModelConfig, rows: usize) {
        if self.place == ExpertPlace::Device || rows < ROWS {
            return;
        }
        let sources = lock(&self.sources);
        let shapes: Vec<_> = sources.iter().map(|s| s.shapes).collect();
        drop(sources);
        let slot = shapes.iter().map(Slots::bytes_for).max().unwrap_or(0).max(1);
        let own = self.ring.load(Ordering::Relaxed) / slot;
        let residency = lock(&self.residency).clone();
        let residency = residency.filter(|residency| residency.lendable(usize::MAX) > own);
        let results = if rows > RESERVED { ModelNumbers::of(config).results(rows) } else { 0 };
        let wanted = PASSED + usize::try_from(results).unwrap_or(usize::MAX).div_ceil(slot);
        let lendable = residency.as_ref().map_or(0, |residency| residency.lendable(wanted));
        if lock(&self.bringer).is_some() && residency.as_ref().is_none_or(|residency| residency.lent() >= lendable) {
            return;
        }
        self.stop_bringing();
        let slots = match &residency {
            // What was lent before is still in use somewhere.
            Some(residency) if residency.lent() > 0 => return,
            Some(residency) => {
                let lent = residency.lend(wanted);
                let ring = PASSED.min(lent.count() / 2);
                if lent.count() > 2 * ring {
                    self.device.lend(lent.first(lent.count() - ring));
                }
                Some(lent.last(ring))
            }
            None => Slots::new(&self.device, slot, own).ok(),
        };
        let ring = slots.and_then(|slots| Ring::new(&self.device, slots, &shapes).ok());
        *lock(&self.bringer) = ring.map(|ring| Bringer { ring, ahead: VecDeque::new(), layer: 0 });
    }

    /// Ends the bringing of experts, if there was any: borrowed slots get back what they had, unless results are still there.
    pub(super) fn stop_bringing(&self) {
        let Some(residency) = lock(&self.residency).clone() else { return };
        if residency.lent() == 0 {
            return;
        }
        // Rotations of a long chunk may be in lent memory.
        *lock(&self.turns) = None;
        if self.device.take_back().is_none() {
            return;
        }
        *lock(&self.bringer) = None;
        let sources = lock(&self.sources);
        for (layer, expert, slot) in residency.take_back() {
            if let Some(source) = sources.get(layer) {
                residency.slots().fill(&self.device, slot, &source.shapes, source.matrices(expert));
            }
        }
    }
}

impl Drop for CudaOps {
    fn drop(&mut self) {
        // The device would hold the slots otherwise, and they the device.
        *lock(&self.turns) = None;
        self.device.take_back();
    }
}

/// Adds a layer's experts, resident and missed ones.
pub(super) fn bring(
    ops: &CudaOps,
    layer: &LayerExperts,
    sum: &mut ExpertSum<'_>,
    resident: &[(usize, [u64; 3])],
    missed: &[usize],
) {
    let mut bringer = lock(&ops.bringer);
    let Some(bringer) = &mut *bringer else { return };
    let mut ahead = std::mem::take(&mut bringer.ahead);
    if bringer.layer != layer.layer() {
        ahead.clear();
    }
    let under_way = |expert: &usize| ahead.iter().any(|batch| batch.experts.iter().any(|(e, _)| e == expert));
    let rest: Vec<usize> = missed.iter().copied().filter(|expert| !under_way(expert)).collect();
    for batch in &mut ahead {
        batch.experts.retain(|(expert, _)| missed.binary_search(expert).is_ok());
    }
    let mut batches = rest.chunks(bringer.ring.batch());
    let start = |bringer: &mut Bringer, batches: &mut std::slice::Chunks<'_, usize>, ahead: &mut VecDeque<Batch>| {
        if let Some(experts) = batches.next() {
            ahead.push_back(bringer.bring(&layer.source, experts));
        }
    };
    while ahead.len() < bringer.ring.batches() && batches.len() > 0 {
        start(bringer, &mut batches, &mut ahead);
    }
    sum.add(resident);
    // What the next layer is likely to want follows this one's: as many as this one wanted, those first that are used most.
    let pairs = missed.iter().chain(resident.iter().map(|(e, _)| e)).map(|&e| sum.pairs(e).len()).sum::<usize>();
    let next = lock(&ops.sources).get(layer.layer() + 1).map(Arc::clone);
    let next = next.filter(|source| pairs >= AHEAD * source.host.count);
    let residency = lock(&ops.residency).clone();
    let room = missed.len().min(bringer.ring.batches() * bringer.ring.batch());
    let likely: Vec<usize> = match (&next, &residency) {
        (None, _) => Vec::new(),
        (Some(_), Some(residency)) => residency.absent(layer.layer() + 1).take(room).collect(),
        (Some(source), None) => (0..source.host.count).take(room).collect(),
    };
    let mut likely = likely.chunks(bringer.ring.batch());
    let mut coming = VecDeque::new();
    while let Some(batch) = ahead.pop_front() {
        bringer.ring.wait(batch.number);
        sum.add(&batch.experts);
        if batches.len() > 0 {
            start(bringer, &mut batches, &mut ahead);
        } else if let (Some(source), Some(experts)) = (&next, likely.next()) {
            coming.push_back(bringer.bring(source, experts));
        }
    }
    bringer.ahead = coming;
    bringer.layer = layer.layer() + 1;
}
