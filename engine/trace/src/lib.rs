//! What the engine did, as records: which experts each token used, and how long each branch of a round took.
//!
//! A trace is written by the engine's decode loop and read by the simulator, which replays it under other policies and
//! cost models. Three levels hold its facts: the file as a whole ([`Meta`]), each [`Round`] (a window of tokens read in
//! one pass, or a chunk of a prompt), and each [`Token`] of a round with the experts that every layer chose for it.
//!
//! In memory a [`Trace`] keeps each kind of fact in one array, so that a replay walks through memory in order.
#![forbid(unsafe_code)]

mod meta;
mod round;
pub mod stats;
pub mod synth;
mod trace;

pub use meta::{KnobValue, Meta, ModelMeta, Origin};
pub use round::{BRANCHES, Branch, DraftSource, LayerTimes, Move, Phase, Round, Token};
pub use trace::{Trace, TraceError, gate_from_fixed, gate_to_fixed};
