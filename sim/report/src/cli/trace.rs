//! `strata-lab trace`: Parquet out, and traces of other programs in.

use super::output::note;
use crate::trace::{flame, table};
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use strata_trace::{PartFile, Trace, read_jsonl};

#[derive(Subcommand)]
pub(super) enum TraceVerb {
    /// Write a trace as Parquet tables, for pandas, DuckDB and polars
    Parquet(ParquetArgs),
    /// Make a trace of another program's records: JSON lines, or the layout of FLAME-MoE-Traces
    #[command(after_help = IMPORT_HELP)]
    Import(ImportArgs),
}

const IMPORT_HELP: &str = "\
A file is read as JSON lines: engine/trace/src/jsonl.md describes them. A folder is read as FLAME-MoE-Traces lays them out: \
samples/NNN.parquet with token_id, actives/iter_N/layer_NN.parquet with indices and scores, a row for each token. Each of those \
tokens becomes a round of its own.

Examples:
  strata-lab trace import other.jsonl -o other.trace
  strata-lab trace import flame-moe-290m -o flame.trace --iteration 5473 --tokens 20000";

#[derive(Args)]
pub(super) struct ParquetArgs {
    /// The trace
    file: PathBuf,
    /// The folder of the tables: rounds.parquet, tokens.parquet and, where recorded, layers.parquet and moves.parquet
    #[arg(short, long, value_name = "DIR")]
    out: PathBuf,
}

#[derive(Args)]
pub(super) struct ImportArgs {
    /// A .jsonl file, or the folder of one model of FLAME-MoE-Traces
    source: PathBuf,
    /// The trace to write
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
    /// FLAME: the checkpoint [default: the last]
    #[arg(long, value_name = "N")]
    iteration: Option<u64>,
    /// FLAME: tokens left out at the start
    #[arg(long, default_value_t = 0, value_name = "N")]
    skip: usize,
    /// FLAME: tokens taken
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    tokens: usize,
    /// FLAME: routed experts of a layer
    #[arg(long, default_value_t = 64, value_name = "N")]
    experts: usize,
    /// FLAME: tokens of a request, 2048 as in training
    #[arg(long, default_value_t = 2048, value_name = "N")]
    request: usize,
    /// FLAME: bytes of an expert, which its files do not say
    #[arg(long, default_value_t = 1_000_000, value_name = "BYTES")]
    expert_bytes: u64,
}

pub(super) fn run(verb: &TraceVerb) -> Result<()> {
    match verb {
        TraceVerb::Parquet(arguments) => parquet(arguments),
        TraceVerb::Import(arguments) => import(arguments),
    }
}

fn parquet(arguments: &ParquetArgs) -> Result<()> {
    let opened = Trace::read(&arguments.file)?;
    opened.warnings.iter().for_each(|w| note(&format!("warning: {w}")));
    let names = table::write(&opened.trace, &arguments.out)?;
    note(&format!("{}: {}", arguments.out.display(), names.join(", ")));
    Ok(())
}

fn import(arguments: &ImportArgs) -> Result<()> {
    let (source, out) = (arguments.source.canonicalize(), arguments.out.canonicalize());
    if let (Ok(source), Ok(out)) = (source, out)
        && source == out
    {
        bail!("{} is what is read, expected another file to write", arguments.out.display());
    }
    let trace = if arguments.source.is_dir() {
        let options = flame::Options {
            iteration: arguments.iteration,
            skip: arguments.skip,
            tokens: arguments.tokens,
            experts: arguments.experts,
            request: arguments.request,
            expert_bytes: arguments.expert_bytes,
        };
        flame::import(&arguments.source, &options)?
    } else if arguments.source.extension().is_some_and(|e| e == "jsonl") {
        let opened = read_jsonl(&arguments.source)?;
        opened.warnings.iter().for_each(|w| note(&format!("warning: {w}")));
        opened.trace
    } else {
        bail!("found {}, expected a .jsonl file or a folder", arguments.source.display());
    };
    write(&trace, &arguments.out, arguments.force)?;
    let m = &trace.meta;
    note(&format!(
        "{}: {} rounds, {} tokens, {} layers of {} experts, {} used",
        arguments.out.display(),
        trace.rounds.len(),
        trace.tokens.len(),
        m.layers,
        m.experts,
        m.used
    ));
    Ok(())
}

/// The file appears whole or not at all.
fn write(trace: &Trace, path: &Path, replace: bool) -> Result<()> {
    trace.write(begin(path, replace)?)?.finish()?;
    Ok(())
}

/// Begins a file, in place of one that is there if `replace` says so.
pub(super) fn begin(path: &Path, replace: bool) -> Result<PartFile> {
    let there = path.symlink_metadata().is_ok();
    if there && !replace {
        bail!("{} is there already: --force replaces it", path.display());
    }
    // A device or a folder is not what a file shall take the place of.
    if there && !path.is_file() {
        bail!("{} is there and is no file, expected a file to replace", path.display());
    }
    Ok(PartFile::create(path, replace)?)
}
