//! Giving experts their places on the GPU.

use super::Gpu;
use crate::load;
use anyhow::Result;
use strata_model::plan::{Needs, in_turn};
use strata_model::{CudaOps, Silent};
use strata_policy::cache::CacheParams;
use strata_runtime::Engine;

/// Fills as many slots as there is room for, now that the weights are on the device, with the experts that are used most.
/// Returns how many have one.
///
/// # Errors
/// The device failed.
pub(super) fn slots(
    engine: &Engine<CudaOps>,
    gpu: &Gpu,
    needs: &Needs,
    quiet: bool,
    told: &dyn Fn(f32),
) -> Result<u64> {
    let (model, plan, device) = (engine.model(), &gpu.plan, &gpu.device);
    {
        // A sequence and a first pass: what these take stays with the device and serves the sequences that come, and until
        // they are touched neither the driver nor we know what they take.
        let mut state = model.new_state(plan.wish.context);
        model.verify(&mut state, &[0], &mut Silent)?;
        let _draft = engine.draft_layer().map(|draft| draft.new_state(model, plan.wish.context));
        device.synchronize()?;
    }
    let (free, _) = device.memory()?;
    let bytes = plan.slot_bytes(device.held() as u64, free as u64, needs.slot);
    let count = bytes / needs.slot.max(1);
    if count == 0 {
        return Ok(0);
    }
    let bar = load::bar("filling", "experts", quiet);
    bar.set_length(count);
    let (layers, experts) = (needs.config.layers, needs.config.experts);
    let ranking: Vec<(usize, usize)> = match &gpu.profile {
        Some(profile) => profile.ranking(),
        None => in_turn(layers, experts).collect(),
    };
    let counted = ranking.into_iter().enumerate().map(|(done, pair)| {
        bar.set_position((done as u64).min(count));
        told((done as f32 / count as f32).min(1.0));
        pair
    });
    let kept = model.keep_experts(usize::try_from(bytes)?, counted);
    bar.finish_and_clear();
    let kept = kept?;
    // What is there is what there is room for, however that was asked for.
    let params = CacheParams::from_knobs(|name| match name {
        "slots" => Some(kept.to_string()),
        "vram" | "bytes" => None,
        _ => gpu.cache.get(name).cloned(),
    });
    if let Some(params) = params? {
        model.adapt_experts(&params)?;
    }
    Ok(kept as u64)
}
