//! Starting kernels, and timing them.

use super::{Device, Functions, clock, lock};
use crate::error::{Error, Result, driver};
use crate::kernels::{MODULES, OVERLAPPING, home, uncovered};
use cudarc::driver::{result, sys};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::atomic::Ordering;

/// An argument of a kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Arg {
    /// An address on the device; 0 where a kernel takes none.
    At(u64),
    /// A count.
    N(u32),
    /// A number.
    F(f32),
    /// A further word of the argument before, which is a structure.
    More(u64),
}

/// What a kernel took.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelTime {
    /// The kernel.
    pub name: String,
    /// How often it ran.
    pub times: usize,
    /// Seconds in all, the gap to the next one included.
    pub seconds: f64,
}

impl Device {
    /// Starts a kernel, unless one of the grid's sides is 0.
    ///
    /// # Safety
    /// The arguments must be those that the kernel takes, and its addresses must have room for what it reads and writes
    /// with this grid.
    pub(crate) unsafe fn launch(&self, kernel: &str, grid: [u32; 3], block: u32, args: &[Arg]) {
        if grid.contains(&0) {
            return;
        }
        self.attempt(|inner| {
            let clocked = inner.clocked.load(Ordering::Relaxed);
            let function = function(&mut lock(&inner.functions), kernel, inner.capability, clocked)?;
            // A parameter is read from the address of its value: the low bytes of a word, for the smaller ones.
            let mut words: Vec<u64> = args
                .iter()
                .map(|&arg| match arg {
                    Arg::At(address) => address,
                    Arg::N(n) => n.into(),
                    Arg::F(x) => x.to_bits().into(),
                    Arg::More(word) => word,
                })
                .collect();
            // A structure is read from its first word on.
            let begins = args.iter().map(|arg| !matches!(arg, Arg::More(_)));
            let mut params: Vec<*mut c_void> = words
                .iter_mut()
                .zip(begins)
                .filter_map(|(w, begins)| begins.then(|| std::ptr::from_mut(w).cast()))
                .collect();
            let [x, y, z] = grid;
            let mut timed = lock(&inner.timed);
            let event = || {
                let event = result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT)?;
                // SAFETY: both handles are ours and live.
                unsafe { result::event::record(event, inner.stream) }.map(|()| event)
            };
            let before = timed.is_some().then(event).transpose().map_err(driver("timing kernels"))?;
            let recording = lock(&inner.recording).is_some();
            // Kernels say themselves when they need what is before them: see cu/instructions.cuh. Branches of a graph begin and end plainly.
            let overlaps =
                inner.behind_kernel.swap(recording, Ordering::Relaxed) && recording && inner.capability >= OVERLAPPING;
            let mut attribute = sys::CUlaunchAttribute {
                id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                pad: [0; 4],
                value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
            };
            let config = sys::CUlaunchConfig {
                gridDimX: x,
                gridDimY: y,
                gridDimZ: z,
                blockDimX: block,
                blockDimY: 1,
                blockDimZ: 1,
                sharedMemBytes: 0,
                hStream: inner.current(),
                attrs: &raw mut attribute,
                numAttrs: overlaps.into(),
            };
            // SAFETY: the function is of a module that is never unloaded; the configuration and the parameters outlive the call; the
            // rest is the caller's word.
            unsafe { sys::cuLaunchKernelEx(&raw const config, function, params.as_mut_ptr(), std::ptr::null_mut()) }
                .result()
                .map_err(driver(format!("starting the kernel {kernel}")))?;
            if let (Some(timed), Some(before)) = (&mut *timed, before) {
                timed.push((kernel.to_owned(), before, event().map_err(driver("timing kernels"))?));
            }
            Ok(())
        });
    }

    /// Times every kernel that `f` starts, most expensive first. Not for graphs.
    ///
    /// # Errors
    /// The device failed.
    pub fn time_kernels<T>(&self, f: impl FnOnce() -> T) -> Result<(Vec<KernelTime>, T)> {
        *lock(&self.inner.timed) = Some(Vec::new());
        let made = f();
        let timed = lock(&self.inner.timed).take().unwrap_or_default();
        self.synchronize()?;
        let mut all: HashMap<String, (usize, f64)> = HashMap::new();
        for (name, before, behind) in timed {
            // SAFETY: both events were recorded on the stream, which has come to its end, and nobody has them any more.
            let took = unsafe {
                let took = result::event::elapsed(before, behind);
                let _ = (result::event::destroy(before), result::event::destroy(behind));
                took
            };
            let (times, seconds) = all.entry(name).or_default();
            *times += 1;
            *seconds += f64::from(took.map_err(driver("timing kernels"))?) / 1e3;
        }
        let mut all: Vec<_> =
            all.into_iter().map(|(name, (times, seconds))| KernelTime { name, times, seconds }).collect();
        all.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        Ok((all, made))
    }
}

/// Finds a kernel, translating its module if it is the first of it.
fn function(functions: &mut Functions, kernel: &str, capability: (i32, i32), clocked: bool) -> Result<sys::CUfunction> {
    if let Some(&function) = functions.found.get(kernel) {
        return Ok(function);
    }
    let missing = || Error::Internal(format!("there is no kernel {kernel}"));
    let at = home(kernel).ok_or_else(missing)?;
    let part = MODULES.get(at).ok_or_else(missing)?;
    let module = match functions.modules.get(&at) {
        Some(&module) => module,
        None => {
            let mut text = Cow::Borrowed(part.ptx);
            if clocked {
                text = Cow::Owned(clock::clocked(&text));
            }
            if capability >= OVERLAPPING {
                text = Cow::Owned(uncovered(&text));
            }
            // SAFETY: the text is PTX that ends with a zero byte; the context is current.
            let module = unsafe { result::module::load_data(text.as_ptr().cast()) }
                .map_err(driver(format!("translating the kernels of {}", part.name)))?;
            functions.modules.insert(at, module);
            module
        }
    };
    let name = CString::new(kernel).map_err(|_| missing())?;
    // SAFETY: the module is loaded.
    let function = unsafe { result::module::get_function(module, name) }
        .map_err(driver(format!("finding the kernel {kernel}")))?;
    functions.found.insert(kernel.to_owned(), function);
    Ok(function)
}
