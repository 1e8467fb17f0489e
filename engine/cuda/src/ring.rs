//! A way for experts from the host's memory to the device while kernels run: two halves, of which one is filled while the other's
//! experts are used.

use crate::buffer::{Memory, blocks};
use crate::device::{Arrival, Device};
use crate::error::Result;
use crate::pack::Shape;
use crate::slots::Slots;
use std::sync::Arc;

/// Halves.
const HALVES: usize = 2;

/// Places for experts that are on their way through the device.
pub struct Ring {
    device: Device,
    slots: Slots,
    /// Where matrices arrive that are then arranged anew; as many bytes for each expert.
    staging: Arc<Memory>,
    staged: usize,
    /// Experts of a half.
    half: usize,
    arrivals: [Arrival; HALVES],
    /// Batches so far.
    batches: usize,
}

/// Bytes of an expert's matrices of this shape that are arranged anew.
fn staged(shape: &Shape) -> usize {
    if shape.is_plain() { 0 } else { shape.file_bytes().next_multiple_of(16) }
}

impl Ring {
    /// Bytes that a ring takes for each expert that it has room for, whose matrices have these shapes.
    pub fn bytes_for(shapes: &[Shape; 3]) -> usize {
        Slots::bytes_for(shapes) + shapes.iter().map(staged).sum::<usize>()
    }

    /// A ring in at most `bytes` bytes for experts of at most these shapes' sizes.
    ///
    /// # Errors
    /// There is no room on the device, or none for a single expert in each half.
    pub fn new(device: &Device, shapes: &[Shape; 3], bytes: usize) -> Result<Ring> {
        let half = bytes / Ring::bytes_for(shapes).max(1) / HALVES;
        let staged = shapes.iter().map(staged).sum();
        let slots = Slots::new(device, Slots::bytes_for(shapes), half * HALVES)?;
        let staging = Memory::new(device, staged * half * HALVES);
        let arrivals = [Arrival::new(device)?, Arrival::new(device)?];
        device.failure().map_or(Ok(()), Err)?;
        Ok(Ring { device: device.clone(), slots, staging, staged, half, arrivals, batches: 0 })
    }

    /// Experts of a batch at most.
    pub fn batch(&self) -> usize {
        self.half
    }

    /// Starts to bring a batch: the bytes of each expert's gate, up and down projections, as the file has them, which must stay where
    /// they are until the batch is [awaited](Ring::wait) and what uses it has ended. Kernels that were started before this may
    /// still use the batch before last. Returns where the experts' matrices will be.
    pub fn bring(&mut self, shapes: &[Shape; 3], experts: &[[&[u8]; 3]]) -> Vec<[u64; 3]> {
        let fits = experts.len() <= self.half
            && Slots::bytes_for(shapes) <= self.slots.bytes()
            && shapes.iter().map(staged).sum::<usize>() <= self.staged
            && experts.iter().all(|e| e.iter().zip(shapes).all(|(bytes, shape)| bytes.len() == shape.file_bytes()));
        if !crate::ops::fits(&self.device, "experts on their way", fits) {
            return Vec::new();
        }
        let at = self.batches % HALVES;
        self.batches += 1;
        let first = at * self.half;
        let places: Vec<_> = (0..experts.len()).map(|e| self.slots.addresses(first + e, shapes)).collect();
        let apart = self.slots.bytes() as u64;
        self.device.beside(|| {
            let mut from = self.staging.address() + (first * self.staged) as u64;
            for (m, shape) in shapes.iter().enumerate() {
                let each = staged(shape);
                for (e, (expert, place)) in experts.iter().zip(&places).enumerate() {
                    let (Some(&bytes), Some(&place)) = (expert.get(m), place.get(m)) else { continue };
                    let to = if each == 0 { place } else { from + (e * each) as u64 };
                    // SAFETY: the slot, or the part of the staging, has room for the matrix. The bytes stay, says the caller.
                    unsafe { self.device.upload(to, bytes) };
                }
                if let (true, Some(place)) = (each > 0, places.first().and_then(|p| p.get(m))) {
                    let count = blocks(experts.len(), 1);
                    // SAFETY: the matrices are there one after another, and each slot has room for one.
                    unsafe { shape.arrange(&self.device, from, each as u64, *place, apart, count) };
                }
                from += (experts.len() * each) as u64;
            }
        });
        if let Some(arrival) = self.arrivals.get(at) {
            arrival.mark();
        }
        places
    }

    /// What is started from now on runs when batch `number`, counted from the ring's first, has arrived; only the last two can
    /// be asked for.
    pub fn wait(&self, number: usize) {
        if let Some(arrival) = self.arrivals.get(number % HALVES) {
            arrival.wait();
        }
    }

    /// The number of the next batch.
    pub fn next(&self) -> usize {
        self.batches
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The memory serves others, on the other stream.
        self.device.wait_beside();
    }
}
