//! A trace as Parquet tables, for pandas, DuckDB and polars.
//!
//! A folder gets
//!
//! - `rounds.parquet`, a row for each round: `request`, `round`, `phase`, `source`, `rows`, `committed`, `total_nanos`,
//!   and for each branch `NAME_nanos` and `NAME_bytes`;
//! - `tokens.parquet`, a row for each token and layer: `request`, `round`, `row` (in the round), `token`, `position`,
//!   `drafted`, `committed`, `layer`, `experts` (best first), `weights`, and `hits` where they were recorded;
//! - `layers.parquet`, a row for each round and layer with the nanoseconds `dense`, `gpu`, `copy`, `cpu`, where they were
//!   recorded;
//! - `moves.parquet`, a row for each expert that came or left: `request`, `round`, `layer`, `came`, `left_layer`, `left`,
//!   where they were recorded;
//! - `meta.json`, what holds for the whole trace.

use anyhow::{Context, Result};
use polars::prelude::{
    Column, DataFrame, DataType, Float32Type, IntoSeries, ListBooleanChunkedBuilder, ListBuilderTrait,
    ListPrimitiveChunkedBuilder, NamedFrom, ParquetWriter, Series, UInt16Type,
};
use std::fs::File;
use std::path::Path;
use strata_trace::{BRANCHES, Round, Trace, gate_from_fixed};

/// Rows of a frame: enough for columns to compress, few enough to stay small in memory.
const ROWS: usize = 1 << 17;

/// Writes a trace as tables into a folder, and returns the names of the files.
///
/// # Errors
/// The folder cannot be written.
pub fn write(trace: &Trace, dir: &Path) -> Result<Vec<&'static str>> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot write {}", dir.display()))?;
    let mut names = vec!["meta.json", "rounds.parquet", "tokens.parquet"];
    let meta = serde_json::to_string_pretty(&trace.meta)? + "\n";
    std::fs::write(dir.join("meta.json"), meta).with_context(|| format!("cannot write {}", dir.display()))?;
    whole(&dir.join("rounds.parquet"), rounds(trace)?)?;
    tokens(trace, &dir.join("tokens.parquet"))?;
    if !trace.layer_times.is_empty() {
        whole(&dir.join("layers.parquet"), layers(trace)?)?;
        names.push("layers.parquet");
    }
    if !trace.move_ends.is_empty() {
        whole(&dir.join("moves.parquet"), moves(trace)?)?;
        names.push("moves.parquet");
    }
    Ok(names)
}

fn column<T>(name: &str, values: Vec<T>) -> Column
where
    Series: NamedFrom<Vec<T>, [T]>,
    Vec<T>: AsRef<[T]>,
{
    Series::new(name.into(), values).into()
}

fn whole(path: &Path, mut frame: DataFrame) -> Result<()> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    ParquetWriter::new(file).finish(&mut frame).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

fn rounds(trace: &Trace) -> Result<DataFrame> {
    let r = &trace.rounds;
    let u32s = |name: &str, of: fn(&Round) -> u32| column(name, r.iter().map(of).collect::<Vec<u32>>());
    let mut columns = vec![
        u32s("request", |r| r.request),
        u32s("round", |r| r.round),
        column("phase", r.iter().map(|r| word(&r.phase)).collect::<Vec<String>>()),
        column("source", r.iter().map(|r| word(&r.source)).collect::<Vec<String>>()),
        u32s("rows", |r| r.rows),
        u32s("committed", |r| r.committed),
        column("total_nanos", r.iter().map(|r| r.total_nanos).collect::<Vec<u64>>()),
    ];
    for (i, branch) in BRANCHES.iter().enumerate() {
        let name = word(branch);
        columns.push(column(&format!("{name}_nanos"), r.iter().map(|r| r.nanos[i]).collect::<Vec<u64>>()));
        columns.push(column(&format!("{name}_bytes"), r.iter().map(|r| r.bytes[i]).collect::<Vec<u64>>()));
    }
    Ok(DataFrame::new(r.len(), columns)?)
}

/// The word that records have for a phase, a source or a branch: that of its serde form.
fn word(value: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

/// One frame after another, so that a long trace needs no second copy in memory.
fn tokens(trace: &Trace, path: &Path) -> Result<()> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    let each = (ROWS / trace.meta.layers.max(1)).max(1);
    // Token by token, with the round that read it and its row there.
    let all: Vec<(usize, usize, usize)> = (0..trace.rounds.len())
        .flat_map(|r| trace.tokens_of(r).enumerate().map(move |(row, token)| (r, row, token)))
        .collect();
    let first = frame(trace, &all[..each.min(all.len())])?;
    let mut writer = ParquetWriter::new(file).batched(first.schema())?;
    writer.write_batch(&first)?;
    for part in all.chunks(each).skip(1) {
        writer.write_batch(&frame(trace, part)?)?;
    }
    writer.finish().with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

fn frame(trace: &Trace, tokens: &[(usize, usize, usize)]) -> Result<DataFrame> {
    let (layers, used) = (trace.meta.layers, trace.meta.used);
    let rows = tokens.len() * layers;
    let u32s = |name: &str, of: &dyn Fn(usize, usize, usize) -> u32| {
        let values = tokens.iter().flat_map(|&(r, row, t)| std::iter::repeat_n(of(r, row, t), layers));
        column(name, values.collect::<Vec<u32>>())
    };
    let bools = |name: &str, of: &dyn Fn(usize) -> bool| {
        let values = tokens.iter().flat_map(|&(_, _, t)| std::iter::repeat_n(of(t), layers));
        column(name, values.collect::<Vec<bool>>())
    };
    let mut experts =
        ListPrimitiveChunkedBuilder::<UInt16Type>::new("experts".into(), rows, rows * used, DataType::UInt16);
    let mut weights =
        ListPrimitiveChunkedBuilder::<Float32Type>::new("weights".into(), rows, rows * used, DataType::Float32);
    let mut hits = (!trace.hits.is_empty()).then(|| ListBooleanChunkedBuilder::new("hits".into(), rows, rows * used));
    let mut buffer = vec![0.0; used];
    for &(_, _, token) in tokens {
        for layer in 0..layers {
            let start = (token * layers + layer) * used;
            experts.append_slice(&trace.ids[start..start + used]);
            for (to, gate) in buffer.iter_mut().zip(&trace.gates[start..start + used]) {
                *to = gate_from_fixed(*gate);
            }
            weights.append_slice(&buffer);
            if let Some(hits) = &mut hits {
                hits.append_iter(trace.hits[start..start + used].iter().copied().map(Some));
            }
        }
    }
    let numbers: Vec<u16> = tokens.iter().flat_map(|_| 0..layers as u16).collect();
    let mut columns = vec![
        u32s("request", &|r, _, _| trace.rounds[r].request),
        u32s("round", &|r, _, _| trace.rounds[r].round),
        u32s("row", &|_, row, _| row as u32),
        u32s("token", &|_, _, t| trace.tokens[t].id),
        u32s("position", &|_, _, t| trace.tokens[t].position),
        bools("drafted", &|t| trace.tokens[t].drafted),
        bools("committed", &|t| trace.tokens[t].committed),
        column("layer", numbers),
        experts.finish().into_series().into(),
        weights.finish().into_series().into(),
    ];
    columns.extend(hits.map(|mut h| Column::from(h.finish().into_series())));
    Ok(DataFrame::new(rows, columns)?)
}

fn layers(trace: &Trace) -> Result<DataFrame> {
    let layers = trace.meta.layers;
    let of_round = |name: &str, of: fn(&Round) -> u32| {
        let values = trace.rounds.iter().flat_map(|r| std::iter::repeat_n(of(r), layers));
        column(name, values.collect::<Vec<u32>>())
    };
    let numbers: Vec<u16> = trace.rounds.iter().flat_map(|_| 0..layers as u16).collect();
    let mut columns =
        vec![of_round("request", |r| r.request), of_round("round", |r| r.round), column("layer", numbers)];
    let names = trace.layer_times.first().map(|t| t.columns().map(|(name, _)| name)).unwrap_or_default();
    for (i, name) in names.iter().enumerate() {
        columns.push(column(name, trace.layer_times.iter().map(|t| t.columns()[i].1).collect::<Vec<u64>>()));
    }
    Ok(DataFrame::new(trace.layer_times.len(), columns)?)
}

fn moves(trace: &Trace) -> Result<DataFrame> {
    let mut start = 0;
    let (mut requests, mut rounds) = (Vec::new(), Vec::new());
    for (round, &end) in trace.rounds.iter().zip(&trace.move_ends) {
        let count = (end as usize).saturating_sub(start);
        requests.extend(std::iter::repeat_n(round.request, count));
        rounds.extend(std::iter::repeat_n(round.round, count));
        start = end as usize;
    }
    let m = &trace.moves;
    let columns = vec![
        column("request", requests),
        column("round", rounds),
        column("layer", m.iter().map(|m| m.layer).collect::<Vec<u16>>()),
        Series::new("came".into(), m.iter().map(|m| m.came).collect::<Vec<Option<u16>>>()).into(),
        Series::new("left_layer".into(), m.iter().map(|m| m.left.map(|l| l.0)).collect::<Vec<Option<u16>>>()).into(),
        Series::new("left".into(), m.iter().map(|m| m.left.map(|l| l.1)).collect::<Vec<Option<u16>>>()).into(),
    ];
    Ok(DataFrame::new(m.len(), columns)?)
}
