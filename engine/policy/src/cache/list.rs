//! Doubly linked lists of keys, all in one array.
//!
//! A key is in one list at most. Each list has a sentinel behind the keys' nodes, which links its front and its back,
//! so that no operation has a special case.

use super::shape::Key;

/// Several lists over the same keys.
#[derive(Debug, Clone)]
pub(crate) struct Lists {
    /// Of each key, then of each list's sentinel: the node before and the node after.
    links: Vec<[u32; 2]>,
    keys: u32,
}

impl Lists {
    /// `lists` empty lists over `keys` keys, which [`Shape`](super::Shape) keeps below 2^24.
    pub(crate) fn new(keys: usize, lists: usize) -> Lists {
        Lists { links: (0..(keys + lists) as u32).map(|node| [node, node]).collect(), keys: keys as u32 }
    }

    #[inline]
    fn join(&mut self, before: u32, after: u32) {
        self.links[before as usize][1] = after;
        self.links[after as usize][0] = before;
    }

    /// Takes a key out of its list; does nothing if it is in none.
    #[inline]
    pub(crate) fn remove(&mut self, key: Key) {
        let [before, after] = self.links[key as usize];
        self.join(before, after);
        self.links[key as usize] = [key, key];
    }

    /// Puts a key, which is in no list, at the front of one.
    #[inline]
    pub(crate) fn push_front(&mut self, list: usize, key: Key) {
        let sentinel = self.keys + list as u32;
        let front = self.links[sentinel as usize][1];
        self.links[key as usize] = [sentinel, front];
        self.links[sentinel as usize][1] = key;
        self.links[front as usize][0] = key;
    }

    /// Moves a key, which is in the list, to its front.
    #[inline]
    pub(crate) fn raise(&mut self, list: usize, key: Key) {
        let [before, after] = self.links[key as usize];
        self.join(before, after);
        self.push_front(list, key);
    }

    /// The key at the back of a list.
    #[inline]
    pub(crate) fn back(&self, list: usize) -> Option<Key> {
        self.before(self.keys + list as u32)
    }

    /// The key before another one of its list.
    #[inline]
    pub(crate) fn before(&self, key: Key) -> Option<Key> {
        let before = self.links[key as usize][0];
        (before < self.keys).then_some(before)
    }
}
