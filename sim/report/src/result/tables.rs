//! Tables of the summary: one row a configuration, or one axis against another.

use crate::cells::{Cell, Cells, said};
use crate::number;
use crate::spec::Experiment;
use crate::spec::schema::{Baseline, Table};
use crate::stats::{self, Estimate};
use anyhow::{Context, Result, bail};
use std::fmt::Write;
use strata_sim::study::AxisValue;

/// Rows of a table that nobody asked for in particular.
const DEFAULT_ROWS: usize = 40;

/// Rows of a table at most: more is for programs to read.
const MOST_ROWS: usize = 200;

/// All tables of an experiment, in Markdown.
///
/// # Errors
/// A table's selection finds nothing, or leaves several rows for one of its cells.
pub(crate) fn all(experiment: &Experiment, cells: &Cells) -> Result<String> {
    if experiment.tables.is_empty() {
        return flat(experiment, cells, &Table::default(), DEFAULT_ROWS);
    }
    let mut out = String::new();
    for table in &experiment.tables {
        if !table.title.is_empty() {
            let _ = writeln!(out, "### {}\n", table.title);
        }
        let made = match (&table.down, &table.across, &table.metric) {
            (Some(down), Some(across), Some(metric)) => crossed(experiment, cells, table, [down, across, metric]),
            _ => flat(experiment, cells, table, MOST_ROWS),
        };
        out += &made.with_context(|| format!("{}: table {:?}", experiment.file, table.title))?;
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    Ok(out)
}

fn value(v: &Option<AxisValue>) -> String {
    v.as_ref().map_or_else(|| "-".into(), number::axis)
}

fn figure(e: Option<Estimate>) -> String {
    e.map_or_else(|| "-".into(), number::estimate)
}

fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.iter().map(|c| c.replace('|', "\\|")).collect::<Vec<_>>().join(" | "))
}

fn head(names: &[String]) -> String {
    row(names) + "|" + &"---|".repeat(names.len()) + "\n"
}

fn flat(experiment: &Experiment, cells: &Cells, table: &Table, most: usize) -> Result<String> {
    let chosen = cells.select(&table.select)?;
    let (mut keys, mut metrics) = (Vec::new(), Vec::new());
    if table.columns.is_empty() {
        // What is the same in all rows is said once, above.
        keys = (0..cells.keys.len()).filter(|&k| chosen.iter().any(|c| c.key[k] != chosen[0].key[k])).collect();
        metrics = (0..cells.metrics.len()).filter(|&m| chosen.iter().any(|c| c.estimates[m].is_some())).collect();
    } else {
        for name in &table.columns {
            match cells.key(name) {
                Ok(key) => keys.push(key),
                Err(_) => metrics.push(cells.metric(name)?),
            }
        }
    }
    let mut out = String::new();
    let same: Vec<String> = (0..cells.keys.len())
        .filter(|k| !keys.contains(k) && chosen.iter().all(|c| c.key[*k] == chosen[0].key[*k]))
        .map(|k| format!("{} = {}", cells.keys[k], value(&chosen[0].key[k])))
        .collect();
    if !same.is_empty() {
        let _ = writeln!(out, "In all rows: {}.\n", same.join(", "));
    }
    let mut names: Vec<String> = keys.iter().map(|&k| experiment.headed(&cells.keys[k])).collect();
    names.extend(metrics.iter().map(|&m| experiment.headed(&cells.metrics[m])));
    let baseline = experiment.baseline.as_ref();
    if let Some(b) = baseline {
        names.push(format!("{} / that of {}", b.metric, said(&b.select)));
    }
    out += &head(&names);
    for cell in chosen.iter().take(most) {
        let mut line: Vec<String> = keys.iter().map(|&k| value(&cell.key[k])).collect();
        line.extend(metrics.iter().map(|&m| figure(cell.estimates[m])));
        if let Some(b) = baseline {
            line.push(compared(cells, cell, b)?);
        }
        out += &row(&line);
    }
    if chosen.len() > most {
        let _ = writeln!(out, "\n{} more rows lie in `rows.csv`.", chosen.len() - most);
    }
    Ok(out)
}

/// The ratio to the baseline that is alike in all other axes.
fn compared(cells: &Cells, cell: &Cell, baseline: &Baseline) -> Result<String> {
    let metric = cells.metric(&baseline.metric)?;
    let twin = |other: &&Cell| {
        (0..cells.keys.len()).all(|k| baseline.select.contains_key(&cells.keys[k]) || other.key[k] == cell.key[k])
    };
    let found: Vec<&Cell> = cells.select(&baseline.select)?.into_iter().filter(twin).collect();
    let [other] = found.as_slice() else { return Ok("-".into()) };
    if std::ptr::eq(*other, cell) {
        return Ok("1".into());
    }
    let ratio = |set: &Vec<usize>| {
        let by = stats::mean(&other.samples[metric], set).filter(|b| *b != 0.0)?;
        Some(stats::mean(&cell.samples[metric], set)? / by)
    };
    let each: Vec<_> = stats::resamples(cells.draws).iter().map(ratio).collect();
    let Some(e) = stats::estimate(cells.draws, &each) else { return Ok("-".into()) };
    let none = e.is_wide() && e.low <= 1.0 && e.high >= 1.0;
    Ok(number::estimate(e) + if none { ", no difference" } else { "" })
}

fn crossed(experiment: &Experiment, cells: &Cells, table: &Table, names: [&String; 3]) -> Result<String> {
    let chosen = cells.select(&table.select)?;
    let [down, across] = [cells.key(names[0])?, cells.key(names[1])?];
    let metric = cells.metric(names[2])?;
    let (left, top) = (cells.values(&chosen, down), cells.values(&chosen, across));
    let mut out = format!("{}:\n\n", experiment.headed(names[2]));
    let mut heads = vec![experiment.headed(names[0])];
    let word = |v: &&AxisValue| match v {
        AxisValue::Text(_) => number::axis(v),
        _ => format!("{} {}", names[1], number::axis(v)),
    };
    heads.extend(top.iter().map(word));
    out += &head(&heads);
    for l in left.iter().take(MOST_ROWS) {
        let mut line = vec![number::axis(l)];
        for t in &top {
            let is = |c: &&&Cell| c.key[down].as_ref() == Some(*l) && c.key[across].as_ref() == Some(*t);
            let found: Vec<&Cell> = chosen.iter().filter(is).copied().collect();
            line.push(match found.as_slice() {
                [] => "-".into(),
                [one] => figure(one.estimates[metric]),
                several => {
                    bail!("several rows differ in {} alone: add it to select", cells.differing(several, &[]).join(", "))
                }
            });
        }
        out += &row(&line);
    }
    Ok(out)
}
