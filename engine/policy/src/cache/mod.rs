//! Which experts are resident: one file for each rule, and one frame that runs them all.
//!
//! A [`Cache`] is what the engine runs and what the simulator replays, in one piece of code. It goes round by round: the
//! accesses of a round are decided against what is resident when it begins, and residency changes only at the boundary
//! behind it. So whoever records accesses can replay them under the same [`CacheParams`] and start and gets the same
//! hits, access by access.
//!
//! At a boundary, first the copies land that are due; then the rule decides what is inserted and what leaves for it.
//! What the round has used or what has just landed does not leave, empty slots are filled first, and no more copies
//! begin than the budget allows. A copy takes [`CacheParams::copy_rounds`] boundaries; until it has landed, the newcomer misses. Its victim
//! leaves at once or when it has landed, as [`Admission`] says. A victim is not chosen again: it leaves even if it is
//! used in the meantime.
//!
//! [`Classic`] is the textbook cache, access by access, for comparison with the literature and with other programs.
//!
//! Nothing here depends on hashing, threads or addresses. Each rule says how it breaks ties.

mod adaptive;
mod belady;
mod bits;
mod classic;
mod classic_lfu;
mod decay;
mod engine;
mod error;
mod fixed;
mod future;
mod lfu;
mod list;
mod lru;
mod order;
mod params;
mod s3fifo;
mod saving;
mod shape;
mod store;
mod text;
mod victims;

pub use classic::Classic;
pub use engine::{Cache, Start, resident};
pub use error::CacheError;
pub use future::Future;
pub use params::{Admission, CacheParams, Capacity, Rule, Scope};
pub use saving::Costs;
pub use shape::{Key, Shape};
pub use store::Change;
pub use strata_trace::Phase;

use store::{State, Store};

/// A rule: hears of every use, and decides at boundaries. Dispatched once a round, not once an access.
trait Policy {
    /// The round uses a key, which is in this state; `first` says that it did not before.
    fn used(&mut self, key: Key, state: State, first: bool);

    /// Accesses pass by that do not count.
    fn skip(&mut self, _accesses: usize) {}

    /// A round that counts is over. `missed` are the keys it used that are absent, in the order of their first use.
    fn decide(&mut self, store: &mut Store, missed: &[Key]);
}
