//! Brings experts into slots while kernels run that do not use those.

use crate::buffer::Memory;
use crate::device::{Arrival, Device};
use crate::error::Result;
use crate::pack::Shape;
use crate::ring::staged;
use crate::slots::Slots;
use std::sync::Arc;

/// Experts that are in the staging at a time.
const STAGED: usize = 8;

/// What brings experts from the host's memory into slots.
pub struct Courier {
    device: Device,
    staging: Arc<Memory>,
    /// Bytes of an expert's matrices that are arranged anew.
    staged: usize,
    arrival: Arrival,
}

impl Courier {
    /// For experts of these shapes.
    ///
    /// # Errors
    /// There is no room on the device, which is as usable as before then.
    pub fn new(device: &Device, shapes: &[[Shape; 3]]) -> Result<Courier> {
        let staged = shapes.iter().map(|s| s.iter().map(staged).sum()).max().unwrap_or(0);
        let staging = Memory::try_new(device, staged * STAGED)?;
        Ok(Courier { device: device.clone(), staging, staged, arrival: Arrival::new(device)? })
    }

    /// Starts to bring experts: each one's slot, the shapes and the bytes of its gate, up and down projections, as the file has them,
    /// which must stay where they are. Nothing that is started from now on may use the slots until it was [waited](Courier::wait).
    pub fn send<'a>(&mut self, slots: &Slots, experts: impl Iterator<Item = (usize, [Shape; 3], [&'a [u8]; 3])>) {
        self.device.beside(|| {
            for (turn, (slot, shapes, matrices)) in experts.enumerate() {
                let whole = shapes.iter().zip(matrices).all(|(shape, bytes)| shape.file_bytes() == bytes.len());
                let fits = slot < slots.count()
                    && Slots::bytes_for(&shapes) <= slots.bytes()
                    && shapes.iter().map(staged).sum::<usize>() <= self.staged;
                if !crate::ops::fits(&self.device, "an expert on its way to a slot", whole && fits) {
                    return;
                }
                let mut from = self.staging.address() + (turn % STAGED * self.staged) as u64;
                for ((shape, bytes), to) in shapes.iter().zip(matrices).zip(slots.addresses(slot, &shapes)) {
                    let each = staged(shape);
                    // SAFETY: the slot, and the part of the staging that copies before this have left, have room for the matrix.
                    unsafe {
                        self.device.upload(if each == 0 { to } else { from }, bytes);
                        if each > 0 {
                            shape.arrange(&self.device, from, each as u64, to, shape.bytes() as u64, 1);
                        }
                    }
                    from += each as u64;
                }
            }
        });
        self.arrival.mark();
    }

    /// What is started from now on runs when all that was sent has arrived.
    pub fn wait(&self) {
        self.arrival.wait();
    }
}

impl Drop for Courier {
    fn drop(&mut self) {
        // The memory serves others, on the other stream.
        self.device.wait_beside();
    }
}
