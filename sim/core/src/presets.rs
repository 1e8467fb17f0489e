//! What is published: machines, model files, and the reference machine's tables.
//!
//! The files lie in `sim/core/data` and `results/hardware`, each number with its source. An experiment names a machine or
//! a model by its name here, or brings a file of its own in the same form.

use crate::check::invalid;
use crate::cost::{Machine, ModelShape, WeightKind};
use crate::error::SimError;
use strata_config::HardwareProfile;

/// Machines with a profile, by the names that experiments use.
const PROFILES: &[(&str, &str)] = &[
    ("rtx5070", include_str!("../../../results/hardware/rtx-5070-ryzen-7600.toml")),
    ("rtx4090", include_str!("../../../results/hardware/rtx-4090.toml")),
    ("rtx5090", include_str!("../../../results/hardware/rtx-5090.toml")),
    ("m3-ultra", include_str!("../../../results/hardware/m3-ultra.toml")),
    ("h200-12gb", include_str!("../../../results/hardware/h200-capped.toml")),
];
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
    expert_bytes: ExpertBytes,
    dense_bytes: f64,
    head_bytes: f64,
    #[serde(default)]
    extra_bytes: f64,
    kind: WeightKind,
}

/// One size for all layers, or one for each.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum ExpertBytes {
    All(f64),
    ByLayer(Vec<f64>),
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

/// The machine of a hardware profile's text; `place` names the file in errors.
///
/// # Errors
/// It is no profile, or not one of a machine with a card.
pub fn machine_of_profile(place: &str, text: &str) -> Result<Machine, SimError> {
    Machine::from_profile(&HardwareProfile::from_toml(place, text)?)
}

/// The machines that are described: first those with a profile.
///
/// # Errors
/// A built-in file is damaged.
pub fn machines() -> Result<Vec<Machine>, SimError> {
    let mut all = Vec::new();
    for (name, text) in PROFILES {
        all.push(Machine { name: (*name).to_owned(), ..machine_of_profile(name, text)? });
    }
    all.extend(machines_of("machines.toml", MACHINES)?);
    Ok(all)
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
    let shapes = model.into_iter().map(|m| {
        let expert_bytes = match m.expert_bytes {
            ExpertBytes::All(bytes) => vec![bytes; shape.layers],
            ExpertBytes::ByLayer(bytes) if bytes.len() == shape.layers => bytes,
            ExpertBytes::ByLayer(bytes) => {
                let field = format!("{place}, model {}, field expert_bytes", m.name);
                return Err(invalid(
                    field,
                    format!("{} sizes", bytes.len()),
                    format!("one for each of {} layers", shape.layers),
                ));
            }
        };
        let model = ModelShape {
            name: m.name,
            experts: m.experts,
            used: shape.used,
            attention_layers: shape.attention_layers,
            expert_weights: shape.expert_weights,
            expert_bytes,
            dense_weights: shape.dense_weights,
            dense_bytes: m.dense_bytes,
            head_bytes: m.head_bytes,
            draft_bytes: shape.draft_bytes,
            extra_bytes: m.extra_bytes,
            kind: m.kind,
        };
        model.check().map(|()| model)
    });
    shapes.collect()
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
