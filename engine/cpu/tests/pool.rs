//! What the pool promises, with more threads than this machine may have cores.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use strata_cpu::Pool;

const THREADS: [usize; 4] = [1, 2, 3, 7];

fn counters(n: usize) -> Vec<AtomicUsize> {
    (0..n).map(|_| AtomicUsize::new(0)).collect()
}

fn counts(counters: &[AtomicUsize]) -> Vec<usize> {
    counters.iter().map(|c| c.load(Ordering::Relaxed)).collect()
}

#[test]
fn every_index_once() {
    for threads in THREADS {
        let pool = Pool::exactly(threads);
        assert_eq!(pool.threads(), threads);
        for tasks in [0, 1, 2, 3, 7, 8, 100, 1000] {
            let hits = counters(tasks);
            pool.run(tasks, |i| {
                hits[i].fetch_add(1, Ordering::Relaxed);
            });
            assert!(counts(&hits).iter().all(|&n| n == 1), "{threads} threads, {tasks} tasks");
        }
    }
}

#[test]
fn thousands_of_short_calls() {
    for threads in THREADS {
        let pool = Pool::exactly(threads);
        let mut values = [0usize; 5];
        for call in 0..3000 {
            let before = values;
            let hits = counters(5);
            pool.run(5, |i| {
                hits[i].store(before[i] + i + call, Ordering::Relaxed);
            });
            values = std::array::from_fn(|i| hits[i].load(Ordering::Relaxed));
        }
        assert_eq!(values, std::array::from_fn(|i| 3000 * i + 3000 * 2999 / 2), "{threads} threads");
    }
}

#[test]
fn workers_that_slept_are_woken() {
    let pool = Pool::exactly(3);
    for _ in 0..5 {
        std::thread::sleep(std::time::Duration::from_millis(30));
        // Three tasks that wait for each other need three threads.
        let met = std::sync::Barrier::new(3);
        pool.run(3, |_| {
            met.wait();
        });
    }
}

#[test]
fn a_caller_that_waits_long_sleeps_and_is_woken() {
    let pool = Pool::exactly(2);
    let (caller, met) = (std::thread::current().id(), std::sync::Barrier::new(2));
    pool.run(2, |_| {
        met.wait();
        if std::thread::current().id() != caller {
            std::thread::sleep(std::time::Duration::from_millis(60));
        }
    });
}

#[test]
fn callers_take_turns() {
    let pool = Pool::exactly(3);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let hits = counters(9);
                    pool.run(9, |i| {
                        hits[i].fetch_add(1, Ordering::Relaxed);
                    });
                    assert_eq!(counts(&hits), [1; 9]);
                }
            });
        }
    });
}

#[test]
fn calls_within_a_task_run_on_the_spot() {
    let (pool, other) = (Pool::exactly(3), Pool::exactly(2));
    let hits = counters(8 * 4 * 2);
    pool.run(8, |i| {
        let thread = std::thread::current().id();
        pool.run(4, |j| {
            other.run(2, |k| {
                assert_eq!(std::thread::current().id(), thread);
                hits[(i * 4 + j) * 2 + k].fetch_add(1, Ordering::Relaxed);
            });
        });
    });
    assert!(counts(&hits).iter().all(|&n| n == 1));
    // And afterwards this thread is a caller again: two tasks that wait for each other need two threads.
    let met = std::sync::Barrier::new(2);
    pool.run(2, |_| {
        met.wait();
    });
}

#[test]
fn a_panic_reaches_the_caller_after_all_tasks() {
    for threads in THREADS {
        let pool = Pool::exactly(threads);
        let hits = counters(40);
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.run(40, |i| {
                hits[i].fetch_add(1, Ordering::Relaxed);
                if i % 8 == 3 {
                    std::panic::panic_any(i);
                }
            });
        }));
        let index = *result.unwrap_err().downcast::<usize>().unwrap();
        assert_eq!(index % 8, 3);
        assert_eq!(counts(&hits), [1; 40]);
        // The pool is as good as new.
        pool.run(40, |i| {
            hits[i].fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(counts(&hits), [2; 40]);
    }
}

#[test]
fn items_are_moved_and_dropped_once() {
    for threads in THREADS {
        let pool = Pool::exactly(threads);
        let token = Arc::new(());
        let items: Vec<_> = (0..50).map(|i| (i, Arc::clone(&token))).collect();
        let sum = AtomicUsize::new(0);
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.each(items, |(i, _token)| {
                sum.fetch_add(i, Ordering::Relaxed);
                assert_ne!(i, 20, "one item fails");
            });
        }));
        assert!(result.is_err());
        assert_eq!(sum.load(Ordering::Relaxed), 49 * 50 / 2);
        assert_eq!(Arc::strong_count(&token), 1, "{threads} threads");
        pool.each(Vec::<u8>::new(), |_| unreachable!());
    }
}

#[test]
fn rows_are_whole_and_their_values_do_not_depend_on_threads() {
    let fill = |pool: &Pool, rows: usize, len: usize, grain: usize| {
        let mut out = vec![0.0f32; rows * len];
        pool.rows(&mut out, len, grain, |first, piece| {
            assert_eq!(piece.len() % len, 0);
            for (i, v) in piece.iter_mut().enumerate() {
                *v += ((first * len + i) as f32).sin();
            }
        });
        out
    };
    for (rows, len, grain) in [(1, 3, 1), (7, 5, 1), (64, 1, 16), (65, 1, 16), (1000, 3, 7)] {
        let expected = fill(&Pool::exactly(1), rows, len, grain);
        for threads in THREADS {
            assert_eq!(fill(&Pool::exactly(threads), rows, len, grain), expected, "{threads} threads");
        }
    }
}

#[test]
fn more_threads_than_cpus_are_not_made_and_a_note_says_so() {
    let cpus = std::thread::available_parallelism().unwrap().get();
    let pool = Pool::new(cpus + 100_000);
    assert!(pool.threads() < cpus + 100_000);
    let notes = pool.notes().join("\n");
    assert!(notes.contains(&format!("instead of {}", cpus + 100_000)), "{notes}");
    assert!((1..=cpus).contains(&Pool::new(0).threads()));
}

#[test]
fn the_caller_can_be_pinned_and_let_go() {
    let pool = Pool::new(2);
    let allowed = || {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        status.lines().find(|line| line.starts_with("Cpus_allowed_list")).map(str::to_owned)
    };
    let before = allowed();
    // Some containers refuse it, and other systems have no such thing.
    if let Ok(pinned) = pool.pin_caller() {
        drop(pinned);
    }
    assert_eq!(allowed(), before);
}

#[cfg(target_os = "linux")]
#[test]
fn dropping_the_pool_ends_its_threads() {
    // Other tests have pools too: only the threads of this one are looked for.
    let ids = std::sync::Mutex::new(Vec::new());
    let pool = Pool::exactly(4);
    let met = std::sync::Barrier::new(4);
    pool.run(4, |_| {
        met.wait();
        let link = std::fs::read_link("/proc/thread-self").unwrap();
        ids.lock().unwrap().push(std::path::Path::new("/proc").join(link));
    });
    let ids = ids.into_inner().unwrap();
    assert_eq!(ids.iter().filter(|path| path.exists()).count(), 4);
    drop(pool);
    // A thread's entry may outlive its join by a moment.
    let gone = || ids.iter().filter(|path| path.exists()).count() == 1;
    assert!((0..100).any(|_| gone() || (std::thread::sleep(std::time::Duration::from_millis(10)), false).1));
}
