//! GGUF files, read without trusting them.
//!
//! A model reaches the engine as one file or as a set of shards that together exceed memory many times over. It was made by
//! somebody else's tool and may have been cut short by a download, joined with `cat`, renamed, or built to do harm. This
//! crate turns such files into typed metadata and byte ranges that the rest of the engine may use without a further check.
//!
//! # How the parts meet
//!
//! [`Gguf::open`] maps each file and parses its header: the metadata is copied out into [`Metadata`], the table of tensors
//! becomes a list of [`Tensor`]s that point into the mapping. Weights are read by the system when they are first touched,
//! so opening costs the headers and nothing else, and [`Tensor::prefetch_rows`] asks for pages ahead of their use. Sets of
//! shards are found from any of their files; [`models_in`] lists what a folder holds. [`Writer`] goes the other way, for
//! tests and tools, and converts tensors on the way. [`SafeTensors`] reads the format that weights are published in. [`GgmlType`] knows how each type's blocks are sized, [`quant`] what is in them.
//!
//! # Why no length is believed
//!
//! A header is a chain of counts and lengths, and a wrong one leads a reader to allocate what is not there, to wrap around
//! in a multiplication, or to serve one tensor's bytes as another's. So three rules hold everywhere:
//!
//! - nothing is allocated for a count before the file is known to have that many bytes left;
//! - sizes are computed with checked arithmetic, and a tensor exists only if its range lies inside its file;
//! - what does not add up is refused with one sentence that names the file and the tensor or key, and says what was found
//!   and what was expected. A missing tensor is called missing, a short file short, a type from the future new.
//!
//! One thing cannot be checked: a file that another process truncates while it is mapped (see the module `mmap`, the only
//! one where `unsafe` is allowed).
//!
//! # Example
//!
//! ```no_run
//! use strata_gguf::Gguf;
//!
//! # fn main() -> strata_gguf::Result<()> {
//! let model = Gguf::open("models/flash-00002-of-00003.gguf".as_ref())?;
//! println!("{} in {} files", model.meta().str("general.architecture")?, model.files().len());
//! let table = model.require("token_embd.weight")?;
//! println!("{} rows of {} values, {} bytes each", table.rows(), table.row_len(), table.row_bytes());
//! let first: Option<&[u8]> = table.row(0);
//! # assert!(first.is_some());
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

mod cursor;
mod encode;
mod error;
mod file;
mod foreign;
mod header;
mod layout;
#[allow(unsafe_code)]
mod mmap;
mod names;
pub mod quant;
mod safetensors;
mod shards;
mod template;
mod tensor;
mod tokenizer;
mod types;
mod value;
mod watch;
mod writer;

pub use error::{Error, Result, show_path, show_text};
pub use file::{Gguf, ShardInfo};
pub use safetensors::SafeTensors;
pub use shards::{ModelFiles, models_in};
pub use template::{ChatTemplate, RenderOptions, TemplateError};
pub use tensor::Tensor;
pub use tokenizer::{ControlText, Prompt, Special, SpecialLiterals, StreamDecoder, TokenKind, Tokenizer};
pub use types::GgmlType;
pub use value::{ArrayValue, Metadata, Value};
pub use watch::Watch;
pub use writer::Writer;
