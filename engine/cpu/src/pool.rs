//! Threads that share the rows of an operation.

use rayon::prelude::*;

/// A fixed set of worker threads. Work is cut by output rows, so results do not depend on their number.
pub struct Pool {
    threads: usize,
    pool: Option<rayon::ThreadPool>,
}

impl Pool {
    /// A pool of `threads` threads; 0 means one per available core. If the system refuses threads, the calling
    /// thread does all work (`threads()` says so).
    pub fn new(threads: usize) -> Pool {
        let wanted = if threads == 0 { default_threads() } else { threads };
        let pool = (wanted > 1)
            .then(|| rayon::ThreadPoolBuilder::new().num_threads(wanted).thread_name(|i| format!("strata-{i}")).build())
            .and_then(Result::ok);
        Pool { threads: if pool.is_some() { wanted } else { 1 }, pool }
    }

    /// How many threads work.
    pub fn threads(&self) -> usize {
        self.threads
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
        let rows = out.len() / row_len;
        let piece = rows.div_ceil(self.threads * 4).max(grain).max(1);
        match &self.pool {
            Some(pool) if rows > piece => pool.install(|| {
                out.par_chunks_mut(piece * row_len).enumerate().for_each(|(i, rows)| f(i * piece, rows));
            }),
            _ => f(0, out),
        }
    }

    /// Calls `f` on every item, on any thread.
    pub fn each<T: Send, F>(&self, items: Vec<T>, f: F)
    where
        F: Fn(T) + Sync,
    {
        match &self.pool {
            Some(pool) if items.len() > 1 => pool.install(|| items.into_par_iter().with_max_len(1).for_each(&f)),
            _ => items.into_iter().for_each(f),
        }
    }
}

/// Cores this process may use, as the system reports them (affinity and cgroup quota included).
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
