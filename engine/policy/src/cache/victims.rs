//! The residents that are worth least, for rules that rank all of them at a boundary.
//!
//! Between two boundaries nothing leaves, so there is no need to keep residents in order all the time: at a boundary
//! that inserts something, the few that may have to leave are selected in time linear in the residents.

use super::shape::Key;
use super::store::Store;

/// A rank in the high bits and a key in the low 32, so that ties go to the lower key.
pub(crate) trait Ranked: Copy + Ord {
    fn key(self) -> Key;
}

impl Ranked for u64 {
    #[inline]
    fn key(self) -> Key {
        self as Key
    }
}

impl Ranked for u128 {
    #[inline]
    fn key(self) -> Key {
        self as Key
    }
}

/// A rank of 32 bits with its key.
#[inline]
pub(crate) fn ranked(rank: u32, key: Key) -> u64 {
    u64::from(rank) << 32 | u64::from(key)
}

/// Candidates for leaving, worst first, of each pool that inserts something.
#[derive(Debug, Clone)]
pub(crate) struct Victims<R> {
    ranked: Vec<R>,
    /// Of each pool: the next of `ranked`, and the end.
    spans: Vec<(usize, usize)>,
    /// Victims that the pool's newcomers need at most.
    wanted: Vec<u64>,
    /// What was evicted since the last ranking.
    left: Vec<Key>,
}

impl<R: Ranked> Victims<R> {
    pub(crate) fn new() -> Victims<R> {
        Victims { ranked: Vec::new(), spans: Vec::new(), wanted: Vec::new(), left: Vec::new() }
    }

    /// Ranks the residents that may leave for these newcomers; the lowest goes first.
    ///
    /// Enough are kept for all that may be inserted: as many as these take units, divided by what the smallest victim
    /// gives.
    pub(crate) fn gather(&mut self, store: &Store, newcomers: &[Key], rank: impl Fn(Key) -> R) {
        self.ranked.clear();
        self.spans.clear();
        self.left.clear();
        self.wanted.clear();
        self.wanted.resize(store.pools(), 0);
        let (least, most) = store.costs();
        for &key in newcomers {
            self.wanted[store.pool(key)] += store.cost(key).div_ceil(least);
        }
        let budget = u64::from(store.budget_left()).saturating_mul(most.div_ceil(least));
        for pool in 0..store.pools() {
            let start = self.ranked.len();
            let wanted = self.wanted[pool].min(budget) as usize;
            if wanted > 0 {
                store.idle().for_each(store.keys_of(pool), |key| self.ranked.push(rank(key)));
                if self.ranked.len() - start > wanted {
                    self.ranked[start..].select_nth_unstable(wanted);
                    self.ranked.truncate(start + wanted);
                }
                self.ranked[start..].sort_unstable();
            }
            self.spans.push((start, self.ranked.len()));
        }
    }

    /// Evicts the worst of the pool until `key` fits, if it can and if `worth` agrees, who is shown who would leave.
    /// Says whether `key` fits now; if not, nothing was evicted.
    pub(crate) fn make_room(&mut self, store: &mut Store, key: Key, worth: impl FnOnce(&[R]) -> bool) -> bool {
        let pool = store.pool(key);
        let (start, limit) = self.spans[pool];
        let (mut end, mut units) = (start, store.free(pool));
        while units < store.cost(key) {
            if end == limit {
                return false;
            }
            units += store.cost(self.ranked[end].key());
            end += 1;
        }
        if !worth(&self.ranked[start..end]) {
            return false;
        }
        for i in start..end {
            store.evict(self.ranked[i].key());
            self.left.push(self.ranked[i].key());
        }
        self.spans[pool].0 = end;
        true
    }

    /// What was evicted since the last ranking.
    pub(crate) fn left(&self) -> &[Key] {
        &self.left
    }
}
