//! Branches of a graph.

use super::{Device, Inner, lock};
use crate::error::{Result, driver};
use cudarc::driver::{result, sys};
use std::sync::atomic::Ordering;

/// A stream whose kernels are begun before those of others that wait.
pub(super) fn urgent() -> std::result::Result<sys::CUstream, cudarc::driver::DriverError> {
    let (mut least, mut most, mut stream) = (0, 0, std::ptr::null_mut());
    let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
    // SAFETY: the addresses are those of integers and of a handle; the context is current.
    unsafe {
        sys::cuCtxGetStreamPriorityRange(&raw mut least, &raw mut most).result()?;
        sys::cuStreamCreateWithPriority(&raw mut stream, flags, most).result()?;
    }
    Ok(stream)
}

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
        self.inner.turn_to(1);
        let made = f();
        self.inner.turn_to(0);
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

    /// What `f` starts runs beside what is started later, and behind all that was started before. `f` must not allocate: memory
    /// that it gives back would be others' at once.
    pub(crate) fn beside(&self, f: impl FnOnce()) {
        if self.order(self.inner.stream, self.inner.bringing) {
            self.inner.turn_to(2);
            f();
            self.inner.turn_to(0);
        }
    }

    /// What is started from now on runs behind what was started [beside](Device::beside) everything else.
    pub(crate) fn behind_what_is_beside(&self) {
        self.order(self.inner.bringing, self.inner.stream);
    }

    /// Waits until what was started [beside](Device::beside) everything else has ended.
    pub(crate) fn wait_beside(&self) {
        // SAFETY: the stream is ours and lives.
        self.attempt_call("copying experts", || unsafe { result::stream::synchronize(self.inner.bringing) });
    }

    /// Makes one stream wait for another.
    fn order(&self, first: sys::CUstream, then: sys::CUstream) -> bool {
        let done = self.attempt(|_| {
            let what = "ordering kernels";
            self.inner.behind_kernel.store(false, Ordering::Relaxed);
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

impl Inner {
    /// The stream on which things are started now, for what is no kernel: the kernel behind it waits until it has ended.
    pub(super) fn plainly(&self) -> sys::CUstream {
        self.behind_kernel.store(false, Ordering::Relaxed);
        self.current()
    }

    /// Starts things on another stream from now on.
    fn turn_to(&self, stream: u8) {
        self.now.store(stream, Ordering::Relaxed);
        self.behind_kernel.store(false, Ordering::Relaxed);
    }
}

/// A point on the stream beside, which the other can wait for.
pub(crate) struct Arrival {
    device: Device,
    event: sys::CUevent,
}

// SAFETY: the handle is the driver's, which may be used from any thread; each use makes the context current first.
unsafe impl Send for Arrival {}
// SAFETY: as above; the driver locks.
unsafe impl Sync for Arrival {}

impl Arrival {
    pub(crate) fn new(device: &Device) -> Result<Arrival> {
        device.enter()?;
        let event = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING);
        Ok(Arrival { device: device.clone(), event: event.map_err(driver("making an event"))? })
    }

    /// It is behind what was started beside so far.
    pub(crate) fn mark(&self) {
        // SAFETY: the event and the stream are ours and live.
        self.device.attempt_call("copying experts", || unsafe {
            result::event::record(self.event, self.device.inner.bringing)
        });
    }

    /// What is started from now on runs behind it.
    pub(crate) fn wait(&self) {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        self.device.attempt_call("copying experts", || {
            // SAFETY: as above.
            unsafe { result::stream::wait_event(self.device.inner.stream, self.event, flags) }
        });
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if self.device.enter().is_ok() {
            // SAFETY: the event is ours, and nobody has it any more.
            let _ = unsafe { result::event::destroy(self.event) };
        }
    }
}
