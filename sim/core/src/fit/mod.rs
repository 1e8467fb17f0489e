//! Fits the cost model's constants to recorded timings, and says term by term what is left.
//!
//! Residuals are logarithms of predicted over measured: an error of 10 % counts the same on a slow machine as on a fast
//! one. Every machine weighs alike, however many windows it has. Windows of one machine are not independent, so a fit is checked on
//! machines that it has not seen ([`cross_validated`]), not on other windows of the same ones; the latter is a separate
//! question, whether a machine that was measured once can be predicted in another configuration.

mod branches;
mod data;
mod reference;
mod simplex;

pub use branches::{Case, Term};
pub use data::{Recorded, RecordedMachine, recorded, recorded_machines, recorded_machines_of, recorded_of};
pub use reference::{Anchors, fit_reference, reference_round};
pub(crate) use reference::{reference_fraction, reference_kv};
pub use simplex::{Minimum, Parameter, least_squares};

use crate::check::invalid;
use crate::cost::Constants;
use crate::error::SimError;
use crate::presets::{models, named};
use std::collections::BTreeMap;

/// A prediction beside its measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Residual {
    /// The window's number in the source.
    pub row: String,
    /// Its machine.
    pub machine: String,
    /// Which figure.
    pub term: Term,
    /// In ms.
    pub predicted: f64,
    /// In ms.
    pub measured: f64,
    /// Tokens that the window kept, if recorded.
    pub tokens: Option<f64>,
}

/// Fitted constants and what is left.
#[derive(Debug, Clone)]
pub struct Fitted {
    /// What was fitted.
    pub parameters: Vec<Parameter>,
    /// The values, in that order.
    pub values: Vec<f64>,
    /// The constants with the values in place.
    pub constants: Constants,
    /// Predictions of the windows that were fitted to.
    pub residuals: Vec<Residual>,
}

/// The constants that can be fitted to recorded windows, with bounds.
pub fn free_constants() -> Vec<Parameter> {
    vec![
        Parameter::new("node_us", "us", 4.0, 0.5, 60.0),
        Parameter::new("row_us", "us", 5.0, 0.0, 600.0),
        Parameter::new("wake_us", "us", 30.0, 0.0, 200.0),
        Parameter::new("nested_ns", "ns", 0.2, 0.02, 2.0),
        Parameter::new("codebook_ns", "ns", 0.2, 0.02, 2.0),
        Parameter::new("step_ms", "ms", 1.0, 0.1, 8.0),
        Parameter::new("other_ms", "ms", 3.0, 0.0, 30.0),
    ]
}

/// Puts values in the place of the constants that the parameters name.
///
/// # Errors
/// A name is that of no constant, or a value cannot be.
pub fn with_values(base: &Constants, parameters: &[Parameter], values: &[f64]) -> Result<Constants, SimError> {
    let mut c = base.clone();
    for (p, &value) in parameters.iter().zip(values) {
        let field = match p.name.as_str() {
            "vram_efficiency" => &mut c.vram_efficiency,
            "nodes_per_layer" => &mut c.nodes_per_layer,
            "node_us" => &mut c.node_us,
            "row_us" => &mut c.row_us,
            "sync_us" => &mut c.sync_us,
            "wake_us" => &mut c.wake_us,
            "plain_ns" => &mut c.plain_ns,
            "nested_ns" => &mut c.nested_ns,
            "codebook_ns" => &mut c.codebook_ns,
            "select_ns" => &mut c.select_ns,
            "step_ms" => &mut c.step_ms,
            "commit_ms" => &mut c.commit_ms,
            "ngram_ms" => &mut c.ngram_ms,
            "other_ms" => &mut c.other_ms,
            name => return Err(invalid("parameter", name, "a constant of the cost model")),
        };
        *field = value;
    }
    c.check().map(|()| c)
}

/// The recorded windows of one backend that say enough to be predicted, in the order of the source. Windows of a
/// first-card-only build keep their waiting, which the model halves likewise.
///
/// # Errors
/// The built-in files are damaged.
pub fn cases(backend: &str) -> Result<Vec<Case>, SimError> {
    cases_of(recorded()?, &recorded_machines()?, backend)
}

/// The same of other recordings: windows of machines that are not described are left out.
///
/// # Errors
/// A machine names a model that is not known, or a number cannot be.
pub fn cases_of(recorded: Vec<Recorded>, machines: &[RecordedMachine], backend: &str) -> Result<Vec<Case>, SimError> {
    let models = models()?;
    let mut cases = Vec::new();
    for recorded in recorded {
        let Some(machine) = machines.iter().find(|m| m.name == recorded.machine && m.backend == backend) else {
            continue;
        };
        let place = format!("machine {}, field model", machine.name);
        let model = named(&place, &models, &machine.model, |m| &m.name)?;
        let case = Case { recorded, machine: machine.clone(), model: model.clone() };
        if case.predicted(&Constants::default())?.is_some() {
            cases.push(case);
        }
    }
    Ok(cases)
}

/// Predictions beside measurements, window by window and term by term.
///
/// # Errors
/// A number of a window cannot be.
pub fn residuals(cases: &[Case], constants: &Constants) -> Result<Vec<Residual>, SimError> {
    let mut all = Vec::new();
    for case in cases {
        let Some(predicted) = case.predicted(constants)? else { continue };
        for (term, predicted) in Term::ALL.into_iter().zip(predicted) {
            if let Some(measured) = term.measured(&case.recorded) {
                all.push(Residual {
                    row: case.recorded.row.clone(),
                    machine: case.recorded.machine.clone(),
                    term,
                    predicted,
                    measured,
                    tokens: case.recorded.tokens,
                });
            }
        }
    }
    Ok(all)
}

/// Fits constants to windows by least squares of the logarithms of predicted over measured.
///
/// # Errors
/// There are fewer measurements than constants, or a number cannot be.
pub fn fit(cases: &[Case], base: &Constants, parameters: &[Parameter]) -> Result<Fitted, SimError> {
    // A prediction of nothing (no CPU expert at all) is an error of a factor, not an infinite one.
    const LEAST_MS: f64 = 1e-3;
    let minimum = least_squares(parameters, |values| {
        let constants = with_values(base, parameters, values)?;
        let left = residuals(cases, &constants)?;
        let mut count = BTreeMap::<&str, f64>::new();
        for r in &left {
            *count.entry(&r.machine).or_default() += 1.0;
        }
        Ok(left
            .iter()
            .map(|r| count[r.machine.as_str()].sqrt().recip() * (r.predicted.max(LEAST_MS) / r.measured).ln())
            .collect())
    })?;
    let constants = with_values(base, parameters, &minimum.values)?;
    Ok(Fitted {
        parameters: parameters.to_vec(),
        residuals: residuals(cases, &constants)?,
        values: minimum.values,
        constants,
    })
}

/// Leaves out each group of windows in turn, fits to the others, and predicts the group. Groups come in the order in
/// which they first occur. A group whose rest has too few measurements for the constants is not predicted.
///
/// # Errors
/// A number cannot be.
pub fn cross_validated(
    cases: &[Case],
    base: &Constants,
    parameters: &[Parameter],
    group: impl Fn(&Case) -> String,
) -> Result<Vec<(String, Vec<Residual>)>, SimError> {
    let mut groups: Vec<String> = Vec::new();
    for case in cases {
        let name = group(case);
        if !groups.contains(&name) {
            groups.push(name);
        }
    }
    let mut held_out = Vec::new();
    for name in groups {
        let (left, rest): (Vec<Case>, Vec<Case>) = cases.iter().cloned().partition(|case| group(case) == name);
        if residuals(&rest, base)?.len() < parameters.len() {
            continue;
        }
        let fitted = fit(&rest, base, parameters)?;
        held_out.push((name, residuals(&left, &fitted.constants)?));
    }
    Ok(held_out)
}

#[cfg(test)]
mod tests;
