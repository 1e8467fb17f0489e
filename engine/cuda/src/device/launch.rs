//! Starting kernels, and timing them.

use super::{Device, Functions, lock};
use crate::error::{Error, Result, driver};
use crate::kernels::{MODULES, home};
use cudarc::driver::{result, sys};
use std::collections::HashMap;
use std::ffi::{CString, c_void};

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
            let function = function(&mut lock(&inner.functions), kernel)?;
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
            // SAFETY: the function is of a module that is never unloaded; the rest is the caller's word.
            unsafe { result::launch_kernel(function, (x, y, z), (block, 1, 1), 0, inner.current(), &mut params) }
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
fn function(functions: &mut Functions, kernel: &str) -> Result<sys::CUfunction> {
    if let Some(&function) = functions.found.get(kernel) {
        return Ok(function);
    }
    let missing = || Error::Internal(format!("there is no kernel {kernel}"));
    let at = home(kernel).ok_or_else(missing)?;
    let part = MODULES.get(at).ok_or_else(missing)?;
    let module = match functions.modules.get(&at) {
        Some(&module) => module,
        None => {
            // SAFETY: the text is PTX that ends with a zero byte; the context is current.
            let module = unsafe { result::module::load_data(part.ptx.as_ptr().cast()) }
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
