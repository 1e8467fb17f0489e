//! `strata trace`: records what the engine does, and looks into records.

mod export;
mod info;
mod profile;
mod record;
mod synth;

use anyhow::{Context, Result};
use clap::{Arg, ArgMatches, Command, value_parser};
use std::path::PathBuf;
use strata_trace::{Opened, Trace, read_jsonl};

const ABOUT: &str = "Record which experts a model uses, and look into such records";

const LONG_ABOUT: &str = "\
Record which experts a model uses, and look into such records

A trace holds, for each round of decoding and each chunk of a prompt, the tokens that were read, the experts that every \
layer chose for them, and how long each part took. The simulator replays traces with other expert caches.";

const AFTER: &str = "\
Examples:
  strata trace record --out nano.strace
  strata trace info nano.strace
  strata trace csv nano.strace -o nano.csv
  strata run --trace answer.strace \"What is the capital of France?\"

`strata trace VERB --help` says more about a verb.";

/// The verb's part of the command line.
pub(crate) fn command() -> Command {
    Command::new("trace")
        .about(ABOUT)
        .long_about(LONG_ABOUT)
        .after_help(AFTER)
        .subcommand_required(true)
        .subcommand_value_name("VERB")
        .subcommand_help_heading("Verbs")
        .subcommand(record::command())
        .subcommand(info::command())
        .subcommand(export::CSV.command())
        .subcommand(export::JSONL.command())
        .subcommand(profile::command())
        .subcommand(synth::command())
}

/// Records, or looks into a record.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    match matches.subcommand() {
        Some(("record", matches)) => record::run(matches),
        Some(("info", matches)) => info::run(matches),
        Some(("csv", matches)) => export::CSV.run(matches),
        Some(("jsonl", matches)) => export::JSONL.run(matches),
        Some(("profile", matches)) => profile::run(matches),
        Some(("synth", matches)) => synth::run(matches),
        // The command line requires one of them.
        _ => Ok(()),
    }
}

/// A trace as the argument that a verb works on.
fn file_arg() -> Arg {
    Arg::new("file")
        .value_name("FILE")
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("A trace, or one as JSON lines whose name ends with .jsonl")
}

/// Reads the trace that [`file_arg`] names.
fn open(matches: &ArgMatches) -> Result<(PathBuf, Opened)> {
    let path = matches.get_one::<PathBuf>("file").cloned().unwrap_or_default();
    let lines = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("jsonl"));
    let opened = if lines { read_jsonl(&path) } else { Trace::read(&path) };
    Ok((path, opened.context("cannot read the trace")?))
}
