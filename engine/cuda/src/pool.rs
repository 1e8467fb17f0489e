//! Device memory that was given back and serves again.

use std::collections::HashMap;

/// Addresses by size. Allocating takes the driver tens of microseconds and waits for the GPU when freeing; a pass asks for
/// some thousand buffers.
#[derive(Default)]
pub(crate) struct Pool {
    free: HashMap<usize, Vec<u64>>,
    /// Bytes taken from the driver and not returned to it.
    pub(crate) held: usize,
}

impl Pool {
    /// The size that a buffer of `bytes` gets: few sizes, so that they are found again, and at most an eighth or 2 MiB too
    /// large.
    pub(crate) fn size(bytes: usize) -> usize {
        let step = (bytes.next_power_of_two() / 16).clamp(512, 2 << 20);
        bytes.max(1).next_multiple_of(step)
    }

    /// Memory of a size of [`Pool::size`].
    pub(crate) fn take(&mut self, size: usize) -> Option<u64> {
        self.free.get_mut(&size)?.pop()
    }

    /// Gives memory of such a size back.
    pub(crate) fn put(&mut self, size: usize, address: u64) {
        self.free.entry(size).or_default().push(address);
    }

    /// Takes everything that is free.
    pub(crate) fn drain(&mut self) -> Vec<u64> {
        let free = std::mem::take(&mut self.free);
        self.held -= free.iter().map(|(size, list)| size * list.len()).sum::<usize>();
        free.into_values().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_few_and_near() {
        for bytes in [0, 1, 511, 512, 513, 5000, 1 << 20, (1 << 20) + 1, 1_382_400, 3_000_000_001] {
            let size = Pool::size(bytes);
            assert!(size >= bytes && size <= bytes + (bytes / 8).clamp(512, 2 << 20), "{bytes}: {size}");
            assert_eq!(Pool::size(size), size);
        }
    }

    #[test]
    fn what_was_given_back_serves_again() {
        let mut pool = Pool { held: 3072, ..Pool::default() };
        assert_eq!(pool.take(1024), None);
        pool.put(1024, 7);
        pool.put(2048, 9);
        assert_eq!((pool.take(1024), pool.take(1024)), (Some(7), None));
        assert_eq!((pool.drain(), pool.held), (vec![9], 1024));
    }
}
