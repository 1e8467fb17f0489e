//! What can go wrong with a device.

use cudarc::driver::DriverError;

/// A GPU that cannot be used, or not any more.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The driver's library was not found.
    #[error("no NVIDIA driver was found (libcuda); the CPU can do everything, only slower")]
    NoDriver,
    /// There is a driver but no such GPU.
    #[error("there is no GPU {asked}: the driver knows {found}")]
    NoDevice {
        /// The number asked for, from 0.
        asked: usize,
        /// How many there are.
        found: usize,
    },
    /// The driver is older than the kernels' PTX.
    #[error("the NVIDIA driver is too old: it speaks CUDA {}.{}, and 12.8 (driver 570) or newer is needed", version / 1000, version % 1000 / 10)]
    OldDriver {
        /// As the driver tells it, 1000 times the major version plus 10 times the minor.
        version: i32,
    },
    /// The GPU is older than the kernels.
    #[error("{name} has compute capability {major}.{minor}; 7.5 (Turing, 2018) or newer is needed")]
    OldDevice {
        /// The GPU.
        name: String,
        /// Its compute capability.
        major: i32,
        /// Its compute capability.
        minor: i32,
    },
    /// Not enough memory.
    #[error("the GPU has no room for {asked} more bytes ({free} of {total} are free)")]
    Memory {
        /// What was to be allocated.
        asked: usize,
        /// What the driver says is free.
        free: usize,
        /// What the GPU has.
        total: usize,
    },
    /// The driver refused something.
    #[error("the GPU failed while {doing}: {what}")]
    Driver {
        /// What was being done.
        doing: String,
        /// What the driver said.
        what: String,
    },
    /// A mistake of ours: an operation with buffers that do not fit each other.
    #[error("internal error: {0}")]
    Internal(String),
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Tells what was being done when the driver refused.
pub(crate) fn driver(doing: impl Into<String>) -> impl FnOnce(DriverError) -> Error {
    let doing = doing.into();
    move |e| {
        let what = e.error_string().map_or_else(|_| format!("{:?}", e.0), |s| s.to_string_lossy().into_owned());
        Error::Driver { doing, what }
    }
}
