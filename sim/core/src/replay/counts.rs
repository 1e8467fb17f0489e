//! What a replay counts.

use strata_policy::cache::Key;

/// Sums over rounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Counts {
    /// Rounds.
    pub rounds: u64,
    /// Tokens that were read.
    pub rows: u64,
    /// Tokens that were kept.
    pub committed: u64,
    /// Experts asked for, by token and layer.
    pub accesses: u64,
    /// Those that were resident.
    pub hits: u64,
    /// Copies into the cache.
    pub inserts: u64,
    /// Bytes of these copies.
    pub bytes: u64,
}

impl Counts {
    /// Accesses whose expert was not resident.
    pub fn misses(&self) -> u64 {
        self.accesses - self.hits
    }

    /// Share of accesses that hit; 0 if there was none.
    pub fn hit_rate(&self) -> f64 {
        if self.accesses == 0 { 0.0 } else { self.hits as f64 / self.accesses as f64 }
    }

    /// Adds another sum.
    pub fn add(&mut self, other: &Counts) {
        self.rounds += other.rounds;
        self.rows += other.rows;
        self.committed += other.committed;
        self.accesses += other.accesses;
        self.hits += other.hits;
        self.inserts += other.inserts;
        self.bytes += other.bytes;
    }
}

/// Sums over the rounds of answers for one layer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LayerCounts {
    /// Experts asked for.
    pub accesses: u64,
    /// Those that were resident.
    pub hits: u64,
    /// Copies into the cache.
    pub inserts: u64,
    /// Bytes of these copies.
    pub bytes: u64,
}

/// One layer in one round, as a cost model needs it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LayerRound {
    /// Experts asked for, over all rows.
    pub entries: u32,
    /// Of these, those that were resident.
    pub hit_entries: u32,
    /// Experts used and resident, each once.
    pub distinct_hits: u32,
    /// Experts used and not resident, each once.
    pub distinct_misses: u32,
    /// Copies of the layer's experts into the cache that began at the round's end.
    pub inserts: u32,
}

/// A missed expert of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missed {
    /// The expert.
    pub key: Key,
    /// Rows that use it.
    pub tokens: u32,
}
