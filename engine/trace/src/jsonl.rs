//! Traces as text: a line of JSON for each round. The crate's documentation has the form, from `jsonl.md`.

use crate::limits::invalid;
use crate::meta::Meta;
use crate::reader::{Opened, json_error, open_regular, show};
use crate::record::Record;
use crate::round::{BRANCHES, Branch, DraftSource, LayerTimes, Move, Phase, Round, Token};
use crate::trace::{Trace, TraceError, gate_from_fixed, gate_to_fixed};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head<'a> {
    strata_trace: u32,
    meta: Cow<'a, Meta>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    end: Ended,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ended {
    rounds: u64,
    lost: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    request: u32,
    round: u32,
    phase: Phase,
    #[serde(default)]
    source: DraftSource,
    committed: u32,
    #[serde(default)]
    total_nanos: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    nanos: BTreeMap<Branch, u64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    bytes: BTreeMap<Branch, u64>,
    tokens: Vec<TokenLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    layer_times: Option<Vec<LayerTimes>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    moves: Option<Vec<Move>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenLine {
    id: u32,
    position: u32,
    #[serde(default)]
    drafted: bool,
    experts: Vec<Vec<u16>>,
    weights: Vec<Vec<f64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hits: Option<Vec<Vec<bool>>>,
}

/// Writes a trace as JSON lines; the crate's documentation has their form.
///
/// # Errors
/// `out` fails.
pub fn write_jsonl(trace: &Trace, out: &mut impl Write) -> Result<(), TraceError> {
    let mut line = |value: serde_json::Result<Vec<u8>>| {
        let mut line = value.map_err(|e| TraceError::writing(e.into()))?;
        line.push(b'\n');
        out.write_all(&line).map_err(TraceError::writing)
    };
    line(serde_json::to_vec(&Head { strata_trace: VERSION, meta: Cow::Borrowed(&trace.meta) }))?;
    for round in 0..trace.rounds.len() {
        line(serde_json::to_vec(&Line::of(&trace.record(round), &trace.meta)))?;
    }
    line(serde_json::to_vec(&End { end: Ended { rounds: trace.rounds.len() as u64, lost: trace.lost } }))?;
    out.flush().map_err(TraceError::writing)
}

/// Reads a file of JSON lines.
///
/// # Errors
/// A line is not of that form or makes no sense; file, line and field are named. Or the file cannot be read.
pub fn read_jsonl(path: &Path) -> Result<Opened, TraceError> {
    let name = show(path);
    let (file, _) = open_regular(path).map_err(|source| TraceError::Io { path: name.clone(), source })?;
    read_jsonl_from(BufReader::new(file), &name)
}

/// Reads JSON lines. See [`read_jsonl`]; `name` is for errors.
///
/// # Errors
/// See [`read_jsonl`].
pub fn read_jsonl_from(mut input: impl BufRead, name: &str) -> Result<Opened, TraceError> {
    let (mut line, mut number) = (Vec::new(), 0u64);
    let mut trace: Option<Trace> = None;
    let mut ended = None;
    loop {
        line.clear();
        let read = input.read_until(b'\n', &mut line);
        if read.map_err(|source| TraceError::Io { path: name.into(), source })? == 0 {
            break;
        }
        number += 1;
        let place = format!("{name} line {number}");
        let text = line.trim_ascii();
        if text.is_empty() {
            continue;
        }
        if ended.is_some() {
            return Err(invalid(place, "a line behind the end", "none"));
        }
        match &mut trace {
            None => trace = Some(Trace::new(head(text, &place)?)),
            Some(trace) if is_end(text) => {
                let End { end } = json(text, &place, "an end")?;
                if end.rounds != trace.rounds.len() as u64 {
                    let found = format!("an end of {} rounds", end.rounds);
                    return Err(invalid(place, found, format!("{}, as there are", trace.rounds.len())));
                }
                ended = Some(end.lost);
            }
            Some(trace) => {
                let line: Line = json(text, &place, "a round")?;
                line.add_to(trace, &place)?;
            }
        }
    }
    let missing =
        || invalid(format!("{name} line {}", number + 1), "the end of the file", "a first line with the meta");
    let mut trace = trace.ok_or_else(missing)?;
    trace.lost = ended.unwrap_or(0);
    let mut warnings = Vec::new();
    if ended.is_none() {
        warnings.push(format!("{name}: no line ends it, so rounds may be missing behind its {}", trace.rounds.len()));
    }
    if trace.lost > 0 {
        warnings.push(format!("{name}: {} rounds happened that are not in it", trace.lost));
    }
    Ok(Opened { trace, warnings })
}

fn json<'a, T: Deserialize<'a>>(text: &'a [u8], place: &str, expected: &str) -> Result<T, TraceError> {
    serde_json::from_slice(text).map_err(|e| json_error(&e, place, expected))
}

fn head(text: &[u8], place: &str) -> Result<Meta, TraceError> {
    let head: Head<'_> = json(text, place, "{\"strata_trace\": 1, \"meta\": ...}")?;
    if head.strata_trace != VERSION {
        let found = format!("version {} of the format", head.strata_trace);
        return Err(invalid(format!("{place}: strata_trace"), found, VERSION.to_string()));
    }
    head.meta.check(place)?;
    Ok(head.meta.into_owned())
}

/// Whether an object's first key is `end`.
fn is_end(text: &[u8]) -> bool {
    text.strip_prefix(b"{").is_some_and(|rest| rest.trim_ascii_start().starts_with(b"\"end\""))
}

/// A weight in units with as many digits as tell units apart: half of one is 7.6e-6.
fn rounded(gate: u16) -> f64 {
    (f64::from(gate_from_fixed(gate)) * 1e6).round() / 1e6
}

impl Line {
    fn of(record: &Record<'_>, meta: &Meta) -> Line {
        let round = record.round;
        let branches = |values: [u64; BRANCHES.len()]| {
            BRANCHES.into_iter().zip(values).filter(|(_, value)| *value > 0).collect::<BTreeMap<_, _>>()
        };
        let token = |(row, token): (usize, &Token)| {
            let layers = row * meta.layers..(row + 1) * meta.layers;
            let of = |layer: usize| layer * meta.used..(layer + 1) * meta.used;
            TokenLine {
                id: token.id,
                position: token.position,
                drafted: token.drafted,
                experts: layers.clone().map(|layer| record.ids[of(layer)].to_vec()).collect(),
                weights: layers
                    .clone()
                    .map(|layer| record.gates[of(layer)].iter().map(|&gate| rounded(gate)).collect())
                    .collect(),
                hits: record.hits.map(|hits| layers.map(|layer| hits[of(layer)].to_vec()).collect()),
            }
        };
        Line {
            request: round.request,
            round: round.round,
            phase: round.phase,
            source: round.source,
            committed: round.committed,
            total_nanos: round.total_nanos,
            nanos: branches(round.nanos),
            bytes: branches(round.bytes),
            tokens: record.tokens.iter().enumerate().map(token).collect(),
            layer_times: record.layer_times.map(<[LayerTimes]>::to_vec),
            moves: record.moves.map(<[Move]>::to_vec),
        }
    }

    fn add_to(&self, trace: &mut Trace, place: &str) -> Result<(), TraceError> {
        let meta = &trace.meta;
        let (mut tokens, mut ids, mut gates) = (Vec::new(), Vec::new(), Vec::new());
        let mut hits = self.tokens.first().and_then(|token| token.hits.as_ref()).map(|_| Vec::new());
        for (row, token) in self.tokens.iter().enumerate() {
            let here = |field: &str| format!("{place}: tokens[{row}].{field}");
            gather(&token.experts, meta, &mut ids, |&id| Ok(id), &here("experts"))?;
            let gate = |&weight: &f64| match (0.0..=1.0).contains(&weight) {
                true => Ok(gate_to_fixed(weight as f32)),
                false => Err(invalid(here("weights"), weight.to_string(), "numbers from 0 to 1")),
            };
            gather(&token.weights, meta, &mut gates, gate, &here("weights"))?;
            match (&mut hits, &token.hits) {
                (Some(all), Some(hits)) => gather(hits, meta, all, |&hit| Ok(hit), &here("hits"))?,
                (None, None) => {}
                _ => return Err(invalid(here("hits"), "hits of some tokens", "hits of all or none")),
            }
            let committed = row < self.committed as usize;
            tokens.push(Token { id: token.id, position: token.position, drafted: token.drafted, committed });
        }
        let branches = |values: &BTreeMap<Branch, u64>| BRANCHES.map(|b| values.get(&b).copied().unwrap_or(0));
        let rows = u32::try_from(tokens.len()).ok();
        let rows = rows.ok_or_else(|| invalid(place, format!("{} tokens", tokens.len()), "below 2^32"))?;
        let round = Round {
            request: self.request,
            round: self.round,
            phase: self.phase,
            source: self.source,
            rows,
            committed: self.committed,
            total_nanos: self.total_nanos,
            nanos: branches(&self.nanos),
            bytes: branches(&self.bytes),
        };
        let record = Record {
            round,
            tokens: &tokens,
            ids: &ids,
            gates: &gates,
            layer_times: self.layer_times.as_deref(),
            hits: hits.as_deref(),
            moves: self.moves.as_deref(),
        };
        record.check(meta, place)?;
        trace.add(&record, place)
    }
}

/// Appends `[layers][used]` values, of which there must be as many.
fn gather<T, U>(
    layers: &[Vec<T>],
    meta: &Meta,
    out: &mut Vec<U>,
    value: impl Fn(&T) -> Result<U, TraceError>,
    place: &str,
) -> Result<(), TraceError> {
    if layers.len() != meta.layers {
        return Err(invalid(place, format!("{} layers", layers.len()), meta.layers.to_string()));
    }
    for (layer, values) in layers.iter().enumerate() {
        if values.len() != meta.used {
            return Err(invalid(
                format!("{place}[{layer}]"),
                format!("{} values", values.len()),
                meta.used.to_string(),
            ));
        }
        for found in values {
            out.push(value(found)?);
        }
    }
    Ok(())
}
