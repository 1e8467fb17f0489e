//! Which tasks of the present call are taken, and how many are still to be finished.
//!
//! One word holds everything a claim depends on: the call's number (its *epoch*), its count of tasks, and the next
//! index. A worker takes index `next` by exchanging the whole word, and only while the epoch is the one it entered.
//! So a worker that was delayed for however long cannot take work of a later call by a comparison made in an
//! earlier one.
//!
//! The job itself lies in a plain cell. It is written before the word is published and read only by whoever holds a
//! claim; a call ends only when every claim has been reported finished. So it is never written while it may be read.

use super::sync::{AtomicU64, AtomicUsize, Ordering, UnsafeCell};

/// Bits of the word for the count and for the next index; the epoch has the rest. Epochs repeat after 65,536 calls,
/// which does no harm: the exchange also compares count and index, so one that succeeds has claimed an index that
/// was free at that moment, in the call that is open at that moment, and the job is read after it.
const INDEX_BITS: u32 = 24;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

/// The most tasks of one epoch.
pub(super) const MAX_TASKS: usize = INDEX_MASK as usize;

/// The number of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Epoch(u64);

/// A value alone on its cache lines (two, since x86 fetches them in pairs), so that threads writing to its
/// neighbours do not slow down those who read it.
#[repr(align(128))]
struct Apart<T>(T);

/// The tasks of the present call.
pub(super) struct Claims<J> {
    word: Apart<AtomicU64>,
    left: Apart<AtomicUsize>,
    job: UnsafeCell<J>,
}

// SAFETY: `job` is written only by `open`, whose contract excludes every reader, and read only under a claim; `J: Send`
// because copies of it reach other threads.
unsafe impl<J: Copy + Send> Sync for Claims<J> {}

impl<J: Copy> Claims<J> {
    /// No call is open; `idle` is a job that nobody will ask for.
    pub(super) fn new(idle: J) -> Claims<J> {
        Claims { word: Apart(AtomicU64::new(0)), left: Apart(AtomicUsize::new(0)), job: UnsafeCell::new(idle) }
    }

    /// Publishes a call of `tasks` tasks, at most [`MAX_TASKS`].
    ///
    /// # Safety
    ///
    /// One thread at a time opens calls, and only after it has seen [`finished`](Claims::finished) for the last one.
    pub(super) unsafe fn open(&self, tasks: usize, job: J) -> Epoch {
        debug_assert!(0 < tasks && tasks <= MAX_TASKS);
        let epoch = (self.word.0.load(Ordering::Relaxed) >> (2 * INDEX_BITS)).wrapping_add(1) & 0xffff;
        // SAFETY: every claim of the last call has been reported, so no thread reads the job, and by the caller's
        // promise no other thread writes it. Seeing `finished` ordered those reads before this write.
        self.job.with_mut(|cell| unsafe { *cell = job });
        self.left.0.store(tasks, Ordering::Relaxed);
        // Release: whoever claims sees the job and the count of tasks left, and what the caller wrote before.
        self.word.0.store(epoch << (2 * INDEX_BITS) | (tasks as u64) << INDEX_BITS, Ordering::Release);
        Epoch(epoch)
    }

    /// The open call, if it has tasks that nobody took.
    pub(super) fn current(&self) -> Option<Epoch> {
        let word = self.word.0.load(Ordering::Relaxed);
        next(word).map(|_| epoch(word))
    }

    /// Takes a task of the call `epoch`: its index, and the job. `None` when that call has none left or is over.
    pub(super) fn claim(&self, entered: Epoch) -> Option<(usize, J)> {
        let mut word = self.word.0.load(Ordering::Relaxed);
        loop {
            let index = next(word).filter(|_| epoch(word) == entered)?;
            // Acquire, with the release in `open` (exchanges by others in between continue it): the job is visible.
            match self.word.0.compare_exchange_weak(word, word + 1, Ordering::Acquire, Ordering::Relaxed) {
                // SAFETY: this claim is not reported yet, so the call is not finished and nobody writes the job.
                Ok(_) => return Some((index, self.job.with(|job| unsafe { *job }))),
                Err(changed) => word = changed,
            }
        }
    }

    /// Reports `tasks` tasks as finished; tells whether they were the last of the call.
    ///
    /// # Safety
    ///
    /// The calling thread claimed as many tasks, has not reported them yet, and is done with the job.
    pub(super) unsafe fn finish(&self, tasks: usize) -> bool {
        // Release: what the tasks wrote is visible to whoever sees that none is left.
        self.left.0.fetch_sub(tasks, Ordering::Release) == tasks
    }

    /// Whether every task of the last call has been reported; if so, all their writes are visible.
    pub(super) fn finished(&self) -> bool {
        self.left.0.load(Ordering::Acquire) == 0
    }
}

fn epoch(word: u64) -> Epoch {
    Epoch(word >> (2 * INDEX_BITS))
}

/// The next index to take.
fn next(word: u64) -> Option<usize> {
    let (next, count) = (word & INDEX_MASK, (word >> INDEX_BITS) & INDEX_MASK);
    (next < count).then_some(next as usize)
}
