//! Least frequently used, with decay.
//!
//! Of those used equally often the least recently used one leaves, as in libCacheSim; a newcomer counts as used when it
//! is inserted. Counts are multiplied by the decay every few rounds. Where counts outlive residency, an expert's past
//! speaks for it when it comes back; where they do not, each newcomer starts with what it was used in its round and is
//! soon the next victim, which is why plain LFU does badly on traces with bursts.

use super::Policy;
use super::decay::decay;
use super::params::{CacheParams, Rule};
use super::shape::{Key, Shape};
use super::store::{State, Store};
use super::victims::{Ranked, Victims};

#[derive(Debug, Clone)]
pub(crate) struct Lfu {
    decay: f32,
    every: u32,
    remember: bool,
    bypass: bool,
    rounds: u32,
    counts: Vec<f32>,
    /// When each key was used or inserted last.
    last: Vec<u64>,
    clock: u64,
    wanted: Vec<Key>,
    victims: Victims<u128>,
}

impl Lfu {
    /// Residents start with no use, ordered as in `ranking`: the last of it leaves first.
    pub(crate) fn new(shape: &Shape, params: &CacheParams, ranking: &[Key]) -> Lfu {
        let (decay, every, remember, bypass) = match params.rule {
            Rule::Lfu { decay, every, remember, bypass } => (decay, every, remember, bypass),
            _ => (1.0, 1, false, false),
        };
        let mut last = vec![0; shape.keys()];
        for (i, &key) in ranking.iter().enumerate() {
            last[key as usize] = (ranking.len() - i) as u64;
        }
        Lfu {
            decay,
            every,
            remember,
            bypass,
            rounds: 0,
            counts: vec![0.0; shape.keys()],
            last,
            clock: ranking.len() as u64,
            wanted: Vec::new(),
            victims: Victims::new(),
        }
    }
}

impl Policy for Lfu {
    #[inline]
    fn used(&mut self, key: Key, state: State, _first: bool) {
        if !self.remember && state == State::Leaving {
            return;
        }
        self.counts[key as usize] += 1.0;
        self.clock += 1;
        self.last[key as usize] = self.clock;
    }

    fn decide(&mut self, store: &mut Store, missed: &[Key]) {
        let Lfu { counts, last, wanted, victims, .. } = self;
        wanted.clear();
        wanted.extend_from_slice(missed);
        // The most used first; of those used equally often the most recent ones, as these would stay longest.
        wanted.sort_unstable_by_key(|&key| std::cmp::Reverse((counts[key as usize].to_bits(), last[key as usize])));
        // Counts are not negative, so their bits are ordered as they are.
        let rank = |key: Key| {
            let (count, last) = (counts[key as usize].to_bits(), last[key as usize]);
            u128::from(count) << 96 | u128::from(last) << 32 | u128::from(key)
        };
        victims.gather(store, wanted, rank);
        for &key in &*wanted {
            if store.budget_left() == 0 {
                break;
            }
            let count = counts[key as usize];
            let worth = |leavers: &[u128]| !self.bypass || leavers.iter().all(|v| counts[v.key() as usize] <= count);
            if victims.make_room(store, key, worth) {
                store.insert(key);
            }
        }
        if !self.remember {
            // What is neither resident nor coming has no count.
            for &key in &*wanted {
                if store.state(key) == State::Absent {
                    counts[key as usize] = 0.0;
                }
            }
            for &left in victims.left() {
                counts[left as usize] = 0.0;
            }
        }
        self.rounds += 1;
        if self.rounds >= self.every {
            self.rounds = 0;
            decay(&mut self.counts, self.decay);
        }
    }
}
