//! The residents that are worth least, for rules that rank all of them at a boundary.
//!
//! Between two boundaries nothing leaves, so there is no need to keep residents in order all the time: at a boundary
//! that inserts something, the few that may have to leave are selected in time linear in the residents.

use super::shape::Key;
use super::store::Store;

/// Candidates for leaving, worst first, of each pool that inserts something.
#[derive(Debug, Clone, Default)]
pub(crate) struct Victims {
    /// Rank in the high bits, key in the low 32, so that ties go to the lower key.
    ranked: Vec<u128>,
    /// Of each pool: the next of `ranked`, and the end.
    spans: Vec<(usize, usize)>,
    /// Units that the pool's newcomers take at most.
    wanted: Vec<u64>,
    /// What was evicted since the last ranking.
    left: Vec<Key>,
}

impl Victims {
    /// Ranks the residents that may leave for these newcomers; the lowest rank goes first.
    ///
    /// Enough are kept for all newcomers: as many as these take units, divided by what the smallest victim gives.
    pub(crate) fn gather(&mut self, store: &Store, newcomers: &[Key], rank: impl Fn(Key) -> u128) {
        self.ranked.clear();
        self.spans.clear();
        self.left.clear();
        self.wanted.clear();
        self.wanted.resize(store.pools(), 0);
        for &key in newcomers {
            self.wanted[store.pool(key)] += store.cost(key).div_ceil(store.least_cost());
        }
        for pool in 0..store.pools() {
            let start = self.ranked.len();
            if self.wanted[pool] > 0 {
                let idle = store.residents(pool).iter().filter(|&&key| store.may_leave(key));
                self.ranked.extend(idle.map(|&key| rank(key) << 32 | u128::from(key)));
                let (found, most) = (self.ranked.len() - start, self.wanted[pool] as usize);
                if found > most {
                    self.ranked[start..].select_nth_unstable(most);
                    self.ranked.truncate(start + most);
                }
                self.ranked[start..].sort_unstable();
            }
            self.spans.push((start, self.ranked.len()));
        }
    }

    /// Evicts the worst of the pool until `key` fits, if it can and if `worth` agrees, who is shown who would leave.
    /// Says whether `key` fits now; if not, nothing was evicted.
    pub(crate) fn make_room(&mut self, store: &mut Store, key: Key, worth: impl FnOnce(Leavers<'_>) -> bool) -> bool {
        let pool = store.pool(key);
        let (start, limit) = self.spans[pool];
        let (mut end, mut units) = (start, store.free(pool));
        while units < store.cost(key) {
            if end == limit {
                return false;
            }
            units += store.cost(self.ranked[end] as Key);
            end += 1;
        }
        if !worth(Leavers(&self.ranked[start..end])) {
            return false;
        }
        for i in start..end {
            store.evict(self.ranked[i] as Key);
            self.left.push(self.ranked[i] as Key);
        }
        self.spans[pool].0 = end;
        true
    }

    /// What was evicted since the last ranking.
    pub(crate) fn left(&self) -> &[Key] {
        &self.left
    }
}

/// Those who would leave.
#[derive(Clone, Copy)]
pub(crate) struct Leavers<'a>(&'a [u128]);

impl Leavers<'_> {
    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.0.iter().map(|&ranked| ranked as Key)
    }
}
