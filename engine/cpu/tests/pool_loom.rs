//! The pool's protocol in loom's model of memory: every order in which threads may run and see each other's writes,
//! up to the stated number of involuntary switches. The files under test are the pool's own.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used)]

#[path = "../src/pool/claims.rs"]
#[allow(dead_code)]
mod claims;
#[path = "../src/pool/crew.rs"]
#[allow(dead_code)]
mod crew;
#[path = "../src/pool/gate.rs"]
mod gate;

/// What `src/pool/sync.rs` is to the pool. Waiting threads have no patience here: they go to sleep at once, which is
/// the part that can go wrong, and spinning would only repeat states.
mod sync {
    pub(super) use loom::cell::UnsafeCell;
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
    pub(super) use loom::sync::{Condvar, Mutex, MutexGuard};

    pub(super) fn spin_until(_crowded: bool, ready: impl Fn() -> bool) -> bool {
        ready()
    }
}

use claims::Claims;
use crew::Crew;
use gate::Gate;
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;
use sync::{AtomicBool, Ordering};

/// Plain memory that tasks write: loom fails the model if two accesses are not ordered.
struct Hits(Vec<UnsafeCell<u32>>);

// SAFETY: whether threads take turns at a cell is what loom checks.
unsafe impl Sync for Hits {}
// SAFETY: cells are counters without ties to a thread.
unsafe impl Send for Hits {}

impl Hits {
    fn new(len: usize) -> Hits {
        Hits((0..len).map(|_| UnsafeCell::new(0)).collect())
    }

    fn hit(&self, i: usize) {
        // SAFETY: loom checks that nobody else uses the cell now.
        self.0[i].with_mut(|cell| unsafe { *cell += 1 });
    }

    fn counts(&self) -> Vec<u32> {
        // SAFETY: loom checks that nobody writes the cell now.
        self.0.iter().map(|cell| cell.with(|cell| unsafe { *cell })).collect()
    }
}

fn model(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(f);
}

const TASKS: usize = 2;

/// Enters the open call, if any, and works it off. The job of call `n` is `n`, its tasks hit the cells from
/// `n * TASKS` on.
fn look(claims: &Claims<usize>, hits: &Hits) {
    let Some(epoch) = claims.current() else { return };
    let (mut done, mut entered) = (0, None);
    while let Some((index, job)) = claims.claim(epoch) {
        assert_eq!(*entered.get_or_insert(job), job, "a worker of one call got the job of another");
        hits.hit(job * TASKS + index);
        done += 1;
    }
    if done > 0 {
        // SAFETY: so many were claimed.
        unsafe { claims.finish(done) };
    }
}

#[test]
fn claims_of_two_calls_and_two_workers() {
    model(3, || {
        let claims = Arc::new(Claims::new(usize::MAX));
        let hits = Arc::new(Hits::new(2 * TASKS));
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let (claims, hits) = (Arc::clone(&claims), Arc::clone(&hits));
                thread::spawn(move || look(&claims, &hits))
            })
            .collect();
        for job in 0..2 {
            // SAFETY: this thread alone opens calls, and waits for each below.
            unsafe { claims.open(TASKS, job) };
            look(&claims, &hits);
            while !claims.finished() {
                thread::yield_now();
            }
            // Reading also proves that all writes of the call, and none of later ones, come before.
            let expected: Vec<u32> = (0..2 * TASKS).map(|i| u32::from(i / TASKS <= job)).collect();
            assert_eq!(hits.counts(), expected);
        }
        for worker in workers {
            worker.join().unwrap();
        }
    });
}

#[test]
fn a_sleeper_is_woken() {
    model(5, || {
        let shared = Arc::new((Gate::new(), AtomicBool::new(false)));
        let sleepers: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.0.sleep_until(|| shared.1.load(Ordering::Relaxed)))
            })
            .collect();
        shared.1.store(true, Ordering::Relaxed);
        shared.0.ring();
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
    });
}

/// The whole of it: sleeping workers, `calls` calls one after the other, dismissal. Loom reports it if all sleep.
fn crew_model(workers: usize, calls: usize, preemptions: usize) {
    model(preemptions, move || {
        let crew = Arc::new(Crew::new(false));
        let workers: Vec<_> = (0..workers)
            .map(|_| {
                let crew = Arc::clone(&crew);
                thread::spawn(move || crew.work())
            })
            .collect();
        for _ in 0..calls {
            // On the stack of the call, as in life: a worker that came too late would use freed memory.
            let hits = Hits::new(TASKS);
            crew.call(TASKS, &|i| hits.hit(i));
            assert_eq!(hits.counts(), [1; TASKS]);
        }
        crew.stop();
        for worker in workers {
            worker.join().unwrap();
        }
    });
}

#[test]
fn one_worker_and_two_calls() {
    crew_model(1, 2, 3);
}

#[test]
fn two_workers_and_a_call() {
    crew_model(2, 1, 2);
}

#[test]
fn two_callers_take_turns() {
    model(2, || {
        let crew = Arc::new(Crew::new(false));
        let worker = {
            let crew = Arc::clone(&crew);
            thread::spawn(move || crew.work())
        };
        let call = |crew: &Crew| {
            let hits = Hits::new(TASKS);
            crew.call(TASKS, &|i| hits.hit(i));
            assert_eq!(hits.counts(), [1; TASKS]);
        };
        let other = {
            let crew = Arc::clone(&crew);
            thread::spawn(move || call(&crew))
        };
        call(&crew);
        other.join().unwrap();
        crew.stop();
        worker.join().unwrap();
    });
}
