//! A set of small numbers that knows its largest.

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
