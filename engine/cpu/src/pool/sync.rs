//! What the pool takes from the standard library to share memory and to wait.
//!
//! The protocol's files ([`claims`](super::claims), [`gate`](super::gate), [`crew`](super::crew)) name only this
//! module, so that `tests/pool_loom.rs` can compile the very same files over loom's model of memory.

use std::time::{Duration, Instant};

pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
pub(super) use std::sync::{Condvar, Mutex, MutexGuard};

/// How long a thread that waits keeps its core before it sleeps. Longer than any gap between two phases of a token,
/// so that workers stay awake while text is made.
const PATIENCE: Duration = Duration::from_millis(20);

/// How long it does so without giving way. A thread that is not pinned may want this very core, and until the
/// kernel moves it, it only runs when the one that waits here yields.
const RUDE: Duration = Duration::from_micros(100);

/// Looks between two readings of the clock, which costs as much as several looks.
const LOOKS: u32 = 64;

/// Waits a bounded time for `ready` without sleeping; tells whether it came true. `crowded`: threads outnumber the
/// cores, so the one that is waited for may need this core.
pub(super) fn spin_until(crowded: bool, ready: impl Fn() -> bool) -> bool {
    let mut begun = None;
    loop {
        for _ in 0..LOOKS {
            if ready() {
                return true;
            }
            std::hint::spin_loop();
        }
        let now = Instant::now();
        let waited = now.duration_since(*begun.get_or_insert(now));
        if waited >= PATIENCE {
            return false;
        }
        if crowded || waited >= RUDE {
            std::thread::yield_now();
        }
    }
}

/// `std::cell::UnsafeCell` with the two methods that loom can watch.
pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(super) fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    pub(super) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    pub(super) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}
