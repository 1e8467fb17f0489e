//! Parts: the points that are done, kept line by line, so that a run that stops loses the points under way at most, and
//! machines that share the points leave what can be joined.
//!
//! A part is a file of JSON lines: a head that names the run, then a line for each point. The run's key is made from all
//! that its points depend on, the program included; parts with another key lie in another folder, so rows of an older
//! program or of other inputs are never taken for new ones.

use super::inputs::Input;
use crate::rows::Kept;
use crate::spec::Experiment;
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use twox_hash::XxHash3_128;

/// One of several machines that share the points of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// From 1.
    pub index: usize,
    /// How many there are.
    pub of: usize,
}

impl Shard {
    /// All of it.
    pub const WHOLE: Shard = Shard { index: 1, of: 1 };

    /// Whether a point is this shard's. Every n-th is, so that slow regions of a sweep are spread.
    pub fn has(self, point: usize) -> bool {
        point % self.of == self.index - 1
    }
}

impl std::str::FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let parsed =
            text.split_once('/').and_then(|(i, n)| Some(Shard { index: i.parse().ok()?, of: n.parse().ok()? }));
        match parsed {
            Some(s) if s.index >= 1 && s.index <= s.of => Ok(s),
            _ => Err(format!("found {text:?}, expected i/n with i from 1 to n, such as 2/8")),
        }
    }
}

#[derive(Serialize, Deserialize, PartialEq, Debug)]
struct Head {
    experiment: String,
    key: String,
    points: usize,
}

#[derive(Serialize, Deserialize)]
struct Done {
    point: usize,
    rows: Vec<Kept>,
}

/// What a run is, apart from words and figures: XXH3 of the points' description, the inputs' contents and the program.
///
/// # Errors
/// The running program cannot be read.
pub(super) fn key(experiment: &Experiment, inputs: &BTreeMap<String, Input>) -> Result<String> {
    let program = program().map_err(|e| anyhow::anyhow!("cannot read the running program: {e}"))?;
    let mut hasher = XxHash3_128::new();
    hasher.write(experiment.computed_from().to_string().as_bytes());
    for (name, input) in inputs {
        hasher.write(format!("{name}\0{}\0", input.xxh3).as_bytes());
    }
    hasher.write(program.as_bytes());
    Ok(format!("{:032x}", hasher.finish_128()))
}

/// XXH3 of the running program.
fn program() -> Result<&'static str, &'static std::io::Error> {
    static HASH: OnceLock<std::io::Result<String>> = OnceLock::new();
    let hash = || {
        let mut file = File::open(std::env::current_exe()?)?;
        let (mut hasher, mut buffer) = (XxHash3_128::new(), vec![0; 1 << 20]);
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(format!("{:032x}", hasher.finish_128())),
                n => hasher.write(&buffer[..n]),
            }
        }
    };
    HASH.get_or_init(hash).as_ref().map(String::as_str)
}

/// The folder of a run's parts.
pub struct Parts {
    dir: PathBuf,
    head: Head,
}

impl Parts {
    /// The parts of a run below `base`.
    pub fn new(base: &Path, experiment: &Experiment, key: String) -> Parts {
        let head = Head { experiment: experiment.name.clone(), key, points: experiment.points() };
        Parts { dir: base.join(&experiment.name).join(&head.key), head }
    }

    /// Where they lie.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The points that are done in any part.
    ///
    /// # Errors
    /// A part cannot be read, or belongs to another run.
    pub fn done(&self) -> Result<BTreeMap<usize, Vec<Kept>>> {
        let mut all = BTreeMap::new();
        let entries = match std::fs::read_dir(&self.dir) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(all),
            other => other.with_context(|| format!("cannot list {}", self.dir.display()))?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|e| e == "jsonl") {
                files.push(path);
            }
        }
        files.sort();
        for file in files {
            self.read(&file, &mut all)?;
        }
        Ok(all)
    }

    /// Reads one part and returns how many bytes of it are whole lines.
    fn read(&self, path: &Path, all: &mut BTreeMap<usize, Vec<Kept>>) -> Result<u64> {
        let open = || format!("cannot read {}", path.display());
        let mut reader = BufReader::new(File::open(path).with_context(open)?);
        let (mut line, mut number, mut whole) = (Vec::new(), 0usize, 0u64);
        loop {
            line.clear();
            let length = reader.by_ref().read_until(b'\n', &mut line).with_context(open)?;
            if line.last() != Some(&b'\n') {
                // The line that was being written when the run stopped.
                return Ok(whole);
            }
            number += 1;
            let place = || format!("{} line {number} is damaged; remove the file to begin anew", path.display());
            if number == 1 {
                let head: Head = serde_json::from_slice(&line).with_context(place)?;
                ensure!(head == self.head, "{} belongs to another run of {}", path.display(), head.experiment);
            } else {
                let done: Done = serde_json::from_slice(&line).with_context(place)?;
                ensure!(done.point < self.head.points, "{}: found point {}", place(), done.point);
                all.insert(done.point, done.rows);
            }
            whole += length as u64;
        }
    }

    fn part(&self, shard: Shard) -> PathBuf {
        self.dir.join(format!("part-{}-of-{}.jsonl", shard.index, shard.of))
    }

    /// The part that a shard writes, behind the whole lines that are there already.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn writer(&self, shard: Shard) -> Result<Writer> {
        let path = self.part(shard);
        let open = || format!("cannot write {}", path.display());
        std::fs::create_dir_all(&self.dir).with_context(open)?;
        let whole = if path.exists() { self.read(&path, &mut BTreeMap::new())? } else { 0 };
        let mut file = File::options().create(true).truncate(false).write(true).open(&path).with_context(open)?;
        file.set_len(whole).with_context(open)?;
        file.seek(SeekFrom::End(0)).with_context(open)?;
        let writer = Writer { file: Mutex::new(file), path: path.clone() };
        if whole == 0 {
            writer.line(&self.head)?;
        }
        Ok(writer)
    }

    /// Which shards a merge still waits for, in words, when points are missing.
    ///
    /// # Errors
    /// Points are missing.
    pub fn require_all(&self, done: &BTreeMap<usize, Vec<Kept>>) -> Result<()> {
        let missing: Vec<usize> = (0..self.head.points).filter(|p| !done.contains_key(p)).collect();
        let Some(first) = missing.first() else { return Ok(()) };
        bail!(
            "{} of {} points are missing in {}, the first is point {first}: run the shards that are not finished again",
            missing.len(),
            self.head.points,
            self.dir.display()
        )
    }

    /// Removes the part of one shard.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove_part(&self, shard: Shard) -> Result<()> {
        let path = self.part(shard);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(e).with_context(|| format!("cannot remove {}", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Removes the parts, once their rows lie in the result.
    ///
    /// # Errors
    /// They cannot be removed.
    pub fn remove(&self) -> Result<()> {
        match std::fs::remove_dir_all(&self.dir) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(e).with_context(|| format!("cannot remove {}", self.dir.display()))
            }
            _ => Ok(()),
        }
    }
}

/// Appends points to a part. Each is one write of a whole line.
pub struct Writer {
    file: Mutex<File>,
    path: PathBuf,
}

impl Writer {
    /// Keeps a point.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(&self, point: usize, rows: &[Kept]) -> Result<()> {
        self.line(&Done { point, rows: rows.to_vec() })
    }

    fn line(&self, value: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_string(value)?;
        text.push('\n');
        let mut file = self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", self.path.display()))
    }
}
