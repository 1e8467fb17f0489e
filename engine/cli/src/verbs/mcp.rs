//! `strata mcp`: the model for a program that is led by a model, over a pipe.

use super::serve::host::Host;
use super::serve::{options, runtime, told_to_end};
use crate::output::note;
use crate::{builtin, flags, interrupt, load};
use anyhow::{Result, anyhow};
use clap::{ArgMatches, Command};
use std::io::IsTerminal;
use std::sync::Arc;
use strata_config::Verb;

const LONG_ABOUT: &str = "\
Serve one client of the Model Context Protocol over stdin and stdout

Desktop assistants and coding agents start this program and find tools: to ask the model, to say how things stand, to list, load and \
serve models, and to run experiments. Nothing is loaded before it is needed.";

const EXAMPLES: &str = "\
Settings of a client:
  {\"mcpServers\": {\"strata\": {\"command\": \"strata\", \"args\": [\"mcp\"]}}}
  {\"mcpServers\": {\"strata\": {\"command\": \"strata\", \"args\": [\"mcp\", \"--model\", \"/models/model.gguf\"]}}}

A running `strata serve` has the same tools at http://127.0.0.1:8080/mcp. Settings under Server are for what start_serving
serves. Only the protocol goes to stdout, everything else to stderr.";

/// The verb's part of the command line.
pub(crate) fn command() -> Command {
    let command = Command::new("mcp")
        .about("Serve one client of the Model Context Protocol, which starts this program")
        .long_about(LONG_ABOUT)
        .after_help(format!("{}\n\n{EXAMPLES}", flags::SETTINGS_HELP));
    flags::add(command, Verb::Serve)
}

/// Serves the client until it leaves, or the program is told to end.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let settings = flags::settings(matches, None)?;
    load::isa(&settings)?;
    let runtime = runtime()?;
    let cancel = interrupt::handler()?;
    let options = options(&settings, builtin::NAME);
    let grace = options.grace;
    let host = Host::new(matches.clone(), settings);
    let control = Arc::new(host.clone());
    if std::io::stdin().is_terminal() {
        note("waiting for a client of the Model Context Protocol on stdin; `strata mcp --help` says how one is set up");
    }
    let served = runtime.block_on(async {
        let (stdin, stdout) = (tokio::io::stdin(), tokio::io::stdout());
        let served =
            strata_server::mcp::serve(stdin, stdout, host.switch(), control, options, told_to_end(cancel)).await;
        host.leave().await;
        served
    });
    let ended = host.end(grace);
    // A thread may wait for stdin for ever.
    runtime.shutdown_background();
    served.map_err(|why| anyhow!(why))?;
    ended?;
    note("ended");
    Ok(())
}
