//! A trace under policies and sizes of the moment: an experiment that nobody has to write down first.

use crate::cells::{Cell, Cells};
use crate::figure;
use crate::result::{self, Files};
use crate::rows::Rows;
use crate::run;
use crate::spec::{Experiment, Finder};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use strata_sim::study::AxisValue;
use strata_trace::Trace;
use toml::Value;

/// Shares of all experts that a replay has room for unless told otherwise.
const SHARES: [usize; 3] = [8, 4, 2];

/// What stands below the tables that show the oracle.
const ORACLE: &str = "`oracle` is Belady's rule, which knows the future, with copies that are there at once. It bounds policies that \
bring in what was just missed, as long as a round's experts fit into the room, and `of_oracle` is hits over the oracle's. Copies of \
the policies, of `belady` as well, land `experts.copy_rounds` rounds later, so `belady` is no bound.";

/// The same access by access, where copies take no time for any policy.
const CLASSIC_ORACLE: &str = "`oracle` is Belady's rule, which knows the future, access by access. It bounds policies that bring in \
every miss, and `of_oracle` is hits over the oracle's. `belady` and `lfu` may leave a miss out (`experts.bypass`) and so hit more.";

/// The axes of room.
const SIZES: [&str; 2] = ["experts.slots", "experts.vram"];

/// What is asked.
pub struct Asked<'a> {
    /// The trace.
    pub trace: &'a Path,
    /// Policies by their names.
    pub policies: &'a [String],
    /// Experts that there is room for; an eighth, a quarter and half of all if none are given.
    pub slots: &'a [u64],
    /// Further axes of the study `cache` with one value each; a size among them takes the place of `slots`.
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
    let room = Room::of(asked, all)?;
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
    let declared = declared(Path::new(name), asked, &room)?;
    let place = |line: usize| place(declared.lines().nth(line.saturating_sub(1)).unwrap_or_default(), &room);
    let mut experiment = Experiment::parse_placed("replay", "replay", &declared, find, &place)?;
    let rows: Rows = run::rows(dir, &experiment)?;
    let mut cells = Cells::of(&rows, &experiment.draws);
    leave_out(&mut experiment, &cells);
    let oracle = add_oracle(&mut cells)?;
    let mut text = format!("{}: {what}\n\n", asked.trace.display());
    for warning in &opened.warnings {
        let _ = writeln!(text, "Warning: {warning}\n");
    }
    text += &result::tables::all(&experiment, &cells)?;
    if oracle {
        let classic = asked.set.iter().any(|(axis, value)| axis == "mode" && value == "classic");
        let _ = writeln!(text, "\n{}", if classic { CLASSIC_ORACLE } else { ORACLE });
    }
    let mut files = Files::new();
    for spec in &experiment.figures {
        files.insert(format!("{}.svg", spec.file), figure::svg(&experiment, &cells, spec)?.into_bytes());
    }
    files.insert("summary.md".into(), text.clone().into_bytes());
    files.insert("rows.csv".into(), rows.csv().into_bytes());
    files.insert("rows.parquet".into(), rows.parquet()?);
    Ok(Replayed { text, files })
}

/// The axis of room, with its values.
struct Room {
    axis: &'static str,
    values: Vec<Value>,
    /// Whether `--set` named it.
    set: bool,
}

impl Room {
    /// # Errors
    /// Room is given in two ways, or a setting twice.
    fn of(asked: &Asked<'_>, all: usize) -> Result<Room> {
        let mut seen = BTreeSet::new();
        let mut found: Option<Room> = None;
        for (name, given) in asked.set {
            if !seen.insert(name) {
                bail!("--set {name}: found it twice, expected each setting once");
            }
            if name == "experts.policy" {
                bail!("--set {name}: expected --policy, which takes several");
            }
            let Some(axis) = SIZES.into_iter().find(|size| size == name) else { continue };
            if found.is_some() || !asked.slots.is_empty() {
                bail!(
                    "--set {name}: found room given in another way too, expected one of --slots, {}",
                    SIZES.join(", ")
                );
            }
            found = Some(Room { axis, values: vec![value(given)], set: true });
        }
        Ok(found.unwrap_or_else(|| {
            let slots: Vec<u64> = match asked.slots {
                [] => SHARES.iter().map(|share| (all / share).max(1) as u64).collect(),
                given => given.to_vec(),
            };
            let values = slots.iter().map(|&s| Value::Integer(s.try_into().unwrap_or(i64::MAX))).collect();
            Room { axis: "experts.slots", values, set: false }
        }))
    }
}

/// A number or a truth value where it reads as one, a word elsewhere.
fn value(given: &str) -> Value {
    let parsed: Option<toml::Table> = toml::from_str(&format!("v = {given}")).ok();
    parsed.and_then(|mut t| t.remove("v")).unwrap_or_else(|| Value::String(given.into()))
}

/// The flag that a line of the declared experiment came from.
fn place(line: &str, room: &Room) -> String {
    let axis = line.split_once(" = ").map_or("", |(name, _)| name.trim_matches('"'));
    match axis {
        "trace" => "the trace".into(),
        "experts.policy" => "--policy".into(),
        _ if axis == room.axis && !room.set => "--slots".into(),
        // Axes alone stand in quotes.
        _ if line.starts_with('"') => format!("--set {axis}"),
        _ => "replay".into(),
    }
}

/// Leaves out figures and columns of what the study does not give in this mode.
fn leave_out(experiment: &mut Experiment, cells: &Cells) {
    let given = |name: &String| match cells.metric(name) {
        Ok(metric) => cells.cells.iter().any(|c| c.estimates[metric].is_some()),
        Err(_) => cells.key(name).is_ok(),
    };
    experiment.figures.retain(|figure| figure.y.iter().any(given));
    for table in &mut experiment.tables {
        table.columns.retain(given);
    }
}

/// Puts the oracle beside the policies, once for each size: it is the same for all of them. Returns whether the study
/// has one.
fn add_oracle(cells: &mut Cells) -> Result<bool> {
    let (policy, hits, oracle) =
        (cells.key("experts.policy")?, cells.metric("hit_rate")?, cells.metric("oracle_hit_rate"));
    let Ok(oracle) = oracle else { return Ok(false) };
    let mut more: Vec<Cell> = Vec::new();
    for cell in &cells.cells {
        let mut key = cell.key.clone();
        key[policy] = Some(AxisValue::Text("oracle".into()));
        if cell.estimates[oracle].is_none() || more.iter().any(|c| c.key == key) {
            continue;
        }
        let mut samples = vec![vec![None; cells.draws]; cells.metrics.len()];
        let mut estimates = vec![None; cells.metrics.len()];
        samples[hits] = cell.samples[oracle].clone();
        estimates[hits] = cell.estimates[oracle];
        more.push(Cell { key, samples, estimates });
    }
    let found = !more.is_empty();
    cells.cells.extend(more);
    Ok(found)
}

/// The experiment as its file would have it.
fn declared(path: &Path, asked: &Asked<'_>, room: &Room) -> Result<String> {
    let Some(path) = path.to_str() else {
        bail!("{}: found a path that is no UTF-8, expected one that is", path.display())
    };
    let (Some(policy), Some(size)) = (asked.policies.first(), room.values.first()) else {
        bail!("found no policy, expected one at least");
    };
    let list = |values: Vec<Value>| Value::Array(values).to_string();
    let text = |s: &str| Value::String(s.into()).to_string();
    let policies = list(asked.policies.iter().map(|p| Value::String(p.clone())).collect());
    let (axis, sizes) = (room.axis, list(room.values.clone()));
    let mut more = String::new();
    for (name, given) in asked.set.iter().filter(|(name, _)| name != axis) {
        let _ = writeln!(more, "{} = {}", text(name), list(vec![value(given)]));
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
"{axis}" = {sizes}
{more}
[[figures]]
file = "hits"
title = "Hits by room"
kind = "line"
x = "{axis}"
y = ["hit_rate"]
series = ["experts.policy"]

[[figures]]
file = "inserts"
title = "Experts copied for each token"
kind = "line"
x = "{axis}"
y = ["inserts"]
series = ["experts.policy"]

[[tables]]
title = "Hit rate of the second half of the requests, the cache filled by the first unless told otherwise"
down = "experts.policy"
across = "{axis}"
metric = "hit_rate"

[[tables]]
title = "Everything"
columns = ["experts.policy", "{axis}", "hit_rate", "hit_low", "hit_high", "distinct_hit_rate", "of_oracle", "misses", "inserts"]

[[checks]]
name = "It was replayed"
metric = "hit_rate"
select = {{ "experts.policy" = {policy}, "{axis}" = {size} }}
at_least = 0
"#,
        path = text(path),
        policy = text(policy),
    ))
}
