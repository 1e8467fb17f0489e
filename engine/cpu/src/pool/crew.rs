//! The threads' common ground: how a call is handed out, worked off and waited for.

use super::claims::{Claims, Epoch};
use super::gate::{Gate, lock};
use super::sync::{AtomicBool, Mutex, Ordering, spin_until};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The function of a call, with the caller's lifetime erased: valid while the call is not finished.
#[derive(Clone, Copy)]
struct Job(*const (dyn Fn(usize) + Sync));

// SAFETY: what it points to is `Sync`, so any thread may call it through a shared reference.
unsafe impl Send for Job {}

/// What the calling thread and the workers share.
pub(super) struct Crew {
    claims: Claims<Job>,
    /// Where workers sleep until there is work.
    work: Gate,
    /// Where a caller sleeps until its work is done.
    done: Gate,
    /// Held by the caller whose call is open.
    turn: Mutex<()>,
    /// The first panic of the open call.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    stop: AtomicBool,
    crowded: bool,
}

impl Crew {
    /// `crowded`: there are more threads than cores for them.
    pub(super) fn new(crowded: bool) -> Crew {
        Crew {
            claims: Claims::new(Job(&|_| ())),
            work: Gate::new(),
            done: Gate::new(),
            turn: Mutex::new(()),
            panic: Mutex::new(None),
            stop: AtomicBool::new(false),
            crowded,
        }
    }

    /// Calls `f` for every index below `tasks` (at most [`MAX_TASKS`](super::claims::MAX_TASKS)), together with the
    /// workers, and returns when all calls have. Waits until other callers are done.
    pub(super) fn call(&self, tasks: usize, f: &(dyn Fn(usize) + Sync)) {
        if tasks == 0 {
            return;
        }
        let turn = lock(&self.turn);
        // SAFETY: only the lifetime changes. The pointer is used only under a claim, and this function does not
        // leave before every claim is reported: nothing between here and the wait below unwinds, as tasks run under
        // `catch_unwind`.
        let job = Job(unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), *const (dyn Fn(usize) + Sync)>(f) });
        // SAFETY: the turn is ours, and whoever had it before waited until its call was finished.
        let epoch = unsafe { self.claims.open(tasks, job) };
        self.work.ring();
        self.take_part(epoch);
        let finished = || self.claims.finished();
        if !spin_until(self.crowded, finished) {
            self.done.sleep_until(finished);
        }
        let panic = lock(&self.panic).take();
        drop(turn);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// A worker's life: it takes part in every call until [`stop`](Crew::stop).
    pub(super) fn work(&self) {
        let stopped = || self.stop.load(Ordering::Relaxed);
        let wanted = || self.claims.current().is_some() || stopped();
        loop {
            if !spin_until(self.crowded, wanted) {
                self.work.sleep_until(wanted);
            }
            match self.claims.current() {
                Some(epoch) => self.take_part(epoch),
                None if stopped() => return,
                // Others took the last task between the two looks.
                None => {}
            }
        }
    }

    /// Sends the workers home. No call may be open or follow.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.work.ring();
    }

    /// Works off tasks of a call until none is left to take.
    fn take_part(&self, epoch: Epoch) {
        let mut done = 0;
        while let Some((index, Job(f))) = self.claims.claim(epoch) {
            // SAFETY: the claim is not reported yet, so the caller is still in `call` and what `f` points to lives.
            let task = AssertUnwindSafe(|| unsafe { (*f)(index) });
            if let Err(panic) = catch_unwind(task) {
                keep_first(&mut lock(&self.panic), panic);
            }
            done += 1;
        }
        // SAFETY: `done` claims were made above, and `f` is not used any more.
        if done > 0 && unsafe { self.claims.finish(done) } {
            self.done.ring();
        }
    }
}

/// A call without workers: the same promises about panics.
pub(super) fn alone(tasks: usize, f: &(dyn Fn(usize) + Sync)) {
    let mut first = None;
    for index in 0..tasks {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| f(index))) {
            keep_first(&mut first, panic);
        }
    }
    if let Some(panic) = first {
        resume_unwind(panic);
    }
}

fn keep_first(kept: &mut Option<Box<dyn Any + Send>>, panic: Box<dyn Any + Send>) {
    match kept {
        None => *kept = Some(panic),
        // Dropping a payload may run foreign code, which may panic again; a leak is the lesser evil.
        Some(_) => std::mem::forget(panic),
    }
}
