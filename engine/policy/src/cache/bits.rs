//! Sets of small numbers, as bits.

use super::shape::Key;
use std::ops::Range;

/// A set of keys that is gone through in their order, which is the order of all arrays by key.
#[derive(Debug, Clone)]
pub(crate) struct KeySet(Vec<u64>);

impl KeySet {
    /// No key, with room for so many.
    pub(crate) fn new(keys: usize) -> KeySet {
        KeySet(vec![0; keys.div_ceil(64)])
    }

    #[inline]
    pub(crate) fn insert(&mut self, key: Key) {
        self.0[key as usize / 64] |= 1 << (key % 64);
    }

    #[inline]
    pub(crate) fn remove(&mut self, key: Key) {
        self.0[key as usize / 64] &= !(1 << (key % 64));
    }

    #[inline]
    pub(crate) fn contains(&self, key: Key) -> bool {
        self.0[key as usize / 64] >> (key % 64) & 1 == 1
    }

    /// Becomes equal to another set over the same keys.
    pub(crate) fn copy_from(&mut self, other: &KeySet) {
        self.0.copy_from_slice(&other.0);
    }

    /// Calls for each key of a range, in order.
    #[inline]
    pub(crate) fn for_each(&self, range: Range<usize>, mut visit: impl FnMut(Key)) {
        for word in range.start / 64..range.end.div_ceil(64) {
            let mut bits = self.0[word];
            // What of the word lies before the range, and behind it.
            if word * 64 < range.start {
                bits &= u64::MAX << (range.start % 64);
            }
            if range.end < (word + 1) * 64 {
                bits &= !(u64::MAX << (range.end % 64));
            }
            while bits != 0 {
                visit((word * 64) as Key + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
    }
}

/// Numbers below a bound as a tree of bits: each bit of a level says whether a word of the level below has any. For ten
/// million numbers that is four levels and 1.3 MB, which stays in a core's cache.
#[derive(Debug, Clone)]
pub(crate) struct BitTree {
    /// From the leaves to a root of one word.
    levels: Vec<Vec<u64>>,
}

impl BitTree {
    /// No number, with room for those below `bound`.
    pub(crate) fn new(bound: usize) -> BitTree {
        let mut levels = Vec::new();
        let mut words = bound.div_ceil(64).max(1);
        loop {
            levels.push(vec![0; words]);
            if words == 1 {
                return BitTree { levels };
            }
            words = words.div_ceil(64);
        }
    }

    /// Adds a number, which must be below the bound.
    #[inline]
    pub(crate) fn insert(&mut self, mut number: usize) {
        for level in &mut self.levels {
            let (word, bit) = (number / 64, 1 << (number % 64));
            let was_empty = level[word] == 0;
            level[word] |= bit;
            if !was_empty {
                return;
            }
            number = word;
        }
    }

    /// Takes a number out; says whether it was in.
    #[inline]
    pub(crate) fn remove(&mut self, mut number: usize) -> bool {
        if self.levels[0][number / 64] & 1 << (number % 64) == 0 {
            return false;
        }
        for level in &mut self.levels {
            let (word, bit) = (number / 64, 1 << (number % 64));
            level[word] &= !bit;
            if level[word] != 0 {
                return true;
            }
            number = word;
        }
        true
    }

    /// Takes the largest number out.
    #[inline]
    pub(crate) fn pop_last(&mut self) -> Option<usize> {
        let mut number = 0;
        for level in self.levels.iter().rev() {
            let word = level[number];
            if word == 0 {
                return None;
            }
            number = number * 64 + 63 - word.leading_zeros() as usize;
        }
        self.remove(number);
        Some(number)
    }
}
