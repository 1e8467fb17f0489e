//! Decisions of the engine, as pure functions of what was measured.
//!
//! The policy that is simulated must be the policy that runs. So nothing here reads a clock, a file or a random number:
//! whatever a decision rests on (seconds, accepted drafts, tokens) is handed in by the caller, who can record it, and
//! the same records lead to the same decisions on every machine. Estimates use additions, multiplications, divisions
//! and square roots alone, which IEEE 754 rounds alike everywhere; logarithms and powers are not.
//!
//! - [`lookup`]: prompt lookup, drafts copied from earlier places of the text;
//! - [`window`]: where a round's drafts come from and how many rows its window has;
//! - [`hidden_norm`]: which of two readings of the draft layer's hidden norm is accepted more often;
//! - [`cache`]: which experts are resident on the GPU;
//! - [`split`]: which branch serves each expert that is not.
#![forbid(unsafe_code)]

pub mod cache;
pub mod hidden_norm;
pub mod lookup;
pub mod split;
pub mod window;
