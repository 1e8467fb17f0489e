//! The tensors a complete model has, those that are missing, and those nobody asked for.

use super::key;
use super::layers::{Kind, Layers};
use serde::Serialize;
use std::collections::HashSet;
use strata_gguf::{Gguf, show_text};

/// Unknown tensors that are named; the rest is counted.
const NAMED: usize = 5;

/// The tensors of a file against those expected.
#[derive(Debug, Serialize)]
pub(crate) struct Tensors {
    #[serde(rename = "tensor_count")]
    pub(crate) found: usize,
    /// How many the engine needs from this file; `None` when the header does not tell.
    #[serde(rename = "expected_tensor_count")]
    pub(crate) expected: Option<usize>,
    #[serde(rename = "missing_tensors")]
    pub(crate) missing: Vec<String>,
    #[serde(rename = "unknown_tensors")]
    pub(crate) unknown: Unknown,
}

/// Tensors the engine does not read.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Unknown {
    pub(crate) count: usize,
    /// The first few names.
    pub(crate) first: Vec<String>,
}

const GLOBAL: &[&str] = &["token_embd.weight", "output_hc_norm.weight", "output_hc_down.weight", "output_hc_up.weight"];

const EVERY_LAYER: &[&str] = &[
    "hc_attn_norm.weight",
    "hc_attn_down.weight",
    "hc_attn_up.weight",
    "hc_attn_inject.weight",
    "hc_ffn_norm.weight",
    "hc_ffn_down.weight",
    "hc_ffn_up.weight",
    "hc_ffn_inject.weight",
    "ffn_gate_inp.weight",
    "ffn_down_exps.weight",
    "ffn_gate_inp_shexp.weight",
    "ffn_gate_shexp.weight",
    "ffn_up_shexp.weight",
    "ffn_down_shexp.weight",
];

const ATTENTION: &[&str] = &[
    "attn_q.weight",
    "attn_k.weight",
    "attn_v.weight",
    "attn_output.weight",
    "attn_q_norm.weight",
    "attn_k_norm.weight",
];

/// Of attention layers that select; a file may have none, and then attends to everything.
const INDEXER: &[&str] =
    &["indexer.q_proj.weight", "indexer.k_proj.weight", "indexer.q_norm.weight", "indexer.k_norm.weight"];

const GDN: &[&str] = &[
    "attn_qkv.weight",
    "attn_gate.weight",
    "ssm_beta.weight",
    "ssm_alpha.weight",
    "ssm_dt.bias",
    "ssm_a",
    "ssm_conv1d.weight",
    "ssm_norm.weight",
    "ssm_out.weight",
];

const NGRAM: &[&str] = &[
    "ple_key.weight",
    "ple_value.weight",
    "ple_norm_key.weight",
    "ple_norm_query.weight",
    "ple_norm_conv.weight",
    "ple_conv1d.weight",
];

const DRAFT: &[&str] = &[
    "nextn.eh_proj.weight",
    "nextn.enorm.weight",
    "nextn.hnorm.weight",
    "nextn.hc_head_norm.weight",
    "nextn.hc_head_down.weight",
    "nextn.hc_head_up.weight",
];

impl Tensors {
    /// Without layers, nothing is expected and nothing is unknown.
    pub(super) fn of(gguf: &Gguf, layers: Option<&Layers>) -> Tensors {
        let found = gguf.tensors().len();
        let Some(layers) = layers else {
            return Tensors { found, expected: None, missing: Vec::new(), unknown: Unknown::default() };
        };
        let expected = expected(gguf, layers);
        let missing = expected.iter().filter(|n| gguf.tensor(n).is_none()).cloned().collect();
        let known: HashSet<&str> = expected.iter().map(String::as_str).collect();
        // A file without a head of its own uses the embedding, so the head is read when there and not missed else.
        let optional = |name: &str| name == "output.weight" || is_scale(name, &known);
        let mut unknown = gguf.tensors().iter().map(|t| t.name()).filter(|n| !known.contains(n) && !optional(n));
        let first: Vec<String> = unknown.by_ref().take(NAMED).map(show_text).collect();
        let count = first.len() + unknown.count();
        Tensors { found, expected: Some(expected.len()), missing, unknown: Unknown { count, first } }
    }
}

/// The factor that NVFP4 files keep beside a matrix.
fn is_scale(name: &str, known: &HashSet<&str>) -> bool {
    name.strip_suffix(".scale").is_some_and(|stem| known.contains(format!("{stem}.weight").as_str()))
}

/// The names of all tensors the engine needs, in the order of layers.
fn expected(gguf: &Gguf, layers: &Layers) -> Vec<String> {
    let mut names = Vec::new();
    if !gguf.is_draft_layer() {
        names.extend(GLOBAL.iter().map(ToString::to_string));
        if !layers.ngram.is_empty() {
            names.push("per_layer_token_embd.weight".into());
        }
    }
    let ratios = gguf.meta().opt_u64s(&key("attention.compress_ratios")).ok().flatten().unwrap_or_default();
    let selects = ratios.iter().any(|&r| r > 0) || gguf.tensors().iter().any(|t| t.name().contains(".indexer."));
    let indexer = if selects { INDEXER } else { &[] };
    for (i, &kind) in layers.kinds.iter().enumerate() {
        let own = if kind == Kind::Attention { &[ATTENTION, indexer].concat()[..] } else { GDN };
        let ngram = if layers.ngram.contains(&i) { NGRAM } else { &[] };
        block(gguf, i, &[EVERY_LAYER, own, ngram], &mut names);
    }
    for i in layers.trunk..layers.trunk + layers.draft {
        block(gguf, i, &[DRAFT, EVERY_LAYER, ATTENTION, indexer], &mut names);
    }
    names
}

fn block(gguf: &Gguf, layer: usize, groups: &[&[&str]], names: &mut Vec<String>) {
    let full = |name: &str| format!("blk.{layer}.{name}");
    names.extend(groups.iter().flat_map(|g| g.iter()).map(|n| full(n)));
    // The gate and up matrices of the experts stand apart or as one.
    let fused = full("ffn_gate_up_exps.weight");
    if gguf.tensor(&fused).is_some() {
        names.push(fused);
    } else {
        names.extend([full("ffn_gate_exps.weight"), full("ffn_up_exps.weight")]);
    }
}

impl Unknown {
    /// The first few names and the count; `None` when every tensor is known.
    pub(crate) fn sentence(&self) -> Option<String> {
        let more = self.count.checked_sub(self.first.len())?;
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let tensors = crate::output::count(self.count, "tensor");
        (self.count > 0).then(|| format!("{tensors} the engine does not know: {}{more}", self.first.join(", ")))
    }
}
