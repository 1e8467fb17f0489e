//! Threads that share the work of an operation.
//!
//! A [`Pool`] has a fixed set of workers. The thread that calls [`Pool::run`] takes part, so a pool of `n` threads has
//! `n - 1` workers. Work is cut by output, each piece computed from start to end by one thread, so results do not
//! depend on how many there are.
//!
//! A token's forward pass makes hundreds of calls, some of them a few microseconds long. Hence:
//!
//! - a call allocates nothing and takes no lock that is contended; handing it out is one store, taking a task is one
//!   exchange of one word (`claims`), and it ends when all tasks are finished, whether or not every worker noticed
//!   that it began;
//! - workers that find no work spin for 20 ms, which lasts through the gaps within a token, and then sleep
//!   (`gate`): an idle pool uses no CPU;
//! - each worker stays on a core of its own where the system allows it ([`plan`], [`topology`]).
#![allow(unsafe_code)]

mod claims;
mod crew;
mod gate;
mod pin;
pub mod plan;
mod quota;
mod sync;
pub mod topology;

use crew::Crew;
use plan::Plan;
use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use topology::Topology;

/// Pieces an operation is cut into per thread: a thread that was held up leaves its share to the others.
const PIECES: usize = 4;

thread_local! {
    /// Whether this thread is a worker or in the midst of a call: calls from within a task run on the spot.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// A fixed set of worker threads. Dropping it ends them.
pub struct Pool {
    crew: Arc<Crew>,
    workers: Vec<JoinHandle<()>>,
    /// The core left to the calling thread, if workers have cores.
    place: Option<Vec<usize>>,
    notes: Vec<String>,
}

impl Pool {
    /// A pool of `threads` threads, each worker on a core of its own; 0 means as many as should be fastest on this
    /// machine ([`plan`] says how many that is), and more than there are logical CPUs are not made. Whatever differs
    /// from what was asked for stands in [`notes`](Pool::notes).
    pub fn new(threads: usize) -> Pool {
        let topology = if cfg!(target_os = "linux") { Topology::read(std::path::Path::new("/")) } else { None };
        // Without a description of the cores there is nothing to pin to.
        let pinned = topology.is_some();
        let topology = topology.unwrap_or_else(|| Topology::flat(available()));
        let Plan { places, mut notes } = Plan::new(&topology, threads);
        if cfg!(target_os = "linux") && !pinned {
            notes.push("threads are not kept on their cores, as the system does not say which there are".to_owned());
        }
        let place = |cpus| pinned.then_some(cpus);
        Pool::start(places.into_iter().map(place).collect(), notes, false)
    }

    /// A pool of this many threads (at least one) that are not pinned and may outnumber the cores. For tests: more
    /// threads than cores make every operation slower.
    pub fn exactly(threads: usize) -> Pool {
        Pool::start(vec![None; threads.max(1)], Vec::new(), threads > available())
    }

    fn start(places: Vec<Option<Vec<usize>>>, mut notes: Vec<String>, crowded: bool) -> Pool {
        let crew = Arc::new(Crew::new(crowded));
        let (report, reports) = mpsc::channel();
        let mut places = places.into_iter();
        let place = places.next().flatten();
        let mut workers = Vec::with_capacity(places.len());
        for cpus in places {
            let (crew, report) = (Arc::clone(&crew), report.clone());
            let life = move || {
                INSIDE.set(true);
                // Nobody listens only if the pool's maker is gone.
                let _ = report.send(cpus.map_or(Ok(()), |cpus| pin::pin(&cpus).map(|_| ())));
                drop(report);
                crew.work();
            };
            match std::thread::Builder::new().name(format!("strata-{}", workers.len() + 1)).spawn(life) {
                Ok(worker) => workers.push(worker),
                Err(e) => {
                    notes.push(format!("threads: {} only, as the system refused another: {e}", workers.len() + 1));
                    break;
                }
            }
        }
        drop(report);
        if let Some(e) = reports.into_iter().find_map(Result::err) {
            notes.push(format!("threads are not kept on their cores, as the system refused it: {e}"));
        }
        Pool { crew, workers, place, notes }
    }

    /// How many threads work, the calling one included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// What the user should know about the threads, a sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Keeps the calling thread on the core that no worker has, until the guard is dropped. Worth it for the thread
    /// that makes most calls; otherwise it may land on a worker's core and share it.
    ///
    /// Threads and pools that are made meanwhile by this thread inherit the restriction to that core.
    pub fn pin_caller(&self) -> io::Result<Pinned> {
        let cpus = self.place.as_deref().ok_or(io::ErrorKind::Unsupported)?;
        Ok(Pinned { before: pin::pin(cpus)?, thread: PhantomData })
    }

    /// Calls `f` with every index below `tasks`, each once, on the workers and the calling thread, in no particular
    /// order; returns when all calls have, with their writes visible.
    ///
    /// Several threads may call: they take turns. A call from within a task runs on the spot, on that thread. If
    /// tasks panic, the others are still run; then the first panic goes on in the calling thread, and the pool stays
    /// usable. A task that never returns holds its caller for good: what it borrows must not be freed under it.
    pub fn run<F: Fn(usize) + Sync>(&self, tasks: usize, f: F) {
        if self.workers.is_empty() || tasks <= 1 || INSIDE.get() {
            return crew::alone(tasks, &f);
        }
        INSIDE.set(true);
        let _outside = Outside;
        // One call but for absurd numbers, of which a panic cuts off what comes after its 16 million.
        for first in (0..tasks).step_by(claims::MAX_TASKS) {
            self.crew.call((tasks - first).min(claims::MAX_TASKS), &|i| f(first + i));
        }
    }

    /// How much work a piece of an operation should have: a share of `all` of it, and no less than `least`, which is
    /// worth handing over.
    pub(crate) fn piece(&self, all: usize, least: usize) -> usize {
        match self.threads() {
            1 => all,
            threads => (all / (threads * PIECES)).max(least),
        }
    }

    /// Calls `f(first_row, rows)` on pieces of `out` that hold whole rows of `row_len` values, at least `grain` rows
    /// each (a piece smaller than that costs more to hand over than to compute).
    pub fn rows<F>(&self, out: &mut [f32], row_len: usize, grain: usize, f: F)
    where
        F: Fn(usize, &mut [f32]) + Sync,
    {
        if out.is_empty() || row_len == 0 {
            return;
        }
        let (rows, len) = (out.len() / row_len, out.len());
        let piece = rows.div_ceil(self.threads() * PIECES).max(grain).max(1);
        if self.workers.is_empty() || rows <= piece {
            return f(0, out);
        }
        let start = Shared(out.as_mut_ptr());
        self.run(len.div_ceil(piece * row_len), |i| {
            let first = i * piece * row_len;
            let count = (len - first).min(piece * row_len);
            // SAFETY: `first < len`, so the piece lies within `out`, which is borrowed for the whole call; pieces of
            // different `i` do not overlap, and every `i` is called once.
            f(i * piece, unsafe { std::slice::from_raw_parts_mut(start.at(first), count) });
        });
    }

    /// Calls `f` on every item, on any thread.
    pub fn each<T: Send, F>(&self, items: Vec<T>, f: F)
    where
        F: Fn(T) + Sync,
    {
        // The items are moved out one by one; the buffer they leave behind owns none, whatever happens.
        let mut items: Vec<ManuallyDrop<T>> = items.into_iter().map(ManuallyDrop::new).collect();
        let start = Shared(items.as_mut_ptr());
        self.run(items.len(), |i| {
            // SAFETY: `i` is below the number of items and is called once, so each item is moved out once; the
            // buffer lives until the call returns.
            f(ManuallyDrop::into_inner(unsafe { start.at(i).read() }));
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.crew.stop();
        for worker in self.workers.drain(..) {
            // Tasks' panics went to their callers, so there is nothing to learn from the result.
            let _ = worker.join();
        }
    }
}

/// Keeps a thread on its core; dropped, it may run again where it might before.
#[must_use = "the thread is let go when this is dropped"]
pub struct Pinned {
    before: pin::Affinity,
    /// It must be dropped by the thread that it is about.
    thread: PhantomData<*const ()>,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        pin::restore(&self.before);
    }
}

/// Dropped, says that the thread has left its call.
struct Outside;

impl Drop for Outside {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

/// The start of an array whose elements are handed to different threads.
struct Shared<T>(*mut T);

// SAFETY: it is only an address; who uses it says why no element is used by two threads.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// # Safety
    ///
    /// `i` is within the array.
    unsafe fn at(&self, i: usize) -> *mut T {
        // SAFETY: promised by the caller.
        unsafe { self.0.add(i) }
    }
}

/// CPUs this process may use, as the standard library counts them.
fn available() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
