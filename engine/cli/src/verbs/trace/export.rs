//! `strata trace csv` and `strata trace jsonl`: a trace as text.

use super::{file_arg, open};
use crate::output::{self, note};
use crate::recording::{self, Target};
use anyhow::{Context, Result, bail};
use clap::{Arg, ArgMatches, Command, value_parser};
use std::io::Write;
use std::path::{Path, PathBuf};
use strata_gguf::show_path;
use strata_trace::{Trace, TraceError, write_csv, write_jsonl};

/// A form of text.
pub(super) struct Form {
    name: &'static str,
    about: &'static str,
    more: &'static str,
    write: fn(&Trace, &mut dyn Write) -> Result<(), TraceError>,
}

/// A table.
pub(super) const CSV: Form = Form {
    name: "csv",
    about: "A trace as a table: a line for each token and layer",
    more: "Lists of a layer (experts, weights, hits) stand in one field, with spaces between them.\n\n\
           Example:\n  strata trace csv nano.strace -o nano.csv",
    write: |trace, mut out| write_csv(trace, &mut out),
};

/// JSON lines.
pub(super) const JSONL: Form = Form {
    name: "jsonl",
    about: "A trace as JSON lines: one for the whole, one for each round, one for the end",
    more: "Nothing is left out, and `strata-lab trace import` reads it again. The documentation of strata-trace has the \
           fields.\n\nExample:\n  strata trace jsonl nano.strace | head -n 2",
    write: |trace, mut out| write_jsonl(trace, &mut out),
};

impl Form {
    /// The verb's part of the command line.
    pub(super) fn command(&self) -> Command {
        Command::new(self.name)
            .about(self.about)
            .arg(file_arg())
            .arg(
                Arg::new("output")
                    .short('o')
                    .long("output")
                    .value_name("OUT")
                    .value_parser(value_parser!(PathBuf))
                    .help("The file to write; until it is whole it has .part behind its name [default: stdout]"),
            )
            .arg(recording::force().requires("output"))
            .after_help(self.more)
    }

    /// Writes the text.
    pub(super) fn run(&self, matches: &ArgMatches) -> Result<()> {
        let target = matches.get_one::<PathBuf>("output");
        let target = target.map(|path| Target::new(path, matches.get_flag("force"))).transpose()?;
        let (path, opened) = open(matches)?;
        let same = |a: &Path, b: &Path| a.canonicalize().is_ok_and(|a| b.canonicalize().is_ok_and(|b| a == b));
        if let Some(target) = target.as_ref().filter(|target| same(target.path(), &path)) {
            bail!("{} is what is read; expected another file to write", show_path(target.path()));
        }
        opened.warnings.iter().for_each(|w| note(&format!("warning: {w}")));
        let Some(target) = target else {
            let mut out = std::io::BufWriter::new(std::io::stdout().lock());
            return (self.write)(&opened.trace, &mut out).context("cannot write to stdout");
        };
        let mut file = target.create()?;
        if let Err(e) = (self.write)(&opened.trace, &mut file) {
            file.discard();
            return Err(e.into());
        }
        file.finish()?;
        let size = std::fs::metadata(target.path()).map_or(0, |m| m.len());
        output::emit(&format!("{}: {}", show_path(target.path()), output::bytes(size)))
    }
}
