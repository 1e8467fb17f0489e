//! GGUF files, read without trusting them.
#![deny(unsafe_code)]

mod cursor;
mod error;
mod file;
mod foreign;
mod header;
mod layout;
#[allow(unsafe_code)]
mod mmap;
mod names;
pub mod quant;
mod shards;
mod tensor;
mod template;
mod tokenizer;
mod types;
mod value;

pub use error::{Error, Result, show_path, show_text};
pub use file::{Gguf, ShardInfo};
pub use shards::{ModelFiles, models_in};
pub use tensor::Tensor;
pub use template::{ChatTemplate, RenderOptions, TemplateError};
pub use tokenizer::{ControlText, Prompt, Special, SpecialLiterals, StreamDecoder, TokenKind, Tokenizer};
pub use types::GgmlType;
pub use value::{ArrayValue, Metadata, Value};
