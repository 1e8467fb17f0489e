//! Studies: what an experiment can vary, and what it measures.
//!
//! A study turns one [`Point`] of a sweep, a value for each axis, into [`Row`]s of figures. It knows which axes it
//! understands and refuses others, loads its inputs once, and evaluates points independently of each other, so that a
//! sweep may run them in any order on any number of threads and machines.

mod cache;
mod prefill;
mod round;
mod setting;
mod split_model;
mod values;

pub use cache::CacheStudy;
pub use prefill::PrefillStudy;
pub use round::RoundStudy;
pub use split_model::SplitModel;

use crate::error::SimError;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A value on an axis.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(untagged)]
pub enum AxisValue {
    /// Yes or no.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A finite number.
    Float(f64),
    /// A word.
    Text(String),
}

impl std::fmt::Display for AxisValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AxisValue::Bool(v) => write!(f, "{v}"),
            AxisValue::Int(v) => write!(f, "{v}"),
            AxisValue::Float(v) => write!(f, "{v}"),
            AxisValue::Text(v) => f.write_str(v),
        }
    }
}

/// One configuration of a sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// A value for each axis of the experiment; axes of the study that are not named have their default.
    pub values: BTreeMap<String, AxisValue>,
    /// For whatever the study draws.
    pub seed: u64,
}

/// One line of a result.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The point's values, the seed aside, and labels that the study adds (a layer, a machine).
    pub labels: Vec<(String, AxisValue)>,
    /// The figures, in the order of [`Study::metrics`].
    pub metrics: Vec<(String, f64)>,
}

impl Row {
    /// Figures under the names that a study gives them.
    pub(crate) fn of(labels: Vec<(String, AxisValue)>, metrics: &[Described], figures: &[f64]) -> Row {
        Row { labels, metrics: metrics.iter().zip(figures).map(|(m, &v)| (m.name.to_owned(), v)).collect() }
    }
}

/// An axis or a figure of a study.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Described {
    /// Its name: for a setting of the engine the knob's key.
    pub name: &'static str,
    /// Its unit; empty for none.
    pub unit: &'static str,
    /// One line.
    pub help: &'static str,
}

/// The files that an experiment names, by the study's name for each.
pub type Inputs = BTreeMap<String, PathBuf>;

/// Something that can be studied.
pub trait Study: Sync {
    /// Its name in `experiment.toml`.
    fn name(&self) -> &'static str;
    /// The axes it understands.
    fn axes(&self) -> &'static [Described];
    /// The labels that its rows carry besides the axes, such as a layer.
    fn labels(&self) -> &'static [Described] {
        &[]
    }
    /// The figures it makes.
    fn metrics(&self) -> &'static [Described];
    /// The inputs it can use: name, and whether it needs it.
    fn inputs(&self) -> &'static [(&'static str, bool)];
    /// Reads the inputs.
    ///
    /// # Errors
    /// One cannot be read or used; file and line or field are named.
    fn prepare(&self, inputs: &Inputs) -> Result<Box<dyn Prepared>, SimError>;
}

/// A study with its inputs.
pub trait Prepared: Send + Sync {
    /// The figures of a point. Equal points give equal rows, bit for bit.
    ///
    /// # Errors
    /// An axis is not known, or its value cannot be.
    fn evaluate(&self, point: &Point) -> Result<Vec<Row>, SimError>;
}

/// All studies.
pub const STUDIES: &[&dyn Study] = &[&SplitModel, &RoundStudy, &PrefillStudy, &CacheStudy];

/// The study of this name.
pub fn find(name: &str) -> Option<&'static dyn Study> {
    STUDIES.iter().copied().find(|s| s.name() == name)
}
