//! Flags made from the registry of settings, and settings made from flags.

use crate::builtin;
use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::path::{Path, PathBuf};
use strata_config::{ConfigError, KNOBS, Kind, Knob, Layer, Origin, Settings, Verb};
use strata_gguf::{Gguf, Value};

/// Read from the working folder when `--config` names no other file.
pub(crate) const CONFIG_FILE: &str = "strata.toml";

/// Names a file of settings like `--config`, which wins.
const CONFIG_VARIABLE: &str = "STRATA_CONFIG";

/// What `--help` says below the flags of settings.
pub(crate) const SETTINGS_HELP: &str = "\
Settings can also stand in a file or in a variable: --top-k 20 is `top_k = 20` under [sampling]
in strata.toml, or STRATA_TOP_K=20. Flags win over variables, these over the file, the file over
what the model itself suggests, and that over the defaults. `strata config show` prints what holds
and why.";

/// Adds the flags of all settings that `verb` shows, and `--config`.
pub(crate) fn add(command: Command, verb: Verb) -> Command {
    add_these(command, strata_config::shown_by(verb))
}

/// Adds the flags of these settings, and `--config`.
pub(crate) fn add_these(command: Command, knobs: impl IntoIterator<Item = &'static Knob>) -> Command {
    let defaults = Layer::defaults().ok();
    knobs.into_iter().fold(command.arg(config()), |command, knob| {
        let default = defaults.as_ref().and_then(|d| d.get(knob)).map(ToString::to_string);
        command.args(flags_of(knob, default.as_deref().or(knob.unset).unwrap_or_default()))
    })
}

/// `--config PATH`
pub(crate) fn config() -> Arg {
    Arg::new("config").long("config").value_name("PATH").value_parser(value_parser!(PathBuf)).help(format!(
        "File of settings [default: {CONFIG_FILE} in the working folder, if there is one; or STRATA_CONFIG]"
    ))
}

/// One flag, or two for yes and no.
pub(crate) fn flags_of(knob: &'static Knob, default: &str) -> Vec<Arg> {
    let heading = match knob.section() {
        "engine" => "Engine",
        "experts" => "Experts",
        "cache" => "Conversation cache",
        "speculation" => "Speculation",
        "sampling" => "Sampling",
        "chat" => "Conversation",
        "server" => "Server",
        other => other,
    };
    let help = format!("{} [default: {default}]", knob.help);
    let long = if knob.long_help.is_empty() { help.clone() } else { format!("{help}\n\n{}", knob.long_help) };
    let flag = Arg::new(knob.key).long(knob.flag).help_heading(heading).help(help).long_help(long);
    let flag = if let Some(short) = knob.short { flag.short(short) } else { flag };
    if knob.kind == Kind::Path {
        return vec![flag.value_name(knob.placeholder()).value_parser(value_parser!(PathBuf))];
    }
    if knob.kind != Kind::Bool {
        // Penalties may be negative, and others say what they take; a number never looks like a flag.
        let signed = matches!(knob.kind, Kind::Int { .. } | Kind::IntOrAuto { .. } | Kind::Float { .. });
        return vec![flag.value_name(knob.placeholder()).allow_negative_numbers(signed)];
    }
    let no = Arg::new(no_id(knob))
        .long(format!("no-{}", knob.flag))
        .action(ArgAction::SetTrue)
        .overrides_with(knob.key)
        .help_heading(heading)
        .help(format!("The opposite of --{}", knob.flag));
    vec![flag.action(ArgAction::SetTrue).overrides_with(no_id(knob)), no]
}

fn no_id(knob: &Knob) -> String {
    format!("no {}", knob.key)
}

/// The values that flags give.
pub(crate) fn layer(matches: &ArgMatches) -> Result<Layer, ConfigError> {
    let mut layer = Layer::empty(Origin::Flag);
    for knob in KNOBS {
        if let Some(path) = matches.try_get_one::<PathBuf>(knob.key).ok().flatten() {
            if path.as_os_str().is_empty() {
                knob.parse_flag("")?;
            }
            layer.set(knob, strata_config::Value::Path(path.clone()));
            continue;
        }
        let set = |id: &str| matches.try_get_one::<bool>(id).ok().flatten().is_some_and(|v| *v);
        let text = if knob.kind == Kind::Bool {
            if set(knob.key) {
                Some("true")
            } else if set(&no_id(knob)) {
                Some("false")
            } else {
                None
            }
        } else {
            // A verb without this flag has no value for it.
            matches.try_get_one::<String>(knob.key).ok().flatten().map(String::as_str)
        };
        if let Some(text) = text {
            layer.set(knob, knob.parse_flag(text)?);
        }
    }
    Ok(layer)
}

/// The settings that hold: the flags in `matches`, the environment, the file of `--config`, and what `model` suggests.
pub(crate) fn settings(matches: &ArgMatches, model: Option<&Gguf>) -> Result<Settings, ConfigError> {
    let flag = matches.try_get_one::<PathBuf>("config").ok().flatten().cloned();
    let variable = || std::env::var_os(CONFIG_VARIABLE).filter(|v| !v.is_empty()).map(PathBuf::from);
    let file = match flag.or_else(variable) {
        Some(path) => Layer::from_file(&path)?,
        // A link that leads nowhere is there too, and worth a word.
        None if Path::new(CONFIG_FILE).symlink_metadata().is_ok() => Layer::from_file(Path::new(CONFIG_FILE))?,
        None => Layer::empty(Origin::File(CONFIG_FILE.into())),
    };
    let mut suggested = Layer::from_model(|key| number_as_text(model?.meta().get(key)?));
    if let Some(model) = model {
        builtin::suggest(model, &mut suggested);
    }
    Settings::resolve(layer(matches)?, Layer::from_env(std::env::vars_os())?, file, suggested)
}

/// A metadata number in its shortest form: an f32 of 0.6 is the text `0.6`, not its expansion in f64.
fn number_as_text(value: &Value) -> Option<String> {
    match value {
        Value::I8(v) => Some(v.to_string()),
        Value::I16(v) => Some(v.to_string()),
        Value::I32(v) => Some(v.to_string()),
        Value::I64(v) => Some(v.to_string()),
        Value::F32(v) => Some(v.to_string()),
        Value::F64(v) => Some(v.to_string()),
        // A number in quotes is taken; anything else is passed over with a line.
        Value::String(v) => Some(v.clone()),
        other => other.as_u64().map(|v| v.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_config::registry::{PRESENCE_PENALTY, TEMP, THINK};
    use strata_gguf::Writer;

    fn parse(args: &[&str]) -> Result<Layer, ConfigError> {
        let command = add(Command::new("x").no_binary_name(true), Verb::Run);
        layer(&command.try_get_matches_from(args).unwrap())
    }

    #[test]
    fn flags_give_values() {
        let layer = parse(&["--temp", "0.5", "--presence-penalty", "-1.5"]).unwrap();
        assert_eq!(layer.get(&TEMP), Some(&strata_config::Value::Float(0.5)));
        assert_eq!(layer.get(&PRESENCE_PENALTY), Some(&strata_config::Value::Float(-1.5)));
        assert_eq!(layer.get(&THINK), None);
        assert_eq!(
            parse(&["--temp", "hot"]).unwrap_err().to_string(),
            "--temp is \"hot\", expected a number from 0 to 10"
        );
    }

    #[test]
    fn the_last_of_yes_and_no_wins() {
        for (args, want) in [
            (&["--think"][..], true),
            (&["--no-think"], false),
            (&["--think", "--no-think"], false),
            (&["--no-think", "--think"], true),
        ] {
            assert_eq!(parse(args).unwrap().get(&THINK), Some(&strata_config::Value::Bool(want)), "{args:?}");
        }
    }

    #[test]
    fn a_model_suggests() {
        let mut writer = Writer::new();
        writer.meta("general.sampling.temp", Value::F32(0.6)).unwrap();
        let gguf = Gguf::from_bytes("x", writer.to_bytes().unwrap()).unwrap();
        let command = add(Command::new("x").no_binary_name(true), Verb::Run);
        let matches = command.try_get_matches_from(Vec::<&str>::new()).unwrap();
        let settings = settings(&matches, Some(&gguf)).unwrap();
        assert_eq!(settings.get(&TEMP), Some(&strata_config::Value::Float(0.6)));
        assert_eq!(settings.origin(&TEMP), Some(&Origin::Model));
    }
}
