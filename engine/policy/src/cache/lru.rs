//! Least recently used.
//!
//! The order is that of accesses in time; an expert whose copy begins counts as used then, and while it is under way.

use super::Policy;
use super::list::Lists;
use super::order::Turns;
use super::shape::{Key, Shape};
use super::store::{State, Store};

#[derive(Debug, Clone)]
pub(crate) struct Lru {
    /// One list for each pool: what is resident or coming, the most recent at the front.
    lists: Lists,
    pool_of: Vec<u16>,
    turns: Turns,
}

impl Lru {
    /// Residents are ordered as in `ranking`: the last of it leaves first.
    pub(crate) fn new(shape: &Shape, store: &Store, ranking: &[Key]) -> Lru {
        let pool_of: Vec<u16> = (0..shape.keys()).map(|key| store.pool(key as Key) as u16).collect();
        let mut lists = Lists::new(shape.keys(), store.pools());
        for &key in ranking.iter().rev().filter(|&&key| store.state(key) == State::Resident) {
            lists.push_front(store.pool(key), key);
        }
        Lru { lists, pool_of, turns: Turns::new(shape) }
    }

    /// The least recent of a pool that may leave.
    fn victim(&self, store: &Store, pool: usize) -> Option<Key> {
        let mut key = self.lists.back(pool);
        while let Some(candidate) = key.filter(|&k| !store.may_leave(k)) {
            key = self.lists.before(candidate);
        }
        key
    }
}

impl Policy for Lru {
    #[inline]
    fn used(&mut self, key: Key, state: State, _first: bool) {
        if matches!(state, State::Resident | State::Coming) {
            self.lists.raise(usize::from(self.pool_of[key as usize]), key);
        }
    }

    fn decide(&mut self, store: &mut Store, missed: &[Key]) {
        let (before, after) = missed.split_at(self.turns.start(missed, store.budget_left()));
        for &key in after.iter().chain(before) {
            if store.budget_left() == 0 {
                return;
            }
            if !store.can_fit(key) {
                continue;
            }
            let pool = store.pool(key);
            while !store.fits(key) {
                let Some(victim) = self.victim(store, pool) else { return };
                self.lists.remove(victim);
                store.evict(victim);
            }
            store.insert(key);
            self.lists.push_front(pool, key);
            self.turns.inserted(key);
        }
    }
}
