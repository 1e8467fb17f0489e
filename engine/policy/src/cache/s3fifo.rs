//! S3-FIFO (Yang, Zhang, Qiu, Yue, Vinayak: FIFO queues are all you need for cache eviction, SOSP 2023).
//!
//! Chosen over ARC: most experts of a round are used once and not again soon, and the layers pass by like a scan, which
//! is what its small queue keeps from the main one. Its queues are measured in bytes as well as in slots, where ARC's
//! target size is adapted by one entry at a time and has no meaning for entries of different sizes.
//!
//! Newcomers enter a small queue of a tenth of the room, or the main one if they left the small queue lately. Uses are
//! counted up to 3. What comes to the end of the small queue goes on to the main queue if it was used twice since it
//! came, and else leaves and is remembered; what comes to the end of the main queue goes round again with one use less
//! while it has any. Constants and order as in libCacheSim, whose hit counts it has; so until something leaves, what the
//! small queue has no room for enters the main one. What may not leave now, because the round uses it or its copy is
//! under way, goes round without losing a use.

use super::Policy;
use super::list::Lists;
use super::order::Turns;
use super::shape::{Key, Shape};
use super::store::{State, Store};

/// The small queue's share of the room is one in so many.
const SMALL_SHARE: u64 = 10;
/// Uses since insertion that lead to the main queue.
const PROMOTED: u8 = 2;
/// Uses are counted up to here.
const MOST_USES: u8 = 3;

const NOWHERE: u8 = u8::MAX;
const SMALL: u8 = 0;
const MAIN: u8 = 1;
const GHOST: u8 = 2;

#[derive(Debug, Clone)]
pub(crate) struct S3Fifo {
    /// Three lists for each pool: small, main, and what left the small one.
    lists: Lists,
    /// The list of each key within its pool.
    place: Vec<u8>,
    uses: Vec<u8>,
    /// Units in each list.
    units: Vec<[u64; 3]>,
    /// Units of each pool.
    room: Vec<u64>,
    /// Whether something has left each pool.
    evicts: Vec<bool>,
    /// For the small and the main queue of each pool, whether at this boundary nothing in it may leave.
    stuck: Vec<[bool; 2]>,
    turns: Turns,
}

impl S3Fifo {
    /// Residents start in the main queue, ordered as in `ranking`: the last of it comes to its end first.
    pub(crate) fn new(shape: &Shape, store: &Store, rooms: &[u64], ranking: &[Key]) -> S3Fifo {
        let mut s3 = S3Fifo {
            lists: Lists::new(shape.keys(), 3 * store.pools()),
            place: vec![NOWHERE; shape.keys()],
            uses: vec![0; shape.keys()],
            units: vec![[0; 3]; store.pools()],
            room: rooms.to_vec(),
            evicts: vec![false; store.pools()],
            stuck: vec![[false; 2]; store.pools()],
            turns: Turns::new(shape),
        };
        for &key in ranking.iter().rev().filter(|&&key| store.state(key) == State::Resident) {
            s3.push(store, key, MAIN);
        }
        s3
    }

    fn push(&mut self, store: &Store, key: Key, list: u8) {
        let pool = store.pool(key);
        self.lists.push_front(3 * pool + usize::from(list), key);
        self.place[key as usize] = list;
        self.units[pool][usize::from(list)] += store.cost(key);
    }

    fn take(&mut self, store: &Store, key: Key) {
        self.lists.remove(key);
        let list = std::mem::replace(&mut self.place[key as usize], NOWHERE);
        self.units[store.pool(key)][usize::from(list)] -= store.cost(key);
    }

    /// Takes one out of the queues of a pool that holds one that may leave.
    fn victim(&mut self, store: &Store, pool: usize) -> Option<Key> {
        let list = |which: u8| 3 * pool + usize::from(which);
        // Ends: each pass takes a use, promotes, or adds to what was kept.
        let (mut kept, mut in_row) = (0, 0);
        let most = self.units[pool][usize::from(SMALL)] + self.units[pool][usize::from(MAIN)];
        let mut from = NOWHERE;
        while kept <= most {
            let [small, main, _] = self.units[pool];
            // A queue whose turn it is keeps it until something leaves or it is empty.
            let before = from;
            if from != MAIN && small == 0 || from == NOWHERE && main > self.main_room(pool) {
                from = MAIN;
            } else if from != SMALL && main == 0 || from == NOWHERE {
                from = SMALL;
            }
            let queue = self.units[pool][usize::from(from)];
            if from != before && self.stuck[pool][usize::from(from)] {
                kept += whole_turns(queue, kept, most);
            }
            in_row = if from == before { in_row } else { 0 };
            let key = self.lists.back(list(from))?;
            let uses = self.uses[key as usize];
            self.take(store, key);
            if !store.may_leave(key) {
                kept += store.cost(key);
                in_row += store.cost(key);
                self.push(store, key, from);
                if in_row == queue {
                    self.stuck[pool][usize::from(from)] = true;
                    kept += whole_turns(queue, kept, most);
                }
                continue;
            }
            in_row = 0;
            if from == SMALL && uses >= PROMOTED {
                self.uses[key as usize] = 0;
                self.stuck[pool][usize::from(MAIN)] = false;
                self.push(store, key, MAIN);
            } else if from == MAIN && uses > 0 {
                self.uses[key as usize] = uses - 1;
                self.push(store, key, MAIN);
            } else {
                if from == SMALL {
                    self.remember(store, pool, key);
                }
                return Some(key);
            }
        }
        // The queue whose turn it is holds only what may not leave.
        let mut key = None;
        for which in [SMALL, MAIN] {
            key = key.or_else(|| {
                let mut at = self.lists.back(list(which));
                while let Some(candidate) = at.filter(|&k| !store.may_leave(k)) {
                    at = self.lists.before(candidate);
                }
                at
            });
        }
        self.take(store, key?);
        key
    }

    /// Units that the small queue of a pool should hold.
    fn small_room(&self, pool: usize) -> u64 {
        self.room[pool] / SMALL_SHARE
    }

    /// Units that the main queue of a pool may hold before it is its turn to give some up.
    fn main_room(&self, pool: usize) -> u64 {
        self.room[pool] - self.small_room(pool)
    }

    /// Notes that a key left the small queue, and forgets the oldest beyond nine tenths of the room.
    fn remember(&mut self, store: &Store, pool: usize, key: Key) {
        self.push(store, key, GHOST);
        let most = self.room[pool] * (SMALL_SHARE - 1) / SMALL_SHARE;
        while self.units[pool][usize::from(GHOST)] > most {
            let Some(oldest) = self.lists.back(3 * pool + usize::from(GHOST)) else { return };
            self.take(store, oldest);
        }
    }
}

/// Of a queue of which nothing may leave, the units that go by while it is turned whole times: it is then as it was
/// before, so they need not be moved. No more than leave `kept` at `most`.
fn whole_turns(queue: u64, kept: u64, most: u64) -> u64 {
    most.saturating_sub(kept).checked_div(queue).unwrap_or(0) * queue
}

impl Policy for S3Fifo {
    #[inline]
    fn used(&mut self, key: Key, state: State, _first: bool) {
        if matches!(state, State::Resident | State::Coming) {
            let uses = &mut self.uses[key as usize];
            *uses = (*uses + 1).min(MOST_USES);
        }
    }

    fn decide(&mut self, store: &mut Store, missed: &[Key]) {
        self.stuck.fill([false; 2]);
        let (before, after) = missed.split_at(self.turns.start(missed, store.budget_left()));
        for &key in after.iter().chain(before) {
            if store.budget_left() == 0 {
                return;
            }
            if !store.can_fit(key) {
                continue;
            }
            let pool = store.pool(key);
            // Looked up before victims are remembered, which may push it out.
            let known = self.place[key as usize] == GHOST;
            if known {
                self.take(store, key);
            }
            while !store.fits(key) {
                let Some(victim) = self.victim(store, pool) else { return };
                store.evict(victim);
                self.evicts[pool] = true;
            }
            let filling = !self.evicts[pool] && self.units[pool][usize::from(SMALL)] >= self.small_room(pool);
            let queue = if known || filling { MAIN } else { SMALL };
            store.insert(key);
            self.uses[key as usize] = 0;
            self.push(store, key, queue);
            self.turns.inserted(key);
        }
    }
}
