//! What is published: machines, model files, and the reference machine's tables.
//!
//! The files lie in `sim/core/data`, each number with its source. An experiment names a machine or a model by its name
//! here, or brings a file of its own in the same form.

use crate::check::invalid;
use crate::cost::{Machine, ModelShape, WeightKind};
use crate::error::SimError;

const MACHINES: &str = include_str!("../data/machines.toml");
const MODELS: &str = include_str!("../data/models.toml");
const PUBLISHED: &str = include_str!("../data/published.csv");

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineFile {
    machine: Vec<Machine>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelFile {
    shape: Shape,
    model: Vec<Model>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    layers: usize,
    attention_layers: usize,
    used: usize,
    expert_weights: f64,
    dense_weights: f64,
    draft_bytes: f64,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Model {
    name: String,
    experts: usize,
    expert_bytes: f64,
    dense_bytes: f64,
    head_bytes: f64,
    #[serde(default)]
    extra_bytes: f64,
    kind: WeightKind,
}

/// Parses TOML; a failure names the file, and the parser says line and field.
pub(crate) fn parse<T: serde::de::DeserializeOwned>(place: &str, text: &str) -> Result<T, SimError> {
    toml::from_str(text).map_err(|e| invalid(place, e.to_string().trim_end(), "a file of this form"))
}

/// The machines of a file with `[[machine]]` tables; `place` names the file in errors.
///
/// # Errors
/// It is no such file, or a number cannot be.
pub fn machines_of(place: &str, text: &str) -> Result<Vec<Machine>, SimError> {
    let file: MachineFile = parse(place, text)?;
    for machine in &file.machine {
        machine.check()?;
    }
    Ok(file.machine)
}

/// The published machines.
///
/// # Errors
/// The built-in file is damaged.
pub fn machines() -> Result<Vec<Machine>, SimError> {
    machines_of("machines.toml", MACHINES)
}

/// The published model files.
///
/// # Errors
/// The built-in file is damaged.
pub fn models() -> Result<Vec<ModelShape>, SimError> {
    models_of("models.toml", MODELS)
}

/// The models of a file with a `[shape]` and `[[model]]` tables; `place` names the file in errors.
///
/// # Errors
/// It is no such file, or a number cannot be.
pub fn models_of(place: &str, text: &str) -> Result<Vec<ModelShape>, SimError> {
    let ModelFile { shape, model } = parse(place, text)?;
    let shapes = model.into_iter().map(|m| ModelShape {
        name: m.name,
        experts: m.experts,
        used: shape.used,
        attention_layers: shape.attention_layers,
        expert_weights: shape.expert_weights,
        expert_bytes: vec![m.expert_bytes; shape.layers],
        dense_weights: shape.dense_weights,
        dense_bytes: m.dense_bytes,
        head_bytes: m.head_bytes,
        draft_bytes: shape.draft_bytes,
        extra_bytes: m.extra_bytes,
        kind: m.kind,
    });
    shapes.map(|m| m.check().map(|()| m)).collect()
}

/// The one of this name, or a sentence that lists the names.
///
/// # Errors
/// None has it.
pub fn named<'a, T>(what: &str, all: &'a [T], name: &str, of: impl Fn(&T) -> &str) -> Result<&'a T, SimError> {
    all.iter().find(|item| of(item) == name).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(of).collect();
        invalid(what, name, format!("one of {}", names.join(", ")))
    })
}

/// A line of the reference machine's tables.
#[derive(Debug, Clone, PartialEq, serde::Deserialize)]
pub struct Published {
    /// The model file.
    pub quant: String,
    /// Tokens of the context.
    pub context: f64,
    /// Slots for experts in VRAM.
    pub slots: f64,
    /// Share of the offered drafts that were accepted.
    pub acceptance: f64,
    /// Decoding with version 0.1.14 in tokens/s, of the same run as slots and acceptance.
    pub decode_14: Option<f64>,
    /// Decoding with version 0.1.26 in tokens/s.
    pub decode: Option<f64>,
    /// Reading a prompt of this length with version 0.1.26 in tokens/s.
    pub prompt: Option<f64>,
}

/// The reference machine's tables.
///
/// # Errors
/// The built-in file is damaged.
pub fn published() -> Result<Vec<Published>, SimError> {
    csv::ReaderBuilder::new()
        .comment(Some(b'#'))
        .from_reader(PUBLISHED.as_bytes())
        .deserialize()
        .map(|line| line.map_err(|e| invalid("published.csv", e, "a line of its seven columns")))
        .collect()
}

/// The line of a model file whose context is nearest, on a logarithmic scale.
pub fn nearest<'a>(table: &'a [Published], quant: &str, context: f64) -> Option<&'a Published> {
    let distance = |line: &&Published| (line.context.max(1.0) / context.max(1.0)).ln().abs();
    table.iter().filter(|line| line.quant == quant).min_by(|a, b| distance(a).total_cmp(&distance(b)))
}
