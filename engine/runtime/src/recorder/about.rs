//! What a trace says about the model.

use crate::engine::Engine;
use crate::error::Result;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};
use strata_gguf::{Gguf, Tensor};
use strata_model::{ModelConfig, ModelId, Ops};
use strata_trace::{KnobValue, Meta, ModelMeta, Origin};

/// What holds for a whole recording.
#[derive(Debug, Clone)]
pub struct About {
    /// What the trace says.
    pub meta: Meta,
    /// Bytes of the head, the part of the dense weights that most chunks of a prompt do not read.
    pub head_bytes: u64,
}

impl About {
    /// What is known of a file and the engine that was loaded from it. `program` is the one that records, with its
    /// version; `knobs` are its settings as resolved.
    ///
    /// # Errors
    /// The file's experts cannot be told apart by their bytes.
    pub fn of<O: Ops>(
        gguf: &Gguf,
        engine: &Engine<O>,
        program: &str,
        knobs: BTreeMap<String, KnobValue>,
    ) -> Result<About> {
        let config = engine.model().config();
        let sizes = Sizes::of(gguf, config)?;
        let name = gguf.meta().opt_str("general.name").ok().flatten().unwrap_or_else(|| file_name(engine.name()));
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let meta = Meta {
            origin: Origin::Recorded,
            model: ModelMeta { name: name.to_owned(), id: ModelId::of(gguf).to_string(), quant: sizes.quant },
            engine: program.to_owned(),
            layers: config.layers.len(),
            experts: config.experts,
            used: config.experts_used,
            expert_bytes: sizes.experts,
            dense_bytes: sizes.dense,
            knobs,
            hardware: None,
            clock: "monotonic".to_owned(),
            resident: Vec::new(),
            unix_seconds: now.ok().map(|now| now.as_secs()),
            note: String::new(),
        };
        Ok(About { meta, head_bytes: sizes.head })
    }
}

/// Bytes as stored in a file.
struct Sizes {
    /// Of one expert of each layer.
    experts: Vec<u64>,
    /// Of all weights that every token reads: of the layers all but routed experts, and the head. The embedding and the
    /// n-gram table, of which a token reads a few rows, are left out.
    dense: u64,
    /// Of the head: the part of `dense` that is read for logits only.
    head: u64,
    /// The type that most bytes are stored in.
    quant: String,
}

impl Sizes {
    fn of(gguf: &Gguf, config: &ModelConfig) -> Result<Sizes> {
        let mut experts = vec![0; config.layers.len()];
        let (mut dense, mut head) = (0u64, 0u64);
        let mut types = BTreeMap::new();
        let tied = gguf.tensor("output.weight").is_none();
        for tensor in gguf.tensors() {
            let (name, bytes) = (tensor.name(), tensor.bytes());
            *types.entry(tensor.ty().name()).or_insert(0u64) += bytes;
            match layer_of(tensor) {
                // A layer that drafts is none of the model's.
                Some((layer, _)) if layer >= experts.len() => {}
                Some((layer, rest)) if rest.contains("_exps.") => {
                    let count = config.experts as u64;
                    if bytes % count != 0 {
                        return Err(gguf.invalid(format!("{name} has {bytes} bytes for {count} experts")).into());
                    }
                    experts[layer] += bytes / count;
                }
                Some(_) => dense += bytes,
                None if name.starts_with("output") || (tied && name == "token_embd.weight") => head += bytes,
                None => {}
            }
        }
        let most = types.iter().max_by_key(|(_, bytes)| **bytes);
        let quant = most.map_or_else(String::new, |(name, _)| (*name).to_owned());
        Ok(Sizes { experts, dense: dense + head, head, quant })
    }
}

/// The number in `blk.N.`, and what follows it.
fn layer_of(tensor: &Tensor) -> Option<(usize, &str)> {
    let (number, rest) = tensor.name().strip_prefix("blk.")?.split_once('.')?;
    Some((number.parse().ok()?, rest))
}

/// A file's name without its folder, which is nobody's business.
fn file_name(path: &str) -> &str {
    std::path::Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path)
}
