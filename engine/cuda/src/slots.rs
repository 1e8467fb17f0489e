//! Places on the device for experts that are kept there.

use crate::buffer::Memory;
use crate::device::{Arg, Device};
use crate::error::Result;
use crate::pack::Shape;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Addresses of matrices begin at multiples of this.
const ALIGNMENT: usize = 256;

/// Slots of one size, each for the three matrices of an expert.
pub struct Slots {
    memory: Arc<Memory>,
    /// Slots of the memory before the first of these.
    before: usize,
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
    /// There is no room. The device is as usable as before then.
    pub fn new(device: &Device, bytes: usize, count: usize) -> Result<Slots> {
        let bytes = bytes.next_multiple_of(ALIGNMENT);
        let memory = Memory::try_new(device, bytes.saturating_mul(count))?;
        Ok(Slots { memory, before: 0, bytes, count })
    }

    /// The last `count` of these slots, or all if there are fewer. The memory is the same.
    pub fn last(&self, count: usize) -> Slots {
        let count = count.min(self.count);
        let before = self.before + self.count - count;
        Slots { memory: Arc::clone(&self.memory), before, bytes: self.bytes, count }
    }

    /// The first `count` of these slots, or all if there are fewer. The memory is the same.
    pub fn first(&self, count: usize) -> Slots {
        let count = count.min(self.count);
        Slots { memory: Arc::clone(&self.memory), before: self.before, bytes: self.bytes, count }
    }

    /// Where the slots begin, and their bytes.
    pub(crate) fn range(&self) -> (u64, usize) {
        (self.memory.address() + (self.before * self.bytes) as u64, self.count * self.bytes)
    }

    /// Bytes of a slot.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Slots.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Addresses of the matrices of an expert in a slot.
    pub fn addresses(&self, slot: usize, shapes: &[Shape; 3]) -> [u64; 3] {
        let slot = self.before + slot.min(self.count.saturating_sub(1));
        let mut at = self.memory.address() + (slot * self.bytes) as u64;
        shapes.map(|shape| {
            let address = at;
            at += shape.bytes().next_multiple_of(ALIGNMENT) as u64;
            address
        })
    }

    /// Starts the bringing of experts, at most as many as there are slots, from host memory that the device sees: `gate_up` has the
    /// addresses of their gate and up projections in turn, `down` of the down projections, `count` their number.
    pub(crate) fn stream(&self, device: &Device, shapes: &[Shape; 3], [gate_up, down, count]: [Arg; 3]) {
        let [gate, up, out] = shapes;
        if gate != up || !gate.streams() || !out.streams() || Slots::bytes_for(shapes) > self.bytes {
            return;
        }
        let [gate_at, up_at, down_at] = self.addresses(0, shapes);
        self.memory.arg();
        let apart = self.bytes as u64;
        // SAFETY: the matrices of an expert lie behind each other within its slot, as many as there are slots.
        unsafe {
            gate.stream(device, [gate_up, count], [2, self.count], gate_at, [apart, up_at - gate_at]);
            out.stream(device, [down, count], [1, self.count], down_at, [apart, 0]);
        }
    }

    /// How long the link takes for experts at these addresses: gate, up and down projections. As many are brought as there are
    /// slots.
    ///
    /// # Errors
    /// The device failed.
    pub fn time_stream(&self, device: &Device, shapes: &[Shape; 3], experts: &[[u64; 3]]) -> Result<Duration> {
        let experts = experts.get(..self.count).unwrap_or(experts);
        let gate_up: Vec<u64> = experts.iter().flat_map(|&[gate, up, _]| [gate, up]).collect();
        let down: Vec<u64> = experts.iter().map(|&[_, _, down]| down).collect();
        let (gate_up, down) = (Memory::of(device, &gate_up), Memory::of(device, &down));
        let count = Memory::of(device, &[u32::try_from(experts.len()).unwrap_or(0)]);
        let lists = [gate_up.arg(), down.arg(), count.arg()];
        // Kernels are translated, and memory is touched, the first time.
        self.stream(device, shapes, lists);
        device.synchronize()?;
        let began = Instant::now();
        self.stream(device, shapes, lists);
        device.synchronize()?;
        Ok(began.elapsed())
    }

    /// Whether experts of these shapes can be streamed.
    pub fn streams(shapes: &[Shape; 3]) -> bool {
        let [gate, up, down] = shapes;
        gate == up && gate.streams() && down.streams()
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
