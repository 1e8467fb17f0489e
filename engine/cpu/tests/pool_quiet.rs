//! What the pool must not use: time while idle, memory while working. Both are measured on the whole process, so
//! these tests have a process of their own and take turns.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use strata_cpu::Pool;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static TURN: Mutex<()> = Mutex::new(());

struct Counting;

// SAFETY: every request goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract, and `at` came from the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_call_allocates_nothing() {
    let _turn = TURN.lock().unwrap();
    let pool = Pool::exactly(3);
    let sum = AtomicUsize::new(0);
    let mut out = vec![0.0; 300];
    let mut calls = |n: usize| {
        for _ in 0..n {
            pool.run(20, |i| {
                sum.fetch_add(i, Ordering::Relaxed);
            });
            pool.rows(&mut out, 3, 1, |first, piece| piece.fill(first as f32));
        }
    };
    calls(10);
    // The test harness may allocate once in a while; two hundred calls would show.
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    calls(200);
    let made = ALLOCATIONS.load(Ordering::Relaxed) - before;
    assert!(made < 50, "{made} allocations in 400 calls");
}

/// Clock ticks (hundredths of a second) that this process has used.
#[cfg(target_os = "linux")]
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // Fields are counted behind the name in parentheses: user time is the 12th from there, system time the 13th.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn an_idle_pool_uses_no_time() {
    let _turn = TURN.lock().unwrap();
    for pool in [Pool::new(0), Pool::exactly(4)] {
        pool.run(100, |_| ());
        std::thread::sleep(std::time::Duration::from_millis(50));
        let before = ticks();
        std::thread::sleep(std::time::Duration::from_millis(500));
        let used = ticks() - before;
        assert!(used <= 1, "{used} ticks in half a second");
    }
}
