//! qwen4exp, the architecture of Qwen3.8-Flash-Next: its forward pass and the state it carries.
//!
//! The pass is written once, in [`Model::forward`], over the operations of [`Ops`]; [`CpuOps`] performs them on the
//! CPU, [`CudaOps`] on a GPU, with the same bits. Everything that must survive from one token to the next, and be rolled back when tokens are taken back, lives
//! in one [`State`].
//!
//! ```no_run
//! use strata_gguf::Gguf;
//! use strata_model::{CpuOps, Model, Silent, Want};
//!
//! let gguf = Gguf::open("model.gguf".as_ref())?;
//! let model = Model::load(&gguf, CpuOps::new(0), &mut |_| ())?;
//! let mut state = model.new_state(4096);
//! let logits = model.forward(&mut state, &[1, 2, 3], Want::Last, &mut Silent)?.logits;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The network in one breath
//!
//! A token's embedding starts four equal residual streams. Each layer reads a gated mix of the streams (a
//! *hyper-connection*), runs a mixer (gated delta-net, or sparse attention in every fourth layer), adds the result to
//! every stream with its own weight, and does the same again for a mixture of experts. One early layer first adds
//! values looked up in a large table by hashes of the last two and three tokens. A last mix of the streams meets the
//! head.
//!
//! A [`DraftLayer`] guesses tokens ahead of the model, for the model to verify several in one pass.
#![forbid(unsafe_code)]

mod config;
mod cpu;
mod cuda;
mod draft;
mod error;
mod fingerprint;
mod forward;
mod identity;
mod loader;
mod ngram;
mod ops;
mod park;
pub mod plan;
mod state;
mod weights;
mod window;

pub use config::{ARCHITECTURE, Attention, Delta, Indexer, LayerKind, ModelConfig, NgramConfig};
pub use cpu::CpuOps;
pub use cuda::{CacheStart, CacheUse, CudaOps, ExpertPlace, RING};
pub use draft::{
    Candidates, Draft, DraftLayer, DraftLimits, DraftSnapshot, DraftState, HiddenNorm, check_draft_layer,
    draft_from_safetensors, pack_draft,
};
pub use error::{Error, Result};
pub use forward::{CacheRound, Model, Observer, Output, Silent, Want};
pub use identity::{ModelId, NUMERIC_VERSION};
pub use loader::Progress;
pub use ngram::NgramHash;
pub use ops::{DeltaUpdates, ExpertTensors, Ops, Routing};
pub use state::{Snapshot, State};
