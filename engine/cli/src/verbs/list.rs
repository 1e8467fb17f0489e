//! `strata list`: the models in a folder.

use crate::output::{self, Table};
use anyhow::Result;
use clap::{Arg, ArgMatches, Command, value_parser};
use std::path::PathBuf;
use strata_gguf::{ModelFiles, models_in, show_path, show_text};

/// The verb's part of the command line.
pub(crate) fn command() -> Command {
    Command::new("list").about("List the models in a folder; the shards of a set are one model").arg(
        Arg::new("dir")
            .value_name("DIR")
            .default_value(".")
            .value_parser(value_parser!(PathBuf))
            .help("The folder; those inside it are not searched"),
    )
}

/// Prints one line for each model.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let dir = matches.get_one::<PathBuf>("dir").cloned().unwrap_or_default();
    let models = models_in(&dir)?;
    if models.is_empty() {
        output::note(&format!("no .gguf files in {}", show_path(&dir)));
        return Ok(());
    }
    let mut table = Table::new("lrll");
    for model in &models {
        let remark = if model.is_draft_layer() { "draft layer".into() } else { missing(model) };
        table.row([show_text(&model.name), output::bytes(model.bytes), shards(model), remark]);
    }
    output::emit(&table.render(0))
}

/// `1 of 1 shard`, `2 of 3 shards`.
fn shards(model: &ModelFiles) -> String {
    let plural = if model.declared == 1 { "" } else { "s" };
    format!("{} of {} shard{plural}", model.paths.len(), model.declared)
}

fn missing(model: &ModelFiles) -> String {
    match model.missing.as_slice() {
        [] => String::new(),
        [name] => format!("missing: {}", show_text(name)),
        [name, rest @ ..] => format!("missing: {} and {} more", show_text(name), rest.len()),
    }
}
