//! Where accesses come from: recorded traces, or synthetic worlds that are drawn with the point's seed.

use super::shared::Shared;
use crate::check::invalid;
use crate::error::SimError;
use crate::input::text;
use crate::presets::parse;
use crate::replay::{Accesses, LruCurve, RoundSpan, StartState, check, popularity};
use crate::study::Inputs;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strata_policy::cache::{CacheParams, Key};
use strata_trace::synth::SynthParams;
use strata_trace::{Phase, Trace};

/// A world's file: parameters, and what else its file says of it.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct WorldFile {
    synth: SynthParams,
    /// Published figures beside what the world has; for its readers.
    #[serde(default, rename = "figure")]
    _figures: Vec<toml::Table>,
}

/// What a trace is of.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Form {
    pub(super) layers: usize,
    pub(super) experts: usize,
    pub(super) used: usize,
    /// Of an expert in each layer.
    pub(super) bytes: Vec<u64>,
}

/// What an engine recorded of its own cache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Engine {
    /// Share of the accesses of answers that hit.
    pub(super) hit_rate: f64,
    /// Whether the replay of its settings differs anywhere.
    pub(super) differs: bool,
}

/// The accesses of a trace, and of its second half.
pub(super) struct Loaded {
    pub(super) form: Form,
    pub(super) engine: Option<Engine>,
    all: Arc<Accesses>,
    half: Arc<Accesses>,
    /// The experts that the first half uses, the most used first.
    pub(super) popular: Vec<Key>,
    sized: Shared<Vec<u64>, Arc<Sized>>,
}

/// The accesses with some sizes of experts, and what was found out about them.
pub(super) struct Sized {
    pub(super) all: Arc<Accesses>,
    pub(super) half: Arc<Accesses>,
    /// Hits of Belady's rule, by all that decides them.
    pub(super) oracles: Shared<String, u64>,
    /// Of each part.
    pub(super) curves: Shared<bool, Arc<LruCurve>>,
}

impl Loaded {
    fn new(trace: &Trace, ranking: Option<&StartState>) -> Result<Loaded, SimError> {
        let engine = engine(trace, ranking)?;
        let all = Accesses::from_trace(trace)?;
        let second = second_half(&all);
        let half = all.only(|i, span| second(i, span));
        let popular = popularity(&all, |i, span| span.phase == Phase::Decode && !second(i, span));
        let meta = &trace.meta;
        let form =
            Form { layers: meta.layers, experts: meta.experts, used: meta.used, bytes: meta.expert_bytes.clone() };
        drop(second);
        Ok(Loaded { form, engine, popular, all: Arc::new(all), half: Arc::new(half), sized: Shared::new() })
    }

    /// With these sizes of an expert in each layer.
    ///
    /// # Errors
    /// There is not one for each layer.
    pub(super) fn sized(&self, bytes: &[u64]) -> Result<Arc<Sized>, SimError> {
        self.sized.get(bytes.to_vec(), || {
            let with = |accesses: &Arc<Accesses>| match accesses.shape().bytes() == bytes {
                true => Ok(accesses.clone()),
                false => accesses.sized(bytes.to_vec()).map(Arc::new),
            };
            let (all, half) = (with(&self.all)?, with(&self.half)?);
            Ok(Arc::new(Sized { all, half, oracles: Shared::new(), curves: Shared::new() }))
        })
    }
}

/// Which rounds are of the second half: of the requests in the order in which they begin, or of a single one's rounds.
fn second_half(accesses: &Accesses) -> impl Fn(usize, &RoundSpan) -> bool + use<> {
    let mut order = Vec::new();
    let mut seen = BTreeSet::new();
    for span in accesses.rounds() {
        if seen.insert(span.request) {
            order.push(span.request);
        }
    }
    let later: BTreeSet<u32> = order.iter().skip(order.len().div_ceil(2)).copied().collect();
    let decode = |span: &&RoundSpan| span.phase == Phase::Decode;
    let answers = accesses.rounds().iter().filter(decode).count();
    // The round at which the second half of a single request's answer begins.
    let middle = accesses.rounds().iter().enumerate().filter(|(_, span)| decode(span)).nth(answers.div_ceil(2));
    let middle = middle.map_or(accesses.rounds().len(), |(i, _)| i);
    let single = order.len() == 1;
    move |i, span| if single { i >= middle } else { later.contains(&span.request) }
}

/// What the engine recorded of its cache, if it did.
fn engine(trace: &Trace, ranking: Option<&StartState>) -> Result<Option<Engine>, SimError> {
    let (Some(params), false) = (CacheParams::from_meta(&trace.meta)?, trace.hits.is_empty()) else { return Ok(None) };
    // What the trace says it held counts more than what it was asked to.
    let recorded = StartState::recorded(&trace.meta)?;
    let start = ranking.filter(|_| trace.meta.resident.is_empty()).unwrap_or(&recorded);
    let differs = check(trace, &params, start)?.is_some();
    let (mut hits, mut accesses) = (0u64, 0u64);
    for (i, _) in trace.rounds.iter().enumerate().filter(|(_, round)| round.phase == Phase::Decode) {
        for (at, ..) in trace.accesses(i) {
            accesses += 1;
            hits += u64::from(trace.hits[at]);
        }
    }
    let hit_rate = if accesses == 0 { 0.0 } else { hits as f64 / accesses as f64 };
    Ok(Some(Engine { hit_rate, differs }))
}

/// What a point draws of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Drawn {
    pub(super) seed: u64,
    /// Tokens kept, instead of the world's.
    pub(super) tokens: Option<usize>,
    /// Rows of a window, instead of the world's.
    pub(super) window: Option<usize>,
}

/// The sources of an experiment, by name.
pub(super) struct Sources {
    traces: BTreeMap<String, Arc<Loaded>>,
    worlds: BTreeMap<String, SynthParams>,
    drawn: Shared<(String, Drawn), Arc<Loaded>>,
    /// The ranking that was given.
    pub(super) ranking: Option<String>,
}

impl Sources {
    /// Reads the inputs `trace`, `world` and `ranking`.
    ///
    /// # Errors
    /// One cannot be read or used, there is neither a trace nor a world, or two have the same name.
    pub(super) fn read(inputs: &Inputs) -> Result<Sources, SimError> {
        let ranking = inputs.get("ranking").map(|path| text(path)).transpose()?;
        let mut sources = Sources {
            traces: BTreeMap::new(),
            worlds: BTreeMap::new(),
            drawn: Shared::new(),
            ranking: ranking.clone(),
        };
        for path in files(inputs.get("world"), "toml")? {
            let file: WorldFile = parse(&path.display().to_string(), &text(&path)?)?;
            file.synth.check()?;
            sources.worlds.insert(stem(&path), file.synth);
        }
        for path in files(inputs.get("trace"), "strace")? {
            let place = path.display().to_string();
            let opened = Trace::read(&path)?;
            if let Some(warning) = opened.warnings.first() {
                return Err(invalid(place, warning, "a whole trace"));
            }
            let trace = &opened.trace;
            let start = match &ranking {
                Some(text) => {
                    Some(StartState::ranked(super::plan::ranking(text, Accesses::from_trace(trace)?.shape())?))
                }
                None => None,
            };
            let name = stem(&path);
            if sources.worlds.contains_key(&name) {
                return Err(invalid(place, format!("the name of a world, {name}"), "another"));
            }
            sources.traces.insert(name, Arc::new(Loaded::new(trace, start.as_ref())?));
        }
        if sources.names().next().is_none() {
            return Err(invalid("inputs of study cache", "neither trace nor world", "one of them, or both"));
        }
        Ok(sources)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.traces.keys().chain(self.worlds.keys()).map(String::as_str)
    }

    /// The source of this name; without one the only one there is.
    ///
    /// # Errors
    /// There is none of this name, or several and no name; or what is to be drawn cannot be.
    pub(super) fn get(&self, name: Option<&str>, drawn: Drawn) -> Result<Arc<Loaded>, SimError> {
        let mut names = self.names();
        let name = match (name, names.next(), names.next()) {
            (Some(name), ..) => name,
            (None, Some(only), None) => only,
            _ => "none named",
        };
        if let Some(loaded) = self.traces.get(name) {
            if drawn.tokens.is_some() || drawn.window.is_some() {
                return Err(invalid(
                    "axes tokens and window",
                    "a recorded trace",
                    "a world: a recording is what it is",
                ));
            }
            return Ok(loaded.clone());
        }
        let Some(world) = self.worlds.get(name) else {
            let names: Vec<&str> = self.names().collect();
            return Err(invalid("axis source", name, format!("one of {}", names.join(", "))));
        };
        self.drawn.get((name.to_owned(), drawn), || {
            let params = SynthParams {
                seed: drawn.seed,
                tokens: drawn.tokens.unwrap_or(world.tokens),
                window: drawn.window.unwrap_or(world.window),
                ..world.clone()
            };
            Ok(Arc::new(Loaded::new(&params.generate()?, None)?))
        })
    }
}

/// A file's name without its ending, as the axis `source` has it.
fn stem(path: &Path) -> String {
    path.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// The file, or the files with this ending in the folder, in order of their names.
fn files(path: Option<&PathBuf>, ending: &str) -> Result<Vec<PathBuf>, SimError> {
    let Some(path) = path else { return Ok(Vec::new()) };
    if !path.is_dir() {
        return Ok(vec![path.clone()]);
    }
    let io = |source| SimError::Io { path: path.display().to_string(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(io)? {
        let file = entry.map_err(io)?.path();
        if file.extension().is_some_and(|e| e == ending) {
            files.push(file);
        }
    }
    files.sort();
    match files.is_empty() {
        false => Ok(files),
        true => {
            Err(invalid(path.display().to_string(), "no file of this kind", format!("files that end in .{ending}")))
        }
    }
}
