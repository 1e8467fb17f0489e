//! Results: the files in `results/NAME/`, made from rows.

pub mod meta;
mod summary;
pub(crate) mod tables;

pub(crate) use summary::off_by;

use crate::cells::Cells;
use crate::checks::{self, Verdict};
use crate::figure;
use crate::rows::Rows;
use crate::run::Finished;
use crate::run::inputs::Input;
use crate::spec::Experiment;
use crate::stats::Estimate;
use anyhow::{Context, Result, bail};
use meta::{Kept, Meta};
use std::collections::BTreeMap;
use std::path::Path;

/// Bytes of an experiment's rows in the repository, CSV and Parquet together.
pub const MOST_BYTES: usize = 1_000_000;

/// The files of a result by name, in order.
pub type Files = BTreeMap<String, Vec<u8>>;

/// What becomes of a finished run.
pub struct Written {
    /// The files for `results/NAME/`.
    pub files: Files,
    /// All rows, where those among the files are aggregated.
    pub full: Option<Rows>,
    /// What came out.
    pub verdict: Verdict,
    /// Why.
    pub why: String,
}

/// The result of a finished run. Rows of more than `most` bytes are aggregated.
///
/// # Errors
/// A check, figure or table cannot be made from the rows, or the rows are too many to be kept.
pub fn of_run(root: &Path, experiment: &Experiment, finished: &Finished, most: usize) -> Result<Written> {
    let whole = &finished.rows;
    let cells = Cells::of(whole, &experiment.draws);
    let size = |rows: &Rows| -> Result<usize> { Ok(rows.csv().len() + rows.parquet()?.len()) };
    let mut kept = whole.clone();
    if size(whole)? > most && experiment.draws.len() > 1 {
        kept = cells.aggregate();
    }
    let bytes = size(&kept)?;
    if bytes > most {
        bail!(
            "{}: its rows take {bytes} bytes, expected at most {most}: fewer values on the axes, or fewer labels",
            experiment.file
        );
    }
    let numbers: Vec<(String, Estimate)> =
        checks::all(&cells, &experiment.checks, &[])?.iter().map(|c| (c.check.name.clone(), c.estimate)).collect();
    let origin = Origin {
        revision: meta::revision(root, experiment),
        program: Meta::program(),
        inputs: finished.inputs.clone(),
        rows: whole.lines.len(),
        numbers,
    };
    let (files, meta) = files(root, experiment, &kept, origin)?;
    let full = kept.aggregated.then(|| whole.clone());
    Ok(Written { files, full, verdict: meta.verdict, why: meta.why })
}

/// What the rows do not say of themselves.
pub struct Origin {
    /// The revision of the program.
    pub revision: String,
    /// The program.
    pub program: String,
    /// The inputs' contents.
    pub inputs: BTreeMap<String, Input>,
    /// Rows of the whole run.
    pub rows: usize,
    /// The checks' numbers, for rows that are aggregated.
    pub numbers: Vec<(String, Estimate)>,
}

impl From<Meta> for Origin {
    fn from(meta: Meta) -> Origin {
        let numbers = meta.checks.iter().map(|k| (k.name.clone(), k.estimate())).collect();
        Origin { revision: meta.revision, program: meta.program, inputs: meta.inputs, rows: meta.rows, numbers }
    }
}

/// All files of a result from its rows.
///
/// # Errors
/// As [`of_run`].
pub fn files(root: &Path, experiment: &Experiment, rows: &Rows, origin: Origin) -> Result<(Files, Meta)> {
    let cells = Cells::of(rows, &experiment.draws);
    let checked = checks::all(&cells, &experiment.checks, &origin.numbers)?;
    let (verdict, why) = checks::verdict(&checked);
    let meta = Meta {
        experiment: experiment.name.clone(),
        revision: origin.revision,
        program: origin.program,
        computed_from: experiment.computed_from(),
        inputs: origin.inputs,
        points: experiment.points(),
        rows: origin.rows,
        aggregated: rows.aggregated,
        verdict,
        why,
        checks: Kept::of(&checked),
    };
    let notes = notes(root, &experiment.name);
    let mut files = Files::new();
    for spec in &experiment.figures {
        files.insert(format!("{}.svg", spec.file), figure::svg(experiment, &cells, spec)?.into_bytes());
    }
    files.insert(
        "summary.md".into(),
        summary::text(experiment, &cells, &checked, &meta, notes.as_deref())?.into_bytes(),
    );
    files.insert("rows.csv".into(), rows.csv().into_bytes());
    files.insert("rows.parquet".into(), rows.parquet()?);
    files.insert("meta.json".into(), meta.text()?.into_bytes());
    Ok((files, meta))
}

/// What was written by hand beside a result.
pub fn notes(root: &Path, name: &str) -> Option<String> {
    std::fs::read_to_string(root.join("results").join(name).join("notes.md")).ok().filter(|t| !t.trim().is_empty())
}

/// Puts files into a folder. Each appears whole or not at all; figures that are no longer made go.
///
/// # Errors
/// The folder cannot be written.
pub fn put(dir: &Path, files: &Files) -> Result<()> {
    let wrong = || format!("cannot write {}", dir.display());
    std::fs::create_dir_all(dir).with_context(wrong)?;
    for (name, bytes) in files {
        let new = dir.join(format!("{name}.new"));
        std::fs::write(&new, bytes).with_context(wrong)?;
        std::fs::rename(&new, dir.join(name)).with_context(wrong)?;
    }
    for name in stale(dir, files)? {
        std::fs::remove_file(dir.join(name)).with_context(wrong)?;
    }
    Ok(())
}

/// Figures in a folder that are not among its files.
///
/// # Errors
/// The folder cannot be listed.
pub fn stale(dir: &Path, files: &Files) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".svg") && !files.contains_key(&name) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}
