//! Replays what the engine recorded under other policies and on other machines.
#![forbid(unsafe_code)]

mod check;
pub mod cost;
mod error;
pub mod fit;
pub mod presets;
pub mod study;
pub mod validate;

pub use error::SimError;
