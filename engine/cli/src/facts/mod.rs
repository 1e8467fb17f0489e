//! What a model file says about itself, gathered without running it.
//!
//! Everything here is read from headers, so it takes no longer for a 100 GB model than for a small one. Keys that are
//! missing or of the wrong type leave a fact out and a note behind: looking into a broken file is when looking helps.

mod dimensions;
mod expected;
mod layers;
mod notes;
mod size;

pub(crate) use dimensions::Group;
pub(crate) use expected::Tensors;
pub(crate) use layers::{Kind, Layers};
pub(crate) use notes::unsupported;
pub(crate) use size::{Experts, Part, Sizes, is_routed};

use serde::Serialize;
use strata_gguf::{Gguf, Metadata};
use strata_model::ARCHITECTURE;

/// What is known about a model file.
#[derive(Debug, Serialize)]
pub(crate) struct Facts {
    pub(crate) path: String,
    pub(crate) architecture: Option<String>,
    /// Whether the engine runs this architecture.
    pub(crate) supported: bool,
    /// Whether this is a draft layer alone, which runs beside its model.
    pub(crate) draft_layer_only: bool,
    pub(crate) name: Option<String>,
    pub(crate) size_label: Option<String>,
    pub(crate) gguf_version: u32,
    pub(crate) files: Vec<FileSize>,
    /// Of all files together, headers included.
    pub(crate) file_bytes: u64,
    #[serde(serialize_with = "dimensions::as_map")]
    pub(crate) dimensions: Vec<Group>,
    pub(crate) layers: Option<Layers>,
    #[serde(flatten)]
    pub(crate) sizes: Sizes,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) chat_template: bool,
    #[serde(flatten)]
    pub(crate) tensors: Tensors,
    /// What is odd, a sentence each.
    pub(crate) notes: Vec<String>,
}

/// One file of the model.
#[derive(Debug, Serialize)]
pub(crate) struct FileSize {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) tensors: usize,
}

/// The tokenizer's figures.
#[derive(Debug, Serialize)]
pub(crate) struct Tokenizer {
    pub(crate) model: Option<String>,
    pub(crate) pre: Option<String>,
    pub(crate) tokens: Option<u64>,
    pub(crate) merges: Option<u64>,
    pub(crate) bos_token_id: Option<u64>,
    pub(crate) eos_token_id: Option<u64>,
    pub(crate) padding_token_id: Option<u64>,
}

impl Facts {
    /// Looks through an open model.
    pub(crate) fn of(gguf: &Gguf) -> Facts {
        let meta = gguf.meta();
        let mut notes = Vec::new();
        let architecture = text(meta, "general.architecture", &mut notes);
        let supported = architecture.as_deref() == Some(ARCHITECTURE);
        let layers = supported.then(|| Layers::of(gguf, &mut notes)).flatten();
        let tokenizer = Tokenizer {
            model: text(meta, "tokenizer.ggml.model", &mut notes),
            pre: text(meta, "tokenizer.ggml.pre", &mut notes),
            tokens: length(meta, "tokenizer.ggml.tokens"),
            merges: length(meta, "tokenizer.ggml.merges"),
            bos_token_id: number(meta, "tokenizer.ggml.bos_token_id", &mut notes),
            eos_token_id: number(meta, "tokenizer.ggml.eos_token_id", &mut notes),
            padding_token_id: number(meta, "tokenizer.ggml.padding_token_id", &mut notes),
        };
        let tensors = Tensors::of(gguf, layers.as_ref());
        let mut facts = Facts {
            path: gguf.name().into(),
            supported,
            draft_layer_only: gguf.is_draft_layer(),
            name: text(meta, "general.name", &mut notes),
            size_label: text(meta, "general.size_label", &mut notes),
            gguf_version: gguf.version(),
            files: gguf
                .files()
                .iter()
                .map(|f| FileSize { name: f.name.clone(), bytes: f.bytes, tensors: f.tensors })
                .collect(),
            file_bytes: gguf.files().iter().map(|f| f.bytes).sum(),
            dimensions: if supported { dimensions::of(gguf, &mut notes) } else { Vec::new() },
            sizes: Sizes::of(gguf, layers.as_ref(), &mut notes),
            chat_template: meta.opt_str("tokenizer.chat_template").is_ok_and(|t| t.is_some()),
            layers,
            architecture,
            tokenizer,
            tensors,
            notes: Vec::new(),
        };
        notes.extend(notes::of(gguf, &facts));
        notes.extend(gguf.warnings().iter().cloned());
        facts.notes = notes;
        facts
    }
}

/// A text; one of another type leaves a note.
fn text(meta: &Metadata, key: &str, notes: &mut Vec<String>) -> Option<String> {
    keep(meta.opt_str(key), notes).map(strata_gguf::show_text)
}

/// A whole number; one of another type leaves a note.
fn number(meta: &Metadata, key: &str, notes: &mut Vec<String>) -> Option<u64> {
    keep(meta.opt_u64(key), notes)
}

/// The length of an array.
fn length(meta: &Metadata, key: &str) -> Option<u64> {
    match meta.get(key)? {
        strata_gguf::Value::Array(a) => Some(a.len() as u64),
        _ => None,
    }
}

/// A key under the architecture's prefix.
fn key(name: &str) -> String {
    format!("{ARCHITECTURE}.{name}")
}

fn keep<T>(found: strata_gguf::Result<Option<T>>, notes: &mut Vec<String>) -> Option<T> {
    found.unwrap_or_else(|e| {
        notes.push(e.to_string());
        None
    })
}
