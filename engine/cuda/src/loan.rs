//! Memory of slots that serves for intermediate results for a while.

use crate::slots::Slots;
use std::collections::BTreeMap;

/// Bytes from which on a buffer may be in borrowed memory. What lives long is smaller.
pub(crate) const LEAST: usize = 4 << 20;

/// Borrowed memory, and what of it is free.
pub(crate) struct Loan {
    slots: Slots,
    /// Whether buffers are to be had now.
    open: bool,
    begin: u64,
    bytes: usize,
    /// Sizes by address; no two touch.
    free: BTreeMap<u64, usize>,
    /// Bytes in use, and the most there ever were.
    used: usize,
    most: usize,
}

impl Loan {
    pub(crate) fn new(slots: Slots) -> Loan {
        let (begin, bytes) = slots.range();
        Loan { slots, open: false, begin, bytes, free: BTreeMap::from([(begin, bytes)]), used: 0, most: 0 }
    }

    /// Whether buffers are to be had from now on.
    pub(crate) fn open(&mut self, yes: bool) {
        self.open = yes;
    }

    /// Memory of so many bytes, where it leaves the least.
    pub(crate) fn take(&mut self, size: usize) -> Option<u64> {
        if !self.open {
            return None;
        }
        let fitting = self.free.iter().filter(|&(_, &free)| free >= size);
        let (&address, &free) = fitting.min_by_key(|&(_, &free)| free)?;
        self.free.remove(&address);
        if free > size {
            self.free.insert(address + size as u64, free - size);
        }
        self.used += size;
        self.most = self.most.max(self.used);
        Some(address)
    }

    /// Whether an address is of this memory.
    pub(crate) fn has(&self, address: u64) -> bool {
        address >= self.begin && address < self.begin + self.bytes as u64
    }

    /// Gives back what was taken.
    pub(crate) fn put(&mut self, address: u64, size: usize) {
        self.used = self.used.saturating_sub(size);
        let (mut address, mut size) = (address, size);
        if let Some((&before, &bytes)) = self.free.range(..address).next_back()
            && before + bytes as u64 == address
        {
            self.free.remove(&before);
            (address, size) = (before, bytes + size);
        }
        if let Some(bytes) = self.free.remove(&(address + size as u64)) {
            size += bytes;
        }
        self.free.insert(address, size);
    }

    /// Whether all of it is free.
    pub(crate) fn is_whole(&self) -> bool {
        self.used == 0
    }

    /// The slots, and the most bytes that were in use.
    pub(crate) fn end(self) -> (Slots, usize) {
        (self.slots, self.most)
    }
}
