//! The original engine's rule: every few rounds the most used missing experts replace the least used residents of their
//! layer.
//!
//! Each use adds 1 to an expert's count. Every `every` rounds, in each layer, missing experts with a count of at least
//! `min_use`, the most used first, are paired with residents, the least used first. A pair is swapped if the newcomer's
//! count is at least the victim's plus `gain`; of all pairs over all layers the `swaps` with the largest gains are, as
//! far as the budget goes. Then counts are multiplied by `decay`. Empty slots are filled first, which counts as swaps.
//! While copies are under way, an adaptation that is due waits.
//!
//! Ties go to the lower key, among newcomers, victims and pairs alike. Two things differ from the original: what the
//! round has used is no victim, and its order among ties, which follows from its sorting, is not known.

use super::Policy;
use super::decay::decay;
use super::params::{CacheParams, Rule};
use super::shape::{Key, Shape};
use super::store::{State, Store};
use super::victims::{Ranked, ranked};
use std::cmp::Reverse;

#[derive(Debug, Clone)]
pub(crate) struct Adaptive {
    every: u32,
    swaps: u32,
    min_use: f32,
    gain: f32,
    decay: f32,
    experts: usize,
    rounds: u32,
    usage: Vec<f32>,
    newcomers: Vec<u64>,
    residents: Vec<u64>,
    /// Gain as bits, newcomer, victim.
    pairs: Vec<(Reverse<u32>, Key, Key)>,
}

impl Adaptive {
    pub(crate) fn new(shape: &Shape, params: &CacheParams) -> Adaptive {
        let (every, swaps, min_use, gain, decay) = match params.rule {
            Rule::Adaptive { every, swaps, min_use, gain, decay } => (every, swaps, min_use, gain, decay),
            _ => (1, 0, 0.0, 0.0, 1.0),
        };
        Adaptive {
            every,
            swaps,
            min_use,
            gain,
            decay,
            experts: shape.experts(),
            rounds: 0,
            usage: vec![0.0; shape.keys()],
            newcomers: Vec::new(),
            residents: Vec::new(),
            pairs: Vec::new(),
        }
    }

    /// Fills empty slots with the most used missing experts of all layers; returns how many.
    fn fill(&mut self, store: &mut Store) -> u32 {
        let (least, _) = store.costs();
        if (0..store.pools()).all(|pool| store.free(pool) < least) {
            return 0;
        }
        let (usage, min_use) = (&self.usage, self.min_use);
        self.newcomers.clear();
        let keys = 0..usage.len() as Key;
        let missing = keys.filter(|&key| store.state(key) == State::Absent && usage[key as usize] >= min_use);
        // Counts are not negative, so their bits are ordered as they are.
        self.newcomers.extend(missing.map(|key| ranked(u32::MAX - usage[key as usize].to_bits(), key)));
        self.newcomers.sort_unstable();
        let mut filled = 0;
        for key in self.newcomers.iter().map(|newcomer| newcomer.key()) {
            if filled == self.swaps || store.budget_left() == 0 {
                break;
            }
            if store.fits(key) {
                store.insert(key);
                filled += 1;
            }
        }
        filled
    }

    /// Pairs newcomers and victims of each layer.
    fn pair(&mut self, store: &Store) {
        let usage = &self.usage;
        self.pairs.clear();
        for start in (0..usage.len()).step_by(self.experts) {
            let layer = start..start + self.experts;
            self.newcomers.clear();
            for (i, &count) in usage[layer.clone()].iter().enumerate() {
                let key = (start + i) as Key;
                if count >= self.min_use && store.state(key) == State::Absent {
                    self.newcomers.push(ranked(u32::MAX - count.to_bits(), key));
                }
            }
            if self.newcomers.is_empty() {
                continue;
            }
            self.newcomers.sort_unstable();
            let residents = &mut self.residents;
            residents.clear();
            store.idle().for_each(layer, |key| residents.push(ranked(usage[key as usize].to_bits(), key)));
            if residents.len() > self.newcomers.len() {
                residents.select_nth_unstable(self.newcomers.len());
                residents.truncate(self.newcomers.len());
            }
            residents.sort_unstable();
            for (newcomer, victim) in self.newcomers.iter().zip(&*residents) {
                let (newcomer, victim) = (newcomer.key(), victim.key());
                let (gains, loses) = (usage[newcomer as usize], usage[victim as usize]);
                if gains < loses + self.gain {
                    break;
                }
                self.pairs.push((Reverse((gains - loses).to_bits()), newcomer, victim));
            }
        }
        self.pairs.sort_unstable();
    }
}

impl Policy for Adaptive {
    #[inline]
    fn used(&mut self, key: Key, _state: State, _first: bool) {
        self.usage[key as usize] += 1.0;
    }

    fn decide(&mut self, store: &mut Store, _missed: &[Key]) {
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds < self.every || store.is_copying() {
            return;
        }
        self.rounds = 0;
        // Victims are chosen among what was resident before, not among what fills empty slots now.
        self.pair(store);
        let mut pairs = std::mem::take(&mut self.pairs);
        let filled = self.fill(store);
        pairs.retain(|&(_, newcomer, _)| store.state(newcomer) == State::Absent);
        for &(_, newcomer, victim) in pairs.iter().take((self.swaps - filled) as usize) {
            if store.budget_left() == 0 {
                break;
            }
            store.evict(victim);
            store.insert(newcomer);
        }
        self.pairs = pairs;
        decay(&mut self.usage, self.decay);
    }
}
