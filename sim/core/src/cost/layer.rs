//! The time of one layer, by branch.

use super::split::nanos;
use super::{Constants, LayerCounts, Machine, ModelShape, Split};
use crate::error::SimError;
use strata_policy::split::BranchTimes;

/// What may run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Composition {
    /// Nothing: the sum of all branches.
    Serial,
    /// The original engine: the CPU's experts beside the GPU's, both behind the dense part.
    Barrier,
    /// Everything: the longest branch of each layer, as if its inputs were known early. A bound, not a design.
    Overlapped,
}

/// Whether copies wait for the resident experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copies {
    /// On one stream, first the resident experts, then the copies: the original engine.
    InTurn,
    /// On a stream of their own.
    Beside,
}

/// Seconds of the branches of one layer, and the bytes that two of them move.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LayerTime {
    /// Reading dense weights and the context on the GPU.
    pub dense: f64,
    /// Starting the graph's nodes.
    pub nodes: f64,
    /// Doorbells between GPU and host.
    pub sync: f64,
    /// Reading resident experts on the GPU.
    pub hits: f64,
    /// Copying experts over PCIe and reading them there.
    pub copy: f64,
    /// Experts on the CPU, waking the workers included.
    pub cpu: f64,
    /// What main memory needs for the CPU's and the copies' bytes together: a floor under both.
    pub dram: f64,
    /// The layer as composed.
    pub total: f64,
    /// The part of it that the host waits for the GPU, as the original engine measures it: dense part, and whatever the
    /// GPU's experts need longer than the CPU's.
    pub wait_gpu: f64,
    /// Experts copied.
    pub copied: f64,
    /// Experts computed on the CPU.
    pub on_cpu: f64,
    /// Bytes copied over PCIe.
    pub copied_bytes: f64,
    /// Bytes that the CPU reads.
    pub cpu_bytes: f64,
}

/// The time of one layer with `rows` rows: `dense_bytes` are what the GPU reads before the experts, `select` are
/// seconds that attention needs besides.
///
/// # Errors
/// A count is negative or no number. Machine, model and constants are taken to have been checked.
pub fn layer_time(
    machine: &Machine,
    model: &ModelShape,
    constants: &Constants,
    split: Split,
    composition: (Composition, Copies),
    rows: f64,
    (dense_bytes, select): (f64, f64),
    expert_bytes: f64,
    counts: LayerCounts,
) -> Result<LayerTime, SimError> {
    counts.check()?;
    let vram = machine.vram_gb_s * 1e9 * constants.vram_efficiency;
    let before = LayerTime {
        dense: dense_bytes / vram + select,
        nodes: (constants.nodes_per_layer * constants.node_us + constants.row_us * (rows - 1.0).max(0.0)) * 1e-6,
        sync: constants.sync_us * 1e-6,
        hits: counts.hits * expert_bytes / vram,
        ..LayerTime::default()
    };
    let link = machine.link_gb_s * 1e9;
    let bandwidth = expert_bytes / (machine.cpu_gb_s * 1e9);
    let weight = constants.weight_ns(model.kind) * 1e-9 / (machine.workers * machine.balance);
    let expert = bandwidth.max(model.expert_weights * weight);
    let wake = machine.wake_us.unwrap_or(constants.wake_us) * 1e-6;
    let with = |copied: f64| {
        let on_cpu = counts.misses - copied;
        let (copied_bytes, cpu_bytes) = (copied * expert_bytes, on_cpu * expert_bytes);
        let cpu = if on_cpu > 0.0 { wake + on_cpu * expert } else { 0.0 };
        let copy = copied_bytes / link + copied_bytes / vram;
        let dram = (copied_bytes + cpu_bytes) / (machine.dram_gb_s * 1e9);
        composed(LayerTime { copy, cpu, dram, copied, on_cpu, copied_bytes, cpu_bytes, ..before }, composition)
    };
    let resident = nanos(before.hits);
    let times = BranchTimes {
        resident,
        cpu_start: nanos(wake),
        cpu: nanos(if split == Split::Bandwidth { bandwidth } else { expert }),
        ..match composition.1 {
            Copies::InTurn => BranchTimes {
                copy_start: resident,
                copy: nanos(expert_bytes / link),
                gpu: nanos(expert_bytes / vram),
                ..BranchTimes::default()
            },
            Copies::Beside => {
                BranchTimes { copy: nanos(expert_bytes / link + expert_bytes / vram), ..BranchTimes::default() }
            }
        }
    };
    Ok(with(split.copied(counts.misses, &times)?))
}

/// Fills in `total` and `wait_gpu`.
fn composed(mut t: LayerTime, (composition, copies): (Composition, Copies)) -> LayerTime {
    let front = t.dense + t.nodes + t.sync;
    let gpu = match copies {
        Copies::InTurn => t.hits + t.copy,
        Copies::Beside => t.hits.max(t.copy),
    };
    t.total = match composition {
        Composition::Serial => front + t.hits + (t.copy + t.cpu).max(t.dram),
        Composition::Barrier => front + gpu.max(t.cpu).max(t.dram),
        Composition::Overlapped => (front + t.hits).max(t.copy).max(t.cpu).max(t.dram),
    };
    t.wait_gpu = t.total - t.cpu;
    t
}
