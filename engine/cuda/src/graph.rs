//! Kernels that were recorded once and run together, again and again.

use crate::buffer::Memory;
use crate::device::{Device, Owned};
use crate::error::{Result, driver};
use cudarc::driver::{result, sys};
use std::sync::Arc;

/// A recorded sequence of kernels. Starting it is one call, whatever it holds; positions and plans are values in memory that
/// its kernels read.
pub struct Graph {
    device: Device,
    exec: sys::CUgraphExec,
    kernels: usize,
    // What its kernels use lives as long.
    _own: Arc<Owned>,
    _used: Vec<Arc<Memory>>,
}

// SAFETY: the handle is the driver's, which may be used from any thread; each use makes the context current first.
unsafe impl Send for Graph {}
// SAFETY: as above; nothing is changed through a shared reference but by the driver, which locks.
unsafe impl Sync for Graph {}

impl Graph {
    pub(crate) fn new(device: &Device, graph: sys::CUgraph, own: Arc<Owned>, used: Vec<Arc<Memory>>) -> Result<Graph> {
        let mut kernels = 0;
        // SAFETY: the graph is the driver's; with no array it only counts. It is not needed once it is made executable.
        let exec = unsafe {
            let _ = sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &raw mut kernels).result();
            let exec = result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0));
            let _ = result::graph::destroy(graph);
            exec.map_err(driver("preparing a graph"))?
        };
        let made = Graph { device: device.clone(), exec, kernels, _own: own, _used: used };
        // Now rather than at the first start, where it would wait behind kernels that wait for the host.
        // SAFETY: both handles are ours and live.
        device.attempt_call("preparing a graph", || unsafe { result::graph::upload(exec, device.stream()) });
        device.synchronize()?;
        Ok(made)
    }

    /// Starts it behind everything that was started before. A failure is kept by the device.
    pub fn launch(&self) {
        // SAFETY: both handles are ours and live, and so does all memory that the kernels use.
        self.device
            .attempt_call("starting a graph", || unsafe { result::graph::launch(self.exec, self.device.stream()) });
    }

    /// Number of kernels and copies.
    pub fn kernels(&self) -> usize {
        self.kernels
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // It may still run.
        let _ = self.device.synchronize();
        // SAFETY: the handle is ours and nobody has it any more.
        let _ = unsafe { result::graph::exec_destroy(self.exec) };
    }
}
