//! `results/INDEX.md`: every experiment with what came out, those that failed among them.

use crate::result::meta::Meta;
use crate::result::notes;
use crate::spec;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::fmt::Write;
use std::path::Path;
use strata_sim::validate::PLANS;

/// `entry.toml` of a result that was measured and written up by hand.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// What was measured.
    what: String,
    /// What came out.
    verdict: String,
}

/// Folders below `results/` that are no results of experiments.
const OTHERS: [&str; 2] = ["hardware", "validation"];

const HEAD: &str = "# Results

Made by `strata-lab report` from what the folders hold. An experiment that failed is a result: it stays, with the reason.
";

/// One published number beside ours, for the table of predictions.
pub struct Prediction {
    /// The experiment.
    pub experiment: String,
    /// Cells of the table: check, ours, published, off by, fitted or not, where it was published.
    pub cells: [String; 6],
}

/// The index as Markdown. `predictions` come from the experiments' checks.
///
/// # Errors
/// A folder cannot be read, or has neither `meta.json` of the laboratory nor `entry.toml`.
pub fn text(root: &Path, titles: &[(String, String)], predictions: &[Prediction]) -> Result<String> {
    let mut out = String::from(HEAD);
    let known = spec::names(root)?;
    let mut measured = Vec::new();
    let dir = root.join("results");
    let mut folders = Vec::new();
    if dir.is_dir() {
        for entry in std::fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
    }
    folders.sort();
    for name in folders.iter().filter(|n| !OTHERS.contains(&n.as_str()) && !known.contains(n)) {
        let path = format!("results/{name}/entry.toml");
        let text = match std::fs::read_to_string(root.join(&path)) {
            Ok(text) => text,
            Err(_) => {
                bail!("results/{name} belongs to no experiment and has no entry.toml, expected what = and verdict =")
            }
        };
        let entry: Entry = toml::from_str(&text).map_err(|e| anyhow::anyhow!("{path}: {}", e.message()))?;
        measured.push((name, entry));
    }
    if !known.is_empty() {
        let _ = writeln!(out, "\n## Experiments\n\n| experiment | what | verdict | why |\n|---|---|---|---|");
    }
    for name in &known {
        let title = titles.iter().find(|(n, _)| n == name).map_or("", |(_, t)| t);
        if !folders.contains(name) {
            let _ = writeln!(out, "| {name} | {} | not run yet | - |", cell(title));
            continue;
        }
        let meta = Meta::load(root, name)?;
        let why = match notes(root, name).as_deref().and_then(first_sentences) {
            Some(note) => format!("{}. {note}", meta.why),
            None => meta.why,
        };
        let _ = writeln!(out, "| [{name}]({name}/summary.md) | {} | {} | {} |", cell(title), meta.verdict, cell(&why));
    }
    if !measured.is_empty() {
        let _ = writeln!(out, "\n## Measured\n\n| result | what | verdict |\n|---|---|---|");
    }
    for (name, entry) in measured {
        let _ = writeln!(out, "| [{name}]({name}/summary.md) | {} | {} |", cell(&entry.what), cell(&entry.verdict));
    }
    let validations: Vec<_> = PLANS.iter().filter(|p| dir.join("validation").join(p.name).is_dir()).collect();
    if !validations.is_empty() {
        let _ = writeln!(out, "\n## Validations of the cost model\n\n| windows of | asks |\n|---|---|");
    }
    for plan in validations {
        let _ = writeln!(out, "| [{}](validation/{}/summary.md) | {} |", plan.name, plan.name, cell(plan.question));
    }
    if !predictions.is_empty() {
        let _ = writeln!(
            out,
            "\n## Published figures beside ours\n\nWhat a constant was fitted to validates nothing.\n\n\
             | experiment | figure | ours | published | off by | fitted | source |\n|---|---|---|---|---|---|---|"
        );
    }
    for Prediction { experiment, cells } in predictions {
        let _ = writeln!(out, "| {experiment} | {} |", cells.each_ref().map(|c| cell(c)).join(" | "));
    }
    Ok(out)
}

fn cell(text: &str) -> String {
    text.trim().replace('|', "\\|").replace('\n', " ")
}

/// The first paragraph of what was written by hand, headings aside.
fn first_sentences(notes: &str) -> Option<String> {
    let paragraph = notes.split("\n\n").map(str::trim).find(|p| !p.is_empty() && !p.starts_with('#'))?;
    Some(paragraph.replace('\n', " "))
}
