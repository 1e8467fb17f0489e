//! The time of a round: all layers, and what surrounds them.

use super::{Composition, Constants, Copies, KvType, LayerCounts, LayerTime, Machine, ModelShape, Split, layer_time};
use crate::check::{invalid, not_negative, positive};
use crate::error::SimError;

/// What a round does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window<'a> {
    /// Rows of the window: the last token and its drafts.
    pub rows: f64,
    /// Steps of the draft layer.
    pub drafts: f64,
    /// Tokens before it.
    pub context: f64,
    /// How keys and values are stored.
    pub kv: KvType,
    /// Distinct experts of each layer.
    pub layers: &'a [LayerCounts],
}

/// Seconds of a round. `total` is the sum of `wait_gpu`, `cpu_pool`, `head`, `draft`, `commit`, `ngram` and `other`;
/// the others are branches that may run beside each other, summed over the layers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RoundTime {
    /// Reading dense weights and the context.
    pub dense: f64,
    /// Starting the graph's nodes.
    pub nodes: f64,
    /// Doorbells.
    pub sync: f64,
    /// Resident experts on the GPU.
    pub hits: f64,
    /// Copies over PCIe, with reading them on the GPU.
    pub copy: f64,
    /// The layers' time less the CPU's: what the host waits for the GPU.
    pub wait_gpu: f64,
    /// Experts on the CPU.
    pub cpu_pool: f64,
    /// The output head.
    pub head: f64,
    /// Draft steps.
    pub draft: f64,
    /// Keeping what was accepted.
    pub commit: f64,
    /// Rows of the n-gram table.
    pub ngram: f64,
    /// Everything else.
    pub other: f64,
    /// The whole round.
    pub total: f64,
    /// Experts copied in all layers.
    pub copied: f64,
    /// Experts computed on the CPU in all layers.
    pub on_cpu: f64,
    /// Bytes copied over PCIe.
    pub copied_bytes: f64,
    /// Bytes that the CPU reads.
    pub cpu_bytes: f64,
}

impl RoundTime {
    /// Adds the branches of a layer, not what is waited for them.
    pub(super) fn add_layer(&mut self, layer: &LayerTime) {
        self.dense += layer.dense;
        self.nodes += layer.nodes;
        self.sync += layer.sync;
        self.hits += layer.hits;
        self.copy += layer.copy;
        self.cpu_pool += layer.cpu;
        self.copied += layer.copied;
        self.on_cpu += layer.on_cpu;
        self.copied_bytes += layer.copied_bytes;
        self.cpu_bytes += layer.cpu_bytes;
    }

    /// Adds a share of another round: for a mean over windows of several sizes.
    pub fn add(&mut self, other: &RoundTime, share: f64) {
        for (mine, theirs) in [
            (&mut self.dense, other.dense),
            (&mut self.nodes, other.nodes),
            (&mut self.sync, other.sync),
            (&mut self.hits, other.hits),
            (&mut self.copy, other.copy),
            (&mut self.wait_gpu, other.wait_gpu),
            (&mut self.cpu_pool, other.cpu_pool),
            (&mut self.head, other.head),
            (&mut self.draft, other.draft),
            (&mut self.commit, other.commit),
            (&mut self.ngram, other.ngram),
            (&mut self.other, other.other),
            (&mut self.total, other.total),
            (&mut self.copied, other.copied),
            (&mut self.on_cpu, other.on_cpu),
            (&mut self.copied_bytes, other.copied_bytes),
            (&mut self.cpu_bytes, other.cpu_bytes),
        ] {
            *mine += theirs * share;
        }
    }
}

/// The time of a round.
///
/// # Errors
/// A number of the machine, the model, the constants or the window cannot be, or the window has counts for another
/// number of layers than the model has.
pub fn round_time(
    machine: &Machine,
    model: &ModelShape,
    constants: &Constants,
    split: Split,
    composition: (Composition, Copies),
    window: Window,
) -> Result<RoundTime, SimError> {
    machine.check()?;
    model.check()?;
    constants.check()?;
    positive("rows of a window", window.rows)?;
    not_negative("draft steps of a window", window.drafts)?;
    not_negative("context of a window", window.context)?;
    if window.layers.len() != model.layers() {
        let found = format!("{} layers", window.layers.len());
        return Err(invalid("counts of a window", found, format!("the model's {}", model.layers())));
    }
    let layers = model.layers() as f64;
    // Attention is dealt evenly over the layers: the order of layers does not change a sum of layers.
    let attention = model.attention_layers as f64 / layers;
    let dense = (model.dense_bytes - model.head_bytes) / layers + attention * window.kv.read_bytes(window.context);
    let select = attention * window.context * constants.select_ns * 1e-9;
    let mut sum = RoundTime {
        head: model.head_bytes / (machine.vram_gb_s * 1e9 * constants.vram_efficiency),
        draft: window.drafts * constants.step_ms * 1e-3,
        commit: constants.commit_ms * 1e-3,
        ngram: constants.ngram_ms * 1e-3,
        other: constants.other_ms * 1e-3,
        ..RoundTime::default()
    };
    for (&bytes, &counts) in model.expert_bytes.iter().zip(window.layers) {
        let rows = window.rows;
        let layer = layer_time(machine, model, constants, split, composition, rows, (dense, select), bytes, counts)?;
        sum.add_layer(&layer);
        sum.wait_gpu += layer.wait_gpu;
    }
    sum.total = sum.wait_gpu + sum.cpu_pool + sum.head + sum.draft + sum.commit + sum.ngram + sum.other;
    Ok(sum)
}
