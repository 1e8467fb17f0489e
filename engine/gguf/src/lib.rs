//! GGUF files, read without trusting them.
#![deny(unsafe_code)]

mod error;
pub mod quant;
mod template;
mod tokenizer;
mod types;
mod value;

pub use error::{Error, Result, show_path, show_text};
pub use template::{ChatTemplate, RenderOptions, TemplateError};
pub use tokenizer::{ControlText, Prompt, Special, SpecialLiterals, StreamDecoder, TokenKind, Tokenizer};
pub use types::GgmlType;
pub use value::{ArrayValue, Metadata, Value};
