//! Promotion: the winning settings of a confirmed experiment become the engine's defaults.
//!
//! The values go into `engine/config/defaults.toml`, whose other lines stay as they are. The comment above each says what
//! it won by, and the table `[results]` names the result, which the engine prints when it starts.

use crate::cells::{Cell, Cells, said};
use crate::checks::Verdict;
use crate::number;
use crate::result::meta::Meta;
use crate::rows::Rows;
use crate::spec::schema::{Promote, Reduce};
use crate::spec::{Experiment, Finder};
use anyhow::{Context, Result, bail};
use std::path::Path;
use strata_sim::study::AxisValue;
use toml_edit::{DocumentMut, Item, Table, Value};

/// The file that holds the engine's defaults, below the project's root.
pub const DEFAULTS: &str = "engine/config/defaults.toml";

/// A knob's new default.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The knob's key.
    pub key: String,
    /// What it is set to.
    pub value: AxisValue,
}

/// The winning settings of an experiment, and the words that say what they won by.
///
/// # Errors
/// The experiment promotes nothing, has no result, or its verdict is not confirmed.
pub fn choices(root: &Path, name: &str, find: Finder) -> Result<(Vec<Choice>, String)> {
    let experiment = Experiment::load(root, name, find)?;
    let Some(promote) = &experiment.promote else {
        bail!("{} has no [promote], which says which settings win by which figure", experiment.file)
    };
    let meta = Meta::load(root, name)?;
    if meta.computed_from != experiment.computed_from() {
        bail!("results/{name} was made from other axes, seeds or inputs than {} has: run it again", experiment.file);
    }
    if meta.verdict != Verdict::Confirmed {
        bail!("{name} is {}, and only a confirmed experiment sets defaults: {}", meta.verdict, meta.why);
    }
    let rows = Rows::read(&root.join("results").join(name).join("rows.parquet"), &experiment)?;
    let cells = Cells::of(&rows, &experiment.draws);
    let (cell, won) = winner(&cells, promote)?;
    let mut choices = Vec::new();
    for (axis, key) in &promote.knobs {
        let value = cell.key[cells.key(axis)?].clone().with_context(|| format!("the best row has no {axis}"))?;
        choices.push(Choice { key: key.clone(), value });
    }
    let among = if promote.select.is_empty() { String::new() } else { format!(", among {}", said(&promote.select)) };
    let kind = if promote.reduce == Reduce::Argmin { "least" } else { "greatest" };
    let words = format!("Chosen by results/{name}: {kind} {} ({won}){among}.", promote.metric);
    Ok((choices, words))
}

fn winner<'a>(cells: &'a Cells, promote: &Promote) -> Result<(&'a Cell, String)> {
    let metric = cells.metric(&promote.metric)?;
    let sign = if promote.reduce == Reduce::Argmin { -1.0 } else { 1.0 };
    let mut best: Option<(&Cell, crate::stats::Estimate)> = None;
    for cell in cells.select(&promote.select)? {
        let Some(estimate) = cell.estimates[metric] else { continue };
        if best.is_none_or(|(_, b)| sign * estimate.value > sign * b.value) {
            best = Some((cell, estimate));
        }
    }
    let (cell, estimate) = best.with_context(|| format!("no row has a {}", promote.metric))?;
    Ok((cell, number::estimate(estimate)))
}

/// The defaults with new values. All other lines stay as they are.
///
/// # Errors
/// The text is no TOML, or a knob does not take its value.
pub fn set(defaults: &str, name: &str, choices: &[Choice], words: &str) -> Result<String> {
    let mut file: DocumentMut = defaults.parse().with_context(|| format!("{DEFAULTS} is no TOML"))?;
    for Choice { key, value } in choices {
        let knob = strata_config::find(key).with_context(|| format!("{key} is no knob"))?;
        knob.parse(&value.to_string())?;
        let table = file.entry(knob.section()).or_insert(Item::Table(Table::new()));
        let table = table.as_table_mut().with_context(|| format!("{DEFAULTS}: {} is no table", knob.section()))?;
        table.insert(knob.name(), Item::Value(toml_value(value)));
        if let Some(mut written) = table.key_mut(knob.name()) {
            written.leaf_decor_mut().set_prefix(comment(words));
        }
        let results = file.entry("results").or_insert_with(|| {
            let mut table = Table::new();
            table
                .decor_mut()
                .set_prefix("\n# The results that chose values above: the engine names them when it starts.\n");
            Item::Table(table)
        });
        let results = results.as_table_mut().with_context(|| format!("{DEFAULTS}: results is no table"))?;
        results.insert(key, Item::Value(name.into()));
    }
    let text = file.to_string();
    // What the engine could not read must not be written.
    strata_config::Layer::defaults_of(&text)?;
    Ok(text)
}

/// Writes the winning settings of an experiment into the engine's defaults, and returns them.
///
/// # Errors
/// As [`choices`] and [`set`]; or the file cannot be read or written.
pub fn promote(root: &Path, name: &str, find: Finder) -> Result<Vec<Choice>> {
    let (choices, words) = choices(root, name, find)?;
    let path = root.join(DEFAULTS);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {DEFAULTS}"))?;
    let new = set(&text, name, &choices, &words)?;
    let beside = path.with_extension("toml.new");
    let put = std::fs::write(&beside, new).and_then(|()| std::fs::rename(&beside, &path));
    put.with_context(|| format!("cannot write {DEFAULTS}"))?;
    Ok(choices)
}

fn toml_value(value: &AxisValue) -> Value {
    match value {
        AxisValue::Bool(v) => (*v).into(),
        AxisValue::Int(v) => (*v).into(),
        AxisValue::Float(v) => (*v).into(),
        AxisValue::Text(v) => v.as_str().into(),
    }
}

/// Words as comment lines of at most 120 letters.
fn comment(words: &str) -> String {
    let mut out = String::new();
    let mut line = String::from("#");
    for word in words.split(' ') {
        if line.len() + word.len() >= 120 {
            out += &line;
            out.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line += word;
    }
    out + &line + "\n"
}
