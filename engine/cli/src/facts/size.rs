//! Weights and bytes: by part, by type, and for one expert.

use super::layers::Layers;
use super::{key, number};
use serde::Serialize;
use std::collections::BTreeMap;
use strata_gguf::{Gguf, Tensor};

/// What a tensor is for, as far as memory is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Part {
    /// Read for every token: attention, GDN, mixers, routers, shared experts, the n-gram layer's matrices.
    Dense,
    /// The routed experts.
    Experts,
    /// The table of n-gram embeddings.
    NgramTable,
    /// Token embedding, head and the mixer before it.
    EmbeddingHead,
    /// Everything of the layers that draft.
    DraftLayer,
    /// Tensors outside layers that this engine does not know.
    Other,
}

/// Weights and bytes of a part.
#[derive(Debug, Serialize)]
pub(crate) struct PartSize {
    pub(crate) part: Part,
    #[serde(flatten)]
    pub(crate) size: Size,
}

/// Weights and bytes stored in one type.
#[derive(Debug, Serialize)]
pub(crate) struct TypeSize {
    #[serde(rename = "type")]
    pub(crate) ty: &'static str,
    pub(crate) bits_per_weight: f64,
    #[serde(flatten)]
    pub(crate) size: Size,
}

/// A sum over tensors.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Size {
    pub(crate) tensors: usize,
    pub(crate) parameters: u64,
    pub(crate) bytes: u64,
}

/// What one routed expert takes. Layers may store theirs in different types.
#[derive(Debug, Serialize)]
pub(crate) struct Experts {
    /// Experts of all layers together, draft layers left out.
    pub(crate) count: u64,
    pub(crate) min_bytes: u64,
    pub(crate) mean_bytes: f64,
    pub(crate) max_bytes: u64,
    /// The first layer with the smallest experts.
    pub(crate) min_layer: usize,
    /// The first layer with the largest experts.
    pub(crate) max_layer: usize,
}

/// All sums over a model's tensors.
#[derive(Debug, Serialize)]
pub(crate) struct Sizes {
    pub(crate) parameters: u64,
    /// Weights that one token is computed with, draft layers left out.
    pub(crate) active_parameters: Option<u64>,
    /// Those of them in routed experts.
    pub(crate) active_expert_parameters: Option<u64>,
    pub(crate) tensor_bytes: u64,
    /// Empty for architectures this engine does not run.
    pub(crate) parts: Vec<PartSize>,
    pub(crate) types: Vec<TypeSize>,
    pub(crate) expert: Option<Experts>,
}

impl Size {
    fn add(&mut self, tensor: &Tensor) {
        self.tensors += 1;
        self.parameters = self.parameters.saturating_add(tensor.elements());
        self.bytes = self.bytes.saturating_add(tensor.bytes());
    }
}

impl Sizes {
    pub(super) fn of(gguf: &Gguf, layers: Option<&Layers>, notes: &mut Vec<String>) -> Sizes {
        let (mut all, mut parts, mut types) = (Size::default(), BTreeMap::new(), BTreeMap::new());
        for tensor in gguf.tensors() {
            all.add(tensor);
            types.entry(tensor.ty()).or_insert_with(Size::default).add(tensor);
            if let Some(layers) = layers {
                parts.entry(part_of(tensor.name(), layers)).or_insert_with(Size::default).add(tensor);
            }
        }
        let mut types: Vec<TypeSize> = types
            .into_iter()
            .map(|(ty, size)| TypeSize { ty: ty.name(), bits_per_weight: ty.bits_per_value(), size })
            .collect();
        types.sort_by_key(|t| std::cmp::Reverse(t.size.bytes));
        let active = layers.and_then(|layers| active(gguf, layers, notes));
        Sizes {
            parameters: all.parameters,
            active_parameters: active.map(|a| a.0),
            active_expert_parameters: active.map(|a| a.1),
            tensor_bytes: all.bytes,
            parts: parts.into_iter().map(|(part, size)| PartSize { part, size }).collect(),
            types,
            expert: layers.and_then(|layers| experts(gguf, layers)),
        }
    }
}

/// The number in `blk.N.`, and what follows it.
fn block_of(name: &str) -> Option<(usize, &str)> {
    let (number, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((number.parse().ok()?, rest))
}

/// Whether a tensor holds one matrix for each routed expert.
pub(crate) fn is_routed(name: &str) -> bool {
    block_of(name).is_some_and(|(_, rest)| rest.starts_with("ffn_") && rest.ends_with("_exps.weight"))
}

fn part_of(name: &str, layers: &Layers) -> Part {
    match block_of(name) {
        Some((layer, _)) if layer >= layers.trunk => Part::DraftLayer,
        Some(_) if is_routed(name) => Part::Experts,
        Some(_) => Part::Dense,
        None if name == "per_layer_token_embd.weight" => Part::NgramTable,
        None if name == "token_embd.weight" || name.starts_with("output.") || name.starts_with("output_hc_") => {
            Part::EmbeddingHead
        }
        None => Part::Other,
    }
}

/// Weights that one token is computed with, and those of them in routed experts.
fn active(gguf: &Gguf, layers: &Layers, notes: &mut Vec<String>) -> Option<(u64, u64)> {
    let meta = gguf.meta();
    let (count, used) = (number(meta, &key("expert_count"), notes)?, number(meta, &key("expert_used_count"), notes)?);
    if count == 0 || used > count {
        notes.push(format!("{used} of {count} experts are used per token, expected 1 to {count}"));
        return None;
    }
    let tied = gguf.tensor("output.weight").is_none();
    let (mut dense, mut experts) = (0u64, 0u64);
    for tensor in gguf.tensors() {
        match part_of(tensor.name(), layers) {
            Part::Experts => experts = experts.saturating_add(tensor.elements()),
            // Of the embedding one row is read, unless it is the head as well.
            Part::EmbeddingHead if tensor.name() == "token_embd.weight" && !tied => {
                dense = dense.saturating_add(tensor.row_len());
            }
            Part::Dense | Part::EmbeddingHead => dense = dense.saturating_add(tensor.elements()),
            Part::NgramTable => {
                let size = number(meta, &key("ple.ngram_size"), notes).unwrap_or(1);
                let heads = number(meta, &key("ple.heads_per_ngram"), notes).unwrap_or(0);
                let rows = size.saturating_sub(1).saturating_mul(heads);
                dense = dense.saturating_add(rows.saturating_mul(tensor.row_len()));
            }
            Part::DraftLayer | Part::Other => {}
        }
    }
    // In 128 bits: a count of weights times a count of experts may exceed 64.
    let experts = u64::try_from(u128::from(experts) * u128::from(used) / u128::from(count)).ok()?;
    Some((dense.saturating_add(experts), experts))
}

/// The bytes of one expert, over the trunk's layers.
fn experts(gguf: &Gguf, layers: &Layers) -> Option<Experts> {
    // For each layer its experts and the bytes of one.
    let mut found: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
    for tensor in gguf.tensors().iter().filter(|t| is_routed(t.name())) {
        let Some((layer, _)) = block_of(tensor.name()).filter(|(layer, _)| *layer < layers.trunk) else { continue };
        let Some(&count) = tensor.dims().get(2).filter(|n| **n > 0) else { continue };
        let entry = found.entry(layer).or_insert((count, 0));
        entry.1 += tensor.bytes() / count;
    }
    let count: u64 = found.values().map(|v| v.0).sum();
    let total: f64 = found.values().map(|v| v.0 as f64 * v.1 as f64).sum();
    let (&min_layer, min) = found.iter().min_by_key(|(_, v)| v.1)?;
    let (&max_layer, max) = found.iter().max_by_key(|(layer, v)| (v.1, std::cmp::Reverse(**layer)))?;
    let mean_bytes = total / count as f64;
    Some(Experts { count, min_bytes: min.1, mean_bytes, max_bytes: max.1, min_layer, max_layer })
}
