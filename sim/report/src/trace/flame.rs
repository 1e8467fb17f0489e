//! Traces in the layout of FLAME-MoE-Traces (Kang, Yu and Xiong 2025, arXiv 2505.20225), published by CMU:
//!
//! - `samples/NNN.parquet`: `token_id`, one row a token, the files one behind the other;
//! - `actives/iter_N/layer_NN.parquet`: `indices`, `list<int16>`, the experts of a token, and `scores`, `list<float16>`,
//!   their router probabilities, best first; row i is about the token in row i of the samples.
//!
//! The files say neither how many experts there are (64 in all published ones) nor where a text ends, so both are given.
//! Each token becomes a round of its own.

use super::rows_of;
use anyhow::{Context, Result, anyhow, bail, ensure};
use polars::prelude::{DataFrame, DataType};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use strata_trace::{DraftSource, Meta, ModelMeta, Origin, Phase, Round, Token, Trace, gate_to_fixed};

/// What to take of the files, and what they do not say.
#[derive(Debug, Clone)]
pub struct Options {
    /// The checkpoint, the N of `iter_N`; the last when not given.
    pub iteration: Option<u64>,
    /// Tokens left out at the start.
    pub skip: usize,
    /// Tokens taken.
    pub tokens: usize,
    /// Routed experts of a layer.
    pub experts: usize,
    /// Tokens of a request.
    pub request: usize,
    /// Bytes of an expert.
    pub expert_bytes: u64,
}

/// Files of a folder whose names are `before`, a number, `after`, in order of the numbers.
fn numbered(dir: &Path, before: &str, after: &str) -> Result<BTreeMap<u64, PathBuf>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let number = name.strip_prefix(before).and_then(|n| n.strip_suffix(after)).and_then(|n| n.parse().ok());
        if let Some(number) = number {
            found.insert(number, path);
        }
    }
    ensure!(!found.is_empty(), "{} holds no {before}N{after}", dir.display());
    Ok(found)
}

/// The trace of a folder.
///
/// # Errors
/// A file is missing, has other columns or too few rows, or holds an expert or probability that cannot be; file and row
/// are named.
pub fn import(dir: &Path, options: &Options) -> Result<Trace> {
    ensure!(options.tokens > 0 && options.request > 0, "expected at least one token, and one of each request");
    let iterations = numbered(&dir.join("actives"), "iter_", "")?;
    let (iteration, place) = match options.iteration {
        None => iterations.last_key_value().context("there is no iteration")?,
        Some(n) => iterations.get_key_value(&n).with_context(|| {
            let known: Vec<String> = iterations.keys().map(ToString::to_string).collect();
            format!("found no iteration {n} in {}, expected one of {}", dir.display(), known.join(", "))
        })?,
    };
    let files = numbered(place, "layer_", ".parquet")?;
    let tokens = samples(&dir.join("samples"), options)?;
    let mut layers = Vec::new();
    for path in files.values() {
        layers.push(layer(path, options)?);
    }
    let used = layers.first().map_or(0, |l| l.used);
    let name = dir.file_name().map_or_else(|| "FLAME-MoE".into(), |n| n.to_string_lossy().into_owned());
    let mut trace = Trace::new(Meta {
        origin: Origin::Imported,
        model: ModelMeta { name, id: String::new(), quant: String::new() },
        engine: format!("FLAME-MoE-Traces, iteration {iteration}"),
        layers: layers.len(),
        experts: options.experts,
        used,
        expert_bytes: vec![options.expert_bytes; layers.len()],
        dense_bytes: 0,
        knobs: BTreeMap::new(),
        hardware: None,
        clock: "none".into(),
        resident: Vec::new(),
        unix_seconds: None,
        note: format!(
            "tokens from {} on, in requests of {} as given; sizes of experts as given",
            options.skip, options.request
        ),
    });
    let odd = layers.iter().zip(files.values()).find(|(l, _)| l.used != used);
    if let Some((found, path)) = odd {
        bail!("{}: found {} experts for each token, expected {used} as in the first layer", path.display(), found.used);
    }
    let (mut ids, mut gates) = (Vec::new(), Vec::new());
    for (i, &id) in tokens.iter().enumerate() {
        let (request, at) = ((i / options.request) as u32, (i % options.request) as u32);
        ids.clear();
        gates.clear();
        for layer in &layers {
            ids.extend_from_slice(&layer.ids[i * used..(i + 1) * used]);
            gates.extend_from_slice(&layer.gates[i * used..(i + 1) * used]);
        }
        let round = Round {
            request,
            round: at,
            phase: Phase::Decode,
            source: DraftSource::None,
            rows: 1,
            committed: 1,
            total_nanos: 0,
            nanos: Default::default(),
            bytes: Default::default(),
        };
        let token = Token { id, position: at, drafted: false, committed: true };
        trace.push(round, &[token], &ids, &gates)?;
    }
    Ok(trace)
}

/// The tokens wanted, out of as many files as hold them.
fn samples(dir: &Path, options: &Options) -> Result<Vec<u32>> {
    let mut tokens = Vec::new();
    let mut skip = options.skip;
    for path in numbered(dir, "", ".parquet")?.values() {
        let frame = rows_of(path, &["token_id"], 0, usize::MAX)?;
        let ids = frame.column("token_id")?.cast(&DataType::Int64)?;
        let values = ids.i64()?;
        let taken = skip.min(values.len());
        skip -= taken;
        for (row, id) in values.iter().enumerate().skip(taken) {
            if tokens.len() == options.tokens {
                return Ok(tokens);
            }
            let id = id.and_then(|id| u32::try_from(id).ok());
            tokens.push(id.ok_or_else(|| anyhow!("{} row {row}: found no token, expected a number", path.display()))?);
        }
    }
    ensure!(
        tokens.len() == options.tokens,
        "{}: found {} tokens from token {} on, expected {}",
        dir.display(),
        tokens.len(),
        options.skip,
        options.tokens
    );
    Ok(tokens)
}

struct Layer {
    used: usize,
    /// `[tokens][used]`
    ids: Vec<u16>,
    /// `[tokens][used]`
    gates: Vec<u16>,
}

fn layer(path: &Path, options: &Options) -> Result<Layer> {
    let frame = rows_of(path, &["indices", "scores"], options.skip, options.tokens)?;
    ensure!(
        frame.height() == options.tokens,
        "{}: found {} rows from row {} on, expected {}",
        path.display(),
        frame.height(),
        options.skip,
        options.tokens
    );
    let mut found = Layer { used: 0, ids: Vec::new(), gates: Vec::new() };
    let of = |row: usize| format!("{} row {}", path.display(), row + options.skip);
    for (row, list) in lists(&frame, "indices", path)?.into_iter().enumerate() {
        found.used = if row == 0 { list.len() } else { found.used };
        ensure!(
            !list.is_empty() && list.len() == found.used,
            "{}: found {} experts, expected {} as in the rows before",
            of(row),
            list.len(),
            found.used.max(1)
        );
        for id in list {
            let fits = id >= 0.0 && id < options.experts as f64;
            ensure!(fits, "{}: found expert {id}, expected one from 0 to {}", of(row), options.experts - 1);
            found.ids.push(id as u16);
        }
    }
    for (row, list) in lists(&frame, "scores", path)?.into_iter().enumerate() {
        ensure!(
            list.len() == found.used,
            "{}: found {} scores, expected {} as experts",
            of(row),
            list.len(),
            found.used
        );
        for score in list {
            ensure!((0.0..=1.0).contains(&score), "{}: found score {score}, expected a number from 0 to 1", of(row));
            found.gates.push(gate_to_fixed(score as f32));
        }
    }
    Ok(found)
}

/// A column of lists as numbers; 64-bit floats hold all that these columns can.
fn lists(frame: &DataFrame, name: &str, path: &Path) -> Result<Vec<Vec<f64>>> {
    let wrong = || format!("{}: {name} is no column of lists of numbers", path.display());
    let column = frame.column(name)?.cast(&DataType::List(Box::new(DataType::Float64))).with_context(wrong)?;
    let mut all = Vec::with_capacity(frame.height());
    for (row, list) in column.list().with_context(wrong)?.amortized_iter().enumerate() {
        let missing = || anyhow!("{} row {row}: {name} is missing", path.display());
        let list = list.ok_or_else(missing)?;
        let values = list.as_ref().f64().with_context(wrong)?;
        all.push(values.iter().map(|v| v.ok_or_else(missing)).collect::<Result<_>>()?);
    }
    Ok(all)
}
