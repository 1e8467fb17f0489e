//! What holds for a whole trace.

use std::collections::BTreeMap;

/// What a whole trace was made from.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meta {
    /// How it came to be.
    pub origin: Origin,
    /// The model that was run.
    pub model: ModelMeta,
    /// The program that made it, with its version: `strata 0.1.0`.
    pub engine: String,
    /// Layers with routed experts.
    pub layers: usize,
    /// Routed experts of each layer.
    pub experts: usize,
    /// Experts that each token uses in each layer.
    pub used: usize,
    /// Bytes of one expert in each layer, as stored in the model file.
    pub expert_bytes: Vec<u64>,
    /// Bytes of all weights that every token reads.
    pub dense_bytes: u64,
    /// The engine's settings by key, as resolved.
    pub knobs: BTreeMap<String, KnobValue>,
    /// The machine's profile as TOML text, if it was measured.
    pub hardware: Option<String>,
    /// The clock of all times: `monotonic` of the operating system, or `none`.
    pub clock: String,
    /// For each layer the experts that the expert cache held before the first round, in ascending order; empty if it held none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resident: Vec<Vec<u16>>,
    /// When it was made, in seconds since 1970-01-01 UTC; `None` where that would make equal runs differ.
    pub unix_seconds: Option<u64>,
    /// Whatever else is worth knowing, in a sentence.
    pub note: String,
}

/// How a trace came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The engine recorded it.
    Recorded,
    /// A generator made it up.
    Synthetic,
    /// It came from another program's records.
    Imported,
}

/// The model of a trace.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelMeta {
    /// Its name.
    pub name: String,
    /// The engine's fingerprint of its files in hexadecimal digits; empty where there is none.
    pub id: String,
    /// The block type of most of its weights, as `IQ3_S`; empty where it is not known.
    pub quant: String,
}

/// A setting.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnobValue {
    /// As text.
    pub value: String,
    /// Where it came from: `default`, `flag` and so on.
    pub origin: String,
}
