//! When each expert is used next, for a rule that knows the future.

use super::error::CacheError;
use super::shape::Key;

/// No next use.
pub(crate) const NEVER: u32 = u32::MAX;

/// For each access of a trace the position of the next one of the same expert; computed once for a trace and shared by
/// all caches that replay it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Future {
    next: Vec<u32>,
    first: Vec<u32>,
}

impl Future {
    /// Of accesses in the order of time, of which those count as uses that `counts` says do, by position.
    ///
    /// # Errors
    /// A key is not below `keys`, or there are more accesses than 32 bits count.
    pub fn new(accesses: &[Key], keys: usize, counts: impl Fn(usize) -> bool) -> Result<Future, CacheError> {
        // Keys that are never used again have positions of their own behind the last access.
        if accesses.len() + keys >= NEVER as usize {
            let found = format!("{} accesses", accesses.len());
            return Err(CacheError::invalid("accesses", found, "fewer than 2^32 with the model's experts"));
        }
        if let Some(i) = accesses.iter().position(|&key| key as usize >= keys) {
            let found = format!("expert {} at access {i}", accesses[i]);
            return Err(CacheError::invalid("accesses", found, format!("one below {keys}")));
        }
        let mut first = vec![NEVER; keys];
        let mut next = vec![NEVER; accesses.len()];
        for (i, &key) in accesses.iter().enumerate().rev() {
            next[i] = first[key as usize];
            if counts(i) {
                first[key as usize] = i as u32;
            }
        }
        Ok(Future { next, first })
    }

    /// The position of the use after the access at a position.
    #[inline]
    pub(crate) fn next(&self, position: usize) -> u32 {
        self.next.get(position).copied().unwrap_or(NEVER)
    }

    /// The position of an expert's first use.
    pub(crate) fn first(&self, key: Key) -> u32 {
        self.first.get(key as usize).copied().unwrap_or(NEVER)
    }

    /// Accesses, those that do not count included.
    pub fn len(&self) -> usize {
        self.next.len()
    }

    /// Whether there is no access.
    pub fn is_empty(&self) -> bool {
        self.next.is_empty()
    }
}
