//! Belady's rule: what is used again last makes room.
//!
//! With every access inserted and slots of one size, access by access, no rule has more hits. Two settings make it the
//! bound for an engine that may compute a miss without inserting it: with `bypass` an expert is inserted only if it is
//! used again before what leaves for it, and the insert budget goes to those used again soonest. Under a budget, with
//! copies that take rounds, or with sizes that differ, this order is a good one and not provably the best.
//!
//! Only experts that the round missed come in. So it bounds the rules that do the same, which are all but the original
//! engine's: that may bring in an expert missed some rounds ago, which is a guess at the future. Experts never used again leave
//! first, the lower key before the higher.

use super::Policy;
use super::future::Future;
use super::params::{CacheParams, Rule};
use super::shape::{Key, Shape};
use super::store::{State, Store};
use super::victims::{Ranked, Victims, ranked};
use std::sync::Arc;

#[derive(Debug, Clone)]
pub(crate) struct Belady {
    bypass: bool,
    future: Arc<Future>,
    /// Accesses so far.
    position: usize,
    /// The next use of each key.
    next: Vec<u32>,
    wanted: Vec<Key>,
    victims: Victims<u64>,
}

impl Belady {
    pub(crate) fn new(shape: &Shape, params: &CacheParams, future: Arc<Future>) -> Belady {
        Belady {
            bypass: matches!(params.rule, Rule::Belady { bypass: true }),
            position: 0,
            next: (0..shape.keys()).map(|key| future.first(key as Key)).collect(),
            future,
            wanted: Vec::new(),
            victims: Victims::new(),
        }
    }
}

impl Policy for Belady {
    #[inline]
    fn used(&mut self, key: Key, _state: State, _first: bool) {
        self.next[key as usize] = self.future.next(self.position);
        self.position += 1;
    }

    fn skip(&mut self, accesses: usize) {
        self.position += accesses;
    }

    fn decide(&mut self, store: &mut Store, missed: &[Key]) {
        let Belady { next, wanted, victims, bypass, .. } = self;
        wanted.clear();
        wanted.extend_from_slice(missed);
        wanted.sort_unstable_by_key(|&key| (next[key as usize], key));
        victims.gather(store, wanted, |key| ranked(u32::MAX - next[key as usize], key));
        for &key in &*wanted {
            if store.budget_left() == 0 {
                break;
            }
            let mine = next[key as usize];
            let sooner = |leavers: &[u64]| !*bypass || leavers.iter().all(|v| next[v.key() as usize] > mine);
            if victims.make_room(store, key, sooner) {
                store.insert(key);
            }
        }
    }
}
