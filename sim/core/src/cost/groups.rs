//! A window cut into two groups of rows that take turns: while the CPU computes the experts of one, the GPU computes the
//! dense part of the other.
//!
//! The original engine has it, exact and about 7 % slower. What it costs is visible in the branches: both groups read
//! the dense weights, and an expert that both need is read twice.

use super::counts::{Unions, expected};
use super::{Composition, Constants, Copies, LayerCounts, Machine, ModelShape, RoundTime, Split, Window};
use super::{layer_time, round_time};
use crate::error::SimError;

/// The time of a round whose rows are cut into two groups, with hit probability `hits`. One row cannot be cut.
///
/// In each layer GPU and CPU each serve both groups; the longer of the two sums bounds the layer, and so does a single
/// group's own chain of dense part and experts. Filling and draining the pipeline costs one more chain less its part of
/// the bound, once a round.
///
/// # Errors
/// As of [`round_time`].
pub fn two_groups(
    machine: &Machine,
    model: &ModelShape,
    constants: &Constants,
    split: Split,
    hits: f64,
    unions: Unions,
    window: Window,
) -> Result<RoundTime, SimError> {
    let order = (Composition::Barrier, Copies::InTurn);
    let whole = round_time(machine, model, constants, split, order, window)?;
    if window.rows < 2.0 {
        return Ok(whole);
    }
    let first = (window.rows / 2.0).ceil();
    let halves = [first, window.rows - first];
    let counts = |rows| expected(model.layers(), model.experts, model.used, rows, hits, unions);
    let groups: [Vec<LayerCounts>; 2] = [counts(halves[0])?, counts(halves[1])?];
    let mut sum = RoundTime {
        head: 2.0 * whole.head,
        draft: whole.draft,
        commit: whole.commit,
        ngram: whole.ngram,
        other: whole.other,
        ..RoundTime::default()
    };
    let layers = model.layers() as f64;
    let attention = model.attention_layers as f64 / layers;
    let dense = (model.dense_bytes - model.head_bytes) / layers + attention * window.kv.read_bytes(window.context);
    let select = attention * window.context * constants.select_ns * 1e-9;
    let mut last = 0.0;
    let mut layer_sum = 0.0;
    for layer in 0..model.layers() {
        let bytes = model.expert_bytes[layer];
        let (mut gpu, mut cpu, mut chain) = (0.0, 0.0, 0.0f64);
        for (rows, counts) in halves.iter().zip(&groups) {
            let t = layer_time(machine, model, constants, split, order, *rows, (dense, select), bytes, counts[layer])?;
            gpu += t.dense + t.nodes + t.sync + t.hits + t.copy;
            cpu += t.cpu;
            chain = chain.max(t.total);
            sum.dense += t.dense;
            sum.nodes += t.nodes;
            sum.sync += t.sync;
            sum.hits += t.hits;
            sum.copy += t.copy;
            sum.cpu_pool += t.cpu;
            sum.copied += t.copied;
            sum.on_cpu += t.on_cpu;
            sum.copied_bytes += t.copied_bytes;
            sum.cpu_bytes += t.cpu_bytes;
        }
        let bound = gpu.max(cpu).max(chain);
        layer_sum += bound;
        last = (gpu + cpu - bound).clamp(0.0, chain);
    }
    sum.wait_gpu = (layer_sum + last - sum.cpu_pool).max(0.0);
    // The CPU's work is hidden where the GPU's is longer; what the host waits is the rest of the time.
    sum.total = layer_sum + last + sum.head + sum.draft + sum.commit + sum.ngram + sum.other;
    Ok(sum)
}
