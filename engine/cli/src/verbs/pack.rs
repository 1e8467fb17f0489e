//! `strata pack mtp`: the draft layer of a published checkpoint as a GGUF file.

use crate::{load, output};
use anyhow::{Context, Result, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::path::{Path, PathBuf};
use strata_gguf::{GgmlType, SafeTensors, show_path};

/// Types that matrices can be written in.
const TYPES: [(&str, GgmlType); 4] =
    [("q8_0", GgmlType::Q8_0), ("bf16", GgmlType::BF16), ("f16", GgmlType::F16), ("f32", GgmlType::F32)];

/// The verb's part of the command line.
pub(crate) fn command() -> Command {
    let mtp = Command::new("mtp")
        .about("Pack the draft layer (multi-token prediction) of a checkpoint")
        .long_about(
            "Pack the draft layer (multi-token prediction) of a checkpoint.\n\nPublished GGUF files of the model lack this \
             layer; the original safetensors have it, under the names mtp.*. Of a checkpoint in many files only the index \
             and those with such tensors are needed. A config.json beside them tells how many layers come before it.",
        )
        .arg(
            Arg::new("source")
                .value_name("SRC")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("A .safetensors file, the .safetensors.index.json of a set, or the folder of either"),
        )
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("FILE")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("The file to write; until it is complete it has .part behind its name"),
        )
        .arg(
            Arg::new("type")
                .long("type")
                .value_name("TYPE")
                .default_value(TYPES[0].0)
                .value_parser(TYPES.map(|(name, _)| name))
                .help("Type of the matrices; norms and the router stay f32"),
        )
        .arg(Arg::new("force").long("force").action(ArgAction::SetTrue).help("Replace the file if there is one"))
        .after_help("Example:\n  strata pack mtp Qwen3.8-Flash-Next/ -o mtp.gguf");
    Command::new("pack")
        .about("Write what the engine needs beside a model file")
        .subcommand_required(true)
        .subcommand_value_name("VERB")
        .subcommand_help_heading("Verbs")
        .subcommand(mtp)
}

/// Packs.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let Some((_, matches)) = matches.subcommand() else { return Ok(()) };
    let path = |id: &str| matches.get_one::<PathBuf>(id).cloned().unwrap_or_default();
    let (source, target) = (path("source"), target(path("output"), matches.get_flag("force"))?);
    let name = matches.get_one::<String>("type").map(String::as_str);
    let ty = TYPES.iter().find(|(n, _)| Some(*n) == name).map_or(GgmlType::Q8_0, |(_, ty)| *ty);
    let layers = trunk_layers(&source)?;
    if layers.is_none() {
        output::note(
            "warning: no config.json beside the source, so the file does not say how many layers come before it",
        );
    }
    let tensors = SafeTensors::open(&source, "mtp.")?;
    let mut unfinished = target.clone().into_os_string();
    unfinished.push(".part");
    let taken = |file: &&PathBuf| is_same(file, &target) || is_same(file, Path::new(&unfinished));
    if let Some(file) = tensors.files().iter().chain([&source]).find(taken) {
        bail!("{} is what is to be packed; another name is needed for the output", show_path(file));
    }
    let writer = strata_model::pack_draft(&tensors, layers.unwrap_or(0), ty)?;
    let bar = load::byte_bar(writer.data_bytes());
    let written = writer.write_with(&target, &mut |bytes| bar.inc(bytes));
    bar.finish_and_clear();
    written?;
    let size = output::bytes(std::fs::metadata(&target).map_or(writer.data_bytes(), |m| m.len()));
    let behind = layers.map_or_else(String::new, |n| format!(", for a model of {}", output::count(n, "layer")));
    output::emit(&format!("{}: the draft layer as {ty}, {size}{behind}", show_path(&target)))
}

/// The file to write: where a link leads, and nothing but a regular file that may be replaced.
fn target(path: PathBuf, force: bool) -> Result<PathBuf> {
    let Ok(found) = path.symlink_metadata() else { return Ok(path) };
    let shown = show_path(&path);
    let path = match found.is_symlink() {
        true => path.canonicalize().with_context(|| format!("{shown} is a link that leads nowhere"))?,
        false => path,
    };
    if !path.is_file() {
        bail!("{shown} is not a regular file, so it is not replaced");
    }
    if !force {
        bail!("{shown} exists already; --force replaces it");
    }
    Ok(path)
}

/// Whether two paths lead to one file that is there.
fn is_same(a: &Path, b: &Path) -> bool {
    a.canonicalize().ok().zip(b.canonicalize().ok()).is_some_and(|(a, b)| a == b)
}

/// Layers of the model by the `config.json` of the source's folder; `None` when there is no such file.
fn trunk_layers(source: &Path) -> Result<Option<usize>> {
    let path = if source.is_dir() { source.join("config.json") } else { source.with_file_name("config.json") };
    if !path.is_file() {
        return Ok(None);
    }
    let shown = show_path(&path);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {shown}"))?;
    let json: serde_json::Value = serde_json::from_str(&text).with_context(|| format!("{shown} is not JSON"))?;
    // Models that see images keep the language model's part apart.
    let of = json.get("text_config").unwrap_or(&json);
    let layers = of.get("num_hidden_layers").and_then(serde_json::Value::as_u64).filter(|n| (1..=65535).contains(n));
    let layers = layers.with_context(|| format!("{shown}: no num_hidden_layers, expected a number from 1 to 65535"))?;
    Ok(Some(layers as usize))
}
