//! GGUF files, read without trusting them.
#![deny(unsafe_code)]

mod error;
pub mod quant;
mod types;
mod value;

pub use error::{Error, Result, show_path, show_text};
pub use types::GgmlType;
pub use value::{ArrayValue, Metadata, Value};
