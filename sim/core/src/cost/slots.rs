//! How many experts fit in VRAM.

use super::{KvType, Machine, ModelShape, VramConstants};
use crate::check::{invalid, not_negative};
use crate::error::SimError;

/// What else VRAM must hold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlotPlan {
    /// Room for tokens.
    pub context: f64,
    /// How keys and values are stored.
    pub kv: KvType,
    /// Tokens whose keys and values stay in VRAM; those of the others lie in RAM.
    pub resident: f64,
    /// Whether the draft layer is loaded.
    pub draft: bool,
}

/// Slots for experts: what dense weights, draft layer, context, reserve and the rest leave of VRAM, divided by the mean
/// size of an expert (slots are sized by what they hold), at most one for each pair of layer and expert.
///
/// # Errors
/// A number cannot be, or not even one slot fits.
pub fn slots(
    machine: &Machine,
    model: &ModelShape,
    constants: &VramConstants,
    plan: SlotPlan,
) -> Result<f64, SimError> {
    machine.check()?;
    model.check()?;
    not_negative("VRAM constant reserve_bytes", constants.reserve_bytes)?;
    not_negative("VRAM constant other_bytes", constants.other_bytes)?;
    not_negative("context", plan.context)?;
    not_negative("resident context", plan.resident)?;
    let draft = if plan.draft { model.draft_bytes } else { 0.0 };
    let cells = plan.kv.vram_bytes(model.attention_layers, plan.context, plan.resident);
    let taken = model.dense_bytes + model.extra_bytes + draft + cells + constants.reserve_bytes + constants.other_bytes;
    let left = machine.vram_gb * 1e9 - taken;
    let slots = (left / model.mean_expert_bytes()).floor();
    if slots < 1.0 {
        let found = format!("{:.2} GB left after {:.2} GB for everything else", left / 1e9, taken / 1e9);
        return Err(invalid(format!("VRAM of {} with {}", machine.name, model.name), found, "room for an expert"));
    }
    Ok(slots.min(model.pairs() as f64))
}
