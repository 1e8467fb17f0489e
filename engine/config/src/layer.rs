//! Layers: the values that one source gives, before sources are weighed against each other.

use crate::error::{ConfigError, quoted};
use crate::knob::{Kind, Knob, Value};
use crate::nearest::{nearest, nearest_key};
use crate::registry;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// Where a value came from. Earlier ones win over later ones.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A flag on the command line.
    Flag,
    /// A `STRATA_` environment variable.
    Env,
    /// A configuration file, as the user named it.
    File(String),
    /// The model file's own suggestion.
    Model,
    /// `defaults.toml`, built into the engine.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Flag => f.write_str("flag"),
            Origin::Env => f.write_str("environment"),
            Origin::File(name) => f.write_str(name),
            Origin::Model => f.write_str("model"),
            Origin::Default => f.write_str("default"),
        }
    }
}

/// Bytes of the largest file of settings that is read.
const LARGEST_FILE: u64 = 1 << 20;

/// The text of a regular file of at most `largest` bytes, some MiB.
pub(crate) fn read_small(path: &Path, largest: u64) -> Result<String, ConfigError> {
    let read = || -> std::io::Result<String> {
        use std::io::Read;
        // A pipe would make the program wait, a device never end.
        if !std::fs::metadata(path)?.is_file() {
            return Err(std::io::Error::other("not a regular file"));
        }
        let mut text = String::new();
        std::fs::File::open(path)?.take(largest + 1).read_to_string(&mut text)?;
        if text.len() as u64 > largest {
            let what = format!("larger than {} MiB, which no file of settings is", largest >> 20);
            return Err(std::io::Error::other(what));
        }
        Ok(text)
    };
    read().map_err(|e| ConfigError::Read { path: path.into(), reason: e.to_string() })
}

/// The values that one source gives.
#[derive(Debug, Clone)]
pub struct Layer {
    origin: Origin,
    values: BTreeMap<&'static str, Value>,
    /// Of the defaults: the results that chose them.
    results: BTreeMap<&'static str, String>,
    warnings: Vec<String>,
}

/// The section of `defaults.toml` that names the results which chose values.
const RESULTS: &str = "results";

impl Layer {
    /// A source that gives nothing yet.
    pub fn empty(origin: Origin) -> Layer {
        Layer { origin, values: BTreeMap::new(), results: BTreeMap::new(), warnings: Vec::new() }
    }

    /// The result that chose the value this source gives to a knob: a folder below `results/`. Only defaults have any.
    pub fn result(&self, knob: &Knob) -> Option<&str> {
        self.results.get(knob.key).map(String::as_str)
    }

    /// Gives a knob a value that [`Knob::parse`] returned; a second value replaces the first.
    pub fn set(&mut self, knob: &'static Knob, value: Value) {
        self.values.insert(knob.key, value);
    }

    /// The value this source gives to a knob.
    pub fn get(&self, knob: &Knob) -> Option<&Value> {
        self.values.get(knob.key)
    }

    /// The source.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Sentences about what this source gives that no knob takes, without being wrong enough to stop.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The environment's layer. A variable that is set to nothing counts as not set. A `STRATA_` variable that is no
    /// knob's but nearly so gives a warning; others belong to someone else and are left alone.
    pub fn from_env(vars: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Layer, ConfigError> {
        let mut layer = Layer::empty(Origin::Env);
        for (name, value) in vars {
            let Some((name, short)) = name.to_str().and_then(|n| Some((n, n.strip_prefix("STRATA_")?))) else {
                continue;
            };
            if value.is_empty() {
                continue;
            }
            let Some(knob) = registry::KNOBS.iter().find(|k| k.env == name) else {
                let known = registry::KNOBS.iter().filter_map(|k| k.env.strip_prefix("STRATA_"));
                if let Some(near) = nearest(short, known) {
                    layer.warnings.push(format!("{} is not a setting; did you mean STRATA_{near}?", quoted(name)));
                }
                continue;
            };
            let parsed = match value.to_str() {
                Some(text) => knob.parse(text),
                None if knob.kind == Kind::Path => Ok(Value::Path(value.into())),
                None => Err(knob.refuse(format!("{}, which is not UTF-8", quoted(&value.to_string_lossy())))),
            };
            layer.set(knob, parsed.map_err(|e| e.named(knob.env))?);
        }
        layer.warnings.sort();
        Ok(layer)
    }

    /// The layer of what a model file suggests. `lookup` gives the metadata value under a key as text. A suggestion
    /// that its knob cannot take is passed over with a warning: the file still runs.
    pub fn from_model(lookup: impl Fn(&str) -> Option<String>) -> Layer {
        let mut layer = Layer::empty(Origin::Model);
        for knob in registry::KNOBS {
            let Some((key, text)) = knob.model_key.and_then(|key| Some((key, lookup(key)?))) else { continue };
            match knob.parse(&text) {
                Ok(value) => layer.set(knob, value),
                Err(e) => layer.warnings.push(format!("the model file's suggestion is passed over: {}", e.named(key))),
            }
        }
        layer
    }

    /// The layer of a configuration file.
    pub fn from_file(path: &Path) -> Result<Layer, ConfigError> {
        let text = read_small(path, LARGEST_FILE)?;
        Layer::from_toml(&path.display().to_string(), &text)
    }

    /// The layer of a configuration file's text. A key that is no knob's is refused, with the nearest that is.
    pub fn from_toml(file: &str, text: &str) -> Result<Layer, ConfigError> {
        Layer::read(Origin::File(file.into()), file, text)
    }

    /// The defaults may say which results chose them.
    fn read(origin: Origin, file: &str, text: &str) -> Result<Layer, ConfigError> {
        let mut layer = Layer::empty(origin);
        let line = |at: usize| text.get(..at).map_or(1, |before| before.matches('\n').count() + 1);
        let table = DeTable::parse(text).map_err(|e| ConfigError::Syntax {
            file: file.into(),
            place: e.span().map_or_else(String::new, |s| format!(" line {}", line(s.start))),
            reason: e.message().trim_end_matches('.').replace('\n', " "),
        })?;
        for (section, entry) in table.get_ref() {
            let place = |at: usize, key: &str| format!("{file} line {}: {key}", line(at));
            let unknown = |at: usize, key: &str| ConfigError::Unknown {
                name: place(at, &key.escape_debug().to_string()),
                hint: nearest_key(key).map_or_else(String::new, |near| format!("; did you mean {near}?")),
            };
            let at = section.span().start;
            let section = section.get_ref();
            let Some(knobs) = entry.get_ref().as_table() else {
                let known = registry::KNOBS.iter().any(|k| k.section() == section);
                let table = |name| ConfigError::Value {
                    name,
                    found: "no table".into(),
                    expected: format!("a table, [{section}], with settings below it"),
                };
                return Err(if known { table(place(at, section)) } else { unknown(at, section) });
            };
            if knobs.is_empty() && !registry::KNOBS.iter().any(|k| k.section() == section) {
                return Err(unknown(at, section));
            }
            for (name, value) in knobs {
                let key = format!("{section}.{}", name.get_ref());
                let at = name.span().start;
                if section == RESULTS && layer.origin == Origin::Default {
                    let knob = registry::find(name.get_ref()).ok_or_else(|| unknown(at, name.get_ref()))?;
                    let result = value.get_ref().as_str().unwrap_or_default();
                    layer.results.insert(knob.key, result.into());
                    continue;
                }
                let knob = registry::find(&key).ok_or_else(|| unknown(at, &key))?;
                let value = from_toml_value(knob, value.get_ref()).map_err(|e| e.named(&place(at, &key)))?;
                layer.set(knob, value);
            }
        }
        Ok(layer)
    }

    /// The built-in defaults.
    pub fn defaults() -> Result<Layer, ConfigError> {
        Layer::defaults_of(include_str!("../defaults.toml"))
    }

    /// The defaults that a `defaults.toml` of this text gives. Its table `[results]` may name the results that chose
    /// values: the knob's key, and a folder below `results/`.
    pub fn defaults_of(text: &str) -> Result<Layer, ConfigError> {
        Layer::read(Origin::Default, "defaults.toml", text)
    }
}

/// A TOML value as a knob's value. The TOML type must fit: a quoted number is a mistake more often than a number.
fn from_toml_value(knob: &Knob, value: &DeValue<'_>) -> Result<Value, ConfigError> {
    match (value, knob.kind) {
        (DeValue::Integer(v), Kind::Int { .. } | Kind::IntOrAuto { .. } | Kind::Float { .. } | Kind::Bytes)
            if v.radix() == 10 =>
        {
            knob.parse(v.as_str())
        }
        (DeValue::Integer(v), Kind::Int { .. } | Kind::IntOrAuto { .. } | Kind::Float { .. } | Kind::Bytes) => {
            match u64::from_str_radix(v.as_str(), v.radix()) {
                Ok(number) => knob.parse(&number.to_string()),
                Err(_) => Err(knob.refuse(v.as_str().into())),
            }
        }
        (DeValue::Float(v), Kind::Int { .. } | Kind::Float { .. }) => knob.parse(v.as_str()),
        (DeValue::Boolean(v), Kind::Bool) => Ok(Value::Bool(*v)),
        (
            DeValue::String(v),
            Kind::Text | Kind::Path | Kind::Choice(_) | Kind::IntOrAuto { .. } | Kind::Bytes | Kind::Device,
        ) => knob.parse(v),
        (DeValue::String(v), _) => Err(knob.refuse(format!("the text {}", quoted(v)))),
        (DeValue::Integer(v), _) => Err(knob.refuse(format!("the number {}", v.as_str()))),
        (DeValue::Float(v), _) => Err(knob.refuse(format!("the number {}", v.as_str()))),
        (DeValue::Boolean(v), _) => Err(knob.refuse(v.to_string())),
        (other, _) => Err(knob.refuse(format!("of TOML type {}", other.type_str()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::*;

    fn toml(text: &str) -> Result<Layer, String> {
        Layer::from_toml("strata.toml", text).map_err(|e| e.to_string())
    }

    #[test]
    fn a_file_is_read() {
        let text = "[engine]\nctx = 1_024\nthreads = 0x10\n[sampling]\ntemp = 1\ntop_p = 0.5\n\
                    seed = 18446744073709551615";
        let layer = toml(text).unwrap();
        assert_eq!(layer.get(&CTX), Some(&Value::Int(1024)));
        assert_eq!(layer.get(&THREADS), Some(&Value::Int(16)));
        assert_eq!(layer.get(&TEMP), Some(&Value::Float(1.0)));
        assert_eq!(layer.get(&TOP_P), Some(&Value::Float(0.5)));
        assert_eq!(layer.get(&SEED), Some(&Value::Int(u64::MAX)));
        assert_eq!(layer.get(&MIN_P), None);
        let layer = toml("chat.system = 'a\"b'\nchat.think = false").unwrap();
        assert_eq!(layer.get(&SYSTEM), Some(&Value::Text("a\"b".into())));
        assert_eq!(layer.get(&THINK), Some(&Value::Bool(false)));
    }

    #[test]
    fn what_is_wrong_in_a_file_is_said_with_its_line() {
        for (text, want) in [
            (
                "\n[sampling]\ntop_kk = 1",
                "strata.toml line 3: sampling.top_kk is not a setting; did you mean sampling.top_k?",
            ),
            ("top_k = 1", "strata.toml line 1: top_k is not a setting; did you mean sampling.top_k?"),
            ("[samplng]\ntemp = 1", "strata.toml line 2: samplng.temp is not a setting; did you mean sampling.temp?"),
            ("[engine]\ntemp = 1", "strata.toml line 2: engine.temp is not a setting; did you mean sampling.temp?"),
            (
                "[engine]\n'max-tokens' = 1",
                "strata.toml line 2: engine.max-tokens is not a setting; did you mean sampling.max_tokens?",
            ),
            ("[zzzzzzzz]", "strata.toml line 1: zzzzzzzz is not a setting"),
            ("[sampling]\ntemp = 11", "strata.toml line 2: sampling.temp is \"11\", expected a number from 0 to 10"),
            (
                "[sampling]\ntemp = '1'",
                "strata.toml line 2: sampling.temp is the text \"1\", expected a number from 0 to 10",
            ),
            (
                "[sampling]\ntop_k = -1",
                "strata.toml line 2: sampling.top_k is \"-1\", expected a whole number from 0 to 1000000",
            ),
            (
                "[sampling]\ntop_k = [1]",
                "strata.toml line 2: sampling.top_k is of TOML type array, expected a whole number from 0 to 1000000",
            ),
            ("[chat]\nthink = 1", "strata.toml line 2: chat.think is the number 1, expected true or false"),
            ("[chat]\nsystem = true", "strata.toml line 2: chat.system is true, expected text"),
        ] {
            assert_eq!(toml(text).unwrap_err(), want);
        }
        let twice = toml("[chat]\nthink = true\nthink = true").unwrap_err();
        assert!(twice.starts_with("strata.toml line 3: "), "{twice}");
        assert!(toml("[chat").unwrap_err().starts_with("strata.toml line 1: "));
        let gone = Layer::from_file(Path::new("/nowhere/strata.toml")).unwrap_err().to_string();
        assert!(gone.starts_with("cannot read /nowhere/strata.toml: "), "{gone}");
    }

    #[test]
    fn the_environment_is_read() {
        let env = |name: &str, value: &str| Layer::from_env([(name.into(), value.into())]);
        assert_eq!(env("STRATA_TOP_K", "7").unwrap().get(&TOP_K), Some(&Value::Int(7)));
        assert_eq!(env("STRATA_TOP_K", "").unwrap().get(&TOP_K), None);
        assert_eq!(
            env("STRATA_TOP_K", "x").unwrap_err().to_string(),
            "STRATA_TOP_K is \"x\", expected a whole number from 0 to 1000000"
        );
        assert_eq!(
            env("STRATA_TOPK", "7").unwrap().warnings(),
            ["\"STRATA_TOPK\" is not a setting; did you mean STRATA_TOP_K?"]
        );
        assert!(env("STRATA_SHARED", "/x").unwrap().warnings().is_empty());
        assert!(env("TOP_K", "x").unwrap().warnings().is_empty());
    }

    #[test]
    fn a_models_suggestions_are_read_and_odd_ones_passed_over() {
        let layer = Layer::from_model(|key| match key {
            "general.sampling.temp" => Some("0.6".into()),
            "general.sampling.penalty_last_n" => Some("-1".into()),
            _ => None,
        });
        assert_eq!(layer.get(&TEMP), Some(&Value::Float(0.6)));
        assert_eq!(layer.get(&REPEAT_LAST_N), None);
        assert_eq!(
            layer.warnings(),
            ["the model file's suggestion is passed over: general.sampling.penalty_last_n is \"-1\", \
              expected a whole number from 0 to 1048576"]
        );
    }

    #[test]
    fn the_defaults_name_the_results_that_chose_them_and_other_files_cannot() {
        let text = "[engine]\nctx = 1\n[results]\n\"engine.ctx\" = \"010-context\"";
        let layer = Layer::defaults_of(text).unwrap();
        assert_eq!((layer.result(&CTX), layer.result(&TEMP)), (Some("010-context"), None));
        let wrong = Layer::defaults_of(&text.replace("engine.ctx", "engine.ctxt")).unwrap_err();
        assert_eq!(wrong.to_string(), "defaults.toml line 4: engine.ctxt is not a setting; did you mean engine.ctx?");
        assert!(toml(text).unwrap_err().starts_with("strata.toml line 4: results.engine.ctx is not a setting"));
    }

    #[test]
    fn defaults_are_complete() {
        let defaults = Layer::defaults().unwrap();
        assert_eq!(defaults.origin(), &Origin::Default);
        for k in KNOBS {
            let has = defaults.get(k).is_some();
            assert_ne!(has, k.unset.is_some(), "{}: a default in defaults.toml, or words for its absence", k.key);
            assert!(has || defaults.result(k).is_none(), "{}: a result chose it, and it has no value", k.key);
        }
        // Each value stands under a comment that says where it comes from.
        let mut above = "";
        for line in include_str!("../defaults.toml").lines() {
            if line.contains('=') && !line.starts_with(['#', '"']) {
                assert!(above.starts_with("# "), "{line}");
            }
            above = line;
        }
    }
}
