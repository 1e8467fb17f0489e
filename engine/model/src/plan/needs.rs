//! What the parts of a model take, read from a file's headers.

use super::PASSED;
use crate::config::{LayerKind, ModelConfig};
use crate::error::Result;
use strata_cuda::{STREAMED, Shape, Slots};
use strata_gguf::{Gguf, Tensor};

/// Bytes of a float.
const FLOAT: u64 = 4;

/// What the driver takes for a recorded pass besides its buffers: some thousand kernels with their arguments.
const GRAPH: u64 = 8 << 20;

/// Bytes of the scores of attention that are made at a time.
const SCORES: u64 = 96 << 20;

/// Bytes that the parts of a model take, on a GPU unless said otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    /// The model's dimensions.
    pub config: ModelNumbers,
    /// Weights that every token uses.
    pub dense: u64,
    /// The draft layer's; 0 without one.
    pub draft: u64,
    /// The draft layer's routed experts, which lie where the model's do if those are all on the GPU.
    pub draft_experts: u64,
    /// All routed experts of the model, layer by layer.
    pub experts: u64,
    /// Room for any one expert.
    pub slot: u64,
    /// The routed experts as the file has them, in memory.
    pub experts_in_file: u64,
    /// Everything else of the file, in memory if there is no GPU.
    pub rest_in_file: u64,
    /// The n-gram table in the file; 0 without one. Single rows of it are looked up.
    pub table: u64,
    /// The token embedding in the file, of which single rows are looked up too.
    pub embedding: u64,
}

/// The dimensions that sizes follow from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelNumbers {
    /// Layers, each with experts.
    pub layers: usize,
    /// Experts of a layer.
    pub experts: usize,
    attention_layers: u64,
    delta_layers: u64,
    /// Values of a token's keys in a layer.
    kv: u64,
    /// Values of a key of the indexer, and tokens of its blocks.
    index: Option<(u64, u64)>,
    /// Positions that attention chooses among at most.
    chosen: Option<u64>,
    /// Values of a delta-net layer's convolution history and state.
    conv: u64,
    state: u64,
    /// Values that a row of a window notes in a delta-net layer.
    notes: u64,
    /// Past inputs of the n-gram module's convolution.
    ngram: u64,
    residual: u64,
    hidden: u64,
    /// Values of a row's queries, with their gates, and of a delta-net layer's channels: the widest rows but for logits.
    widest: u64,
    vocab: u64,
    used: u64,
    width: u64,
}

impl ModelNumbers {
    pub(crate) fn of(c: &ModelConfig) -> ModelNumbers {
        let (a, shape) = (c.attention, c.delta.shape());
        let n = |value: usize| value as u64;
        let delta_layers = n(c.layers.iter().filter(|&&kind| kind == LayerKind::Delta).count());
        let channels = n(shape.channels());
        ModelNumbers {
            layers: c.layers.len(),
            experts: c.experts,
            attention_layers: n(c.layers.len()) - delta_layers,
            delta_layers,
            kv: n(a.kv_heads) * n(a.dim),
            index: a.indexer.map(|i| (n(i.dim), n(i.block.max(1)))),
            chosen: a.indexer.map(|i| n(i.budget) * n(i.block) + n(i.block)),
            conv: n(c.delta.taps.saturating_sub(1)) * channels,
            state: n(shape.state_len()),
            notes: channels + (n(shape.key_heads) + n(shape.value_heads)) * n(shape.dim) + n(shape.value_heads),
            ngram: c.ngram.as_ref().map_or(0, |g| n(g.taps.saturating_sub(1)) * n(g.longest) * n(c.residual_len())),
            residual: n(c.residual_len()),
            hidden: n(c.hidden),
            widest: (2 * n(a.heads) * n(a.dim)).max(channels + n(shape.value_heads) * n(shape.dim)),
            vocab: n(c.vocab),
            used: n(c.experts_used),
            width: n(c.expert_width.max(c.shared_width)),
        }
    }
}

impl ModelNumbers {
    /// Bytes of the large intermediate results of a pass over so many rows that are alive at once at most: residual streams, norm and
    /// gates of a mixer or the widest rows of one; or the experts' results and what leads there. Half as much again for what lies
    /// between them.
    pub(crate) fn results(&self, rows: usize) -> u64 {
        let selection = self.chosen.unwrap_or(0);
        let experts = (self.used + 1) * (2 * self.width + self.width / 2 + self.hidden);
        let mixer = 2 * self.residual + 2 * self.widest;
        rows as u64 * (2 * self.residual + experts.max(mixer) + selection) * FLOAT * 3 / 2 + SCORES
    }
}

impl Needs {
    /// Reads headers alone. `draft` is the file of the draft layer, which may be the model's own.
    ///
    /// # Errors
    /// The file is of another architecture, or a key is missing or contradicts another.
    pub fn of(gguf: &Gguf, draft: Option<&Gguf>) -> Result<Needs> {
        let config = ModelConfig::from_gguf(gguf)?;
        let trunk = config.layers.len();
        let tied = gguf.tensor("output.weight").is_none();
        let mut needs = Needs {
            config: ModelNumbers::of(&config),
            dense: 0,
            draft: 0,
            draft_experts: 0,
            experts: 0,
            slot: 0,
            experts_in_file: 0,
            rest_in_file: 0,
            table: 0,
            embedding: 0,
        };
        for tensor in gguf.tensors() {
            match (tensor.name(), block(tensor.name())) {
                ("per_layer_token_embd.weight", _) => needs.table = tensor.bytes(),
                // Draft layers are counted below, wherever they are from.
                (_, Some((layer, _))) if layer >= trunk => {}
                (_, Some((_, rest))) if is_experts(rest) => {
                    needs.experts += allocated(tensor.bytes());
                    needs.experts_in_file += tensor.bytes();
                }
                (name, _) => {
                    needs.rest_in_file += tensor.bytes();
                    let embedding = name == "token_embd.weight";
                    if embedding {
                        needs.embedding = tensor.bytes();
                    }
                    if !embedding || tied {
                        needs.dense += on_device(tensor);
                    }
                }
            }
        }
        needs.slot = (0..trunk).map(|layer| slot(gguf, layer, config.experts as u64)).max().unwrap_or(0);
        for tensor in draft.iter().flat_map(|draft| draft.tensors()) {
            match block(tensor.name()) {
                // A model file's own layers are not the draft layer's; a file of a draft layer alone has none of them.
                Some((layer, rest)) if layer >= trunk => {
                    if is_experts(rest) {
                        needs.draft_experts += allocated(tensor.bytes());
                    } else {
                        needs.draft += on_device(tensor);
                    }
                }
                _ => {}
            }
        }
        Ok(needs)
    }

    /// Keys, values and indexer keys of a sequence of at most so many tokens, which are allocated as a whole.
    pub fn caches(&self, context: usize) -> u64 {
        let (n, tokens) = (&self.config, context as u64);
        let index =
            n.index.map_or(0, |(dim, block)| allocated(tokens * dim * FLOAT) + allocated(tokens / block * dim * FLOAT));
        n.attention_layers * (2 * allocated(tokens * n.kv * FLOAT) + index)
    }

    /// The caches of the draft layer.
    pub fn draft_caches(&self, context: usize) -> u64 {
        if self.draft == 0 { 0 } else { 2 * allocated(context as u64 * self.config.kv * FLOAT) }
    }

    /// Places for experts that are brought over the link for one layer of a round, and for those that have just arrived for a prompt.
    pub fn link(&self) -> u64 {
        (STREAMED + PASSED / 16) as u64 * self.slot
    }

    /// What a sequence carries that does not grow, and what a checkpoint copies.
    pub fn states(&self) -> u64 {
        let n = &self.config;
        n.delta_layers * (allocated(n.conv * FLOAT) + allocated(n.state * FLOAT)) + allocated(n.ngram * FLOAT)
    }

    /// Buffers of a sequence's windows of so many rows.
    pub fn windows(&self, rows: usize) -> u64 {
        let n = &self.config;
        rows as u64 * FLOAT * (n.delta_layers * n.notes + if n.ngram > 0 { n.residual } else { 0 })
    }

    /// Recorded passes of a sequence: one for each size of a window up to so many rows, and another for each once the
    /// sequence is so long that attention chooses among positions.
    pub fn graphs(&self, context: usize, rows: usize) -> u64 {
        let chooses = self.config.chosen.is_some_and(|chosen| context as u64 > chosen);
        let passes = |rows: u64| GRAPH + self.activations(rows, context) + rows * self.config.vocab * FLOAT;
        (1..=rows as u64).map(passes).sum::<u64>() * if chooses { 2 } else { 1 }
    }

    /// Intermediate results of a chunk of a prompt. Buffers that are free serve again only for the same size, so each is
    /// counted about twice.
    pub fn scratch(&self, context: usize, chunk: usize) -> u64 {
        2 * self.activations(chunk as u64, context) + 2 * self.config.vocab * FLOAT
    }

    /// What is alive at once of a pass over so many rows, at most: residual streams with their norms, the widest rows of a
    /// mixer with their quantised forms, the experts' results, and the positions attended to.
    fn activations(&self, rows: u64, context: usize) -> u64 {
        let n = &self.config;
        let selection = n.chosen.map_or(context as u64, |chosen| chosen.min(context as u64));
        let values = 6 * n.residual + 4 * n.widest + (n.used + 2) * (2 * n.width + n.hidden) + 2 * selection;
        rows * values * FLOAT
    }
}

/// The number in `blk.N.`, and what follows it.
fn block(name: &str) -> Option<(usize, &str)> {
    let (number, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((number.parse().ok()?, rest))
}

fn is_experts(rest: &str) -> bool {
    rest.starts_with("ffn_") && rest.ends_with("_exps.weight")
}

/// What a dense tensor takes on the device: vectors and the taps of convolutions are kept as floats.
fn on_device(tensor: &Tensor) -> u64 {
    let floats = tensor.rows() <= 1 || tensor.name().contains("conv1d") || tensor.name().ends_with("_norm.weight");
    allocated(if floats { tensor.elements() * FLOAT } else { tensor.bytes() })
}

/// Room for any expert of a layer.
fn slot(gguf: &Gguf, layer: usize, count: u64) -> u64 {
    let shape = |name: &str, parts: u64| {
        let tensor = gguf.tensor(&format!("blk.{layer}.{name}.weight"))?;
        let n = |value| usize::try_from(value).unwrap_or(usize::MAX);
        let rows = n(tensor.rows() / (count * parts).max(1));
        Some(Shape { ty: tensor.ty(), rows, cols: n(tensor.row_len()) })
    };
    let fused = shape("ffn_gate_up_exps", 2);
    let [gate, up] = ["ffn_gate_exps", "ffn_up_exps"].map(|name| fused.or_else(|| shape(name, 1)));
    match (gate, up, shape("ffn_down_exps", 1)) {
        (Some(gate), Some(up), Some(down)) => Slots::bytes_for(&[gate, up, down]) as u64,
        _ => 0,
    }
}

/// What the device's allocator makes of a request: few sizes, so that buffers serve again.
fn allocated(bytes: u64) -> u64 {
    if bytes == 0 {
        return 0;
    }
    let step = (bytes.checked_next_power_of_two().unwrap_or(bytes) / 16).clamp(512, 2 << 20);
    bytes.checked_next_multiple_of(step).unwrap_or(bytes)
}
