//! Memory of slots that serves for intermediate results for a while.

use crate::slots::Slots;
use std::collections::BTreeMap;

/// Bytes from which on a buffer may be in borrowed memory. What lives long is smaller.
pub(crate) const LEAST: usize = 4 << 20;

/// Borrowed memory.
pub(crate) struct Loan {
    slots: Slots,
    /// Whether buffers are to be had now.
    open: bool,
    room: Room,
}

impl Loan {
    pub(crate) fn new(slots: Slots) -> Loan {
        let (begin, bytes) = slots.range();
        Loan { slots, open: false, room: Room::new(begin, bytes) }
    }

    /// Whether buffers are to be had from now on.
    pub(crate) fn open(&mut self, yes: bool) {
        self.open = yes;
    }

    /// Memory of so many bytes, if it is to be had.
    pub(crate) fn take(&mut self, size: usize) -> Option<u64> {
        if self.open { self.room.take(size) } else { None }
    }

    /// Whether an address is of this memory.
    pub(crate) fn has(&self, address: u64) -> bool {
        address >= self.room.begin && address < self.room.begin + self.room.bytes as u64
    }

    /// Gives back what was taken.
    pub(crate) fn put(&mut self, address: u64, size: usize) {
        self.room.put(address, size);
    }

    /// Whether all of it is free.
    pub(crate) fn is_whole(&self) -> bool {
        self.room.used == 0
    }

    /// The slots, and the most bytes that were in use.
    pub(crate) fn end(self) -> (Slots, usize) {
        (self.slots, self.room.most)
    }
}

/// A range of addresses, and what of it is free.
struct Room {
    begin: u64,
    bytes: usize,
    /// Sizes by address; no two touch.
    free: BTreeMap<u64, usize>,
    /// Bytes in use, and the most there ever were.
    used: usize,
    most: usize,
}

impl Room {
    fn new(begin: u64, bytes: usize) -> Room {
        Room { begin, bytes, free: BTreeMap::from([(begin, bytes)]), used: 0, most: 0 }
    }

    /// So many bytes, where they leave the least.
    fn take(&mut self, size: usize) -> Option<u64> {
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

    /// Gives back what was taken.
    fn put(&mut self, address: u64, size: usize) {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_lies_apart_and_what_comes_back_is_one_again() {
        let mut room = Room::new(4096, 1000);
        let mut held: Vec<(u64, usize)> = Vec::new();
        let mut seed = 12345u64;
        for _ in 0..2000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let size = (seed >> 40) as usize % 200 + 1;
            if seed >> 63 == 0 && !held.is_empty() {
                let (address, size) = held.swap_remove((seed >> 33) as usize % held.len());
                room.put(address, size);
            } else if let Some(address) = room.take(size) {
                assert!(address >= 4096 && address + size as u64 <= 5096);
                let apart =
                    |&(other, len): &(u64, usize)| address + size as u64 <= other || other + len as u64 <= address;
                assert!(held.iter().all(apart), "{address} and {size}");
                held.push((address, size));
            }
            let free: usize = room.free.values().sum();
            assert_eq!((free + room.used, room.used), (1000, held.iter().map(|h| h.1).sum()));
        }
        assert!(room.most > 500);
        held.into_iter().for_each(|(address, size)| room.put(address, size));
        assert_eq!(room.free, BTreeMap::from([(4096, 1000)]));
        assert_eq!((room.take(1001), room.take(1000)), (None, Some(4096)));
    }

    #[test]
    fn the_place_is_where_it_leaves_least() {
        let mut room = Room::new(0, 100);
        let taken: Vec<u64> = (0..4).filter_map(|_| room.take(25)).collect();
        assert_eq!(taken, [0, 25, 50, 75]);
        room.put(0, 25);
        room.put(50, 25);
        room.put(75, 25);
        assert_eq!((room.take(20), room.take(40), room.take(10)), (Some(0), Some(50), Some(90)));
    }
}
