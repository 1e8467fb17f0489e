//! The model's dimensions, read from the file's metadata and checked against each other.

use crate::error::Result;
use strata_cpu::delta::DeltaShape;
use strata_gguf::{Gguf, Metadata};

/// The one architecture this engine runs.
pub const ARCHITECTURE: &str = "qwen4exp";

/// What mixes tokens in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerKind {
    /// Gated delta-net: a recurrent state of fixed size.
    Delta,
    /// Attention with keys and values for every token, sparse beyond the indexer's budget.
    Attention,
}

/// Dimensions of the attention layers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attention {
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub dim: usize,
    /// Rotated dimensions of a head, of the indexer's heads too.
    pub n_rot: usize,
    /// Base of the rotation frequencies.
    pub rope_base: f32,
    /// The indexer; `None` when the file has none and attention is always dense.
    pub indexer: Option<Indexer>,
}

/// Dimensions of the indexer that selects positions for attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Indexer {
    /// Query heads.
    pub heads: usize,
    /// Width of a head, and of the one key.
    pub dim: usize,
    /// Tokens pooled into one block.
    pub block: usize,
    /// Blocks attended to at most.
    pub budget: usize,
}

/// Dimensions of the gated delta-net layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delta {
    /// Taps of the short convolution.
    pub taps: usize,
    /// Width of a head, of keys and values alike.
    pub dim: usize,
    /// Key heads.
    pub key_heads: usize,
    /// Value heads.
    pub value_heads: usize,
}

impl Delta {
    /// The shape of the recurrence.
    pub fn shape(&self) -> DeltaShape {
        DeltaShape { key_heads: self.key_heads, value_heads: self.value_heads, dim: self.dim }
    }
}

/// The n-gram module: a table looked up by hashes of the last few tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NgramConfig {
    /// The layer it precedes, from 0.
    pub layer: usize,
    /// Longest n-gram; also the dilation of its convolution.
    pub longest: usize,
    /// Hash heads for each n-gram length from 2 on.
    pub heads_per_length: usize,
    /// Taps of its convolution.
    pub taps: usize,
    /// The token that cuts the window.
    pub eos: u32,
    /// Width of a table row.
    pub row_len: usize,
    /// Hash multipliers, one per token of the window.
    pub multipliers: Vec<u64>,
    /// Rows of each head.
    pub head_rows: Vec<u64>,
    /// First row of each head.
    pub head_offsets: Vec<u64>,
}

/// All dimensions of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// What each trunk layer mixes with.
    pub layers: Vec<LayerKind>,
    /// Draft (multi-token-prediction) blocks that follow the trunk in the file.
    pub draft_blocks: usize,
    /// Context the model was trained for, in tokens.
    pub context: usize,
    /// Width of a residual stream.
    pub hidden: usize,
    /// Residual streams.
    pub streams: usize,
    /// Rank of the hyper-connections' mixers.
    pub low_rank: usize,
    /// Added to the mean of squares in every norm.
    pub eps: f32,
    /// Vocabulary: rows of the embedding and of the head.
    pub vocab: usize,
    /// Attention layers.
    pub attention: Attention,
    /// Delta-net layers.
    pub delta: Delta,
    /// Routed experts of a layer.
    pub experts: usize,
    /// Routed experts a token uses.
    pub experts_used: usize,
    /// Width of a routed expert.
    pub expert_width: usize,
    /// Width of the shared expert.
    pub shared_width: usize,
    /// The n-gram module, if the file has one.
    pub ngram: Option<NgramConfig>,
    /// What was odd and how it was read.
    pub warnings: Vec<String>,
}

/// The largest dimension that is taken at its word; beyond it a file is damaged.
const MAX_DIMENSION: u64 = 1 << 24;

/// Metadata under the architecture's prefix.
struct Keys<'a>(&'a Metadata);

impl Keys<'_> {
    fn name(key: &str) -> String {
        format!("{ARCHITECTURE}.{key}")
    }

    fn opt_size(&self, key: &str) -> Result<Option<usize>> {
        let name = Keys::name(key);
        match self.0.opt_u64(&name)? {
            Some(v) if v == 0 || v > MAX_DIMENSION => {
                Err(self.0.invalid(format!("key {name} is {v}, expected 1 to {MAX_DIMENSION}")).into())
            }
            v => Ok(v.map(|v| v as usize)),
        }
    }

    fn size(&self, key: &str) -> Result<usize> {
        let name = Keys::name(key);
        self.opt_size(key)?.ok_or_else(|| self.0.invalid(format!("key {name} is missing")).into())
    }

    fn f32(&self, key: &str) -> Result<f32> {
        let name = Keys::name(key);
        let value = self.0.f32(&name)?;
        if value.is_finite() && value > 0.0 {
            Ok(value)
        } else {
            Err(self.0.invalid(format!("key {name} is {value}, expected a positive number")).into())
        }
    }

    fn u64s(&self, key: &str, len: usize) -> Result<Vec<u64>> {
        let name = Keys::name(key);
        let values = self.0.u64s(&name)?;
        if values.len() == len {
            Ok(values)
        } else {
            Err(self.0.invalid(format!("key {name} has {} entries, expected {len}", values.len())).into())
        }
    }
}

impl ModelConfig {
    /// Reads the dimensions of a file of this architecture.
    ///
    /// # Errors
    /// The file is of another architecture, or a key is missing, of the wrong type, or contradicts another.
    pub fn from_gguf(gguf: &Gguf) -> Result<ModelConfig> {
        let meta = gguf.meta();
        let keys = Keys(meta);
        let architecture = meta.str("general.architecture")?;
        if architecture != ARCHITECTURE {
            return Err(meta
                .invalid(format!(
                    "architecture \"{}\" is not supported, expected \"{ARCHITECTURE}\" (or the file is newer than \
                     this engine)",
                    strata_gguf::show_text(architecture)
                ))
                .into());
        }
        let blocks = keys.size("block_count")?;
        let draft_blocks = match meta.opt_u64("qwen4exp.nextn_predict_layers")? {
            Some(n) if n >= blocks as u64 => {
                return Err(meta
                    .invalid(format!("key qwen4exp.nextn_predict_layers is {n}, expected fewer than {blocks} blocks"))
                    .into());
            }
            n => n.unwrap_or(0) as usize,
        };
        let trunk = blocks - draft_blocks;
        let mut warnings = Vec::new();
        let layers = layer_kinds(&keys, trunk, blocks)?;
        let embedding = gguf.require("token_embd.weight")?;
        let config = ModelConfig {
            draft_blocks,
            context: keys.size("context_length")?,
            hidden: keys.size("embedding_length")?,
            streams: keys.size("hyper_connection.count")?,
            low_rank: keys.size("hyper_connection.low_rank")?,
            eps: keys.f32("attention.layer_norm_rms_epsilon")?,
            vocab: usize::try_from(embedding.rows()).unwrap_or(usize::MAX),
            attention: attention(&keys, gguf, &layers, &mut warnings)?,
            delta: delta(&keys)?,
            experts: keys.size("expert_count")?,
            experts_used: keys.size("expert_used_count")?,
            expert_width: keys.size("expert_feed_forward_length")?,
            shared_width: keys.size("expert_shared_feed_forward_length")?,
            ngram: ngram(&keys, &layers, embedding.rows())?,
            layers,
            warnings,
        };
        let bad = |what: String| Err(meta.invalid(what).into());
        if config.experts > usize::from(u16::MAX) || config.experts_used > config.experts {
            return bad(format!(
                "keys qwen4exp.expert_used_count and qwen4exp.expert_count are {} and {}, expected at most {} experts \
                 and no more used than there are",
                config.experts_used,
                config.experts,
                u16::MAX
            ));
        }
        Ok(config)
    }

    /// Values of one token's residual state, `[streams][hidden]`.
    pub fn residual_len(&self) -> usize {
        self.streams * self.hidden
    }
}

/// A list for a message: its first entries.
fn few(values: &[u64]) -> String {
    let shown = &values[..values.len().min(8)];
    if shown.len() == values.len() { format!("{shown:?}") } else { format!("{shown:?} and {} more", values.len() - 8) }
}

fn layer_kinds(keys: &Keys<'_>, trunk: usize, blocks: usize) -> Result<Vec<LayerKind>> {
    let name = Keys::name("attention.recurrent_layers");
    if let Some(recurrent) = keys.0.opt_bools(&name)? {
        if recurrent.len() != trunk && recurrent.len() != blocks {
            let found = recurrent.len();
            return Err(keys.0.invalid(format!("key {name} has {found} entries, expected {blocks}")).into());
        }
        let kind = |&r: &bool| if r { LayerKind::Delta } else { LayerKind::Attention };
        return Ok(recurrent.iter().take(trunk).map(kind).collect());
    }
    let interval = keys.size("full_attention_interval")?;
    let kind = |i: usize| if i.is_multiple_of(interval) { LayerKind::Attention } else { LayerKind::Delta };
    Ok((1..=trunk).map(kind).collect())
}

fn attention(keys: &Keys<'_>, gguf: &Gguf, layers: &[LayerKind], warnings: &mut Vec<String>) -> Result<Attention> {
    let meta = keys.0;
    let (heads, kv_heads) = (keys.size("attention.head_count")?, keys.size("attention.head_count_kv")?);
    let dim = keys.size("attention.key_length")?;
    let value_dim = keys.size("attention.value_length")?;
    let n_rot = keys.size("rope.dimension_count")?;
    if dim != value_dim || !heads.is_multiple_of(kv_heads) || n_rot > dim || !n_rot.is_multiple_of(2) {
        return Err(meta
            .invalid(format!(
                "attention has {heads} query and {kv_heads} key/value heads of width {dim} (values {value_dim}), \
                 {n_rot} rotated; expected equal widths, query heads a multiple of key/value heads, and an even \
                 number of rotated dimensions within a head"
            ))
            .into());
    }
    let first = layers.iter().position(|&k| k == LayerKind::Attention);
    let has_indexer = first.is_some_and(|l| gguf.tensor(&format!("blk.{l}.indexer.k_proj.weight")).is_some());
    let name = Keys::name("attention.compress_ratios");
    let ratios = meta.opt_u64s(&name)?.unwrap_or_default();
    if !ratios.is_empty() && ratios.len() != layers.len() && ratios.len() as u64 != keys.size("block_count")? as u64 {
        let expected = layers.len();
        return Err(meta.invalid(format!("key {name} has {} entries, expected {expected}", ratios.len())).into());
    }
    let of_attention = |(i, _): &(usize, &u64)| layers.get(*i) == Some(&LayerKind::Attention);
    let used: Vec<u64> = ratios.iter().enumerate().filter(of_attention).map(|(_, &r)| r).collect();
    let block = match used.first() {
        Some(&r) if r > 0 && r <= 1024 && used.iter().all(|&other| other == r) => Some(r as usize),
        // Some converters write zeros although the layers do select: the indexer's tensors tell.
        _ if used.iter().all(|&r| r == 0) && has_indexer => {
            warnings.push(format!(
                "{name} is zero or missing although the file has indexer tensors; read as 4 for every attention layer"
            ));
            Some(4)
        }
        _ if used.iter().all(|&r| r == 0) => None,
        _ => {
            return Err(meta
                .invalid(format!("key {name} is {} on attention layers, expected one ratio from 1 to 1024", few(&used)))
                .into());
        }
    };
    let indexer = match block {
        Some(block) => {
            let budget = keys.size("attention.indexer.top_k")?;
            let dim = keys.size("attention.indexer.key_length")?;
            if budget < block || n_rot > dim {
                return Err(meta
                    .invalid(format!(
                        "the indexer has a budget of {budget} tokens, blocks of {block}, heads of width {dim} with \
                         {n_rot} rotated; expected a budget of a block or more and room for the rotation"
                    ))
                    .into());
            }
            let heads = keys.size("attention.indexer.head_count")?;
            Some(Indexer { heads, dim, block, budget: budget / block })
        }
        None => None,
    };
    Ok(Attention { heads, kv_heads, dim, n_rot, rope_base: keys.f32("rope.freq_base")?, indexer })
}

fn delta(keys: &Keys<'_>) -> Result<Delta> {
    let delta = Delta {
        taps: keys.size("ssm.conv_kernel")?,
        dim: keys.size("ssm.state_size")?,
        key_heads: keys.size("ssm.group_count")?,
        value_heads: keys.size("ssm.time_step_rank")?,
    };
    let inner = keys.size("ssm.inner_size")?;
    if inner != delta.value_heads * delta.dim || !delta.value_heads.is_multiple_of(delta.key_heads) {
        return Err(keys
            .0
            .invalid(format!(
                "key qwen4exp.ssm.inner_size is {inner} with {} value heads of width {} and {} key heads; expected \
                 their product, and value heads a multiple of key heads",
                delta.value_heads, delta.dim, delta.key_heads
            ))
            .into());
    }
    Ok(delta)
}

fn ngram(keys: &Keys<'_>, layers: &[LayerKind], vocab: u64) -> Result<Option<NgramConfig>> {
    let meta = keys.0;
    let name = Keys::name("ple.layers");
    let at = meta.opt_u64s(&name)?.unwrap_or_default();
    if at.is_empty() {
        return Ok(None);
    }
    let layer = match at[..] {
        [l] if layers.get(l as usize) == Some(&LayerKind::Delta) => l as usize,
        _ => {
            return Err(meta
                .invalid(format!("key {name} is {}, expected exactly one layer, and a delta-net layer", few(&at)))
                .into());
        }
    };
    let (longest, per) = (keys.size("ple.ngram_size")?, keys.size("ple.heads_per_ngram")?);
    if !(2..=16).contains(&longest) || per > 1024 {
        return Err(meta
            .invalid(format!("n-grams of {longest} tokens with {per} heads each; expected 2 to 16 and at most 1024"))
            .into());
    }
    let eos_name = Keys::name("ple.eos_token_id");
    let eos = match meta.u64(&eos_name)? {
        id if id < vocab => id as u32,
        id => {
            let what = format!("key {eos_name} is {id}, expected a token below {vocab}, the vocabulary's size");
            return Err(meta.invalid(what).into());
        }
    };
    let heads = (longest - 1) * per;
    let config = NgramConfig {
        layer,
        longest,
        heads_per_length: per,
        taps: keys.size("ple.conv_kernel")?,
        eos,
        row_len: keys.size("embedding_length_per_layer_input")?,
        multipliers: keys.u64s("ple.layer_multipliers", longest)?,
        head_rows: keys.u64s("ple.head_vocab_sizes", heads)?,
        head_offsets: keys.u64s("ple.head_offsets", heads)?,
    };
    if config.multipliers.contains(&0) {
        return Err(meta.invalid("key qwen4exp.ple.layer_multipliers holds a zero, expected odd numbers").into());
    }
    if config.head_rows.contains(&0) {
        return Err(meta
            .invalid("key qwen4exp.ple.head_vocab_sizes holds a zero, expected rows for every head")
            .into());
    }
    Ok(Some(config))
}
