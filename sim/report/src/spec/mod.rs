//! Experiments: what is expected, what is varied, and what decides, all written down before the run.

pub(crate) mod axes;
mod checked;
pub mod schema;

use anyhow::{Context, Result, bail};
use axes::{Group, combination, combinations};
use schema::{Baseline, Check, Figure, Promote, Table};
use std::collections::BTreeMap;
use std::path::Path;
use strata_sim::study::{AxisValue, Described, Point, Study};

/// Finds a study by its name. A function, so that tests can bring studies of their own.
pub type Finder = fn(&str) -> Option<&'static dyn Study>;

/// One draw of what a study draws: configurations share their draws, which makes their differences paired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw {
    /// As the experiment names it.
    pub seed: u64,
    /// Which of the repetitions with this seed, from 0.
    pub repetition: u32,
}

impl Draw {
    /// The seed of the point: the experiment's own for the first repetition, and one mixed from both for the others.
    pub fn point_seed(self) -> u64 {
        if self.repetition == 0 {
            return self.seed;
        }
        // The finaliser of SplitMix64 (Steele, Lea and Flood 2014).
        let mut z = self.seed.wrapping_add(u64::from(self.repetition).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// An experiment, read and checked.
pub struct Experiment {
    /// The name of its folder.
    pub name: String,
    /// The file, as messages name it.
    pub file: String,
    /// One line.
    pub title: String,
    /// What is expected, and why.
    pub hypothesis: String,
    /// What confirms or refutes it, in words.
    pub gate: String,
    /// What evaluates its points.
    pub study: &'static dyn Study,
    /// Whether `report --check` runs it again.
    pub quick: bool,
    /// Its files: the study's name for each, and the path below the project's root.
    pub inputs: BTreeMap<String, String>,
    /// The axes that it names, in the order of the file.
    pub axes: Vec<String>,
    /// Every configuration is evaluated with each.
    pub draws: Vec<Draw>,
    /// What the table compares with.
    pub baseline: Option<Baseline>,
    /// The summary's tables.
    pub tables: Vec<Table>,
    /// The summary's figures.
    pub figures: Vec<Figure>,
    /// What decides.
    pub checks: Vec<Check>,
    /// What becomes the engine's defaults.
    pub promote: Option<Promote>,
    groups: Vec<Group>,
}

impl Experiment {
    /// Reads `experiments/NAME/experiment.toml`.
    ///
    /// # Errors
    /// It cannot be read, or says something that cannot be; file and line are named.
    pub fn load(root: &Path, name: &str, find: Finder) -> Result<Experiment> {
        let file = format!("experiments/{name}/experiment.toml");
        let text = strata_sim::input::text(&root.join(&file)).with_context(|| format!("cannot read {file}"))?;
        Experiment::parse(name, &file, &text, find)
    }

    /// The experiment of a file's text.
    ///
    /// # Errors
    /// As [`Experiment::load`].
    pub fn parse(name: &str, file: &str, text: &str, find: Finder) -> Result<Experiment> {
        Experiment::parse_placed(name, file, text, find, &|line| format!("{file} line {line}"))
    }

    /// The same, with words of the caller's for a line of the text in messages.
    pub(crate) fn parse_placed(
        name: &str,
        file: &str,
        text: &str,
        find: Finder,
        place: &dyn Fn(usize) -> String,
    ) -> Result<Experiment> {
        let line = |at: usize| text.get(..at).map_or(1, |before| before.matches('\n').count() + 1);
        let raw: schema::File = match toml::from_str(text) {
            Ok(raw) => raw,
            Err(e) => {
                let place = e.span().map_or_else(|| file.to_owned(), |s| place(line(s.start)));
                bail!("{place}: {}", e.message().trim_end().replace('\n', " "));
            }
        };
        checked::experiment(name, file, raw, find).map_err(|(at, reason)| match at {
            Some(at) => anyhow::anyhow!("{}: {reason}", place(line(at))),
            None => anyhow::anyhow!("{file}: {reason}"),
        })
    }

    /// How many configurations there are.
    pub fn configurations(&self) -> usize {
        combinations(&self.groups).unwrap_or(0)
    }

    /// How many points there are: each configuration with each draw.
    pub fn points(&self) -> usize {
        self.configurations() * self.draws.len()
    }

    /// The values of a configuration, in the order of [`Experiment::axes`].
    pub fn configuration(&self, index: usize) -> Vec<AxisValue> {
        combination(&self.groups, index)
    }

    /// A point by its number: draws move fastest.
    pub fn point(&self, index: usize) -> Point {
        let draws = self.draws.len().max(1);
        let values = self.axes.iter().cloned().zip(self.configuration(index / draws)).collect();
        let seed = self.draws.get(index % draws).map_or(0, |d| d.point_seed());
        Point { values, seed }
    }

    /// The values of an axis, in order, or `None` when the experiment does not name it.
    pub fn values_of(&self, axis: &str) -> Option<&[AxisValue]> {
        let find = |g: &'_ Group| g.names.iter().position(|n| n == axis);
        self.groups.iter().find_map(|g| find(g).and_then(|i| g.values.get(i))).map(Vec::as_slice)
    }

    /// What the study says about an axis, a label or a figure.
    pub fn described(&self, name: &str) -> Option<Described> {
        let all = self.study.metrics().iter().chain(self.study.axes()).chain(self.study.labels());
        all.copied().find(|d| d.name == name)
    }

    /// A name with its unit, for heads and legends; without it where the name ends with it (`round_ms`).
    pub fn headed(&self, name: &str) -> String {
        let unit = self.described(name).map_or("", |d| d.unit);
        let word = unit.replace('/', "_per_").replace('%', "pct").to_lowercase();
        let said = unit.is_empty() || name == word || name.ends_with(&format!("_{word}"));
        if said { name.to_owned() } else { format!("{name}, {unit}") }
    }

    /// Everything that decides what the points are and what they give, the contents of the inputs and the program
    /// aside. Words, checks and figures may change without a new run.
    pub fn computed_from(&self) -> serde_json::Value {
        let axes: Vec<_> = self
            .groups
            .iter()
            .map(|g| {
                g.names.iter().zip(&g.values).map(|(n, v)| serde_json::json!({ n.as_str(): v })).collect::<Vec<_>>()
            })
            .collect();
        let seeds: Vec<_> = self.draws.iter().filter(|d| d.repetition == 0).map(|d| d.seed).collect();
        let repetitions = self.draws.iter().map(|d| d.repetition + 1).max();
        serde_json::json!({
            "study": self.study.name(), "inputs": self.inputs, "axes": axes, "seeds": seeds, "repetitions": repetitions,
        })
    }
}

/// Words with commas between, for messages.
pub(crate) fn listed<S: AsRef<str>>(words: &[S]) -> String {
    if words.is_empty() {
        return "none".into();
    }
    words.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ")
}

/// The experiments of a project that the laboratory runs, in order of name.
///
/// # Errors
/// The folder cannot be listed.
pub fn names(root: &Path) -> Result<Vec<String>> {
    let dir = root.join("experiments");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let entry = entry?;
        if entry.path().join("experiment.toml").is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// The experiment that a name or the number before its first dash means.
///
/// # Errors
/// None does, or several do.
pub fn resolve(root: &Path, name: &str) -> Result<String> {
    let all = names(root)?;
    if all.iter().any(|n| n == name) {
        return Ok(name.to_owned());
    }
    let meant: Vec<_> = all.iter().filter(|n| n.split('-').next() == Some(name)).collect();
    match meant.as_slice() {
        [one] => Ok((*one).clone()),
        [] => bail!("experiment {name:?} is not known; there are: {}", listed(&all)),
        several => bail!("{name} is the number of {} experiments: name one of them in full", several.len()),
    }
}
