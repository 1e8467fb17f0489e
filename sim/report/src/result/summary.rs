//! `summary.md`: what was expected, what came out, and the figures and tables that show it.

use super::meta::Meta;
use super::tables;
use crate::cells::Cells;
use crate::checks::Checked;
use crate::number;
use crate::spec::Experiment;
use crate::stats::FEWEST;
use anyhow::Result;
use std::fmt::Write;

/// The summary as Markdown. `notes` is what its reader should know besides, by hand (`notes.md`).
///
/// # Errors
/// A table cannot be made.
pub(super) fn text(
    experiment: &Experiment,
    cells: &Cells,
    checked: &[Checked<'_>],
    meta: &Meta,
    notes: Option<&str>,
) -> Result<String> {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(out, "# {}: {}\n", experiment.name, experiment.title);
    let _ = writeln!(out, "**{}**: {}.\n", capital(&meta.verdict.to_string()), meta.why);
    let _ = writeln!(out, "Expected: {}\n", experiment.hypothesis);
    let _ = writeln!(out, "Gate, declared before the run: {}\n", experiment.gate);
    out += &checks(checked);
    for figure in &experiment.figures {
        let _ = writeln!(out, "\n![{}]({}.svg)", figure.title.replace(['[', ']'], ""), figure.file);
    }
    if let Some(notes) = notes {
        let _ = writeln!(out, "\n{}", notes.trim());
    }
    let _ = writeln!(out, "\n## Figures in numbers\n");
    out += &tables::all(experiment, cells)?;
    let _ = writeln!(out, "\n## How it was made\n");
    let _ = writeln!(out, "{}", made(experiment, meta));
    Ok(out)
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |c| c.to_uppercase().chain(letters).collect())
}

fn checks(checked: &[Checked<'_>]) -> String {
    let mut out = String::from(
        "| check | ours | expected | off by | met? | decides | published in |\n|---|---|---|---|---|---|---|\n",
    );
    for c in checked {
        let decides = match (c.check.decides(), c.check.fitted) {
            (true, _) => "yes",
            (false, true) => "no: fitted to it",
            (false, false) => "no",
        };
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {decides} | {} |",
            c.check.name,
            number::estimate(c.estimate),
            c.check.wanted(),
            off_by(c),
            c.outcome,
            c.check.published.as_deref().unwrap_or("-"),
        );
    }
    out
}

/// How far the number is from the one expected.
pub(crate) fn off_by(c: &Checked<'_>) -> String {
    match c.check.expect {
        Some(e) if e != 0.0 => {
            let text = format!("{:+.1} %", (c.estimate.value / e - 1.0) * 100.0);
            if text == "-0.0 %" { "+0.0 %".into() } else { text }
        }
        Some(e) => number::short(c.estimate.value - e),
        None => "-".into(),
    }
}

fn made(experiment: &Experiment, meta: &Meta) -> String {
    let draws = experiment.draws.len();
    let mut out = format!(
        "`just run-experiment {}`: study `{}`, {} configurations",
        experiment.name,
        experiment.study.name(),
        experiment.configurations(),
    );
    match draws {
        1 => out += ", one draw each, so without intervals.",
        n if n < FEWEST => {
            let _ = write!(out, ", {n} draws each. Values are means, intervals the range of the draws.");
        }
        n => {
            let _ = write!(
                out,
                ", {n} draws each. Values are means with 95 % bootstrap intervals over draws, which all configurations share."
            );
        }
    }
    if meta.aggregated {
        out += " The rows beside this file are means and intervals; the run leaves all draws in `target/experiments`.";
    }
    out += " What it was made from stands in `meta.json`.";
    out
}
