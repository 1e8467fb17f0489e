//! What the host computes with.

use super::CudaOps;
use strata_cpu::Cpu;

impl CudaOps {
    /// Where routed experts that are not on the device are computed.
    pub fn cpu(&self) -> &Cpu {
        &self.cpu
    }

    /// Where routed experts lie.
    pub fn place(&self) -> super::ExpertPlace {
        self.place
    }
}
