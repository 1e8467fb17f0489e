//! Replays what the engine recorded under other policies and on other machines.
//!
//! - [`cost`]: how long a round and a prompt take on a machine;
//! - [`fit`]: the cost model's constants, from recorded and published timings;
//! - [`validate`]: predicted beside measured, on what nothing was fitted to;
//! - [`input`]: texts that a person names;
//! - [`study`]: what experiments vary and measure;
//! - [`presets`]: published machines, model files and tables.
#![forbid(unsafe_code)]

mod check;
pub mod cost;
mod error;
pub mod fit;
pub mod input;
pub mod presets;
pub mod replay;
pub mod study;
pub mod validate;

pub use error::SimError;
