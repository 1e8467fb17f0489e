//! `strata trace profile`: how often each expert was used, for a GPU to hold those used most.

use super::{file_arg, open};
use crate::device::profile::Profile;
use crate::output::{self, note};
use crate::recording::{self, Target};
use anyhow::Result;
use clap::{Arg, ArgMatches, Command, value_parser};
use std::io::Write;
use std::path::PathBuf;
use strata_gguf::show_path;

const AFTER: &str = "\
Counted are the experts of all tokens that were kept, those of prompts too. A profile belongs to the model of the trace; a \
recording of what you do with the model makes the best one.

Example:
  strata trace profile model.strace --out profile.json
  strata serve --model model.gguf --expert-profile profile.json";

/// The verb's part of the command line.
pub(super) fn command() -> Command {
    let out = Arg::new("out").short('o').long("out").value_name("FILE").required(true);
    Command::new("profile")
        .about("Count how often each expert was used, for --expert-profile")
        .arg(file_arg())
        .arg(
            out.value_parser(value_parser!(PathBuf))
                .help("The profile to write, as JSON; until it is whole it has .part behind its name"),
        )
        .arg(recording::force())
        .after_help(AFTER)
}

/// Counts.
pub(super) fn run(matches: &ArgMatches) -> Result<()> {
    let out = matches.get_one::<PathBuf>("out").cloned().unwrap_or_default();
    let target = Target::new(&out, matches.get_flag("force"))?;
    let (_, opened) = open(matches)?;
    opened.warnings.iter().for_each(|w| note(&format!("warning: {w}")));
    let profile = Profile::of(&opened.trace);
    if profile.tokens() == 0 {
        note("warning: the trace has no token that was kept, so all experts count the same");
    }
    let text = profile.to_json()?;
    let mut file = target.create()?;
    if let Err(e) = file.write_all(text.as_bytes()) {
        file.discard();
        return Err(e.into());
    }
    file.finish()?;
    let tokens = output::count(usize::try_from(profile.tokens()).unwrap_or(usize::MAX), "token");
    output::emit(&format!("{}: the experts of {tokens}, {}", show_path(&out), output::bytes(text.len() as u64)))
}
