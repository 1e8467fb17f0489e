//! Ours: what is expected to save most time for the room it takes.
//!
//! An expert `k` that is resident spares its layer a miss in each round that uses it. So what it saves a round is
//! expected to be
//!
//! ```text
//! saved(k) = rate(k) * miss(layer of k)        nanoseconds a round
//! rate(k)  = blend * fast(k) + (1 - blend) * slow(k)
//! ```
//!
//! with `miss` what a miss costs on the branch that serves it, which differs by layer where quantisation does, and two
//! estimates of the share of rounds that use `k`: exponentially weighted means with a short and a long memory. One alone
//! cannot serve: half of the experts of a token are used again by the next one and then by few more, which only a short
//! memory sees, while the popularity that decides over hundreds of rounds drowns in its noise.
//!
//! Filling a bounded room with what saves most is a knapsack; taking it in order of `saved / room taken` is optimal for
//! the part that fits, and off by at most one expert. So residents are ranked by that, and a missed expert replaces the
//! lowest ones where it is expected to pay for its copy within the horizon:
//!
//! ```text
//! horizon * (saved(k) - sum of saved(victims)) > copy_share * copy(layer of k)
//! ```
//!
//! Without the right-hand side a policy trades experts of equal worth back and forth, and each trade takes bandwidth
//! that the misses of the next round need. `copy_share` is the part of a copy that no other work hides.
//!
//! Uses are counted once a round however many of its tokens agree: a miss reads the expert's weights once for all.
//! Residents of the start ranking begin as if used in one round before the first.

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

#[derive(Debug, Clone)]
pub(crate) struct Saving {
    fast_decay: f32,
    slow_decay: f32,
    /// What a use adds to the rate, by memory.
    fast_weight: f32,
    slow_weight: f32,
    horizon: f32,
    fast: Vec<f32>,
    slow: Vec<f32>,
    /// Nanoseconds of a miss, by key.
    miss: Vec<f32>,
    /// Nanoseconds of a copy that are lost, by key.
    copy: Vec<f32>,
    /// Nanoseconds of a miss for each unit of room, by key.
    miss_per_unit: Vec<f32>,
    wanted: Vec<Key>,
    ranks: Vec<u64>,
    victims: Victims<u64>,
}

impl Saving {
    pub(crate) fn new(shape: &Shape, params: &CacheParams, store: &Store, costs: &Costs) -> Saving {
        let (fast, slow, blend, horizon, share) = match params.rule {
            Rule::Saving { fast, slow, blend, horizon, copy } => (fast, slow, blend, horizon, copy),
            _ => (0.0, 0.0, 0.0, 0.0, 0.0),
        };
        let of = |nanos: &[u64], key: usize| nanos.get(shape.layer_of(key as Key)).copied().unwrap_or(0) as f32;
        let keys = 0..shape.keys();
        let resident = |key: usize| f32::from(store.state(key as Key) == State::Resident);
        Saving {
            fast_decay: fast,
            slow_decay: slow,
            fast_weight: blend * (1.0 - fast),
            slow_weight: (1.0 - blend) * (1.0 - slow),
            horizon,
            fast: keys.clone().map(resident).collect(),
            slow: keys.clone().map(resident).collect(),
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
            self.fast[key as usize] += 1.0;
            self.slow[key as usize] += 1.0;
        }
    }

    fn decide(&mut self, store: &mut Store, missed: &[Key]) {
        let Saving { fast, slow, miss, miss_per_unit, copy, wanted, ranks, victims, .. } = self;
        let (fast_weight, slow_weight, horizon) = (self.fast_weight, self.slow_weight, self.horizon);
        let rate = |key: Key| fast_weight * fast[key as usize] + slow_weight * slow[key as usize];
        let saved = |key: Key| rate(key) * miss[key as usize];
        // Savings are not negative, so their bits are ordered as they are.
        let rank = |key: Key| (rate(key) * miss_per_unit[key as usize]).to_bits();
        ranks.clear();
        let pays = missed.iter().filter(|&&key| horizon * saved(key) > copy[key as usize]);
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
                horizon * (saved(key) - lost) > copy[key as usize]
            };
            if victims.make_room(store, key, pays) {
                store.insert(key);
            }
        }
        decay(&mut self.fast, self.fast_decay);
        decay(&mut self.slow, self.slow_decay);
    }
}
