//! The shapes that a draft layer's tensors must have among themselves.

use super::convert::source_name;
use super::load::{KEYS, find};
use crate::config::ARCHITECTURE;
use crate::error::Result;
use std::collections::BTreeMap;
use strata_gguf::{Gguf, SafeTensors, Tensor};

/// What the shapes follow from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dims {
    hidden: u64,
    /// All residual streams together.
    residual: u64,
    streams: u64,
    /// Rank of the mixers.
    rank: u64,
    /// All query heads together, and all key heads.
    queries: u64,
    keys: u64,
    /// Of one head.
    width: u64,
    experts: u64,
    expert_width: u64,
    shared_width: u64,
}

impl Dims {
    /// Reads them off the tensors of a checkpoint, here by their names in files. Norms are trusted first, as a vector
    /// has one shape only; each other dimension comes from a matrix whose known side is right, if there is one.
    ///
    /// # Errors
    /// The parts of a whole are not equally long.
    pub(super) fn of_checkpoint(source: &SafeTensors, tensors: &BTreeMap<&str, Tensor>) -> Result<Dims> {
        let of = |name: &str| {
            let missing = || source.invalid(format!("tensor {name} is missing"));
            tensors.get(format!("{name}.weight").as_str()).ok_or_else(missing)
        };
        let side = |tensor: &Tensor, i: usize| tensor.dims().get(i).copied().unwrap_or(1);
        // One side of the first matrix if its other side is as it should be, else that of the second.
        let either = |first: (&str, usize, usize), known: u64, second: (&str, usize)| -> Result<u64> {
            let tensor = of(first.0)?;
            if side(tensor, first.2) == known { Ok(side(tensor, first.1)) } else { Ok(side(of(second.0)?, second.1)) }
        };
        let parts = |what: &str, whole: u64, part: u64| match part {
            0 => Err(source.invalid(format!("{what} have a width of 0"))),
            _ if whole == 0 || !whole.is_multiple_of(part) => {
                Err(source.invalid(format!("{what}: {whole} values, expected a multiple of {part}")))
            }
            _ => Ok(whole / part),
        };
        let (hidden, residual) = (of("nextn.enorm")?.elements(), of("nextn.hnorm")?.elements());
        let width = of("attn_q_norm")?.elements();
        let out = of("attn_output")?;
        // A query's rows are those of its gate too.
        let queries = if side(out, 1) == hidden { side(out, 0) } else { side(of("attn_q")?, 1) / 2 };
        let keys = either(("attn_k", 1, 0), hidden, ("attn_v", 1))?;
        let experts = either(("ffn_gate_inp", 1, 0), hidden, ("ffn_gate_up_exps", 2))?;
        let down = of("ffn_down_exps")?;
        let expert_width = if side(down, 1) == hidden { side(down, 0) } else { side(of("ffn_gate_up_exps")?, 1) / 2 };
        // Of three matrices two that agree are believed.
        let (up, down) = (side(of("ffn_up_shexp")?, 1), side(of("ffn_down_shexp")?, 0));
        let shared_width = if up == down { up } else { either(("ffn_gate_shexp", 1, 0), hidden, ("ffn_up_shexp", 1))? };
        parts("the query heads", queries, width)?;
        parts("the key heads", keys, width)?;
        Ok(Dims {
            hidden,
            residual,
            streams: parts("the residual streams", residual, hidden)?,
            rank: either(("nextn.hc_head_down", 1, 0), residual, ("nextn.hc_head_up", 0))?,
            queries,
            keys,
            width,
            experts,
            expert_width,
            shared_width,
        })
    }

    /// Those that the keys of a file name; `None` when one is missing.
    fn of_file(file: &Gguf) -> Result<Option<Dims>> {
        let mut values = [0; KEYS.len()];
        for (value, key) in values.iter_mut().zip(KEYS) {
            let Some(found) = file.meta().opt_u64(&format!("{ARCHITECTURE}.{key}"))? else { return Ok(None) };
            *value = found;
        }
        let [hidden, streams, rank, heads, kv_heads, width, experts, expert_width, shared_width] = values;
        Ok(Some(Dims {
            hidden,
            residual: streams.saturating_mul(hidden),
            streams,
            rank,
            queries: heads.saturating_mul(width),
            keys: kv_heads.saturating_mul(width),
            width,
            experts,
            expert_width,
            shared_width,
        }))
    }

    /// The values of [`KEYS`].
    pub(super) fn keys(&self) -> [u64; KEYS.len()] {
        let heads = |all: u64| all.checked_div(self.width).unwrap_or(0);
        [
            self.hidden,
            self.streams,
            self.rank,
            heads(self.queries),
            heads(self.keys),
            self.width,
            self.experts,
            self.expert_width,
            self.shared_width,
        ]
    }

    /// Values of a token's embedding.
    pub(super) fn hidden(&self) -> u64 {
        self.hidden
    }

    /// The shape of a tensor, by its name in files behind `blk.N.`; `None` for one of no known shape.
    fn shape(&self, name: &str) -> Option<Vec<u64>> {
        let d = self;
        let twice = |n: u64| n.saturating_mul(2);
        Some(match name.strip_suffix(".weight")? {
            "nextn.fc_embedding" | "nextn.fc_hidden" => vec![d.hidden, d.hidden],
            "nextn.eh_proj" => vec![twice(d.hidden), d.hidden],
            "nextn.enorm" => vec![d.hidden],
            "nextn.hnorm" | "nextn.hc_head_norm" | "hc_attn_norm" | "hc_ffn_norm" => vec![d.residual],
            "nextn.hc_head_down" | "hc_attn_down" | "hc_ffn_down" => vec![d.residual, d.rank],
            "nextn.hc_head_up" | "hc_attn_up" | "hc_ffn_up" => vec![d.rank, d.residual],
            "hc_attn_inject" | "hc_ffn_inject" => vec![d.residual, d.streams],
            // Each query head comes with its gate.
            "attn_q" => vec![d.hidden, twice(d.queries)],
            "attn_k" | "attn_v" => vec![d.hidden, d.keys],
            "attn_output" => vec![d.queries, d.hidden],
            "attn_q_norm" | "attn_k_norm" => vec![d.width],
            "ffn_gate_inp" => vec![d.hidden, d.experts],
            "ffn_gate_up_exps" => vec![d.hidden, twice(d.expert_width), d.experts],
            "ffn_gate_exps" | "ffn_up_exps" => vec![d.hidden, d.expert_width, d.experts],
            "ffn_down_exps" => vec![d.expert_width, d.hidden, d.experts],
            "ffn_gate_inp_shexp" => vec![d.hidden, 1],
            "ffn_gate_shexp" | "ffn_up_shexp" => vec![d.hidden, d.shared_width],
            "ffn_down_shexp" => vec![d.shared_width, d.hidden],
            _ => return None,
        })
    }

    /// Whether the tensors of a checkpoint, by their names in files, have the shapes that these dimensions give them.
    ///
    /// # Errors
    /// One has not. It is called and shown as in the checkpoint, the last dimension contiguous.
    pub(super) fn check(&self, source: &SafeTensors, tensors: &BTreeMap<&str, Tensor>) -> Result<()> {
        for (name, tensor) in tensors {
            let Some(expected) = self.shape(name).filter(|shape| !same(shape, tensor.dims())) else { continue };
            let turned = |dims: &[u64]| dims.iter().rev().copied().collect::<Vec<u64>>();
            let (shown, found, expected) = (source_name(name), turned(tensor.dims()), turned(&expected));
            let what = format!("tensor {shown} is {found:?}, expected {expected:?} by the layer's other tensors");
            return Err(source.invalid(what).into());
        }
        Ok(())
    }
}

/// Whether two shapes are one, ones at the end ignored.
fn same(a: &[u64], b: &[u64]) -> bool {
    let meant = |dims: &[u64]| dims.iter().rposition(|&d| d != 1).map_or(0, |last| last + 1);
    a.get(..meant(a)) == b.get(..meant(b))
}

/// Checks the shapes of a draft layer in a file against the dimensions that the file names, which needs no model.
///
/// # Errors
/// The file has no draft layer, or a tensor of it has another shape than its keys say. A file without such keys passes:
/// only a model can tell then.
pub fn check_draft_layer(file: &Gguf) -> Result<()> {
    let block = format!("blk.{}.", find(file)?);
    let Some(dims) = Dims::of_file(file)? else { return Ok(()) };
    for tensor in file.tensors() {
        let Some(expected) = tensor.name().strip_prefix(&block).and_then(|name| dims.shape(name)) else { continue };
        if !same(&expected, tensor.dims()) {
            let (name, found) = (tensor.name(), tensor.dims());
            return Err(file
                .invalid(format!("tensor {name} is {found:?}, expected {expected:?} by the file's own dimensions"))
                .into());
        }
    }
    Ok(())
}
