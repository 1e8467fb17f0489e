//! Prompts whose experts are in the host's memory: those that are not resident are brought while the device computes with others.

use super::CudaOps;
use super::experts::{LayerExperts, Source};
use super::recording::lock;
use crate::ops::Routing;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strata_cuda::{ExpertSum, Ring, Slots};

/// Slots that are borrowed at most.
const LENT: usize = 512;

/// Rows from which on experts are brought. The CPU has those of fewer rows computed before they arrive.
const ROWS: usize = 32;

/// Tokens per expert of a layer from which on nearly all of them are wanted, so that they can be brought before it is known which are.
const ALL: usize = 4;

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
    if routing.ids.len() < ROWS * routing.used.max(1) {
        return false;
    }
    let mut bringer = lock(&ops.bringer);
    if bringer.is_none() {
        *bringer = bringer_for(ops);
    }
    bringer.is_some()
}

/// A ring through borrowed slots, or through its own where there are few.
fn bringer_for(ops: &CudaOps) -> Option<Bringer> {
    let shapes: Vec<_> = lock(&ops.sources).iter().map(|s| s.shapes).collect();
    let slot = shapes.iter().map(Slots::bytes_for).max()?;
    let own = ops.ring.load(Ordering::Relaxed) / slot.max(1);
    let residency = lock(&ops.residency).clone();
    let slots = match residency.filter(|residency| residency.slots().count() / 2 > own) {
        Some(residency) => residency.lend(LENT),
        None => Slots::new(&ops.device, slot, own).ok()?,
    };
    let ring = Ring::new(&ops.device, slots, &shapes).ok()?;
    Some(Bringer { ring, ahead: VecDeque::new(), layer: 0 })
}

impl CudaOps {
    /// Ends the bringing of experts, if there was any: borrowed slots get back what they had.
    pub(super) fn stop_bringing(&self) {
        if lock(&self.bringer).take().is_none() {
            return;
        }
        let Some(residency) = lock(&self.residency).clone() else { return };
        let sources = lock(&self.sources);
        for (layer, expert, slot) in residency.take_back() {
            if let Some(source) = sources.get(layer) {
                residency.slots().fill(&self.device, slot, &source.shapes, source.matrices(expert));
            }
        }
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
    // What the next layer is likely to want follows this one's.
    let pairs = missed.iter().chain(resident.iter().map(|(e, _)| e)).map(|&e| sum.pairs(e).len()).sum::<usize>();
    let next = lock(&ops.sources).get(layer.layer() + 1).map(Arc::clone);
    let next = next.filter(|source| pairs >= ALL * source.host.count);
    let residency = lock(&ops.residency).clone();
    let likely: Vec<usize> = next
        .iter()
        .flat_map(|source| {
            let absent = |&e: &usize| {
                residency.as_ref().is_none_or(|r| r.addresses(layer.layer() + 1, e, &source.shapes).is_none())
            };
            (0..source.host.count).filter(absent).take(bringer.ring.batches() * bringer.ring.batch())
        })
        .collect();
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
