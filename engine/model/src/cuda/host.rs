//! What is said to the operations and asked of them besides passes.

use super::CudaOps;
use super::recording::lock;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strata_cpu::Cpu;
use strata_cpu::rope::Rope;
use strata_cuda::{Device, Turns};
use strata_policy::split::SplitRule;

impl CudaOps {
    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Where routed experts that are not on the device are computed.
    pub fn cpu(&self) -> &Cpu {
        &self.cpu
    }

    /// Where routed experts lie.
    pub fn place(&self) -> super::ExpertPlace {
        self.place
    }

    /// Whether short windows are recorded (they are, unless this says otherwise) or run operation by operation.
    pub fn record_windows(&self, yes: bool) {
        self.recorded.store(yes, Ordering::Relaxed);
    }

    /// How missed experts are split between the CPU and the link: by measured times, unless this says otherwise before the
    /// first window.
    pub fn split_misses(&self, rule: SplitRule) {
        *lock(&self.rule) = rule;
    }

    /// In how many bytes of the device's memory experts pass through when prompts are read and there are no slots to borrow for that;
    /// [`RING`](super::RING), unless this says otherwise before the first prompt. Without room the CPU computes those that are not resident.
    pub fn ring(&self, bytes: usize) {
        self.ring.store(bytes, Ordering::Relaxed);
    }

    /// The rotations of consecutive positions. A pass asks for the same in every layer.
    pub(super) fn turns(&self, rope: &Rope, positions: Range<usize>) -> Arc<Turns> {
        let mut kept = lock(&self.turns);
        match &*kept {
            Some((range, turns)) if *range == positions => Arc::clone(turns),
            _ => {
                let turns = Arc::new(Turns::new(&self.device, rope, positions.clone()));
                *kept = Some((positions, Arc::clone(&turns)));
                turns
            }
        }
    }
}

/// Rows of a table, one after another, on the host.
pub(super) fn looked_up(table: &strata_cpu::Matrix, rows: &[u64]) -> Vec<f32> {
    let len = table.in_len();
    let mut out = vec![0.0; rows.len() * len];
    for (&row, out) in rows.iter().zip(out.chunks_exact_mut(len)) {
        table.row(row as usize, out);
    }
    out
}
