//! A model, as far as the cost model sees it.

use crate::check::{invalid, not_negative, positive};
use crate::error::SimError;

/// How an expert's weights are stored, which decides what decoding one costs a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WeightKind {
    /// Codes that are the weight (Q2_0, Q4_0, Q8_0): bandwidth binds.
    Plain,
    /// Codes with nested scales (Q4_K, Q5_K, Q6_K) or small tables (NVFP4, IQ4_NL).
    Nested,
    /// Indices into a code book (IQ1, IQ2 and IQ3): the look-ups bind.
    CodeBook,
}

/// The sizes of one model file.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelShape {
    /// Its name, as experiments use it.
    pub name: String,
    /// Routed experts of a layer.
    pub experts: usize,
    /// Experts that a token uses in each layer.
    pub used: usize,
    /// Layers with attention over a context; the others carry a state of fixed size.
    pub attention_layers: usize,
    /// Weights of one expert.
    pub expert_weights: f64,
    /// Bytes of one expert in each layer; its length is the number of layers.
    pub expert_bytes: Vec<f64>,
    /// Weights that every token uses, the output head among them.
    pub dense_weights: f64,
    /// Their bytes: what each pass reads of VRAM besides experts and K/V.
    pub dense_bytes: f64,
    /// The part of `dense_bytes` that is the output head, read after the last layer.
    pub head_bytes: f64,
    /// Bytes of VRAM of the draft layer with its experts and buffers.
    pub draft_bytes: f64,
    /// Bytes of VRAM that this file takes besides all that is named: repacked weights, larger work areas.
    pub extra_bytes: f64,
    /// How most expert weights are stored.
    pub kind: WeightKind,
}

impl ModelShape {
    /// Layers with routed experts.
    pub fn layers(&self) -> usize {
        self.expert_bytes.len()
    }

    /// Pairs of layer and expert.
    pub fn pairs(&self) -> usize {
        self.layers() * self.experts
    }

    /// Bytes of one expert, mean over the layers.
    pub fn mean_expert_bytes(&self) -> f64 {
        self.expert_bytes.iter().sum::<f64>() / self.expert_bytes.len().max(1) as f64
    }

    /// Refuses numbers that cannot be.
    ///
    /// # Errors
    /// A size is zero, negative or no number, or a part is larger than its whole; the sentence names the field.
    pub fn check(&self) -> Result<(), SimError> {
        let place = |field: &str| format!("model {}, field {field}", self.name);
        if self.expert_bytes.is_empty() {
            return Err(invalid(place("expert_bytes"), "no layer", "at least one"));
        }
        for (layer, &bytes) in self.expert_bytes.iter().enumerate() {
            positive(&place(&format!("expert_bytes of layer {layer}")), bytes)?;
        }
        positive(&place("expert_weights"), self.expert_weights)?;
        positive(&place("dense_weights"), self.dense_weights)?;
        positive(&place("dense_bytes"), self.dense_bytes)?;
        not_negative(&place("head_bytes"), self.head_bytes)?;
        not_negative(&place("draft_bytes"), self.draft_bytes)?;
        not_negative(&place("extra_bytes"), self.extra_bytes)?;
        if self.head_bytes > self.dense_bytes {
            let expected = format!("at most its dense_bytes, {}", self.dense_bytes);
            return Err(invalid(place("head_bytes"), self.head_bytes, expected));
        }
        if self.used == 0 || self.used > self.experts {
            return Err(invalid(place("used"), self.used, format!("from 1 to its {} experts", self.experts)));
        }
        if self.attention_layers > self.layers() {
            let expected = format!("at most its {} layers", self.layers());
            return Err(invalid(place("attention_layers"), self.attention_layers, expected));
        }
        Ok(())
    }
}
