//! The hits of LRU for all sizes, in one pass.
//!
//! A least recently used cache holds the `n` experts used last, whatever `n` is (Mattson, Gecsei, Slutz, Traiger:
//! Evaluation techniques for storage hierarchies, 1970). So an access hits in all caches with more slots than other
//! experts were used since its expert was, and counting those gives all sizes at once.
//!
//! To count them, each expert has a place in a line, the most recent last, and a bit says which places are taken. Sums
//! over 64, 1,024 and 16,384 places keep a count short; when the line is used up, the experts move together.

use strata_policy::cache::Key;

/// Hits of LRU by slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LruCurve {
    /// With `n` slots `hits[n]` accesses hit; more slots than experts gain nothing.
    hits: Vec<u64>,
    accesses: u64,
}

impl LruCurve {
    /// Over accesses in the order of time, access by access, from a cold start. Accesses to keys not below `keys` miss.
    pub fn new(accesses: impl IntoIterator<Item = Key>, keys: usize) -> LruCurve {
        let mut line = Line::new(keys);
        let mut at_distance = vec![0u64; keys];
        let mut count = 0;
        for key in accesses {
            count += 1;
            if let Some(distance) = line.access(key) {
                at_distance[distance] += 1;
            }
        }
        let mut hits = vec![0];
        for (n, at) in at_distance.iter().enumerate() {
            hits.push(hits[n] + at);
        }
        LruCurve { hits, accesses: count }
    }

    /// Hits with so many slots.
    pub fn hits(&self, slots: usize) -> u64 {
        self.hits[slots.min(self.hits.len() - 1)]
    }

    /// Accesses.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Share of accesses that hit with so many slots; 0 if there was none.
    pub fn hit_rate(&self, slots: usize) -> f64 {
        if self.accesses == 0 { 0.0 } else { self.hits(slots) as f64 / self.accesses as f64 }
    }
}

const NOWHERE: u32 = u32::MAX;

struct Line {
    /// The place of each key.
    place: Vec<u32>,
    /// The key at each place, if its bit is set.
    key_at: Vec<Key>,
    taken: Vec<u64>,
    /// Taken places in each word, in 16 words, and in 256.
    sums: [Vec<u32>; 3],
    next: usize,
}

/// Words of a sum of one level in a sum of the next.
const FAN: usize = 16;

impl Line {
    fn new(keys: usize) -> Line {
        // Long enough that moving together costs little for each access.
        let words = (4 * keys).div_ceil(64).max(64).next_multiple_of(FAN * FAN);
        Line {
            place: vec![NOWHERE; keys],
            key_at: vec![0; words * 64],
            taken: vec![0; words],
            sums: [vec![0; words], vec![0; words / FAN], vec![0; words / FAN / FAN]],
            next: 0,
        }
    }

    /// How many other keys were used since this one was; `None` if it was not.
    #[inline]
    fn access(&mut self, key: Key) -> Option<usize> {
        let place = *self.place.get(key as usize)?;
        let distance = (place != NOWHERE).then(|| {
            let distance = self.after(place as usize);
            self.set(place as usize, false);
            distance
        });
        if self.next == self.key_at.len() {
            self.move_together();
        }
        self.place[key as usize] = self.next as u32;
        self.key_at[self.next] = key;
        self.set(self.next, true);
        self.next += 1;
        distance
    }

    #[inline]
    fn set(&mut self, place: usize, taken: bool) {
        let word = place / 64;
        self.taken[word] ^= 1 << (place % 64);
        for (sums, at) in self.sums.iter_mut().zip([word, word / FAN, word / FAN / FAN]) {
            if taken {
                sums[at] += 1;
            } else {
                sums[at] -= 1;
            }
        }
    }

    /// Taken places behind one that is.
    #[inline]
    fn after(&self, place: usize) -> usize {
        let end = self.next.div_ceil(64);
        let mut word = place / 64;
        // The bits above the place's own: shifted twice, as a shift by 64 is none.
        let mut sum = (self.taken[word] >> (place % 64) >> 1).count_ones();
        word += 1;
        let stop = end.min(word.next_multiple_of(FAN));
        sum += self.sums[0][word.min(stop)..stop].iter().sum::<u32>();
        word = word.max(stop);
        let stop = (end / FAN).min((word / FAN).next_multiple_of(FAN));
        if word / FAN < stop {
            sum += self.sums[1][word / FAN..stop].iter().sum::<u32>();
            word = stop * FAN;
        }
        let stop = end / FAN / FAN;
        if word / FAN / FAN < stop {
            sum += self.sums[2][word / FAN / FAN..stop].iter().sum::<u32>();
            word = stop * FAN * FAN;
        }
        let stop = end / FAN;
        if word / FAN < stop {
            sum += self.sums[1][word / FAN..stop].iter().sum::<u32>();
            word = stop * FAN;
        }
        if word < end {
            sum += self.sums[0][word..end].iter().sum::<u32>();
        }
        sum as usize
    }

    /// Gives the keys the first places, in order.
    fn move_together(&mut self) {
        let mut next = 0;
        for place in 0..self.key_at.len() {
            if self.taken[place / 64] >> (place % 64) & 1 == 1 {
                let key = self.key_at[place];
                self.key_at[next] = key;
                self.place[key as usize] = next as u32;
                next += 1;
            }
        }
        self.taken.fill(0);
        self.sums.iter_mut().for_each(|sums| sums.fill(0));
        (0..next).for_each(|place| self.set(place, true));
        self.next = next;
    }
}
