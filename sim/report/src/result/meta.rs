//! `meta.json`: what produced a result. Nothing in it, the revision aside, differs between equal runs.

use crate::checks::{Checked, Verdict};
use crate::run::inputs::Input;
use crate::spec::Experiment;
use crate::stats::Estimate;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// What produced a result, and what came out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meta {
    /// The experiment's name.
    pub experiment: String,
    /// The git revision of the program, with `+changes` where the sources differed from it.
    pub revision: String,
    /// The program and its version.
    pub program: String,
    /// What the points are: study, axes, seeds, repetitions, paths of the inputs.
    pub computed_from: serde_json::Value,
    /// The inputs' contents.
    pub inputs: BTreeMap<String, Input>,
    /// Points evaluated.
    pub points: usize,
    /// Rows of the whole run.
    pub rows: usize,
    /// Whether the rows beside this file stand for all draws of a configuration.
    pub aggregated: bool,
    /// What came out.
    pub verdict: Verdict,
    /// Why.
    pub why: String,
    /// The number of each check.
    pub checks: Vec<Kept>,
}

/// The number of a check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// The check's name.
    pub name: String,
    /// Its number.
    pub value: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

impl Kept {
    /// The numbers of all checks.
    pub fn of(checked: &[Checked<'_>]) -> Vec<Kept> {
        let kept = |c: &Checked<'_>| {
            let Estimate { value, low, high } = c.estimate;
            Kept { name: c.check.name.clone(), value, low, high }
        };
        checked.iter().map(kept).collect()
    }

    /// Its number.
    pub fn estimate(&self) -> Estimate {
        Estimate { value: self.value, low: self.low, high: self.high }
    }
}

impl Meta {
    /// Reads `results/NAME/meta.json`.
    ///
    /// # Errors
    /// It cannot be read or is not one of the laboratory's.
    pub fn load(root: &Path, name: &str) -> Result<Meta> {
        let path = format!("results/{name}/meta.json");
        let text = std::fs::read_to_string(root.join(&path)).with_context(|| format!("cannot read {path}"))?;
        serde_json::from_str(&text).with_context(|| format!("{path} is not what the laboratory writes"))
    }

    /// As text.
    ///
    /// # Errors
    /// A number is not finite; estimates are.
    pub fn text(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// The program that runs now.
    pub fn program() -> String {
        format!("strata-lab {}", env!("CARGO_PKG_VERSION"))
    }
}

/// The revision of the checkout, `unknown` outside of one.
pub fn revision(root: &Path, experiment: &Experiment) -> String {
    let git = |arguments: &[&str]| {
        let done = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
        done.status.success().then(|| String::from_utf8_lossy(&done.stdout).trim().to_owned())
    };
    let Some(head) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".into() };
    // Results of other experiments do not change this one; its sources and its own file do.
    let sources = ["status", "--porcelain", "--", "engine", "sim", "Cargo.toml", "Cargo.lock", &experiment.file];
    match git(&sources) {
        Some(changes) if changes.is_empty() => head,
        _ => format!("{head}+changes"),
    }
}
