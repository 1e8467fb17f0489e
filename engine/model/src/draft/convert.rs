//! The draft layer of a published checkpoint, in the form of a GGUF file.

use super::load::KEYS;
use super::shapes::Dims;
use crate::config::ARCHITECTURE;
use crate::error::Result;
use std::collections::BTreeMap;
use strata_gguf::{GgmlType, Gguf, Metadata, SafeTensors, Tensor, Value, quant};

/// What the names of the layer's tensors start with.
const PREFIX: &str = "mtp.";

/// What becomes of a tensor.
#[derive(Clone, Copy)]
enum Kind {
    /// Stays as it is.
    Matrix,
    /// Kept as floats: choices hang on it.
    Floats,
    /// A norm's weights: floats, to which the checkpoint's formula adds 1.
    Norm,
}
use Kind::{Floats, Matrix, Norm};

/// Names in the checkpoint behind [`PREFIX`], in files behind `blk.N.`, and what becomes of the tensor.
const TENSORS: [(&str, &str, Kind); 28] = [
    ("fc_embedding.weight", "nextn.fc_embedding.weight", Matrix),
    ("fc_hidden.weight", "nextn.fc_hidden.weight", Matrix),
    ("pre_fc_norm_embedding.weight", "nextn.enorm.weight", Norm),
    ("pre_fc_norm_hidden.weight", "nextn.hnorm.weight", Norm),
    ("hyper_connection_mixer.hc_norm.weight", "nextn.hc_head_norm.weight", Norm),
    ("hyper_connection_mixer.input_mix_weight_down.weight", "nextn.hc_head_down.weight", Matrix),
    ("hyper_connection_mixer.input_mix_weight_up.weight", "nextn.hc_head_up.weight", Matrix),
    ("layers.0.attn_hyper_connection.hc_norm.weight", "hc_attn_norm.weight", Norm),
    ("layers.0.attn_hyper_connection.input_mix_weight_down.weight", "hc_attn_down.weight", Matrix),
    ("layers.0.attn_hyper_connection.input_mix_weight_up.weight", "hc_attn_up.weight", Matrix),
    ("layers.0.attn_hyper_connection.block_inject_weight.weight", "hc_attn_inject.weight", Matrix),
    ("layers.0.self_attn.q_proj.weight", "attn_q.weight", Matrix),
    ("layers.0.self_attn.k_proj.weight", "attn_k.weight", Matrix),
    ("layers.0.self_attn.v_proj.weight", "attn_v.weight", Matrix),
    ("layers.0.self_attn.o_proj.weight", "attn_output.weight", Matrix),
    ("layers.0.self_attn.q_norm.weight", "attn_q_norm.weight", Norm),
    ("layers.0.self_attn.k_norm.weight", "attn_k_norm.weight", Norm),
    ("layers.0.mlp_hyper_connection.hc_norm.weight", "hc_ffn_norm.weight", Norm),
    ("layers.0.mlp_hyper_connection.input_mix_weight_down.weight", "hc_ffn_down.weight", Matrix),
    ("layers.0.mlp_hyper_connection.input_mix_weight_up.weight", "hc_ffn_up.weight", Matrix),
    ("layers.0.mlp_hyper_connection.block_inject_weight.weight", "hc_ffn_inject.weight", Matrix),
    ("layers.0.mlp.gate.weight", "ffn_gate_inp.weight", Floats),
    // Gate rows first in each expert: the joined form that files may have too.
    ("layers.0.mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight", Matrix),
    ("layers.0.mlp.experts.down_proj", "ffn_down_exps.weight", Matrix),
    ("layers.0.mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight", Floats),
    ("layers.0.mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight", Matrix),
    ("layers.0.mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight", Matrix),
    ("layers.0.mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight", Matrix),
];

/// The indexer, which files carry for engines that select: one matrix for queries and the key, and two norms.
const INDEXER: [&str; 3] = ["index_qk_proj.weight", "q_layernorm.weight", "k_layernorm.weight"];
const INDEXER_PREFIX: &str = "layers.0.self_attn.indexer.";

/// Names and shapes the draft layer of a checkpoint (its tensors `mtp.*`) as a GGUF file would, as block `trunk_layers`
/// behind that many layers of the model; 0 when that is unknown. Matrices stay where they are, norms get the 1 that the
/// checkpoint leaves out.
///
/// # Errors
/// A tensor is missing, of a type that is not a float's, of a shape that contradicts another, or unknown, or a norm or
/// router holds a value that is not finite. Messages have the checkpoint's names and shapes.
pub fn draft_from_safetensors(source: &SafeTensors, trunk_layers: usize) -> Result<Gguf> {
    let block = format!("blk.{trunk_layers}.");
    let mut found = BTreeMap::new();
    for (from, to, _) in TENSORS {
        found.insert(to, source.require(&format!("{PREFIX}{from}"))?);
    }
    let dims = Dims::of_checkpoint(source, &found)?;
    dims.check(source, &found)?;
    let mut tensors = Vec::new();
    for (from, to, kind) in TENSORS {
        let tensor = source.require(&format!("{PREFIX}{from}"))?;
        let name = format!("{block}{to}");
        tensors.push(match kind {
            Matrix => tensor.part(&name, 0, tensor.dims())?,
            Floats => floats(source, &name, &tensor, 0.0)?,
            Norm => floats(source, &name, &tensor, 1.0)?,
        });
    }
    let indexer = INDEXER.map(|name| format!("{PREFIX}{INDEXER_PREFIX}{name}"));
    if source.names().any(|n| indexer.iter().any(|i| i == n)) {
        let [both, q_norm, k_norm] = &indexer;
        let (both, q_norm, k_norm) = (source.require(both)?, source.require(q_norm)?, source.require(k_norm)?);
        let (dim, rows, len) = (k_norm.elements(), both.rows(), both.row_len());
        if q_norm.elements() != dim {
            let (name, found) = (q_norm.name(), q_norm.elements());
            return Err(source
                .invalid(format!("tensor {name} is [{found}], expected [{dim}], as the key's norm"))
                .into());
        }
        // Rows of the queries' heads, then those of the one key.
        let whole = len == dims.hidden() && both.dims().len() == 2;
        let queries = rows.checked_sub(dim).filter(|q| whole && *q > 0 && q.is_multiple_of(dim)).ok_or_else(|| {
            let found: Vec<u64> = both.dims().iter().rev().copied().collect();
            source.invalid(format!(
                "tensor {} is {found:?}, expected [N, {}] with a multiple of the key's {dim} as N, from {} on",
                both.name(),
                dims.hidden(),
                dim.saturating_mul(2)
            ))
        })?;
        tensors.push(both.part(&format!("{block}indexer.q_proj.weight"), 0, &[len, queries])?);
        tensors.push(both.part(&format!("{block}indexer.k_proj.weight"), queries, &[len, dim])?);
        tensors.push(floats(source, &format!("{block}indexer.q_norm.weight"), &q_norm, 1.0)?);
        tensors.push(floats(source, &format!("{block}indexer.k_norm.weight"), &k_norm, 1.0)?);
    }
    only_known(source, &indexer)?;
    Ok(Gguf::from_tensors(metadata(source, trunk_layers, &dims)?, tensors)?)
}

/// The checkpoint's name of what is called `name` in files, with or without `blk.N.` before it.
pub(super) fn source_name(name: &str) -> String {
    let behind = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')).map_or(name, |(_, rest)| rest);
    let indexer = match behind {
        "indexer.q_proj.weight" | "indexer.k_proj.weight" => Some(INDEXER[0]),
        "indexer.q_norm.weight" => Some(INDEXER[1]),
        "indexer.k_norm.weight" => Some(INDEXER[2]),
        _ => None,
    };
    match (indexer, TENSORS.iter().find(|(_, to, _)| *to == behind)) {
        (Some(name), _) => format!("{PREFIX}{INDEXER_PREFIX}{name}"),
        (None, Some((from, ..))) => format!("{PREFIX}{from}"),
        (None, None) => name.to_owned(),
    }
}

/// The values of a small tensor as f32, `plus` added to each.
fn floats(source: &SafeTensors, name: &str, tensor: &Tensor, plus: f32) -> Result<Tensor> {
    let values = decoded(tensor)?;
    finite(tensor.name(), &values).map_err(|what| source.invalid(what))?;
    let data = values.iter().flat_map(|v| (v + plus).to_le_bytes()).collect();
    Ok(Tensor::owned(name, tensor.dims(), GgmlType::F32, data)?)
}

/// Whether all values are numbers, or which one is not.
pub(super) fn finite(name: &str, values: &[f32]) -> std::result::Result<(), String> {
    let wrong = values.iter().enumerate().find(|(_, v)| !v.is_finite());
    wrong.map_or(Ok(()), |(at, v)| Err(format!("tensor {name}: value {at} is {v}, expected finite numbers")))
}

/// All values of a tensor that was opened, so its size is that of its bytes in memory.
pub(super) fn decoded(tensor: &Tensor) -> Result<Vec<f32>> {
    let mut values = vec![0.0; tensor.elements() as usize];
    quant::decode(tensor.ty(), tensor.data(), &mut values)
        .map_err(|e| strata_gguf::Error::Invalid { file: format!("tensor {}", tensor.name()), what: e.to_string() })?;
    Ok(values)
}

/// Refuses what the layer of this architecture does not have: more layers, or other parts.
fn only_known(source: &SafeTensors, indexer: &[String]) -> Result<()> {
    let known = |name: &str| TENSORS.iter().any(|(n, ..)| *n == name);
    let rest: Vec<&str> = source
        .names()
        .filter(|n| n.strip_prefix(PREFIX).is_some_and(|rest| !known(rest)) && !indexer.iter().any(|i| i == n))
        .collect();
    match rest.as_slice() {
        [] => Ok(()),
        [first, ..] => Err(source
            .invalid(format!(
                "tensor {} is no part of this architecture's draft layer ({} such in all)",
                strata_gguf::show_text(first),
                rest.len()
            ))
            .into()),
    }
}

/// What the shapes say about the model that the layer belongs to.
fn metadata(source: &SafeTensors, trunk_layers: usize, dims: &Dims) -> Result<Metadata> {
    let mut meta = Metadata::new(source.name());
    meta.insert("general.architecture", Value::String(ARCHITECTURE.into()));
    let mut set = |key: &str, value: u64| -> Result<()> {
        let small = u32::try_from(value).map_err(|_| source.invalid(format!("{key} would be {value}")))?;
        meta.insert(format!("{ARCHITECTURE}.{key}"), Value::U32(small));
        Ok(())
    };
    set("block_count", trunk_layers as u64 + 1)?;
    set("nextn_predict_layers", 1)?;
    KEYS.iter().zip(dims.keys()).try_for_each(|(key, value)| set(key, value))?;
    Ok(meta)
}
