//! The command line as a whole.

use crate::output;
use crate::verbs;
use anyhow::Result;
use clap::{ArgMatches, Command};
use std::ffi::OsString;

/// Widest line of help. Narrower terminals wrap earlier.
const HELP_WIDTH: usize = 100;

const AFTER_HELP: &str = "\
Examples:
  strata list ~/models
  strata inspect model.gguf
  strata check model.gguf --weights
  strata plan model.gguf --vram-budget 12GiB
  strata serve --model model.gguf
  strata run --model model.gguf \"What is the capital of France?\"
  strata bench decode model.gguf

Exit codes:
  0    all went well
  1    something failed: a bad file, a model that does not fit, a number that is none
  2    wrong usage: an unknown flag, a setting out of range
  130  interrupted with Ctrl-C

`strata VERB --help` says more about a verb.";

/// The whole command line.
pub(crate) fn command() -> Command {
    let command = Command::new("strata")
        .version(env!("CARGO_PKG_VERSION"))
        .about(env!("CARGO_PKG_DESCRIPTION"))
        .max_term_width(HELP_WIDTH)
        .subcommand_value_name("VERB")
        .subcommand_help_heading("Verbs")
        .after_help(AFTER_HELP);
    verbs::ALL.iter().fold(command, |command, verb| command.subcommand((verb.command)()))
}

/// Reads the command line and does what it says.
pub(crate) fn run(args: impl IntoIterator<Item = OsString>) -> Result<()> {
    let mut command = command();
    let matches = match command.try_get_matches_from_mut(args) {
        Ok(matches) => matches,
        // Help and versions that were asked for come this way too.
        Err(e) if e.use_stderr() => return Err(e.into()),
        Err(e) => return output::emit(&e.render().to_string()),
    };
    dispatch(&matches).unwrap_or_else(|| output::emit(&command.render_help().to_string()))
}

/// `None` when no verb was given.
fn dispatch(matches: &ArgMatches) -> Option<Result<()>> {
    let (name, matches) = matches.subcommand()?;
    let verb = verbs::ALL.iter().find(|v| v.name == name)?;
    Some((verb.run)(matches))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
        for verb in verbs::ALL {
            assert_eq!((verb.command)().get_name(), verb.name);
        }
    }
}
