//! Branches of a graph.

use super::{Device, lock};
use crate::error::driver;
use cudarc::driver::{result, sys};
use std::sync::atomic::Ordering;

/// A branch that is open until it is [joined](Device::join).
#[must_use = "what a branch computes is there once it is joined"]
pub(crate) struct Aside(bool);

impl Device {
    /// While a graph is recorded, what `f` starts runs beside what is started later, up to [`Device::join`]; otherwise in its
    /// turn. One branch can be open at a time; another runs in its turn, too.
    pub(crate) fn aside<T>(&self, f: impl FnOnce() -> T) -> (T, Aside) {
        let possible = lock(&self.inner.recording).as_ref().is_some_and(|recording| recording.waiting.is_none());
        if !possible || !self.order(self.inner.stream, self.inner.side) {
            return (f(), Aside(false));
        }
        if let Some(recording) = &mut *lock(&self.inner.recording) {
            recording.waiting = Some(Vec::new());
        }
        self.inner.aside.store(true, Ordering::Relaxed);
        let made = f();
        self.inner.aside.store(false, Ordering::Relaxed);
        (made, Aside(true))
    }

    /// What is started from now on runs behind a branch.
    pub(crate) fn join(&self, branch: Aside) {
        if !branch.0 {
            return;
        }
        self.order(self.inner.side, self.inner.stream);
        if let Some(recording) = &mut *lock(&self.inner.recording) {
            for (size, address) in recording.waiting.take().unwrap_or_default() {
                recording.pool.put(size, address);
            }
        }
    }

    /// Makes one stream wait for another.
    fn order(&self, first: sys::CUstream, then: sys::CUstream) -> bool {
        let done = self.attempt(|_| {
            let what = "ordering kernels";
            let event = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING).map_err(driver(what))?;
            // SAFETY: the event and both streams are ours and live; the driver keeps what it needs of the event.
            unsafe {
                let ordered = result::event::record(event, first).and_then(|()| {
                    result::stream::wait_event(then, event, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)
                });
                let _ = result::event::destroy(event);
                ordered.map_err(driver(what))
            }
        });
        done.is_some()
    }
}
