//! Ours: what is expected to save most time for the room it takes.
//!
//! An expert `k` that is resident spares its layer a miss in each round that uses it. Over the next `horizon` rounds it
//! is expected to save
//!
//! ```text
//! saved(k) = uses(k) * miss(layer of k)                                         nanoseconds
//! uses(k)  = horizon * slow(k) + burst * rounds * max(0, fast(k) - slow(k))
//! rounds   = 1 / (1 - fast decay), at most the horizon
//! ```
//!
//! with `miss` what a miss costs on the branch that serves it, which differs by layer where quantisation does, and two
//! estimates of the share of rounds that use `k`: weighted means over all rounds so far, whose weights fall by the decay
//! with each round of age. The long memory sees popularity, which decides over hundreds of rounds. The short one sees
//! bursts: half of the experts of a token are used again by the next one, and then by few more. What it sees beyond
//! popularity lasts about as long as it remembers, and `burst` says what share of that comes true for a copy that takes
//! its time to land; 0 leaves bursts to the branch that serves misses.
//!
//! Filling a bounded room with what saves most is a knapsack; taking it in order of `saved / room taken` is optimal for
//! the part that fits, and off by at most one expert. So residents are ranked by that, and a missed expert replaces the
//! lowest ones where it is expected to pay for its copy within the horizon:
//!
//! ```text
//! saved(k) - sum of saved(victims) > copy_share * copy(layer of k)
//! ```
//!
//! Without the right-hand side a policy trades experts of equal worth back and forth, and each trade takes bandwidth
//! that the misses of the next round need. `copy_share` is the part of a copy that no other work hides.
//!
//! Uses are counted once a round however many of its tokens agree: a miss reads the expert's weights once for all.
//! Residents of the start ranking begin as if a round before the first had used them, and nothing else. Ties go to the
//! lower key.

use super::Policy;
use super::decay::decay;
use super::params::{CacheParams, Rule};
use super::shape::{Key, Shape};
use super::store::{State, Store};
use super::victims::{Ranked, Victims, ranked};
use serde::{Deserialize, Serialize};

/// What misses and copies cost, for each layer. Measured by whoever runs the cache, and recorded with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Nanoseconds that a missed expert takes longer than a resident one.
    pub miss: Vec<u64>,
    /// Nanoseconds that a copy into the cache takes.
    pub copy: Vec<u64>,
}

/// Bytes a second at which six cores of the original engine's reference machine go through missed Q2_0 experts, and its
/// PCIe 4 link copies; only their ratio decides, where nothing was measured.
const CPU_BYTES_PER_SECOND: u64 = 43_000_000_000;
const PCIE_BYTES_PER_SECOND: u64 = 26_000_000_000;

impl Costs {
    /// In proportion to size, as on the original engine's reference machine: 43 GB/s for misses, 26 GB/s for copies.
    pub fn by_size(shape: &Shape) -> Costs {
        let nanos = |rate: u64| {
            let nanos = |&bytes: &u64| (u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64;
            // Experts of some bytes, as tests have them, must cost something.
            shape.bytes().iter().map(|bytes| nanos(bytes).max(1)).collect()
        };
        Costs { miss: nanos(CPU_BYTES_PER_SECOND), copy: nanos(PCIE_BYTES_PER_SECOND) }
    }
}

/// Uses by key, weighted by age.
#[derive(Debug, Clone)]
struct Memory {
    decay: f32,
    uses: Vec<f32>,
    /// What a key has that was used in every round.
    full: f32,
}

impl Memory {
    /// After one round with these uses.
    fn new(decay: f32, uses: Vec<f32>) -> Memory {
        let mut memory = Memory { decay, uses, full: 1.0 };
        memory.forget();
        memory
    }

    fn forget(&mut self) {
        decay(&mut self.uses, self.decay);
        self.full *= self.decay;
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Saving {
    fast: Memory,
    slow: Memory,
    horizon: f32,
    /// Uses expected for a short memory that is sure.
    burst: f32,
    /// Nanoseconds of a miss, by key.
    miss: Vec<f32>,
    /// Nanoseconds of a miss for each unit of room, by key.
    miss_per_unit: Vec<f32>,
    /// Nanoseconds of a copy that are lost, by key.
    copy: Vec<f32>,
    wanted: Vec<Key>,
    ranks: Vec<u64>,
    victims: Victims<u64>,
}

impl Saving {
    pub(crate) fn new(shape: &Shape, params: &CacheParams, store: &Store, costs: &Costs) -> Saving {
        let (fast, slow, burst, horizon, share) = match params.rule {
            Rule::Saving { fast, slow, burst, horizon, copy } => (fast, slow, burst, horizon, copy),
            _ => (0.0, 0.0, 0.0, 0.0, 0.0),
        };
        let of = |nanos: &[u64], key: usize| nanos.get(shape.layer_of(key as Key)).copied().unwrap_or(0) as f32;
        let keys = 0..shape.keys();
        let resident: Vec<f32> =
            keys.clone().map(|key| f32::from(store.state(key as Key) == State::Resident)).collect();
        Saving {
            fast: Memory::new(fast, resident.clone()),
            slow: Memory::new(slow, resident),
            horizon,
            // A memory that never forgets would last for ever.
            burst: burst * (1.0 / (1.0 - fast)).min(horizon),
            miss: keys.clone().map(|key| of(&costs.miss, key)).collect(),
            miss_per_unit: keys.clone().map(|k| of(&costs.miss, k) / store.cost(k as Key) as f32).collect(),
            copy: keys.map(|key| share * of(&costs.copy, key)).collect(),
            wanted: Vec::new(),
            ranks: Vec::new(),
            victims: Victims::new(),
        }
    }
}

impl Policy for Saving {
    #[inline]
    fn used(&mut self, key: Key, _state: State, first: bool) {
        if first {
            self.fast.uses[key as usize] += 1.0;
            self.slow.uses[key as usize] += 1.0;
        }
    }

    fn decide(&mut self, store: &mut Store, missed: &[Key]) {
        // The round that is over.
        self.fast.full += 1.0;
        self.slow.full += 1.0;
        let Saving { fast, slow, miss, miss_per_unit, copy, wanted, ranks, victims, .. } = self;
        let (per_fast, per_slow) = (1.0 / fast.full, 1.0 / slow.full);
        let (horizon, burst) = (self.horizon, self.burst);
        let uses = |key: Key| {
            let (fast, slow) = (fast.uses[key as usize] * per_fast, slow.uses[key as usize] * per_slow);
            horizon * slow + burst * (fast - slow).max(0.0)
        };
        let saved = |key: Key| uses(key) * miss[key as usize];
        // Savings are not negative, so their bits are ordered as they are.
        let rank = |key: Key| (uses(key) * miss_per_unit[key as usize]).to_bits();
        ranks.clear();
        let pays = missed.iter().filter(|&&key| saved(key) > copy[key as usize]);
        ranks.extend(pays.map(|&key| ranked(u32::MAX - rank(key), key)));
        ranks.sort_unstable();
        wanted.clear();
        wanted.extend(ranks.iter().map(|r| r.key()));
        victims.gather(store, wanted, |key| ranked(rank(key), key));
        for &key in &*wanted {
            if store.budget_left() == 0 {
                break;
            }
            let pays = |leavers: &[u64]| {
                let lost: f32 = leavers.iter().map(|v| saved(v.key())).sum();
                saved(key) - lost > copy[key as usize]
            };
            if victims.make_room(store, key, pays) {
                store.insert(key);
            }
        }
        self.fast.forget();
        self.slow.forget();
    }
}
