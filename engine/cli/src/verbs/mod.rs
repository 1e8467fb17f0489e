//! One file for each verb.

pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod config;
pub(crate) mod inspect;
pub(crate) mod list;
pub(crate) mod mcp;
pub(crate) mod pack;
pub(crate) mod plan;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod trace;

use anyhow::Result;
use clap::{Arg, ArgMatches, Command, value_parser};
use std::path::PathBuf;

/// A verb of the command line.
pub(crate) struct Verb {
    pub(crate) name: &'static str,
    pub(crate) command: fn() -> Command,
    pub(crate) run: fn(&ArgMatches) -> Result<()>,
}

/// All verbs, in the order of help.
pub(crate) const ALL: &[Verb] = &[
    Verb { name: "run", command: run::command, run: run::run },
    Verb { name: "serve", command: serve::command, run: serve::run },
    Verb { name: "mcp", command: mcp::command, run: mcp::run },
    Verb { name: "list", command: list::command, run: list::run },
    Verb { name: "inspect", command: inspect::command, run: inspect::run },
    Verb { name: "check", command: check::command, run: check::run },
    Verb { name: "plan", command: plan::command, run: plan::run },
    Verb { name: "bench", command: bench::command, run: bench::run },
    Verb { name: "trace", command: trace::command, run: trace::run },
    Verb { name: "pack", command: pack::command, run: pack::run },
    Verb { name: "config", command: config::command, run: config::run },
];

/// A model file as the argument that a verb works on.
fn file_arg() -> Arg {
    Arg::new("file")
        .value_name("FILE")
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("A .gguf file, any shard of a set, or the folder of one model; nano is the built-in model")
}

/// The path that [`file_arg`] was given.
fn file_of(matches: &ArgMatches) -> PathBuf {
    matches.get_one::<PathBuf>("file").cloned().unwrap_or_default()
}
