//! A window cut into two groups of rows that take turns: while the CPU computes the experts of one, the GPU computes the
//! dense part of the other.
//!
//! The original engine has it, exact and about 7 % slower. What it costs is visible in the branches: both groups read
//! the dense weights and the head, and an expert that both need is read twice.

use super::counts::{Unions, expected};
use super::{Composition, Constants, Copies, LayerCounts, LayerTime, Machine, ModelShape, RoundTime, Split, Window};
use super::{layer_time, round_time};
use crate::error::SimError;

/// The time of a round whose rows are cut into two groups, with hit probability `hits`. One row cannot be cut.
///
/// The GPU's work is one ordered stream, so the groups alternate in lockstep: while the CPU computes the experts of one,
/// the GPU finishes the layer of the other and starts its next, and each such phase ends with the later of the two. The
/// CPU has nothing to do until the first dense part is done, and the GPU waits for the last experts: once a round.
/// What keeps a real engine from alternating so evenly (one thread that serves both groups' doorbells and computes
/// experts besides) is not in it, so this is the best that the idea can give.
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
    let mut layer_sum = 0.0;
    let mut first_front = 0.0;
    for layer in 0..model.layers() {
        let bytes = model.expert_bytes[layer];
        // Counts stand in rising order; those of the groups are not taken to rise together.
        let at = [layer, (layer + model.layers() / 2) % model.layers()];
        let mut times = [LayerTime::default(); 2];
        for group in 0..2 {
            let counts = groups[group][at[group]];
            let rows = halves[group];
            times[group] = layer_time(machine, model, constants, split, order, rows, (dense, select), bytes, counts)?;
            sum.add_layer(&times[group]);
        }
        let gpu = times.map(|t| t.dense + t.nodes + t.sync + t.hits + t.copy);
        layer_sum += times[0].cpu.max(times[0].dram).max(gpu[1]) + times[1].cpu.max(times[1].dram).max(gpu[0]);
        if layer == 0 {
            first_front = times[0].dense + times[0].nodes + times[0].sync;
        }
    }
    layer_sum += first_front;
    // What the host waits is what the CPU's experts do not fill.
    sum.wait_gpu = layer_sum - sum.cpu_pool;
    sum.total = layer_sum + sum.head + sum.draft + sum.commit + sum.ngram + sum.other;
    Ok(sum)
}
