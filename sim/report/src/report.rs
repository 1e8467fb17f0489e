//! Reports: summaries, figures and the index made again from the rows that are kept, and compared with what is there.

use crate::index::{self, Prediction};
use crate::number;
use crate::result::meta::Meta;
use crate::result::{self, Files};
use crate::rows::Rows;
use crate::run;
use crate::spec::{self, Experiment, Finder};
use crate::{cells::Cells, checks};
use anyhow::{Context, Result};
use std::path::Path;

/// What `report` did.
#[derive(Debug, Default)]
pub struct Report {
    /// Results made again.
    pub made: Vec<String>,
    /// Experiments evaluated again.
    pub rerun: Vec<String>,
    /// Experiments without a result.
    pub absent: Vec<String>,
    /// Sentences about what could not be looked at.
    pub notes: Vec<String>,
    /// Sentences about what is not as it should be.
    pub differences: Vec<String>,
}

/// Figures that a second evaluation may differ by, relative to their size: libraries of mathematical functions round
/// differently from one system to the next.
const SAME: f64 = 1e-9;

/// Makes every result and the index again from the rows. With `check` nothing is written: differences are listed, and
/// experiments that call themselves quick are evaluated again.
///
/// # Errors
/// An experiment or a result cannot be read.
pub fn report(root: &Path, find: Finder, check: bool) -> Result<Report> {
    let mut report = Report::default();
    for name in spec::names(root)? {
        let experiment = Experiment::load(root, &name, find)?;
        let Some((meta, rows)) = kept(root, &experiment)? else {
            report.absent.push(name);
            continue;
        };
        let place = format!("results/{name}");
        let Some(rows) = rows else {
            let reason =
                format!("{place} was made from other axes, seeds or inputs than {} has: run it again", experiment.file);
            report.differences.push(reason);
            continue;
        };
        inputs(root, &experiment, &meta, &mut report)?;
        if check && experiment.quick {
            let again = run::rows(root, &experiment)?;
            let again = if rows.aggregated { Cells::of(&again, &experiment.draws).aggregate() } else { again };
            report.rerun.push(name.clone());
            report.differences.extend(compared(&place, &rows, &again));
        }
        let (mut files, _) = result::files(root, &experiment, &rows, meta.into())?;
        // The rows are what all else is made from; their file stays as it was written.
        files.remove("rows.parquet");
        if check {
            report.differences.extend(differences(root, &place, &files)?);
        } else {
            result::put(&root.join(&place), &files)?;
        }
        report.made.push(name);
    }
    if check {
        let files = Files::from([("INDEX.md".to_owned(), index_of(root, find)?.into_bytes())]);
        report.differences.extend(differences(root, "results", &files)?);
    } else {
        write_index(root, find)?;
    }
    Ok(report)
}

/// Writes `results/INDEX.md`.
///
/// # Errors
/// An experiment or a result cannot be read.
pub fn write_index(root: &Path, find: Finder) -> Result<()> {
    let files = Files::from([("INDEX.md".to_owned(), index_of(root, find)?.into_bytes())]);
    result::put(&root.join("results"), &files)
}

fn index_of(root: &Path, find: Finder) -> Result<String> {
    let (mut titles, mut predictions) = (Vec::new(), Vec::new());
    for name in spec::names(root)? {
        let experiment = Experiment::load(root, &name, find)?;
        if let Some((meta, Some(rows))) = kept(root, &experiment)? {
            predictions.extend(predicted(&experiment, &rows, &meta)?);
        }
        titles.push((name, experiment.title));
    }
    index::text(root, &titles, &predictions)
}

/// What is kept of an experiment: nothing, or what it was made from and, where that is still what the experiment says,
/// its rows.
fn kept(root: &Path, experiment: &Experiment) -> Result<Option<(Meta, Option<Rows>)>> {
    let dir = root.join("results").join(&experiment.name);
    if !dir.is_dir() {
        return Ok(None);
    }
    let meta = Meta::load(root, &experiment.name)?;
    let same = meta.computed_from == experiment.computed_from();
    let rows = same.then(|| Rows::read(&dir.join("rows.parquet"), experiment)).transpose()?;
    Ok(Some((meta, rows)))
}

/// Whether the inputs are still those of the run.
fn inputs(root: &Path, experiment: &Experiment, meta: &Meta, report: &mut Report) -> Result<()> {
    let missing = run::inputs::missing(root, std::slice::from_ref(experiment));
    if !missing.is_empty() {
        report.notes.push(format!("not compared, since it is not here: {}", missing.join("; ")));
        return Ok(());
    }
    for (name, now) in run::inputs::hashed(root, experiment)? {
        if meta.inputs.get(&name) != Some(&now) {
            let reason =
                format!("results/{} was made from another {} ({name}): run it again", experiment.name, now.path);
            report.differences.push(reason);
        }
    }
    Ok(())
}

/// The experiment's published figures beside ours.
fn predicted(experiment: &Experiment, rows: &Rows, meta: &Meta) -> Result<Vec<Prediction>> {
    let known: Vec<_> = meta.checks.iter().map(|k| (k.name.clone(), k.estimate())).collect();
    let cells = Cells::of(rows, &experiment.draws);
    let checked = checks::all(&cells, &experiment.checks, &known)?;
    let published = checked.iter().filter_map(|c| {
        let source = c.check.published.clone()?;
        let wanted = c.check.expect.map_or_else(|| c.check.wanted(), number::short);
        let fitted = if c.check.fitted { "yes" } else { "no" };
        Some(Prediction {
            experiment: experiment.name.clone(),
            cells: [
                c.check.name.clone(),
                number::estimate(c.estimate),
                wanted,
                result::off_by(c),
                fitted.into(),
                source,
            ],
        })
    });
    Ok(published.collect())
}

/// Where a second evaluation differs.
fn compared(place: &str, rows: &Rows, again: &Rows) -> Option<String> {
    if rows.lines.len() != again.lines.len() || rows.columns() != again.columns() {
        return Some(format!(
            "{place}: evaluated again it has {} rows, kept are {}",
            again.lines.len(),
            rows.lines.len()
        ));
    }
    for (i, (kept, new)) in rows.lines.iter().zip(&again.lines).enumerate() {
        let near = |(a, b): (&Option<f64>, &Option<f64>)| match (a, b) {
            (Some(a), Some(b)) => (a - b).abs() <= SAME * a.abs().max(b.abs()),
            _ => a == b,
        };
        let at = kept.figures.iter().zip(&new.figures).position(|pair| !near(pair));
        let place = format!("{place}/rows.parquet row {}", i + 1);
        if let Some(at) = at {
            let say = |v: Option<f64>| v.map_or_else(|| "nothing".into(), |v| v.to_string());
            let (kept, new) = (say(kept.figures[at]), say(new.figures[at]));
            return Some(format!("{place}: {} is {kept}, evaluated again it is {new}", rows.metrics[at]));
        }
        let same = |(a, b): (&Option<_>, &Option<_>)| match (a, b) {
            (Some(a), Some(b)) => spec::axes::same(a, b),
            _ => a.is_none() && b.is_none(),
        };
        if !kept.key.iter().zip(&new.key).all(same) || (rows.drawn && kept.draw != new.draw) {
            return Some(format!("{place}: evaluated again it stands for another configuration"));
        }
    }
    None
}

/// Where files differ from those in a folder.
fn differences(root: &Path, place: &str, files: &Files) -> Result<Vec<String>> {
    let mut list = Vec::new();
    for (name, want) in files {
        let path = root.join(place).join(name);
        let found = match std::fs::read(&path) {
            Ok(found) => found,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                list.push(format!("{place}/{name} is missing"));
                continue;
            }
            Err(e) => return Err(e).with_context(|| format!("cannot read {}", path.display())),
        };
        if found != *want {
            let (found, want) = (String::from_utf8_lossy(&found), String::from_utf8_lossy(want));
            let (mut a, mut b) = (found.lines(), want.lines());
            let mut line = 0;
            let (kept, made) = loop {
                line += 1;
                match (a.next(), b.next()) {
                    (Some(x), Some(y)) if x == y => {}
                    (x, y) => break (x.unwrap_or("the end"), y.unwrap_or("the end")),
                }
            };
            let cut = |text: &str| text.chars().take(160).collect::<String>();
            list.push(format!("{place}/{name} line {line}: found {:?}, the rows give {:?}", cut(kept), cut(made)));
        }
    }
    if place != "results" {
        let dir = root.join(place);
        list.extend(
            result::stale(&dir, files)?.into_iter().map(|name| format!("{place}/{name} is made by no experiment")),
        );
    }
    Ok(list)
}
