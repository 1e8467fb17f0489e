//! The weights of a model on a device, layer by layer.

use crate::ops::{Ops, SharedExpert};

/// A hyper-connection: reads a gated mix of the residual streams and weighs what is written back.
pub struct Mixer<O: Ops> {
    pub(crate) norm: O::Buf,
    pub(crate) down: O::Matrix,
    pub(crate) up: O::Matrix,
    /// Weights of the block's output per stream; the last mixer before the head has none.
    pub(crate) inject: Option<O::Matrix>,
}

/// A gated delta-net layer's mixer.
pub struct DeltaWeights<O: Ops> {
    pub(crate) qkv: O::Matrix,
    pub(crate) z: O::Matrix,
    pub(crate) beta: O::Matrix,
    pub(crate) alpha: O::Matrix,
    pub(crate) a: O::Buf,
    pub(crate) dt: O::Buf,
    pub(crate) conv: O::Buf,
    pub(crate) norm: O::Buf,
    pub(crate) out: O::Matrix,
}

/// The indexer of an attention layer.
pub(crate) struct IndexerWeights<O: Ops> {
    pub(crate) q: O::Matrix,
    pub(crate) k: O::Matrix,
    pub(crate) q_norm: O::Buf,
    pub(crate) k_norm: O::Buf,
}

/// An attention layer's mixer.
pub(crate) struct AttentionWeights<O: Ops> {
    pub(crate) q: O::Matrix,
    pub(crate) k: O::Matrix,
    pub(crate) v: O::Matrix,
    pub(crate) q_norm: O::Buf,
    pub(crate) k_norm: O::Buf,
    pub(crate) out: O::Matrix,
    pub(crate) indexer: Option<IndexerWeights<O>>,
}

/// What mixes tokens in a layer.
pub(crate) enum TokenMixer<O: Ops> {
    Delta(DeltaWeights<O>),
    Attention(AttentionWeights<O>),
}

/// The mixture of experts of a layer.
pub(crate) struct MoeWeights<O: Ops> {
    pub(crate) router: O::Matrix,
    pub(crate) experts: O::Experts,
    pub(crate) shared_gate: O::Matrix,
    pub(crate) shared: SharedExpert<O::Matrix>,
}

/// One layer.
pub(crate) struct LayerWeights<O: Ops> {
    pub(crate) mixer_in: Mixer<O>,
    pub(crate) mixer: TokenMixer<O>,
    pub(crate) moe_in: Mixer<O>,
    pub(crate) moe: MoeWeights<O>,
}

/// The n-gram module.
pub(crate) struct NgramWeights<O: Ops> {
    pub(crate) table: O::Table,
    pub(crate) key: O::Matrix,
    pub(crate) value: O::Matrix,
    pub(crate) norm_key: O::Buf,
    pub(crate) norm_query: O::Buf,
    pub(crate) norm_conv: O::Buf,
    pub(crate) conv: O::Buf,
}

/// The whole model.
pub(crate) struct Weights<O: Ops> {
    pub(crate) embedding: O::Table,
    pub(crate) ngram: Option<NgramWeights<O>>,
    pub(crate) layers: Vec<LayerWeights<O>>,
    pub(crate) head_in: Mixer<O>,
    pub(crate) head: O::Matrix,
}
