//! Where threads sleep until something they look at has changed.

use super::sync::{AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, fence};

/// A place to sleep. Ringing costs one fence and one load when nobody sleeps.
pub(super) struct Gate {
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    bell: Condvar,
}

impl Gate {
    pub(super) fn new() -> Gate {
        Gate { sleepers: AtomicUsize::new(0), lock: Mutex::new(()), bell: Condvar::new() }
    }

    /// Sleeps until `ready` is true. Whoever makes it true must [`ring`](Gate::ring) afterwards.
    pub(super) fn sleep_until(&self, ready: impl Fn() -> bool) {
        let mut guard = lock(&self.lock);
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        // Pairs with the fence in `ring`: of a thread that counts itself and then looks, and one that makes a change
        // and then reads the count, at least one sees what the other did.
        fence(Ordering::SeqCst);
        while !ready() {
            guard = self.bell.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Wakes all who sleep.
    pub(super) fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            // A sleeper that was counted but not yet asleep holds the lock until it is, so the bell reaches it.
            drop(lock(&self.lock));
            self.bell.notify_all();
        }
    }
}

/// Locks a mutex whose content no panic can leave half-changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
