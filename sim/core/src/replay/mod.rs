//! Replays: what a cache would have done with the accesses of a trace.
//!
//! [`Accesses`] are a trace's accesses in the order of time, turned into dense keys once. [`replay`] runs a cache over
//! them, the one that the engine runs, and counts; [`replay_each`] also hands out each round with what a cost model
//! needs. [`check`] compares what an engine recorded of its cache with the replay, access by access. [`LruCurve`] gives
//! the hits of LRU for all sizes at once.
//!
//! Replays are exact for what does not change the model's choice of experts. What does, such as skipping experts or
//! routing by what is resident, cannot be replayed.

mod accesses;
mod bootstrap;
mod check;
mod counts;
mod curve;
mod run;
mod start;

pub use accesses::{Accesses, RoundSpan};
pub use bootstrap::{Block, Interval, blocks, difference, rate};
pub use check::{Difference, check};
pub use counts::{Counts, LayerCounts, LayerRound, Missed};
pub use curve::LruCurve;
pub(crate) use run::cache as start_cache;
pub use run::{Outcome, Replayed, replay, replay_classic, replay_each};
pub use start::{StartState, popularity, ranking_from_text};

use crate::error::SimError;
use strata_policy::cache::CacheError;

impl From<CacheError> for SimError {
    fn from(error: CacheError) -> SimError {
        SimError::Invalid { place: error.place, found: error.found, expected: error.expected }
    }
}
