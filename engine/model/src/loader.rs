//! Finds the model's tensors, checks their shapes and hands them to the device.

use crate::config::{LayerKind, ModelConfig, NgramConfig};
use crate::error::Result;
use crate::ops::{ExpertTensors, Ops, SharedExpert};
use crate::weights::{
    AttentionWeights, DeltaWeights, IndexerWeights, LayerWeights, Mixer, MoeWeights, NgramWeights, TokenMixer, Weights,
};
use std::cell::RefCell;
use std::collections::HashSet;
use strata_cpu::experts::GateUp;
use strata_gguf::{Gguf, Tensor, quant};

/// How far loading has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Layers ready.
    pub layers: usize,
    /// Layers in all.
    pub of: usize,
}

/// Loads tensors of one file for one device.
pub(crate) struct Loader<'a, O: Ops> {
    gguf: &'a Gguf,
    config: &'a ModelConfig,
    ops: &'a O,
    seen: RefCell<HashSet<String>>,
}

impl<'a, O: Ops> Loader<'a, O> {
    pub(crate) fn new(gguf: &'a Gguf, config: &'a ModelConfig, ops: &'a O) -> Self {
        Loader { gguf, config, ops, seen: RefCell::default() }
    }

    pub(crate) fn load(&self, progress: &mut dyn FnMut(Progress)) -> Result<Weights<O>> {
        let c = self.config;
        let embedding = self.ops.table(&self.shaped("token_embd.weight", &[c.hidden, c.vocab])?)?;
        let head = match self.gguf.tensor("output.weight") {
            Some(_) => self.matrix("output.weight", c.hidden, c.vocab)?,
            None => self.matrix("token_embd.weight", c.hidden, c.vocab)?,
        };
        let head_in = self.mixer("output_hc", false)?;
        let ngram = c.ngram.as_ref().map(|n| self.ngram(n)).transpose()?;
        // Grown as tensors are found: the number of layers is only a claim until then.
        let mut layers = Vec::new();
        for (i, &kind) in c.layers.iter().enumerate() {
            progress(Progress { layers: i, of: c.layers.len() });
            layers.push(self.layer(i, kind)?);
        }
        progress(Progress { layers: c.layers.len(), of: c.layers.len() });
        Ok(Weights { embedding, ngram, layers, head_in, head })
    }

    /// A sentence about tensors of the file that the model has no use for, if there are any.
    pub(crate) fn unknown(&self) -> Option<String> {
        let seen = self.seen.borrow();
        let draft = |name: &str| {
            let block = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
            block.is_some_and(|b| {
                (self.config.layers.len()..self.config.layers.len() + self.config.draft_blocks).contains(&b)
            })
        };
        let names: Vec<&str> =
            self.gguf.tensors().iter().map(|t| t.name()).filter(|n| !seen.contains(*n) && !draft(n)).collect();
        if names.is_empty() {
            return None;
        }
        let shown = names.iter().take(5).copied().collect::<Vec<_>>().join(", ");
        let more = if names.len() > 5 { ", ..." } else { "" };
        Some(format!("{} tensors are unknown and ignored: {shown}{more}", names.len()))
    }

    fn layer(&self, i: usize, kind: LayerKind) -> Result<LayerWeights<O>> {
        let p = format!("blk.{i}.");
        Ok(LayerWeights {
            mixer_in: self.mixer(&format!("{p}hc_attn"), true)?,
            mixer: match kind {
                LayerKind::Delta => TokenMixer::Delta(self.delta(&p)?),
                LayerKind::Attention => TokenMixer::Attention(self.attention(&p)?),
            },
            moe_in: self.mixer(&format!("{p}hc_ffn"), true)?,
            moe: self.moe(&p)?,
        })
    }

    pub(crate) fn mixer(&self, p: &str, inject: bool) -> Result<Mixer<O>> {
        let (residual, rank) = (self.config.residual_len(), self.config.low_rank);
        Ok(Mixer {
            norm: self.vector(&format!("{p}_norm.weight"), &[residual])?,
            down: self.matrix(&format!("{p}_down.weight"), residual, rank)?,
            up: self.matrix(&format!("{p}_up.weight"), rank, residual)?,
            inject: inject
                .then(|| self.matrix(&format!("{p}_inject.weight"), residual, self.config.streams))
                .transpose()?,
        })
    }

    fn delta(&self, p: &str) -> Result<DeltaWeights<O>> {
        let (h, d) = (self.config.hidden, self.config.delta);
        let (inner, heads) = (d.value_heads * d.dim, d.value_heads);
        let channels = d.shape().channels();
        Ok(DeltaWeights {
            qkv: self.matrix(&format!("{p}attn_qkv.weight"), h, channels)?,
            z: self.matrix(&format!("{p}attn_gate.weight"), h, inner)?,
            beta: self.matrix(&format!("{p}ssm_beta.weight"), h, heads)?,
            alpha: self.matrix(&format!("{p}ssm_alpha.weight"), h, heads)?,
            a: self.vector(&format!("{p}ssm_a"), &[heads])?,
            dt: self.vector(&format!("{p}ssm_dt.bias"), &[heads])?,
            conv: self.taps(&format!("{p}ssm_conv1d.weight"), d.taps, channels)?,
            norm: self.vector(&format!("{p}ssm_norm.weight"), &[d.dim])?,
            out: self.matrix(&format!("{p}ssm_out.weight"), inner, h)?,
        })
    }

    pub(crate) fn attention(&self, p: &str) -> Result<AttentionWeights<O>> {
        let (h, a) = (self.config.hidden, self.config.attention);
        let indexer = |i: crate::config::Indexer| -> Result<IndexerWeights<O>> {
            Ok(IndexerWeights {
                q: self.matrix(&format!("{p}indexer.q_proj.weight"), h, i.heads * i.dim)?,
                k: self.matrix(&format!("{p}indexer.k_proj.weight"), h, i.dim)?,
                q_norm: self.vector(&format!("{p}indexer.q_norm.weight"), &[i.dim])?,
                k_norm: self.vector(&format!("{p}indexer.k_norm.weight"), &[i.dim])?,
            })
        };
        Ok(AttentionWeights {
            q: self.matrix(&format!("{p}attn_q.weight"), h, 2 * a.heads * a.dim)?,
            k: self.matrix(&format!("{p}attn_k.weight"), h, a.kv_heads * a.dim)?,
            v: self.matrix(&format!("{p}attn_v.weight"), h, a.kv_heads * a.dim)?,
            q_norm: self.vector(&format!("{p}attn_q_norm.weight"), &[a.dim])?,
            k_norm: self.vector(&format!("{p}attn_k_norm.weight"), &[a.dim])?,
            out: self.matrix(&format!("{p}attn_output.weight"), a.heads * a.dim, h)?,
            indexer: a.indexer.map(indexer).transpose()?,
        })
    }

    pub(crate) fn moe(&self, p: &str) -> Result<MoeWeights<O>> {
        let c = self.config;
        let (h, n, width) = (c.hidden, c.experts, c.expert_width);
        let experts = |name: &str, cols: usize, rows: usize| -> Result<(Tensor, f32)> {
            let name = format!("{p}{name}.weight");
            let tensor = self.shaped(&name, &[cols, rows, n])?;
            Ok((tensor, self.companion_scale(&name)?))
        };
        let (gate_up, gate_scale, up_scale) = if self.gguf.tensor(&format!("{p}ffn_gate_up_exps.weight")).is_some() {
            let (both, scale) = experts("ffn_gate_up_exps", h, 2 * width)?;
            (GateUp::Fused(both), scale, scale)
        } else {
            let (gate, gate_scale) = experts("ffn_gate_exps", h, width)?;
            let (up, up_scale) = experts("ffn_up_exps", h, width)?;
            (GateUp::Apart(gate, up), gate_scale, up_scale)
        };
        let (down, down_scale) = experts("ffn_down_exps", width, h)?;
        let scales = [gate_scale, up_scale, down_scale];
        Ok(MoeWeights {
            router: self.matrix(&format!("{p}ffn_gate_inp.weight"), h, n)?,
            experts: self.ops.experts(ExpertTensors { gate_up, down, scales, count: n, hidden: h, width })?,
            shared_gate: self.matrix(&format!("{p}ffn_gate_inp_shexp.weight"), h, 1)?,
            shared: SharedExpert {
                gate: self.matrix(&format!("{p}ffn_gate_shexp.weight"), h, c.shared_width)?,
                up: self.matrix(&format!("{p}ffn_up_shexp.weight"), h, c.shared_width)?,
                down: self.matrix(&format!("{p}ffn_down_shexp.weight"), c.shared_width, h)?,
            },
        })
    }

    fn ngram(&self, n: &NgramConfig) -> Result<NgramWeights<O>> {
        let (h, residual) = (self.config.hidden, self.config.residual_len());
        let p = format!("blk.{}.ple_", n.layer);
        let name = "per_layer_token_embd.weight";
        let table = self.named(name)?;
        let rows = table.rows();
        let joined = n.head_rows.len() * n.row_len;
        for (head, (&size, &offset)) in n.head_rows.iter().zip(&n.head_offsets).enumerate() {
            if offset.checked_add(size).is_none_or(|end| end > rows) {
                return Err(self
                    .gguf
                    .invalid(format!(
                        "n-gram head {head} reads rows {offset} to {offset} + {size}, but {name} has {rows} rows"
                    ))
                    .into());
            }
        }
        Ok(NgramWeights {
            table: self.ops.table(&self.shaped(name, &[n.row_len, rows as usize])?)?,
            key: self.matrix(&format!("{p}key.weight"), joined, residual)?,
            value: self.matrix(&format!("{p}value.weight"), joined, h)?,
            norm_key: self.vector(&format!("{p}norm_key.weight"), &[residual])?,
            norm_query: self.vector(&format!("{p}norm_query.weight"), &[residual])?,
            norm_conv: self.vector(&format!("{p}norm_conv.weight"), &[residual])?,
            conv: self.taps(&format!("{p}conv1d.weight"), n.taps, residual)?,
        })
    }

    fn named(&self, name: &str) -> Result<&'a Tensor> {
        self.seen.borrow_mut().insert(name.to_owned());
        Ok(self.gguf.require(name)?)
    }

    /// The tensor with this name, if its dimensions (input first, ones at the end ignored) are the expected ones.
    pub(crate) fn shaped(&self, name: &str, expected: &[usize]) -> Result<Tensor> {
        let tensor = self.named(name)?;
        let meant = |dims: &[u64]| dims.iter().rposition(|&d| d != 1).map_or(0, |last| last + 1);
        let found = tensor.dims();
        let wanted: Vec<u64> = expected.iter().map(|&d| d as u64).collect();
        if found[..meant(found)] != wanted[..meant(&wanted)] {
            return Err(self
                .gguf
                .invalid(format!("tensor {name} is {found:?}, expected {wanted:?} by the model's dimensions"))
                .into());
        }
        Ok(tensor.clone())
    }

    pub(crate) fn matrix(&self, name: &str, cols: usize, rows: usize) -> Result<O::Matrix> {
        let tensor = self.shaped(name, &[cols, rows])?;
        let scale = self.companion_scale(name)?;
        self.ops.matrix(&tensor, scale)
    }

    /// A small tensor of any type, as floats.
    pub(crate) fn vector(&self, name: &str, dims: &[usize]) -> Result<O::Buf> {
        Ok(self.ops.upload(&self.values(name, dims)?))
    }

    /// The weights of a convolution, from one row per channel to one row per tap.
    fn taps(&self, name: &str, taps: usize, channels: usize) -> Result<O::Buf> {
        let by_channel = self.values(name, &[taps, channels])?;
        let by_tap: Vec<f32> = (0..taps).flat_map(|k| by_channel.iter().skip(k).step_by(taps)).copied().collect();
        Ok(self.ops.upload(&by_tap))
    }

    fn values(&self, name: &str, dims: &[usize]) -> Result<Vec<f32>> {
        let tensor = self.shaped(name, dims)?;
        let mut values = vec![0.0; dims.iter().product()];
        quant::decode(tensor.ty(), tensor.data(), &mut values)
            .map_err(|e| self.gguf.invalid(format!("tensor {name}: {e}")))?;
        if let Some(at) = values.iter().position(|v| !v.is_finite()) {
            let what = format!("tensor {name} holds {} at value {at}, expected finite numbers", values[at]);
            return Err(self.gguf.invalid(what).into());
        }
        Ok(values)
    }

    /// NVFP4 files may carry a factor for a whole matrix in a tensor of the same name that ends in `.scale`.
    pub(crate) fn companion_scale(&self, name: &str) -> Result<f32> {
        let Some(stem) = name.strip_suffix(".weight") else { return Ok(1.0) };
        let name = format!("{stem}.scale");
        if self.gguf.tensor(&name).is_none() {
            return Ok(1.0);
        }
        // One value, so the product is that value.
        Ok(self.values(&name, &[1])?.iter().product())
    }
}
