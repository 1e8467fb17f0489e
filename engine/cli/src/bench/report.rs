//! What comes out of a measurement: text for people, one JSON document, and files of a folder.

use super::machine::{Machine, Memory, Moment, date};
use super::stats::Summary;
use crate::facts::Facts;
use crate::output;
use anyhow::{Context, Result, bail};
use clap::ArgMatches;
use serde::Serialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use strata_gguf::{Gguf, show_path};

/// The version of the document's form. A key that is added leaves it; one that changes its meaning raises it.
const SCHEMA: u32 = 1;

const RESULT: &str = "result.json";
const SAMPLES: &str = "samples.csv";

/// A measurement that has begun.
pub(crate) struct Started {
    /// What is measured, as the verb has it.
    what: &'static str,
    /// The machine it runs on.
    pub(crate) machine: Machine,
    at: SystemTime,
    before: Moment,
    notes: Vec<String>,
    /// Whether the document is all that goes to stdout.
    pub(crate) json: bool,
    out: Option<PathBuf>,
}

/// What was measured.
pub(crate) struct Measured {
    /// The settings as resolved, an object.
    pub(crate) settings: Value,
    /// What was run: an object, or `null`.
    pub(crate) model: Value,
    /// One object for each figure.
    pub(crate) results: Vec<Value>,
    /// What this measurement alone has to say, an object; `null` for nothing.
    pub(crate) more: Value,
    /// All samples: a line of column names, then a line for each sample.
    pub(crate) csv: String,
}

/// The samples of one figure.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Series {
    /// What was measured, unique among the results.
    pub(crate) label: String,
    /// What the samples count.
    pub(crate) unit: &'static str,
    /// Every sample, in order.
    pub(crate) samples: Vec<f64>,
    #[serde(flatten)]
    pub(crate) summary: Summary,
}

impl Series {
    /// # Errors
    /// There are no samples, or one is not a number.
    pub(crate) fn new(label: impl Into<String>, unit: &'static str, samples: Vec<f64>) -> Result<Series> {
        let label = label.into();
        let summary = Summary::of(&samples).with_context(|| format!("{label}: nothing was measured"))?;
        Ok(Series { label, unit, samples, summary })
    }

    /// The series as an object with these keys besides.
    pub(crate) fn with(&self, more: Value) -> Result<Value> {
        let mut object = serde_json::to_value(self)?;
        merge(&mut object, more);
        Ok(object)
    }
}

/// `12.3 to 14.5`, or `-` where there is no interval.
pub(crate) fn interval(summary: &Summary, digits: usize) -> String {
    summary.interval.map_or_else(|| "-".to_owned(), |[low, high]| format!("{low:.digits$} to {high:.digits$}"))
}

/// Adds the keys of one object to another.
fn merge(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}

impl Started {
    /// Begins: makes the folder of `--out`, looks at the machine, and says so when it is busy.
    pub(crate) fn begin(what: &'static str, matches: &ArgMatches) -> Result<Started> {
        // Not every measurement has a folder.
        let out = matches.try_get_one::<PathBuf>("out").ok().flatten().cloned();
        if let Some(dir) = &out {
            prepare(dir)?;
        }
        let root = Path::new("/");
        let machine = Machine::read(root);
        let before = Moment::read(root);
        let noise = before.noise(machine.cores);
        let json = matches.get_flag("json");
        let mut started = Started { what, machine, at: SystemTime::now(), before, notes: Vec::new(), json, out };
        noise.into_iter().for_each(|note| started.note(note));
        Ok(started)
    }

    /// A sentence for stderr and the document.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        output::note(&format!("note: {text}"));
        self.notes.push(text);
    }

    /// Text for people, who get none with `--json`.
    pub(crate) fn say(&self, text: &str) -> Result<()> {
        if self.json { Ok(()) } else { output::emit(text) }
    }

    /// The folder of `--out`, which is there.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.out.as_deref()
    }

    /// Ends: writes the files of `--out`, and the document if it was asked for.
    pub(crate) fn finish(self, measured: Measured) -> Result<()> {
        let after = Moment::read(Path::new("/"));
        let command: Vec<String> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
        let mut document = json!({
            "schema": SCHEMA,
            "bench": self.what,
            "version": env!("CARGO_PKG_VERSION"),
            "date": date(self.at),
            "command": command,
            "machine": self.machine,
            "before": self.before,
            "after": after,
            "model": measured.model,
            "settings": measured.settings,
            "notes": self.notes,
            "memory": Memory::read(),
            "interval": "95 %, percentile bootstrap of the median",
        });
        merge(&mut document, measured.more);
        merge(&mut document, json!({ "results": measured.results }));
        let document = serde_json::to_string_pretty(&document)?;
        if let Some(dir) = &self.out {
            for (name, text) in [(RESULT, &format!("{document}\n")), (SAMPLES, &measured.csv)] {
                let path = dir.join(name);
                std::fs::write(&path, text).with_context(|| format!("cannot write {}", show_path(&path)))?;
            }
            self.say(&format!("written: {RESULT} and {SAMPLES} in {}", show_path(dir)))?;
        }
        if self.json { output::emit(&document) } else { Ok(()) }
    }
}

/// Makes a folder for results. One that holds results is refused: they may have taken hours.
fn prepare(dir: &Path) -> Result<()> {
    if dir.exists() && !dir.is_dir() {
        bail!("{} is a file, and a folder is expected", show_path(dir));
    }
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make the folder {}", show_path(dir)))?;
    for name in [RESULT, SAMPLES] {
        if dir.join(name).exists() {
            bail!("{} holds a {name} already, and a folder without one is expected", show_path(dir));
        }
    }
    Ok(())
}

/// What the document says about a model file.
pub(crate) fn model(gguf: &Gguf) -> Value {
    let facts = Facts::of(gguf);
    let most = facts.sizes.types.iter().max_by_key(|t| t.size.bytes);
    json!({
        "file": facts.path,
        "name": facts.name,
        "bytes": facts.file_bytes,
        // The type that most bytes are stored in.
        "type": most.map(|t| t.ty),
        "parameters": facts.sizes.parameters,
    })
}

/// The peak of resident memory as text.
pub(crate) fn peak() -> String {
    let peak = Memory::read().peak_resident_bytes;
    peak.map_or_else(
        || "peak memory unknown: this system has no /proc".to_owned(),
        |bytes| format!("peak memory {}, mapped weights included", output::bytes(bytes)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_results_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("a/b");
        prepare(&new).unwrap();
        std::fs::write(new.join(SAMPLES), "x").unwrap();
        assert!(prepare(&new).unwrap_err().to_string().contains("holds a samples.csv already"));
    }

    #[test]
    fn series_are_objects() {
        let series = Series::new("x", "s", [1.0, 3.0].repeat(3)).unwrap();
        let object = series.with(json!({ "more": 7 })).unwrap();
        assert_eq!((&object["median"], &object["more"], &object["samples"][1]), (&2.0.into(), &7.into(), &3.0.into()));
        assert_eq!(interval(&series.summary, 1), "1.0 to 3.0");
        assert_eq!(interval(&Summary { median: 1.0, interval: None }, 1), "-");
        assert!(Series::new("x", "s", Vec::new()).is_err());
    }
}
