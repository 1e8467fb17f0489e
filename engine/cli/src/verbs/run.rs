//! `strata run`: answers a prompt, or talks.

use crate::flags;
use anyhow::{Result, bail};
use clap::{Arg, ArgAction, ArgMatches, Command};
use strata_config::Verb;

const EXAMPLES: &str = "\
Examples:
  strata run --model model.gguf \"Why is the sky blue?\"
  strata run --model model.gguf                     talk, one line at a time
  strata run --model model.gguf < question.txt      take the prompt from a file
  strata run --model model.gguf --temp 0.7 --seed 1 --no-think \"Write a haiku.\"
  strata run --model model.gguf --raw --max-tokens 50 \"Once upon a time\"";

/// The verb's part of the command line.
pub(crate) fn command() -> Command {
    let command = Command::new("run")
        .about("Answer a prompt, or talk")
        .arg(Arg::new("prompt").value_name("PROMPT").help("What to ask; without it, a conversation is started"))
        .arg(flags::model())
        .arg(
            Arg::new("raw")
                .long("raw")
                .action(ArgAction::SetTrue)
                .help("Continue the prompt as plain text, without the chat template"),
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print the answer and its figures as JSON"))
        .after_help(format!("{}\n\n{EXAMPLES}", flags::SETTINGS_HELP));
    flags::add(command, Verb::Run)
}

/// Answers the prompt.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    // What the model file suggests is known only once it is open; everything else can be wrong before that.
    let settings = flags::settings(matches, None)?;
    settings.warnings().iter().for_each(|w| crate::output::note(&format!("warning: {w}")));
    bail!("not wired yet")
}
