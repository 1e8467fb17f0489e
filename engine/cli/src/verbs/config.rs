//! `strata config show`: the settings that hold.

use crate::{builtin, flags, output};
use anyhow::Result;
use clap::{ArgMatches, Command};
use strata_config::{Origin, Settings, Value, registry::MODEL};
use strata_gguf::show_text;

const MODEL_HELP: &str = "Count in what this model file suggests [default: nano, built in]";

/// The verb's part of the command line.
pub(crate) fn command() -> Command {
    let show = Command::new("show")
        .about("Print every setting, its value and where that comes from")
        .long_about(
            "Print every setting, its value and where that comes from.\n\nThe output is itself a file of settings: save it \
             under another name, change what you like, and name it with --config or as strata.toml. What nothing sets is a \
             comment.",
        )
        .arg(flags::config())
        .args(flags::flags_of(&MODEL, "").into_iter().map(|f| f.help(MODEL_HELP).long_help(MODEL_HELP)));
    Command::new("config")
        .about("Show the settings")
        .subcommand_required(true)
        .subcommand_value_name("VERB")
        .subcommand_help_heading("Verbs")
        .subcommand(show)
}

/// Prints the settings.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let Some((_, matches)) = matches.subcommand() else { return Ok(()) };
    let settings = flags::settings(matches, None)?;
    let model = builtin::open_model(settings.engine.model.as_deref())?;
    let settings = flags::settings(matches, Some(&model))?;
    settings.warnings().iter().for_each(|w| output::note(&format!("warning: {w}")));
    output::emit(&as_toml(&settings, builtin::is_nano(&model)))
}

/// The settings as TOML, the origin of each in a comment. What suggests something about `nano` is not its file.
fn as_toml(settings: &Settings, nano: bool) -> String {
    let line = |(knob, value): (&'static strata_config::Knob, Option<(&Value, &Origin)>)| match value {
        Some((_, origin)) if knob.secret => (format!("# {} = (not shown)", knob.name()), origin.to_string()),
        // A default that is written down as a value would outrank what a model file suggests.
        Some((value, origin @ (Origin::Default | Origin::Model))) => {
            let why = if nano && *origin == Origin::Model { builtin::suggestion(knob) } else { None };
            let why = why.map_or_else(|| origin.to_string(), |why| format!("{origin}: {why}"));
            (format!("# {} = {}", knob.name(), literal(value)), why)
        }
        Some((value, origin)) => (format!("{} = {}", knob.name(), literal(value)), origin.to_string()),
        None => (format!("# {} =", knob.name()), format!("not set: {}", knob.unset.unwrap_or_default())),
    };
    let lines: Vec<(&str, (String, String))> = settings.iter().map(|(k, v)| (k.section(), line((k, v)))).collect();
    let width = lines.iter().map(|(_, (text, _))| text.chars().count()).max().unwrap_or(0).min(40);
    let (mut out, mut last) = (String::new(), "");
    for (section, (text, origin)) in lines {
        if section != last {
            let gap = if last.is_empty() { "" } else { "\n" };
            out.push_str(&format!("{gap}[{section}]\n"));
            last = section;
        }
        out.push_str(&format!("{text:width$}  # {}\n", show_text(&origin)));
    }
    out
}

/// A value as TOML writes it.
fn literal(value: &Value) -> String {
    match value {
        Value::Int(v) => v.to_string(),
        // Debug writes whole numbers with their `.0`, by which TOML knows a float.
        Value::Float(v) => format!("{v:?}"),
        Value::Bool(v) => v.to_string(),
        Value::Text(v) => quoted(v),
        Value::Path(v) => quoted(&v.to_string_lossy()),
    }
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
