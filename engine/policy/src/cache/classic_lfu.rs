//! LFU access by access, in constant time.
//!
//! Residents that were used equally often are one list, the most recent at the front; the lists are in order of use.
//! The victim is at the back of the first.

use super::list::Lists;
use super::shape::Key;

const NONE: u32 = u32::MAX;

/// The residents of one use count.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    count: u64,
    before: u32,
    after: u32,
    len: u32,
}

#[derive(Debug, Clone)]
pub(crate) struct ClassicLfu {
    lists: Lists,
    /// The bucket of each key; `NONE` = it is not resident.
    bucket_of: Vec<u32>,
    /// Each with the list of its number. The last is a sentinel that links the first and the last in use.
    buckets: Vec<Bucket>,
    unused: Vec<u32>,
    empty: usize,
}

impl ClassicLfu {
    pub(crate) fn new(keys: usize, slots: usize, residents: &[Key]) -> ClassicLfu {
        // A key that moves on leaves its bucket after it has entered the next, so one bucket more may be in use.
        let most = slots.min(keys) + 1;
        let blank = Bucket { count: 0, before: most as u32, after: most as u32, len: 0 };
        let mut lfu = ClassicLfu {
            lists: Lists::new(keys, most),
            bucket_of: vec![NONE; keys],
            buckets: vec![blank; most + 1],
            unused: (0..most as u32).rev().collect(),
            empty: slots,
        };
        for &key in residents.iter().rev() {
            lfu.enter(key, 0, lfu.sentinel());
            lfu.empty -= 1;
        }
        lfu
    }

    fn sentinel(&self) -> u32 {
        (self.buckets.len() - 1) as u32
    }

    #[inline]
    pub(crate) fn access(&mut self, key: Key) -> bool {
        let Some(&bucket) = self.bucket_of.get(key as usize) else { return false };
        if bucket != NONE {
            let count = self.buckets[bucket as usize].count + 1;
            self.lists.remove(key);
            self.enter(key, count, bucket);
            self.shrink(bucket);
            return true;
        }
        if self.empty > 0 {
            self.empty -= 1;
        } else {
            let first = self.buckets[self.sentinel() as usize].after;
            if first == self.sentinel() {
                return false;
            }
            let Some(victim) = self.lists.back(first as usize) else { return false };
            self.lists.remove(victim);
            self.bucket_of[victim as usize] = NONE;
            self.shrink(first);
        }
        // Those of the start ranking may have no use yet, and come before the ones.
        let first = self.buckets[self.sentinel() as usize].after;
        let zeros = first != self.sentinel() && self.buckets[first as usize].count == 0;
        self.enter(key, 1, if zeros { first } else { self.sentinel() });
        false
    }

    /// Puts a key, which is in no list, into the bucket of `count`, which is or comes right behind `before`.
    #[inline]
    fn enter(&mut self, key: Key, count: u64, before: u32) {
        let after = self.buckets[before as usize].after;
        let there = after != self.sentinel() && self.buckets[after as usize].count == count;
        let bucket = if there { after } else { self.open(count, before, after) };
        self.lists.push_front(bucket as usize, key);
        self.buckets[bucket as usize].len += 1;
        self.bucket_of[key as usize] = bucket;
    }

    fn open(&mut self, count: u64, before: u32, after: u32) -> u32 {
        // There is always one: fewer are in use than there are residents and one more.
        let Some(bucket) = self.unused.pop() else { return after };
        self.buckets[bucket as usize] = Bucket { count, before, after, len: 0 };
        self.buckets[before as usize].after = bucket;
        self.buckets[after as usize].before = bucket;
        bucket
    }

    /// One has left a bucket.
    #[inline]
    fn shrink(&mut self, bucket: u32) {
        let Bucket { before, after, len, .. } = self.buckets[bucket as usize];
        self.buckets[bucket as usize].len = len - 1;
        if len == 1 {
            self.buckets[before as usize].after = after;
            self.buckets[after as usize].before = before;
            self.unused.push(bucket);
        }
    }
}
