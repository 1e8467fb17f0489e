//! Keeping a thread on the core it was given.

use std::io;

/// The affinity a thread had before it was pinned.
#[cfg(target_os = "linux")]
pub(super) type Affinity = rustix::thread::CpuSet;

/// Pins the calling thread to logical CPUs; returns where it might run before.
#[cfg(target_os = "linux")]
pub(super) fn pin(cpus: &[usize]) -> io::Result<Affinity> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let mut set = CpuSet::new();
    for &cpu in cpus {
        // The set is the C library's, of fixed size.
        if cpu >= CpuSet::MAX_CPU {
            return Err(io::Error::other(format!("CPU numbers from {} on cannot be pinned to", CpuSet::MAX_CPU)));
        }
        set.set(cpu);
    }
    let before = sched_getaffinity(None)?;
    sched_setaffinity(None, &set)?;
    Ok(before)
}

/// Gives the calling thread its old affinity back. If the system refuses, it stays where it is.
#[cfg(target_os = "linux")]
pub(super) fn restore(before: &Affinity) {
    let _ = rustix::thread::sched_setaffinity(None, before);
}

/// Nothing: threads are not pinned here.
#[cfg(not(target_os = "linux"))]
pub(super) type Affinity = ();

/// Threads are not pinned here.
#[cfg(not(target_os = "linux"))]
pub(super) fn pin(_cpus: &[usize]) -> io::Result<Affinity> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Threads are not pinned here.
#[cfg(not(target_os = "linux"))]
pub(super) fn restore(_before: &Affinity) {}
