//! How long a prompt takes that is read in chunks.
//!
//! A chunk needs nearly every expert, so those that are not in VRAM are streamed through a ring of slots while the chunk
//! is computed. The chunk's own buffers and the ring are borrowed from the slots, so a larger chunk finds fewer experts
//! in VRAM, and reads each of the others less often.

use super::counts::Unions;
use super::{Machine, ModelShape, PromptConstants};
use crate::check::{invalid, positive};
use crate::error::SimError;

/// A prompt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prompt {
    /// Its tokens.
    pub tokens: f64,
    /// Tokens of one chunk at most.
    pub chunk: f64,
    /// Slots for experts in VRAM.
    pub slots: f64,
    /// Share of look-ups that hit in decoding, for chunks that are too short to stream everything.
    pub hits: f64,
    /// How distinct experts grow with the rows.
    pub unions: Unions,
}

/// Seconds of a prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PromptTime {
    /// Streaming experts, all chunks.
    pub stream: f64,
    /// Computing, all chunks.
    pub compute: f64,
    /// What is paid once.
    pub fixed: f64,
    /// The whole prompt.
    pub total: f64,
    /// Chunks.
    pub chunks: f64,
    /// Bytes streamed.
    pub bytes: f64,
    /// Slots lent to a full chunk.
    pub lent: f64,
}

/// The largest chunk whose buffers and ring fit in the slots that may be lent, in whole tokens; 0 if none does.
///
/// # Errors
/// A number cannot be.
pub fn largest_chunk(model: &ModelShape, constants: &PromptConstants, slots: f64) -> Result<f64, SimError> {
    model.check()?;
    constants.check()?;
    let lendable = lendable(constants, slots) * model.mean_expert_bytes();
    Ok(((lendable - ring(constants, model)) / constants.token_bytes).floor().max(0.0))
}

fn lendable(constants: &PromptConstants, slots: f64) -> f64 {
    (slots - constants.keep_slots).min(slots * constants.lend_share).max(0.0)
}

/// Bytes of the ring. Its size is that of as many experts of Q2_0: larger experts have fewer places in it.
fn ring(constants: &PromptConstants, model: &ModelShape) -> f64 {
    constants.ring_slots * model.mean_expert_bytes().min(1_382_400.0)
}

/// The time of a prompt.
///
/// # Errors
/// A number cannot be, or the chunk's buffers do not fit in the slots that may be lent.
pub fn prompt_time(
    machine: &Machine,
    model: &ModelShape,
    constants: &PromptConstants,
    prompt: Prompt,
) -> Result<PromptTime, SimError> {
    machine.check()?;
    positive("tokens of a prompt", prompt.tokens)?;
    positive("tokens of a chunk", prompt.chunk)?;
    let full = prompt.chunk.min(prompt.tokens);
    let room = largest_chunk(model, constants, prompt.slots)?;
    if full > room {
        let expected = format!("at most the {room} for which {} slots have room", prompt.slots);
        return Err(invalid("tokens of a chunk", full, expected));
    }
    let mut time = PromptTime { lent: lent(model, constants, full), ..PromptTime::default() };
    let whole = (prompt.tokens / full).floor();
    let rest = prompt.tokens - whole * full;
    let mut total = 0.0;
    for (tokens, times) in [(full, whole), (rest, 1.0)] {
        if tokens < 1.0 || times < 1.0 {
            continue;
        }
        let bytes = streamed(model, constants, prompt, tokens, time.lent);
        let rate = constants.stream_gb_s.min(machine.link_gb_s * constants.link_efficiency);
        let stream = bytes / (rate * 1e9);
        let compute = compute(machine, model, constants, tokens);
        time.stream += times * stream;
        time.compute += times * compute;
        time.bytes += times * bytes;
        time.chunks += times;
        total += times * (stream.max(compute) + (1.0 - constants.overlap) * stream.min(compute));
    }
    time.fixed = (constants.batch_ms + constants.refill_ms) * 1e-3;
    time.total = total + time.fixed;
    Ok(time)
}

/// Slots lent for a chunk.
fn lent(model: &ModelShape, constants: &PromptConstants, tokens: f64) -> f64 {
    ((tokens * constants.token_bytes + ring(constants, model)) / model.mean_expert_bytes()).ceil()
}

/// Bytes that a chunk streams: every absent expert, or in a short chunk those that it routes to. Independent draws of
/// the misses would leave some out; how many follows from the union of misses of one row.
fn streamed(model: &ModelShape, constants: &PromptConstants, prompt: Prompt, tokens: f64, lent: f64) -> f64 {
    let pairs = model.pairs() as f64;
    if tokens >= constants.stream_from {
        return (pairs - (prompt.slots - lent)).max(0.0) * model.mean_expert_bytes();
    }
    let absent = (pairs - prompt.slots).max(0.0) / model.layers() as f64;
    if absent == 0.0 {
        return 0.0;
    }
    let drawn = (1.0 - prompt.hits) * model.used as f64 * tokens.powf(prompt.unions.missed);
    absent * (1.0 - (-drawn / absent).exp()) * model.layers() as f64 * model.mean_expert_bytes()
}

/// Seconds of a chunk's arithmetic: two operations for each weight that a token uses, the head once.
fn compute(machine: &Machine, model: &ModelShape, constants: &PromptConstants, tokens: f64) -> f64 {
    let head = model.dense_weights * model.head_bytes / model.dense_bytes;
    let routed = model.layers() as f64 * model.used as f64 * model.expert_weights;
    let operations = 2.0 * tokens * (model.dense_weights - head + routed);
    operations / (machine.tensor_tflops * 1e12 * constants.tensor_efficiency)
}
