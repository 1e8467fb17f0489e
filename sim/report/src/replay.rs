//! A trace under policies and sizes of the moment: an experiment that nobody has to write down first.

use crate::cells::Cells;
use crate::figure;
use crate::result::{self, Files};
use crate::rows::Rows;
use crate::run;
use crate::spec::{Experiment, Finder};
use anyhow::{Context, Result, bail};
use std::fmt::Write;
use std::path::Path;
use strata_trace::Trace;
use toml::Value;

/// Shares of all experts that a replay has room for unless told otherwise.
const SHARES: [usize; 3] = [8, 4, 2];

/// What is asked.
pub struct Asked<'a> {
    /// The trace.
    pub trace: &'a Path,
    /// Policies by their names.
    pub policies: &'a [String],
    /// Experts that there is room for; an eighth, a quarter and half of all if none are given.
    pub slots: &'a [u64],
    /// Further axes of the study `cache` with one value each.
    pub set: &'a [(String, String)],
}

/// What came out.
pub struct Replayed {
    /// Tables in Markdown.
    pub text: String,
    /// `summary.md`, `rows.csv`, `rows.parquet` and figures.
    pub files: Files,
}

/// Replays.
///
/// # Errors
/// The trace cannot be used, or an axis or a value is not known.
pub fn replay(asked: &Asked<'_>, find: Finder) -> Result<Replayed> {
    let path = asked.trace.canonicalize().with_context(|| format!("cannot open {}", asked.trace.display()))?;
    let opened = Trace::read(&path)?;
    let meta = &opened.trace.meta;
    let all = meta.layers * meta.experts;
    let slots: Vec<u64> = match asked.slots {
        [] => SHARES.iter().map(|share| (all / share).max(1) as u64).collect(),
        given => given.to_vec(),
    };
    let what = format!(
        "{} tokens, {} layers of {} experts, {} used",
        opened.trace.tokens.len(),
        meta.layers,
        meta.experts,
        meta.used
    );
    // An experiment's inputs lie below its root: here the trace's folder.
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        bail!("{}: expected a file", path.display())
    };
    let experiment = Experiment::parse("replay", "replay", &declared(Path::new(name), asked, &slots)?, find)?;
    let rows: Rows = run::rows(dir, &experiment)?;
    let cells = Cells::of(&rows, &experiment.draws);
    let mut text = format!("{}: {what}\n\n", asked.trace.display());
    for warning in &opened.warnings {
        let _ = writeln!(text, "Warning: {warning}\n");
    }
    text += &result::tables::all(&experiment, &cells)?;
    let mut files = Files::new();
    for spec in &experiment.figures {
        files.insert(format!("{}.svg", spec.file), figure::svg(&experiment, &cells, spec)?.into_bytes());
    }
    files.insert("summary.md".into(), text.clone().into_bytes());
    files.insert("rows.csv".into(), rows.csv().into_bytes());
    files.insert("rows.parquet".into(), rows.parquet()?);
    Ok(Replayed { text, files })
}

/// The experiment as its file would have it.
fn declared(path: &Path, asked: &Asked<'_>, slots: &[u64]) -> Result<String> {
    let Some(path) = path.to_str() else {
        bail!("{}: found a path that is no UTF-8, expected one that is", path.display())
    };
    let (Some(policy), Some(size)) = (asked.policies.first(), slots.first()) else {
        bail!("found no policy, expected one at least");
    };
    let list = |values: Vec<Value>| Value::Array(values).to_string();
    let text = |s: &str| Value::String(s.into()).to_string();
    let policies = list(asked.policies.iter().map(|p| Value::String(p.clone())).collect());
    let sizes = list(slots.iter().map(|&s| Value::Integer(s.try_into().unwrap_or(i64::MAX))).collect());
    let mut more = String::new();
    for (axis, value) in asked.set {
        // A number or a truth value where it reads as one, a word elsewhere.
        let parsed: Option<toml::Table> = toml::from_str(&format!("v = {value}")).ok();
        let value = parsed.and_then(|mut t| t.remove("v")).unwrap_or_else(|| Value::String(value.clone()));
        let _ = writeln!(more, "{} = {}", text(axis), list(vec![value]));
    }
    Ok(format!(
        r#"title = "Replay"
hypothesis = "None: this looks."
gate = "None."
study = "cache"

[inputs]
trace = {path}

[axes]
"experts.policy" = {policies}
"experts.slots" = {sizes}
{more}
[[figures]]
file = "hits"
title = "Hits by room"
kind = "line"
x = "experts.slots"
y = ["hit_rate"]
series = ["experts.policy"]

[[figures]]
file = "inserts"
title = "Experts copied for each token"
kind = "line"
x = "experts.slots"
y = ["inserts"]
series = ["experts.policy"]

[[tables]]
title = "Hit rate of the second half of the requests, the cache filled by the first unless told otherwise"
down = "experts.policy"
across = "experts.slots"
metric = "hit_rate"

[[tables]]
title = "Everything"
columns = ["experts.policy", "experts.slots", "hit_rate", "hit_low", "hit_high", "distinct_hit_rate", "of_oracle", "misses", "inserts"]

[[checks]]
name = "It was replayed"
metric = "hit_rate"
select = {{ "experts.policy" = {policy}, "experts.slots" = {size} }}
at_least = 0
"#,
        path = text(path),
        policy = text(policy),
    ))
}
