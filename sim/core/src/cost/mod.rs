//! How long a round of decoding and a prompt take: the cost model.
//!
//! A round reads a window of rows through all layers. In each layer the GPU computes what stands before the experts
//! (*dense*), then the experts of the layer are served by up to three branches: resident ones on the GPU (*hits*),
//! missed ones on the CPU where they lie (*cpu*), missed ones on the GPU after a copy over PCIe (*copy*). The next layer
//! starts when all have arrived. [`round_time`] adds this up, layer by layer, because the maximum of sums is not the sum of
//! maxima. What surrounds the layers (output head, drafts, commit, the rows of the n-gram table) is added once.
//!
//! Everything is computed from three descriptions and the counts of each layer:
//!
//! - [`Machine`]: bandwidths and sizes of a machine, published or measured;
//! - [`ModelShape`]: sizes of a model;
//! - [`Constants`]: what no data sheet holds; the fitted values and where they come from stand there;
//! - [`LayerCounts`]: distinct resident and missed experts of a layer, from a replayed trace or, where there is none,
//!   expected from a hit rate ([`counts`]).
//!
//! Times are in seconds and sizes in bytes unless a name says otherwise; GB is 10^9 bytes.

mod acceptance;
mod constants;
pub mod counts;
mod from_profile;
mod groups;
mod kv;
mod layer;
mod machine;
mod model;
mod prefill;
mod round;
mod slots;
mod split;

pub use acceptance::{Acceptance, Rounds};
pub use constants::{Constants, PromptConstants, VramConstants};
pub use counts::LayerCounts;
pub use groups::two_groups;
pub use kv::KvType;
pub use layer::{Composition, Copies, LayerTime, layer_time};
pub use machine::Machine;
pub use model::{ModelShape, WeightKind};
pub use prefill::{Prompt, PromptTime, largest_chunk, prompt_time};
pub use round::{RoundTime, Window, round_time};
pub use slots::{SlotPlan, slots};
pub use split::{STAGING_EXPERTS, Split};

#[cfg(test)]
mod tests;
