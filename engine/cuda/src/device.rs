//! A GPU: its context, its stream, its memory.

mod aside;
mod clock;
mod launch;
mod lending;

pub(crate) use aside::Arrival;
use aside::urgent;
pub use clock::KernelStart;
pub(crate) use launch::Arg;
pub use launch::KernelTime;

use crate::error::{Error, Result, driver};
use crate::loan::{self, Loan};
use crate::pool::Pool;
use cudarc::driver::{result, sys};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::buffer::Memory;
use crate::graph::Graph;

/// A GPU that kernels run on. Clones are the same.
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

struct Inner {
    ordinal: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    /// For branches of graphs, and for what is brought beside kernels.
    side: sys::CUstream,
    bringing: sys::CUstream,
    /// Which stream things are started on: 0 the first, 1 `side`, 2 `bringing`.
    now: AtomicU8,
    /// Whether the last thing that was recorded is a kernel, with nothing beside it.
    behind_kernel: AtomicBool,
    /// Whether kernels note when they begin.
    clocked: AtomicBool,
    name: String,
    capability: (i32, i32),
    processors: u32,
    total: usize,
    functions: Mutex<Functions>,
    pool: Mutex<Pool>,
    loan: Mutex<Option<Loan>>,
    failure: Mutex<Option<Error>>,
    recording: Mutex<Option<Recording>>,
    /// While kernels are timed: each with the events before and behind it.
    timed: Mutex<Option<Vec<(String, sys::CUevent, sys::CUevent)>>>,
}

/// A graph that is being recorded.
struct Recording {
    /// Memory that only the graph uses, and which of it is free for its later kernels.
    own: Arc<Owned>,
    pool: Pool,
    /// Memory of others that the graph uses.
    used: HashMap<u64, Arc<Memory>>,
    /// While a branch is open: memory that was given back, sizes and addresses. Kernels of the branch and those beside it come in no
    /// order, so nobody may have it yet.
    waiting: Option<Vec<(usize, u64)>>,
}

/// Memory that belongs to a graph. It is given back when the graph is dropped, and everything that was made in it.
pub(crate) struct Owned {
    device: Device,
    pieces: Mutex<Vec<(u64, usize)>>,
}

impl Drop for Owned {
    fn drop(&mut self) {
        for (address, size) in lock(&self.pieces).drain(..) {
            self.device.release(address, size);
        }
    }
}

#[derive(Default)]
struct Functions {
    modules: HashMap<usize, sys::CUmodule>,
    found: HashMap<String, sys::CUfunction>,
}

// SAFETY: the handles are the driver's, which may be used from any thread; each use makes the context current first.
unsafe impl Send for Inner {}
// SAFETY: as above; what the handles stand for is changed by the driver alone, which locks.
unsafe impl Sync for Inner {}

/// What a mutex guards, also after a thread that had it panicked: all our guarded values are whole at any time.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn attribute(ordinal: sys::CUdevice, which: sys::CUdevice_attribute) -> Result<i32> {
    // SAFETY: `ordinal` is a device of the driver.
    unsafe { result::device::get_attribute(ordinal, which) }.map_err(driver("asking what the GPU is"))
}

impl Device {
    /// How many GPUs there are. None is no error.
    pub fn count() -> usize {
        // SAFETY: looks for a library by name; the driver's has no side effects when it is loaded.
        if !unsafe { sys::is_culib_present() } {
            return 0;
        }
        result::init().and_then(|()| result::device::get_count()).map_or(0, |n| usize::try_from(n).unwrap_or(0))
    }

    /// Opens GPU `number`, counted from 0.
    ///
    /// # Errors
    /// There is no driver, no such GPU, or one of them is too old.
    pub fn open(number: usize) -> Result<Device> {
        // SAFETY: as in `count`.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::NoDriver);
        }
        result::init().map_err(driver("starting the driver"))?;
        let mut version = 0;
        // SAFETY: the address is that of an integer.
        unsafe { sys::cuDriverGetVersion(&raw mut version) }
            .result()
            .map_err(driver("asking for the driver's version"))?;
        if version < 12080 {
            return Err(Error::OldDriver { version });
        }
        let found = result::device::get_count().map_err(driver("counting GPUs"))?;
        let found = usize::try_from(found).unwrap_or(0);
        let asked = i32::try_from(number).ok().filter(|_| number < found);
        let ordinal = asked.ok_or(Error::NoDevice { asked: number, found })?;
        let ordinal = result::device::get(ordinal).map_err(driver("opening the GPU"))?;
        let name = result::device::get_name(ordinal).map_err(driver("asking for the GPU's name"))?;
        use sys::CUdevice_attribute as Which;
        let major = attribute(ordinal, Which::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(ordinal, Which::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        if (major, minor) < (7, 5) {
            return Err(Error::OldDevice { name, major, minor });
        }
        let processors = attribute(ordinal, Which::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        // SAFETY: `ordinal` is a device of the driver.
        let total = unsafe { result::device::total_mem(ordinal) }.map_err(driver("asking for the GPU's memory"))?;
        // SAFETY: as above; released when the device is dropped.
        let context = unsafe { result::primary_ctx::retain(ordinal) }.map_err(driver("opening the GPU"))?;
        let streams = current(context).and_then(|()| {
            let make = || result::stream::create(result::stream::StreamKind::NonBlocking);
            make().and_then(|stream| Ok((stream, make()?, urgent()?))).map_err(driver("making a stream"))
        });
        let (stream, side, bringing) = streams.inspect_err(|_| {
            // SAFETY: retained above, and nothing else has it.
            let _ = unsafe { result::primary_ctx::release(ordinal) };
        })?;
        Ok(Device {
            inner: Arc::new(Inner {
                ordinal,
                context,
                stream,
                side,
                bringing,
                now: AtomicU8::new(0),
                behind_kernel: AtomicBool::new(false),
                clocked: AtomicBool::new(false),
                name,
                capability: (major, minor),
                processors: u32::try_from(processors).unwrap_or(1),
                total,
                functions: Mutex::default(),
                pool: Mutex::default(),
                loan: Mutex::default(),
                failure: Mutex::default(),
                recording: Mutex::default(),
                timed: Mutex::default(),
            }),
        })
    }

    /// The GPU's name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Compute capability, major and minor.
    pub fn capability(&self) -> (i32, i32) {
        self.inner.capability
    }

    /// Multiprocessors.
    pub fn processors(&self) -> u32 {
        self.inner.processors
    }

    /// Bytes of memory that are free now, and of the whole GPU.
    ///
    /// # Errors
    /// The driver does not tell.
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.enter()?;
        result::mem_get_info().map_err(driver("asking for the GPU's memory"))
    }

    /// Bytes that this device took from the driver, those that are free to serve again included.
    pub fn held(&self) -> usize {
        lock(&self.inner.pool).held
    }

    /// The first thing that failed, after which nothing is done any more.
    pub fn failure(&self) -> Option<Error> {
        lock(&self.inner.failure).clone()
    }

    /// Keeps a failure, if it is the first.
    pub(crate) fn fail(&self, error: Error) {
        lock(&self.inner.failure).get_or_insert(error);
    }

    /// Waits until everything that was started has ended.
    ///
    /// # Errors
    /// The first failure.
    pub fn synchronize(&self) -> Result<()> {
        self.failure().map_or(Ok(()), Err)?;
        self.enter()?;
        // SAFETY: the stream is ours and lives.
        let done = unsafe { result::stream::synchronize(self.inner.stream) }.map_err(driver("running kernels"));
        done.inspect_err(|e| self.fail(e.clone()))
    }

    /// Makes the context this thread's.
    pub(crate) fn enter(&self) -> Result<()> {
        current(self.inner.context)
    }

    /// Runs a driver call unless something failed before, and keeps its failure.
    fn attempt<T>(&self, f: impl FnOnce(&Inner) -> Result<T>) -> Option<T> {
        if self.failure().is_some() {
            return None;
        }
        self.enter().and_then(|()| f(&self.inner)).map_err(|e| self.fail(e)).ok()
    }

    /// Memory of at least `bytes`, its size, and the graph it belongs to while one is recorded; address 0 if there is none,
    /// which is a failure that is kept.
    /// A `constant` of a graph has memory that none of its kernels writes to, earlier ones included.
    pub(crate) fn allocate(&self, bytes: usize, constant: bool) -> (u64, usize, Option<Arc<Owned>>) {
        let size = Pool::size(bytes);
        let mut recording = lock(&self.inner.recording);
        let Some(recording) = &mut *recording else {
            drop(recording);
            let borrowed = || lock(&self.inner.loan).as_mut().filter(|_| size >= loan::LEAST && !constant)?.take(size);
            return (borrowed().unwrap_or_else(|| self.take(size, bytes)), size, None);
        };
        let own = Arc::clone(&recording.own);
        let again = if constant { None } else { recording.pool.take(size) };
        let address = again.unwrap_or_else(|| {
            let address = self.take(size, bytes);
            lock(&own.pieces).push((address, size));
            address
        });
        (address, size, Some(own))
    }

    /// Memory of a size of [`Pool::size`] that serves again or is new; address 0 if there is none, which is a failure that is kept.
    fn take(&self, size: usize, bytes: usize) -> u64 {
        self.obtain(size, bytes).map_err(|e| self.fail(e)).unwrap_or(0)
    }

    /// Memory of at least `bytes`, and its size, outside of any graph. Without room the device is as usable as before.
    pub(crate) fn try_allocate(&self, bytes: usize) -> Result<(u64, usize)> {
        if bytes > usize::MAX / 4 {
            return Err(Error::Memory { asked: bytes, free: self.memory()?.0, total: self.inner.total });
        }
        let size = Pool::size(bytes);
        self.obtain(size, bytes).map(|address| (address, size))
    }

    fn obtain(&self, size: usize, bytes: usize) -> Result<u64> {
        if let Some(address) = lock(&self.inner.pool).take(size) {
            return Ok(address);
        }
        self.failure().map_or(Ok(()), Err)?;
        self.enter()?;
        // SAFETY: the context is current; the address is freed when the device is dropped or memory is short.
        let address = unsafe { result::malloc_sync(size) }.or_else(|_| {
            // What lies idle first. Freeing waits for the kernels that may still use it.
            let idle = lock(&self.inner.pool).drain();
            for address in idle {
                // SAFETY: the address came from the driver and nobody has it any more.
                let _ = unsafe { result::free_sync(address) };
            }
            // SAFETY: as above.
            unsafe { result::malloc_sync(size) }.map_err(|_| {
                let (free, total) = result::mem_get_info().unwrap_or((0, self.inner.total));
                Error::Memory { asked: bytes, free, total }
            })
        })?;
        lock(&self.inner.pool).held += size;
        Ok(address)
    }

    /// Gives back memory of a graph, which its later kernels may have.
    pub(crate) fn release_within(&self, own: &Arc<Owned>, address: u64, size: usize) {
        if let Some(recording) = &mut *lock(&self.inner.recording)
            && Arc::ptr_eq(&recording.own, own)
            && address != 0
        {
            match &mut recording.waiting {
                Some(waiting) => waiting.push((size, address)),
                None => recording.pool.put(size, address),
            }
        }
    }

    /// Takes note that the graph that is recorded, if one is, uses memory of others.
    pub(crate) fn uses(&self, memory: &Arc<Memory>) {
        if let Some(recording) = &mut *lock(&self.inner.recording) {
            recording.used.entry(memory.address()).or_insert_with(|| Arc::clone(memory));
        }
    }

    /// Records what `f` starts on the device instead of running it. What `f` allocates belongs to the graph, and what it
    /// uses besides lives as long.
    ///
    /// # Errors
    /// The driver refuses, something in `f` did, or a graph is being recorded already.
    pub fn record<T>(&self, f: impl FnOnce() -> T) -> Result<(Graph, T)> {
        // Constants are copied at once, into memory that kernels may still use.
        self.synchronize()?;
        let own = Arc::new(Owned { device: self.clone(), pieces: Mutex::default() });
        {
            let mut recording = lock(&self.inner.recording);
            if recording.is_some() {
                return Err(Error::Internal("a graph is being recorded already".to_owned()));
            }
            *recording =
                Some(Recording { own: Arc::clone(&own), pool: Pool::default(), used: HashMap::new(), waiting: None });
        }
        // Relaxed: memory is allocated meanwhile, and constants are copied.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is ours and lives.
        let begun =
            unsafe { result::stream::begin_capture(self.inner.stream, mode) }.map_err(driver("recording a graph"));
        self.inner.behind_kernel.store(false, Ordering::Relaxed);
        let made = begun.map(|()| f());
        let recording = lock(&self.inner.recording).take();
        let made = made?;
        // SAFETY: the stream is ours and lives.
        let graph = unsafe { result::stream::end_capture(self.inner.stream) }.map_err(driver("recording a graph"));
        let graph = graph.inspect_err(|e| self.fail(e.clone()))?;
        let used = recording.map(|r| r.used.into_values().collect()).unwrap_or_default();
        let graph = Graph::new(self, graph, own, used)?;
        self.failure().map_or(Ok((graph, made)), Err)
    }

    /// Whether a graph is being recorded.
    pub fn is_recording(&self) -> bool {
        lock(&self.inner.recording).is_some()
    }

    /// The stream, for graphs.
    pub(crate) fn stream(&self) -> sys::CUstream {
        self.inner.stream
    }

    /// Runs a driver call unless something failed before, and keeps its failure.
    pub(crate) fn attempt_call(
        &self,
        doing: &str,
        f: impl FnOnce() -> std::result::Result<(), cudarc::driver::DriverError>,
    ) {
        self.attempt(|_| f().map_err(driver(doing)));
    }

    /// Gives back what [`Device::allocate`] gave.
    pub(crate) fn release(&self, address: u64, size: usize) {
        if address == 0 {
            return;
        }
        match &mut *lock(&self.inner.loan) {
            Some(loan) if loan.has(address) => loan.put(address, size),
            _ => lock(&self.inner.pool).put(size, address),
        }
    }

    /// Copies to the device; `values` may change when this returns.
    ///
    /// # Safety
    /// `to` must have room for the values.
    pub(crate) unsafe fn upload<T: Copy>(&self, to: u64, values: &[T]) {
        if values.is_empty() {
            return;
        }
        let recording = self.is_recording();
        // SAFETY: there is room, says the caller. The driver has read pageable memory when this call returns. While a graph is
        // recorded, what is copied is a constant of it: it is copied now, and nothing that runs uses the memory.
        self.attempt(|inner| unsafe {
            match recording {
                true => result::memcpy_htod_sync(to, values),
                false => result::memcpy_htod_async(to, values, inner.current()),
            }
            .map_err(driver("copying to the GPU"))
        });
    }

    /// Copies from the device, waiting for everything before.
    ///
    /// # Safety
    /// `from` must hold as many values, of a type that any bits are a value of.
    pub(crate) unsafe fn download<T: Copy>(&self, from: u64, values: &mut [T]) {
        if values.is_empty() {
            return;
        }
        let copied = self.attempt(|inner| {
            // SAFETY: there are as many, says the caller, and `values` outlives the copy, which is waited for.
            unsafe { result::memcpy_dtoh_async(values, from, inner.stream) }.map_err(driver("copying from the GPU"))
        });
        if copied.is_some() {
            // A failure is kept.
            let _ = self.synchronize();
        }
    }

    /// Copies on the device.
    ///
    /// # Safety
    /// Both addresses must have so many bytes, and the two must not overlap.
    pub(crate) unsafe fn copy(&self, to: u64, from: u64, bytes: usize) {
        if bytes > 0 {
            // SAFETY: as the caller says.
            self.attempt(|inner| unsafe {
                result::memcpy_dtod_async(to, from, bytes, inner.plainly()).map_err(driver("copying on the GPU"))
            });
        }
    }

    /// Fills with a byte.
    ///
    /// # Safety
    /// `to` must have so many bytes.
    pub(crate) unsafe fn fill(&self, to: u64, byte: u8, bytes: usize) {
        if bytes > 0 {
            // SAFETY: as the caller says.
            self.attempt(|inner| unsafe {
                result::memset_d8_async(to, byte, bytes, inner.plainly()).map_err(driver("filling memory of the GPU"))
            });
        }
    }
}

/// Makes a context this thread's.
fn current(context: sys::CUcontext) -> Result<()> {
    // SAFETY: the context is retained as long as the device lives.
    unsafe { result::ctx::set_current(context) }.map_err(driver("using the GPU"))
}

impl Inner {
    /// The stream on which things are started now.
    fn current(&self) -> sys::CUstream {
        match self.now.load(Ordering::Relaxed) {
            1 => self.side,
            2 => self.bringing,
            _ => self.stream,
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if current(self.context).is_err() {
            return;
        }
        // Nothing can be done about failures here.
        // SAFETY: the handles are ours, and nobody has them any more; buffers hold the device, so all memory is idle.
        unsafe {
            let _ = result::stream::synchronize(self.stream);
            for address in lock(&self.pool).drain() {
                let _ = result::free_sync(address);
            }
            for module in lock(&self.functions).modules.values() {
                let _ = result::module::unload(*module);
            }
            let _ = result::stream::destroy(self.stream);
            let _ = result::stream::destroy(self.side);
            let _ = result::stream::destroy(self.bringing);
            let _ = result::primary_ctx::release(self.ordinal);
        }
    }
}
