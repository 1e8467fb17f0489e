//! A way for experts from the host's memory to the device while kernels run: places for some batches, of which some are filled while
//! another's experts are used.

use crate::buffer::{Memory, blocks};
use crate::device::{Arrival, Device};
use crate::error::{Error, Result};
use crate::pack::Shape;
use crate::slots::Slots;
use std::sync::Arc;

/// Batches that there are places for, unless slots are fewer.
const BATCHES: usize = 16;

/// Places for experts that are on their way through the device.
pub struct Ring {
    device: Device,
    slots: Slots,
    /// Where matrices arrive that are then arranged anew; as many bytes for each expert of a batch.
    staging: Arc<Memory>,
    staged: usize,
    /// Experts of a batch.
    batch: usize,
    arrivals: Vec<Arrival>,
    /// Batches so far.
    begun: usize,
}

/// Bytes of an expert's matrices of this shape that are arranged anew.
pub(crate) fn staged(shape: &Shape) -> usize {
    if shape.is_plain() { 0 } else { shape.file_bytes().next_multiple_of(16) }
}

impl Ring {
    /// Bytes of staging that a ring takes besides its slots.
    pub fn staging_for<'a>(shapes: impl IntoIterator<Item = &'a [Shape; 3]>, slots: usize) -> usize {
        let bytes = |shapes: &[Shape; 3]| shapes.iter().map(staged).sum::<usize>();
        (slots / BATCHES).max(1) * shapes.into_iter().map(bytes).max().unwrap_or(0)
    }

    /// A ring through slots, for experts of these shapes.
    ///
    /// # Errors
    /// There is no room on the device, which is as usable as before then, or there are too few slots.
    pub fn new(device: &Device, slots: Slots, shapes: &[[Shape; 3]]) -> Result<Ring> {
        let (batch, batches) = ((slots.count() / BATCHES).max(1), slots.count().min(BATCHES));
        if batches < 2 {
            return Err(Error::Internal(format!("a ring of {} slots", slots.count())));
        }
        let staged = Ring::staging_for(shapes, BATCHES);
        let staging = Memory::try_new(device, staged * batch)?;
        let arrivals = (0..batches).map(|_| Arrival::new(device)).collect::<Result<Vec<_>>>()?;
        Ok(Ring { device: device.clone(), slots, staging, staged, batch, arrivals, begun: 0 })
    }

    /// Experts of a batch at most.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Batches that can be under way at a time.
    pub fn batches(&self) -> usize {
        self.arrivals.len()
    }

    /// Starts to bring a batch: the bytes of each expert's gate, up and down projections, as the file has them, which must stay where
    /// they are until the batch is [awaited](Ring::wait) and what uses it has ended. It takes the place of the one so many
    /// batches before that there are places for, which nothing that is started from now on may use. Returns where the experts'
    /// matrices will be.
    pub fn bring(&mut self, shapes: &[Shape; 3], experts: &[[&[u8]; 3]]) -> Vec<[u64; 3]> {
        let fits = experts.len() <= self.batch
            && Slots::bytes_for(shapes) <= self.slots.bytes()
            && shapes.iter().map(staged).sum::<usize>() <= self.staged
            && experts.iter().all(|e| e.iter().zip(shapes).all(|(bytes, shape)| bytes.len() == shape.file_bytes()));
        if !crate::ops::fits(&self.device, "experts on their way", fits) {
            return Vec::new();
        }
        let at = self.begun % self.batches();
        self.begun += 1;
        let first = at * self.batch;
        let places: Vec<_> = (0..experts.len()).map(|e| self.slots.addresses(first + e, shapes)).collect();
        let apart = self.slots.bytes() as u64;
        self.device.beside(|| {
            let mut from = self.staging.address();
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

    /// What is started from now on runs when batch `number`, counted from the ring's first, has arrived.
    pub fn wait(&self, number: usize) {
        if let Some(arrival) = self.arrivals.get(number % self.batches()) {
            arrival.wait();
        }
    }

    /// The number of the next batch.
    pub fn next(&self) -> usize {
        self.begun
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The memory serves others, on the other stream.
        self.device.wait_beside();
    }
}
