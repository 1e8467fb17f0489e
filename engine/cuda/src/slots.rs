//! Places on the device for experts that are kept there.

use crate::buffer::Memory;
use crate::device::Device;
use crate::error::Result;
use crate::pack::Shape;
use std::sync::Arc;

/// Addresses of matrices begin at multiples of this.
const ALIGNMENT: usize = 256;

/// Slots of one size, each for the three matrices of an expert.
pub struct Slots {
    memory: Arc<Memory>,
    bytes: usize,
    count: usize,
}

impl Slots {
    /// Bytes of a slot for matrices of these shapes.
    pub fn bytes_for(shapes: &[Shape; 3]) -> usize {
        shapes.iter().map(|shape| shape.bytes().next_multiple_of(ALIGNMENT)).sum()
    }

    /// `count` slots of `bytes` bytes, which is made a multiple of what addresses need.
    ///
    /// # Errors
    /// There is no room.
    pub fn new(device: &Device, bytes: usize, count: usize) -> Result<Slots> {
        let bytes = bytes.next_multiple_of(ALIGNMENT);
        let memory = Memory::new(device, bytes * count);
        device.failure().map_or(Ok(Slots { memory, bytes, count }), Err)
    }

    /// Slots.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Addresses of the matrices of an expert in a slot.
    pub fn addresses(&self, slot: usize, shapes: &[Shape; 3]) -> [u64; 3] {
        let mut at = self.memory.address() + (slot.min(self.count.saturating_sub(1)) * self.bytes) as u64;
        shapes.map(|shape| {
            let address = at;
            at += shape.bytes().next_multiple_of(ALIGNMENT) as u64;
            address
        })
    }

    /// Copies an expert's matrices, as the file has them, into a slot; if they do not fit, nothing is copied.
    pub fn fill(&self, device: &Device, slot: usize, shapes: &[Shape; 3], matrices: [&[u8]; 3]) {
        let whole = shapes.iter().zip(matrices).all(|(shape, bytes)| shape.file_bytes() == bytes.len());
        if slot >= self.count || !whole || Slots::bytes_for(shapes) > self.bytes {
            return;
        }
        for ((address, shape), bytes) in self.addresses(slot, shapes).into_iter().zip(shapes).zip(matrices) {
            // SAFETY: the three lie behind each other within the slot.
            unsafe { shape.bring(device, bytes, address) };
        }
    }
}
