//! Inputs: all of them are looked at before anything runs, and what is missing is listed at once.

use crate::spec::Experiment;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use twox_hash::XxHash3_128;

/// An input as it was when the experiment ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// Below the project's root.
    pub path: String,
    /// Of the file, or of all files of the folder.
    pub bytes: u64,
    /// XXH3 with 128 bits of the content; for a folder of its files' paths and contents in order.
    pub xxh3: String,
}

/// What is missing for these experiments, a line each; empty when all is there.
pub fn missing(root: &Path, experiments: &[Experiment]) -> Vec<String> {
    let mut lines = Vec::new();
    for experiment in experiments {
        for (name, path) in &experiment.inputs {
            let full = root.join(path);
            // A device may have no end, and a pipe nobody who writes.
            if !full.is_file() && !full.is_dir() {
                let other = if full.exists() { ", which is neither a file nor a folder" } else { "" };
                lines.push(format!("{}: {name} = {path}{other}", experiment.name));
            }
        }
    }
    lines
}

/// Refuses when something is missing.
///
/// # Errors
/// Something is; all of it is named.
pub fn require(root: &Path, experiments: &[Experiment]) -> Result<()> {
    let lines = missing(root, experiments);
    if lines.is_empty() {
        return Ok(());
    }
    bail!("{} of the inputs are not there:\n  {}", lines.len(), lines.join("\n  "))
}

/// The inputs' paths, for the study.
pub fn paths(root: &Path, experiment: &Experiment) -> BTreeMap<String, PathBuf> {
    experiment.inputs.iter().map(|(name, path)| (name.clone(), root.join(path))).collect()
}

/// The inputs' contents.
///
/// # Errors
/// One cannot be read.
pub fn hashed(root: &Path, experiment: &Experiment) -> Result<BTreeMap<String, Input>> {
    let mut all = BTreeMap::new();
    for (name, path) in &experiment.inputs {
        let full = root.join(path);
        let mut files = Vec::new();
        list(&full, &mut files).with_context(|| format!("cannot read {path}"))?;
        let whole = full.is_dir();
        let (mut hasher, mut bytes) = (XxHash3_128::new(), 0);
        for file in &files {
            let content = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
            bytes += content.len() as u64;
            if whole {
                let below = file.strip_prefix(&full).unwrap_or(file).to_string_lossy().replace('\\', "/");
                hasher.write(format!("{below}\0{}\0", content.len()).as_bytes());
            }
            hasher.write(&content);
        }
        all.insert(name.clone(), Input { path: path.clone(), bytes, xxh3: format!("{:032x}", hasher.finish_128()) });
    }
    Ok(all)
}

/// The files at or below a path, in order of their names.
fn list(path: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if !path.is_dir() {
        if path.exists() && !path.is_file() {
            return Err(std::io::Error::other(format!("{} is no file, expected one", path.display())));
        }
        files.push(path.to_owned());
        return Ok(());
    }
    let mut entries: Vec<PathBuf> = std::fs::read_dir(path)?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    entries.sort();
    entries.iter().try_for_each(|e| list(e, files))
}
