//! Host memory that the GPU reads and writes in place.

use crate::device::Device;
use crate::error::{Error, Result};
use cudarc::driver::{result, sys};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Page-locked words that both sides see: where the host and kernels that run answer each other.
///
/// It is ordinary cached memory for the CPU, not write-combined, since the CPU reads it. Both sides write words of 32 bits,
/// which are never torn; what is announced by a word is written before it ([`Mapped::announce`]).
pub struct Mapped {
    device: Device,
    host: *mut c_void,
    address: u64,
    words: usize,
}

// SAFETY: the memory is only read and written through atomics.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// `words` words of zeros.
    ///
    /// # Errors
    /// The system or the driver refuses so much page-locked memory.
    pub fn new(device: &Device, words: usize) -> Result<Mapped> {
        let mut made = None;
        device.attempt_call("page-locking host memory", || {
            let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
            // SAFETY: freed when dropped; not used before it is filled.
            let host = unsafe { result::malloc_host(words.max(1) * 4, flags) }?;
            let mut address = 0;
            // SAFETY: the memory was mapped by its flags, and has so many bytes.
            let mapped = unsafe {
                host.cast::<u8>().write_bytes(0, words.max(1) * 4);
                sys::cuMemHostGetDevicePointer_v2(&raw mut address, host, 0).result()
            };
            made = Some((host, address));
            mapped
        });
        let failed = || device.failure().unwrap_or_else(|| Error::Internal("no page-locked memory".to_owned()));
        let (host, address) = made.ok_or_else(failed)?;
        let mapped = Mapped { device: device.clone(), host, address, words };
        device.failure().map_or(Ok(mapped), Err)
    }

    /// The words, as the host sees them.
    pub fn words(&self) -> &[AtomicU32] {
        // SAFETY: the memory has so many words, is aligned to a page, and is only used through atomics while `self` lives.
        unsafe { std::slice::from_raw_parts(self.host.cast::<AtomicU32>(), self.words) }
    }

    /// The address of a word, as the device sees it.
    pub fn address(&self, word: usize) -> u64 {
        self.address + word as u64 * 4
    }

    /// Writes floats from a word on, as far as there is room.
    pub fn write(&self, at: usize, values: &[f32]) {
        for (word, value) in self.words().iter().skip(at).zip(values) {
            word.store(value.to_bits(), Ordering::Relaxed);
        }
    }

    /// Reads floats from a word on, as far as there are words.
    pub fn read(&self, at: usize, values: &mut [f32]) {
        for (value, word) in values.iter_mut().zip(self.words().iter().skip(at)) {
            *value = f32::from_bits(word.load(Ordering::Relaxed));
        }
    }

    /// Stores a word after everything that this thread wrote before.
    pub fn announce(&self, at: usize, value: u32) {
        if let Some(word) = self.words().get(at) {
            fence(Ordering::SeqCst);
            word.store(value, Ordering::Release);
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // Kernels may still use it.
        let _ = self.device.synchronize();
        // SAFETY: it came from the driver, and nobody has it any more.
        let _ = unsafe { result::free_host(self.host) };
    }
}
