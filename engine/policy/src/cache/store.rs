//! What is resident, what is on its way, and how much room there is.
//!
//! Rules decide; this keeps the books for all of them: states, room, copies under way, the budget, and what to report.
//! Room is counted in units: one for each expert where the capacity is a number of slots, its bytes otherwise.

use super::bits::KeySet;
use super::params::{Admission, CacheParams, Capacity, Rule, Scope};
use super::shape::{Key, Shape};
use std::collections::VecDeque;
use std::ops::Range;
use strata_trace::Move;

/// Where an expert stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Not in the cache.
    Absent,
    /// Its copy is under way; an access misses.
    Coming,
    /// In the cache.
    Resident,
    /// In the cache until the copy of what takes its place has landed.
    Leaving,
}

impl State {
    #[inline]
    pub(crate) fn hits(self) -> bool {
        matches!(self, State::Resident | State::Leaving)
    }
}

/// A change of what is resident. Where the newcomer lands when its victim leaves, both are in one change; where several
/// victims leave for one newcomer, the last of them is with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// What became resident.
    pub came: Option<Key>,
    /// What stopped being resident.
    pub left: Option<Key>,
}

impl Change {
    /// The change as a trace records it. Its layer is the newcomer's, or else that of what left.
    pub fn to_move(self, shape: &Shape) -> Move {
        let pair = |key| (shape.layer_of(key) as u16, shape.expert_of(key) as u16);
        let (came, left) = (self.came.map(pair), self.left.map(pair));
        let layer = came.or(left).map_or(0, |(layer, _)| layer);
        Move { layer, came: came.map(|(_, expert)| expert), left }
    }
}

/// What is known of a key on every access, in one word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    /// The round that used it last, of those that count.
    pub(crate) used: u32,
    pub(crate) pool: u16,
    pub(crate) state: State,
}

#[derive(Debug, Clone, Default)]
struct Pool {
    /// Units that are neither taken nor promised.
    free: u64,
    /// Units of what is resident and not leaving.
    resident: u64,
    /// Of these, what may leave.
    idle: u64,
}

/// A copy under way.
#[derive(Debug, Clone, Copy)]
struct Copy {
    key: Key,
    /// The boundary at which it lands.
    lands: u64,
    /// How many of `leaving` leave then.
    victims: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Store {
    pub(crate) entries: Vec<Entry>,
    /// The current round; 0 before the first.
    pub(crate) now: u32,
    /// Boundaries passed.
    boundaries: u64,
    /// Units of each key; empty = one each.
    cost: Vec<u64>,
    /// The cheapest and the dearest key's units.
    costs: (u64, u64),
    pools: Vec<Pool>,
    /// Keys of each pool.
    width: usize,
    /// What is resident and not leaving.
    resident: KeySet,
    /// Of these, what may leave: what the round has not used, and what was resident when it began.
    idle: KeySet,
    copies: VecDeque<Copy>,
    leaving: VecDeque<Key>,
    /// Victims of the insertion that is being made.
    victims: Vec<Key>,
    changes: Vec<Change>,
    begun: Vec<Key>,
    budget: u32,
    budget_left: u32,
    copy_rounds: u64,
    wait: bool,
}

impl Store {
    pub(crate) fn new(shape: &Shape, params: &CacheParams) -> Store {
        let layers = shape.layers();
        let (pools, keys) = (if params.scope == Scope::Global { 1 } else { layers }, shape.keys());
        let infinite = params.rule == Rule::Infinite;
        let (room, in_bytes) = match params.capacity {
            _ if infinite => (keys as u64, false),
            Capacity::Slots(n) => (n as u64, false),
            Capacity::Bytes(n) => (n, true),
        };
        let cost: Vec<u64> = (0..keys).filter(|_| in_bytes).map(|key| shape.bytes_of(key as Key)).collect();
        // More room than the model fills is of no use, and sums of it could overflow.
        let room = room.min(if in_bytes { cost.iter().sum() } else { keys as u64 });
        let share = |pool: usize| {
            let left_over = u64::from((pool as u64) < room % pools as u64);
            room / pools as u64 + left_over
        };
        let pool_of = |key: usize| if pools == 1 { 0 } else { shape.layer_of(key as Key) as u16 };
        Store {
            entries: (0..keys).map(|key| Entry { used: 0, pool: pool_of(key), state: State::Absent }).collect(),
            now: 0,
            boundaries: 0,
            costs: (cost.iter().copied().min().unwrap_or(1), cost.iter().copied().max().unwrap_or(1)),
            cost,
            pools: (0..pools).map(|p| Pool { free: share(p), ..Pool::default() }).collect(),
            width: keys / pools,
            resident: KeySet::new(keys),
            idle: KeySet::new(keys),
            copies: VecDeque::new(),
            leaving: VecDeque::new(),
            victims: Vec::new(),
            changes: Vec::new(),
            begun: Vec::new(),
            budget: if infinite { u32::MAX } else { params.insert_budget.unwrap_or(u32::MAX) },
            budget_left: 0,
            copy_rounds: if infinite { 0 } else { u64::from(params.copy_rounds) },
            wait: params.admission == Admission::WaitForCopy,
        }
    }

    /// Puts a key in before the first round; says whether there was room.
    pub(crate) fn start_with(&mut self, key: Key) -> bool {
        if self.state(key) != State::Absent || !self.fits(key) {
            return false;
        }
        let pool = self.pool(key);
        self.pools[pool].free -= self.cost(key);
        self.settle(key);
        true
    }

    #[inline]
    pub(crate) fn state(&self, key: Key) -> State {
        self.entries[key as usize].state
    }

    #[inline]
    pub(crate) fn pool(&self, key: Key) -> usize {
        usize::from(self.entries[key as usize].pool)
    }

    #[inline]
    pub(crate) fn cost(&self, key: Key) -> u64 {
        if self.cost.is_empty() { 1 } else { self.cost[key as usize] }
    }

    /// The cheapest and the dearest expert's units.
    pub(crate) fn costs(&self) -> (u64, u64) {
        self.costs
    }

    pub(crate) fn pools(&self) -> usize {
        self.pools.len()
    }

    /// Units of a pool that nothing takes.
    pub(crate) fn free(&self, pool: usize) -> u64 {
        self.pools[pool].free
    }

    /// The keys of a pool.
    pub(crate) fn keys_of(&self, pool: usize) -> Range<usize> {
        pool * self.width..(pool + 1) * self.width
    }

    /// The keys that may leave now: resident, not leaving already, not used by this round, and not landed just now.
    pub(crate) fn idle(&self) -> &KeySet {
        &self.idle
    }

    /// Whether a key may leave now.
    #[inline]
    pub(crate) fn may_leave(&self, key: Key) -> bool {
        self.idle.contains(key)
    }

    /// Whether there is room for a key.
    #[inline]
    pub(crate) fn fits(&self, key: Key) -> bool {
        self.pools[self.pool(key)].free >= self.cost(key)
    }

    /// Whether there would be room for a key if all left that may.
    #[inline]
    pub(crate) fn can_fit(&self, key: Key) -> bool {
        let pool = &self.pools[self.pool(key)];
        pool.free + pool.idle >= self.cost(key)
    }

    /// Copies that may yet begin at this boundary.
    #[inline]
    pub(crate) fn budget_left(&self) -> u32 {
        self.budget_left
    }

    /// Whether a copy is under way.
    pub(crate) fn is_copying(&self) -> bool {
        !self.copies.is_empty()
    }

    /// Copies under way, in the order in which they land.
    pub(crate) fn copying(&self) -> impl Iterator<Item = Key> + '_ {
        self.copies.iter().map(|copy| copy.key)
    }

    /// What changed at the last boundary.
    pub(crate) fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// The copies that began at the last boundary.
    pub(crate) fn begun(&self) -> &[Key] {
        &self.begun
    }

    /// A round begins.
    pub(crate) fn begin_round(&mut self) {
        // After 2^32 rounds an expert not used for so long would count as used by the round; it is then kept once more.
        self.now = self.now.wrapping_add(1).max(1);
        self.idle.copy_from(&self.resident);
        for pool in &mut self.pools {
            pool.idle = pool.resident;
        }
    }

    /// Notes that the round uses a key, which it had not before, and which is in this state.
    #[inline]
    pub(crate) fn use_first(&mut self, key: Key, entry: Entry) {
        self.entries[key as usize].used = self.now;
        if entry.state == State::Resident {
            self.idle.remove(key);
            self.pools[usize::from(entry.pool)].idle -= self.cost(key);
        }
    }

    /// A boundary is reached: copies land that are due.
    pub(crate) fn land(&mut self) {
        self.boundaries += 1;
        self.changes.clear();
        self.begun.clear();
        self.budget_left = self.budget;
        while let Some(&copy) = self.copies.front().filter(|copy| copy.lands <= self.boundaries) {
            self.copies.pop_front();
            for i in 0..copy.victims {
                let left = self.leaving.pop_front();
                if let Some(left) = left {
                    self.entries[left as usize].state = State::Absent;
                }
                if i + 1 < copy.victims {
                    self.changes.push(Change { came: None, left });
                } else {
                    self.changes.push(Change { came: Some(copy.key), left });
                }
            }
            if copy.victims == 0 {
                self.changes.push(Change { came: Some(copy.key), left: None });
            }
            self.settle(copy.key);
        }
    }

    fn settle(&mut self, key: Key) {
        let (cost, pool) = (self.cost(key), self.pool(key));
        self.entries[key as usize].state = State::Resident;
        self.pools[pool].resident += cost;
        // It was of no use yet, and is not idle: it may leave at the next boundary, not at this one.
        self.resident.insert(key);
    }

    /// Decides that a key leaves for the one that is inserted next. It must be one that may leave.
    pub(crate) fn evict(&mut self, key: Key) {
        let (cost, pool) = (self.cost(key), self.pool(key));
        let later = self.wait && self.copy_rounds > 0;
        self.entries[key as usize].state = if later { State::Leaving } else { State::Absent };
        self.resident.remove(key);
        self.idle.remove(key);
        let pool = &mut self.pools[pool];
        pool.free += cost;
        pool.resident -= cost;
        pool.idle -= cost;
        self.victims.push(key);
    }

    /// Begins to insert a key, for which room was made and budget is left.
    pub(crate) fn insert(&mut self, key: Key) {
        let pool = self.pool(key);
        self.pools[pool].free -= self.cost(key);
        self.budget_left -= 1;
        self.begun.push(key);
        if self.copy_rounds == 0 {
            let last = self.victims.pop();
            self.changes.extend(self.victims.drain(..).map(|v| Change { came: None, left: Some(v) }));
            self.changes.push(Change { came: Some(key), left: last });
            self.settle(key);
            return;
        }
        self.entries[key as usize].state = State::Coming;
        let mut copy = Copy { key, lands: self.boundaries + self.copy_rounds, victims: 0 };
        if self.wait {
            copy.victims = self.victims.len();
            self.leaving.extend(self.victims.drain(..));
        } else {
            self.changes.extend(self.victims.drain(..).map(|v| Change { came: None, left: Some(v) }));
        }
        self.copies.push_back(copy);
    }

    /// Units of what is resident, what is leaving included.
    pub(crate) fn resident_units(&self) -> u64 {
        let leaving: u64 = self.leaving.iter().map(|&key| self.cost(key)).sum();
        self.pools.iter().map(|pool| pool.resident).sum::<u64>() + leaving
    }
}
