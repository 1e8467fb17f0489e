//! Tensors in page-locked host memory, which the GPU reads in place.

use crate::device::Device;
use crate::error::{Result, driver};
use cudarc::driver::sys;
use std::ffi::c_void;
use strata_gguf::Tensor;

/// A tensor whose memory is page-locked for as long as this lives.
pub struct Pinned {
    device: Device,
    tensor: Tensor,
    address: u64,
}

impl Pinned {
    /// Page-locks a tensor's memory, which must be the tensor's own ([`Tensor::resident`]).
    ///
    /// # Errors
    /// The system or the driver refuses so much page-locked memory. The device is as usable as before.
    pub fn new(device: &Device, tensor: &Tensor) -> Result<Pinned> {
        let host = tensor.data().as_ptr().cast_mut().cast::<c_void>();
        let bytes = tensor.data().len();
        device.enter()?;
        let mut address = 0;
        // SAFETY: the memory is the tensor's, which is held here; the driver only reads through what it is asked to read.
        let locked = unsafe {
            sys::cuMemHostRegister_v2(host, bytes, sys::CU_MEMHOSTREGISTER_DEVICEMAP | sys::CU_MEMHOSTREGISTER_PORTABLE)
                .result()
                .and_then(|()| {
                    let found = sys::cuMemHostGetDevicePointer_v2(&raw mut address, host, 0).result();
                    found.inspect_err(|_| {
                        let _ = sys::cuMemHostUnregister(host);
                    })
                })
        };
        locked.map_err(driver(format!("page-locking {bytes} bytes of host memory")))?;
        Ok(Pinned { device: device.clone(), tensor: tensor.clone(), address })
    }

    /// The address of a byte of the tensor, as the device sees it.
    pub fn address(&self, byte: usize) -> u64 {
        self.address + byte as u64
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Kernels may still read it.
        let _ = self.device.synchronize();
        // SAFETY: it was registered, and nothing on the device reads it any more.
        let _ = unsafe { sys::cuMemHostUnregister(self.tensor.data().as_ptr().cast_mut().cast()) };
    }
}
