//! What several points of a sweep need and one of them computes.

use crate::error::SimError;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Place<T> = Arc<Mutex<Option<T>>>;

/// Values by key. Whoever comes first computes a value, and others wait for it; which of them that is changes nothing,
/// since a value follows from its key.
pub(super) struct Shared<K, T>(Mutex<BTreeMap<K, Place<T>>>);

impl<K: Ord, T: Clone> Shared<K, T> {
    pub(super) fn new() -> Shared<K, T> {
        Shared(Mutex::new(BTreeMap::new()))
    }

    /// The value of a key.
    ///
    /// # Errors
    /// Those of `make`, which is tried again at the next call.
    pub(super) fn get(&self, key: K, make: impl FnOnce() -> Result<T, SimError>) -> Result<T, SimError> {
        let place = lock(&self.0).entry(key).or_default().clone();
        let mut value = lock(&place);
        if let Some(value) = &*value {
            return Ok(value.clone());
        }
        Ok(value.insert(make()?).clone())
    }
}

/// A thread that panicked has left no half of a value.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
