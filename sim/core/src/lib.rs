//! Replays what the engine recorded under other policies and on other machines.
#![forbid(unsafe_code)]

mod error;
pub mod replay;
pub mod study;

pub use error::SimError;
