//! Prints how long the pool takes to hand out work that takes no time: `dispatch [THREADS]`.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use strata_cpu::Pool;

fn main() {
    let threads = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    let pool = Pool::new(threads);
    let threads = pool.threads();
    pool.notes().iter().for_each(|note| println!("note: {note}"));
    println!("{threads} threads");
    let pinned = pool.pin_caller();
    if let Err(e) = &pinned {
        println!("note: the calling thread is not pinned: {e}");
    }
    let empty = |tasks: usize| {
        pool.run(tasks, |i| {
            black_box(i);
        });
    };
    // Every task waits until all have begun: the time until the last worker is at work, and back.
    let begun = AtomicUsize::new(0);
    let together = || {
        begun.store(0, Ordering::Relaxed);
        pool.run(threads, |_| {
            begun.fetch_add(1, Ordering::Relaxed);
            while begun.load(Ordering::Relaxed) < threads {
                spin_loop();
            }
        });
    };
    measure("a task per thread", Duration::ZERO, 20_000, || empty(threads));
    measure("four tasks per thread", Duration::ZERO, 20_000, || empty(4 * threads));
    measure("all threads at once", Duration::ZERO, 20_000, together);
    measure("all threads at once, after a sleep", Duration::from_millis(40), 50, together);
}

fn measure(what: &str, pause: Duration, n: usize, f: impl Fn()) {
    let timed = |_| {
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
        let start = Instant::now();
        f();
        start.elapsed()
    };
    let mut times: Vec<Duration> = (0..n).map(timed).collect();
    times.sort_unstable();
    let at = |share: f64| times[((n - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    println!("{what}: median {:.2} us, 10 % {:.2}, 90 % {:.2}, 99 % {:.2}", at(0.5), at(0.1), at(0.9), at(0.99));
}
