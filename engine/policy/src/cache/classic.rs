//! The textbook cache: each access is decided at once, and each miss is inserted at once.
//!
//! This is the mode of the literature and of programs such as libCacheSim, whose hit counts it has: slots of one size,
//! no bypass, no budget, no rounds. LRU, LFU and Belady over one pool have an implementation of their own, constant time
//! an access; everything else runs as a [`Cache`] whose rounds are single accesses, which decides alike.

use super::bits::BitTree;
use super::classic_lfu::ClassicLfu;
use super::engine::{Cache, Start};
use super::error::CacheError;
use super::future::{Future, NEVER};
use super::list::Lists;
use super::params::{Admission, CacheParams, Capacity, Rule, Scope};
use super::shape::{Key, Shape};
use std::sync::Arc;
use strata_trace::Phase;

/// A cache that decides access by access.
#[derive(Debug, Clone)]
pub struct Classic(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Lru(ClassicLru),
    Lfu(ClassicLfu),
    Belady(ClassicBelady),
    Rounds(Box<Cache>, Vec<bool>),
}

impl Classic {
    /// A cache before its first access.
    ///
    /// # Errors
    /// As [`Cache::new`].
    pub fn new(
        shape: &Shape,
        rule: Rule,
        capacity: Capacity,
        scope: Scope,
        start: &Start<'_>,
    ) -> Result<Classic, CacheError> {
        let params = CacheParams {
            scope,
            admission: Admission::EvictFirst,
            copy_rounds: 0,
            count_prefill: true,
            ..CacheParams::new(rule, capacity)
        };
        // Checks everything, and knows what the ranking fills.
        let cache = Cache::new(shape, &params, start)?;
        let residents: Vec<Key> = start.ranking.iter().copied().filter(|&key| cache.holds(key)).collect();
        let kind = match (rule, capacity, scope, &start.future) {
            (Rule::Lru, Capacity::Slots(slots), Scope::Global, _) => {
                Kind::Lru(ClassicLru::new(shape.keys(), slots, &residents))
            }
            (rule, Capacity::Slots(slots), Scope::Global, _) if rule == Rule::plain_lfu() => {
                Kind::Lfu(ClassicLfu::new(shape.keys(), slots, &residents))
            }
            (Rule::Belady { bypass: false }, Capacity::Slots(slots), Scope::Global, Some(future)) => {
                Kind::Belady(ClassicBelady::new(shape.keys(), slots, &residents, future.clone()))
            }
            _ => Kind::Rounds(Box::new(cache), Vec::new()),
        };
        Ok(Classic(kind))
    }

    /// One access, of a key below [`Shape::keys`]; says whether it hits. A key that is not misses and does nothing else.
    pub fn access(&mut self, key: Key) -> bool {
        self.accesses(&[key]) == 1
    }

    /// Several accesses; returns how many of them hit.
    pub fn accesses(&mut self, keys: &[Key]) -> u64 {
        let mut hits = 0;
        match &mut self.0 {
            Kind::Lru(lru) => keys.iter().for_each(|&key| hits += u64::from(lru.access(key))),
            Kind::Lfu(lfu) => keys.iter().for_each(|&key| hits += u64::from(lfu.access(key))),
            Kind::Belady(belady) => keys.iter().for_each(|&key| hits += u64::from(belady.access(key))),
            Kind::Rounds(cache, hit) => {
                for key in keys {
                    hit.clear();
                    cache.round(Phase::Decode, std::slice::from_ref(key), hit);
                    hits += u64::from(hit.first() == Some(&true));
                }
            }
        }
        hits
    }
}

#[derive(Debug, Clone)]
struct ClassicLru {
    /// The residents, the most recent at the front.
    list: Lists,
    resident: Vec<bool>,
    /// Slots that are empty.
    empty: usize,
}

impl ClassicLru {
    fn new(keys: usize, slots: usize, residents: &[Key]) -> ClassicLru {
        let mut lru = ClassicLru { list: Lists::new(keys, 1), resident: vec![false; keys], empty: slots };
        residents.iter().rev().for_each(|&key| _ = lru.access(key));
        lru
    }

    #[inline]
    fn access(&mut self, key: Key) -> bool {
        let Some(resident) = self.resident.get_mut(key as usize) else { return false };
        if *resident {
            self.list.raise(0, key);
            return true;
        }
        if self.empty > 0 {
            self.empty -= 1;
        } else {
            // Without slots nothing is resident, and nothing becomes so.
            let Some(victim) = self.list.back(0) else { return false };
            self.list.remove(victim);
            self.resident[victim as usize] = false;
        }
        self.resident[key as usize] = true;
        self.list.push_front(0, key);
        false
    }
}

/// Residents by their next use. Positions are unique, so there are no ties, and the access at a position hits if and
/// only if that position is in the set: whoever is resident and used there has it as its next use.
#[derive(Debug, Clone)]
struct ClassicBelady {
    next_uses: BitTree,
    future: Arc<Future>,
    position: usize,
    keys: usize,
    empty: usize,
}

impl ClassicBelady {
    fn new(keys: usize, slots: usize, residents: &[Key], future: Arc<Future>) -> ClassicBelady {
        let next_uses = BitTree::new(future.len() + keys);
        let mut belady = ClassicBelady { next_uses, future, position: 0, keys, empty: slots };
        for &key in residents {
            belady.insert(key, belady.future.first(key));
            belady.empty -= 1;
        }
        belady
    }

    fn insert(&mut self, key: Key, next: u32) {
        // Never used again: behind the last access, so that the lower key leaves before the higher.
        let never = self.future.len() + self.keys - 1 - key as usize;
        let place = if next == NEVER { never } else { next as usize };
        self.next_uses.insert(place);
    }

    #[inline]
    fn access(&mut self, key: Key) -> bool {
        // A future of other accesses than these may end before them.
        if key as usize >= self.keys || self.position >= self.future.len() {
            self.position += 1;
            return false;
        }
        let hit = self.next_uses.remove(self.position);
        if !hit {
            if self.empty > 0 {
                self.empty -= 1;
            } else if self.next_uses.pop_last().is_none() {
                self.position += 1;
                return false;
            }
        }
        self.insert(key, self.future.next(self.position));
        self.position += 1;
        hit
    }
}
