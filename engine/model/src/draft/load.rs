//! Finds the draft layer's tensors in a file and hands them to the device.

use super::{DraftLayer, HiddenNorm, Subset};
use crate::config::{ARCHITECTURE, ModelConfig};
use crate::error::{Error, Result};
use crate::forward::Model;
use crate::loader::Loader;
use crate::ops::Ops;
use strata_gguf::{Gguf, show_text};

/// The dimensions that a draft layer shares with its model, as a file's keys name them.
pub(super) const KEYS: [&str; 9] = [
    "embedding_length",
    "hyper_connection.count",
    "hyper_connection.low_rank",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "expert_count",
    "expert_feed_forward_length",
    "expert_shared_feed_forward_length",
];

/// Their values in a model.
fn dimensions(c: &ModelConfig) -> [usize; KEYS.len()] {
    let a = c.attention;
    [c.hidden, c.streams, c.low_rank, a.heads, a.kv_heads, a.dim, c.experts, c.expert_width, c.shared_width]
}

impl<O: Ops> DraftLayer<O> {
    /// Loads the draft layer of a file onto the model's device. The file is one that [`pack_draft`](crate::pack_draft)
    /// made, what [`draft_from_safetensors`](crate::draft_from_safetensors) makes of a checkpoint, or a model file with
    /// a draft block behind its layers.
    ///
    /// # Errors
    /// The file has no draft layer, or one of another model, or lacks a tensor or holds one of the wrong shape.
    pub fn load(file: &Gguf, model: &Model<O>) -> Result<DraftLayer<O>> {
        let block = find(file)?;
        fits(file, model.config())?;
        // It attends to all cells: of the selection it needs nothing.
        let mut config = model.config().clone();
        config.attention.indexer = None;
        let (loader, ops, h) = (Loader::new(file, &config, model.ops()), model.ops(), config.hidden);
        let (p, own) = (format!("blk.{block}."), format!("blk.{block}.nextn."));
        let joined = format!("{own}eh_proj.weight");
        let (from_embedding, from_hidden) = if file.tensor(&joined).is_some() {
            let both = loader.shaped(&joined, &[2 * h, h])?;
            let (scale, middle) = (loader.companion_scale(&joined)?, h as u64);
            let half = |range| -> Result<O::Matrix> { ops.matrix(&both.columns(range)?, scale) };
            (half(0..middle)?, half(middle..2 * middle)?)
        } else {
            let half = |name| loader.matrix(&format!("{own}{name}.weight"), h, h);
            (half("fc_embedding")?, half("fc_hidden")?)
        };
        // Stand-alone files may name the last mixer like a model's.
        let head = format!("{own}hc_head");
        let alone = file.tensor(&format!("{head}_norm.weight")).is_none() && file.tensor("token_embd.weight").is_none();
        let head = if alone && file.tensor("output_hc_norm.weight").is_some() { "output_hc" } else { &head };
        Ok(DraftLayer {
            block: config.layers.len(),
            embedding_norm: loader.vector(&format!("{own}enorm.weight"), &[h])?,
            hidden_norm: loader.vector(&format!("{own}hnorm.weight"), &[config.residual_len()])?,
            norm: HiddenNorm::default(),
            from_embedding,
            from_hidden,
            attention_in: loader.mixer(&format!("{p}hc_attn"), true)?,
            attention: loader.attention(&p)?,
            moe_in: loader.mixer(&format!("{p}hc_ffn"), true)?,
            moe: loader.moe(&p)?,
            head_in: loader.mixer(head, false)?,
            subset: None,
        })
    }

    /// Lets it guess these tokens only, which makes its head as much smaller. `trunk` is the file of the model itself,
    /// whose head has the rows; they are copied once. Order and repetitions do not matter.
    ///
    /// # Errors
    /// The list is empty or names a token outside the vocabulary, or the device has no room.
    pub fn restrict(&mut self, model: &Model<O>, trunk: &Gguf, tokens: &[u32]) -> Result<()> {
        let c = model.config();
        super::check_tokens(model, tokens)?;
        if tokens.is_empty() {
            return Err(Error::State("a draft vocabulary without a token"));
        }
        let mut ids = tokens.to_vec();
        ids.sort_unstable();
        ids.dedup();
        let loader = Loader::new(trunk, c, model.ops());
        let name = if trunk.tensor("output.weight").is_some() { "output.weight" } else { "token_embd.weight" };
        let rows = loader.shaped(name, &[c.hidden, c.vocab])?.gathered(ids.iter().map(|&id| id.into()))?;
        let head = model.ops().matrix(&rows, loader.companion_scale(name)?)?;
        self.subset = Some(Subset { ids, head });
        Ok(())
    }

    /// Lets it guess every token again.
    pub fn unrestrict(&mut self) {
        self.subset = None;
    }
}

/// The number of the block that holds a draft layer.
pub(super) fn find(file: &Gguf) -> Result<u64> {
    let number = |name: &str| {
        let (number, rest) = name.strip_prefix("blk.")?.split_once('.')?;
        matches!(rest, "nextn.eh_proj.weight" | "nextn.fc_hidden.weight").then(|| number.parse().ok()).flatten()
    };
    let found = file.tensors().iter().find_map(|t| number(t.name()));
    let none = || file.invalid("there is no draft layer in it, expected a tensor blk.N.nextn.eh_proj.weight");
    Ok(found.ok_or_else(none)?)
}

/// Whether the file is of this architecture and, as far as it says, of this model's dimensions.
fn fits(file: &Gguf, config: &ModelConfig) -> Result<()> {
    let meta = file.meta();
    let other = |what: String| Err(file.invalid(format!("{what}: the draft layer is of another model")).into());
    match meta.opt_str("general.architecture")? {
        Some(a) if a != ARCHITECTURE => {
            return other(format!("architecture \"{}\", expected \"{ARCHITECTURE}\"", show_text(a)));
        }
        _ => {}
    }
    for (key, expected) in KEYS.iter().zip(dimensions(config)) {
        match meta.opt_u64(&format!("{ARCHITECTURE}.{key}"))? {
            Some(found) if found != expected as u64 => {
                return other(format!("key {ARCHITECTURE}.{key} is {found}, but {expected} in the model"));
            }
            _ => {}
        }
    }
    let count = |key: &str| meta.opt_u64(&format!("{ARCHITECTURE}.{key}"));
    let before = count("block_count")?.zip(count("nextn_predict_layers")?).map(|(all, own)| all.saturating_sub(own));
    match before {
        // 0 stands for a model that was not known when the layer was packed.
        Some(n) if n > 0 && n != config.layers.len() as u64 => {
            other(format!("made for a model of {n} layers, but this has {}", config.layers.len()))
        }
        _ => Ok(()),
    }
}
