//! What a knob is: its names, the values it takes, and how text becomes a value.

use crate::error::{ConfigError, quoted};
use std::fmt;
use std::path::PathBuf;

/// A setting of the engine. One definition gives the flag, the TOML key, the environment variable, the help text and,
/// for the laboratory, an axis to sweep.
#[derive(Debug)]
pub struct Knob {
    /// The TOML key, `section.name`.
    pub key: &'static str,
    /// The long flag, without its dashes.
    pub flag: &'static str,
    /// The short flag, if it has one.
    pub short: Option<char>,
    /// The environment variable.
    pub env: &'static str,
    /// The values it takes.
    pub kind: Kind,
    /// What the number counts, such as `tokens`; empty when it is a plain number or no number.
    pub unit: &'static str,
    /// One line of help, no full stop.
    pub help: &'static str,
    /// More help, for `--help` and the manual; empty when the line says it all.
    pub long_help: &'static str,
    /// What happens when nothing sets it, for knobs that may stay unset. `None`: it has a default in `defaults.toml`.
    pub unset: Option<&'static str>,
    /// The metadata key under which a model file suggests a value.
    pub model_key: Option<&'static str>,
    /// Its value is nobody's business: it is not printed and not recorded.
    pub secret: bool,
    /// The verbs that show it as a flag.
    pub verbs: &'static [Verb],
}

/// The word for a number that is found by the program.
const AUTO: &str = "auto";

/// A verb of the binary that takes knobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// `strata run`
    Run,
    /// `strata serve`
    Serve,
    /// `strata bench`
    Bench,
}

/// The values a knob takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// A whole number within bounds, both included.
    Int {
        /// The smallest value.
        min: u64,
        /// The largest value.
        max: u64,
    },
    /// A whole number within bounds, both included, or `auto`.
    IntOrAuto {
        /// The smallest value.
        min: u64,
        /// The largest value.
        max: u64,
    },
    /// A finite number within bounds, both included.
    Float {
        /// The smallest value.
        min: f64,
        /// The largest value.
        max: f64,
    },
    /// Yes or no. On the command line `--name` and `--no-name`.
    Bool,
    /// Any text.
    Text,
    /// A file or folder.
    Path,
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// Bytes: a number, alone or with a unit such as `GiB` or `GB`.
    Bytes,
    /// What computes: `auto`, `cpu`, `cuda` or `cuda:N`.
    Device,
}

/// A value of a knob, checked against the knob's kind.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(untagged)]
pub enum Value {
    /// Of a [`Kind::Int`], [`Kind::IntOrAuto`] or [`Kind::Bytes`].
    Int(u64),
    /// Of a [`Kind::Float`].
    Float(f64),
    /// Of a [`Kind::Bool`].
    Bool(bool),
    /// Of a [`Kind::Text`], [`Kind::Choice`] or [`Kind::Device`], or the `auto` of a [`Kind::IntOrAuto`].
    Text(String),
    /// Of a [`Kind::Path`].
    Path(PathBuf),
}

impl Knob {
    /// The value that `text` stands for.
    ///
    /// ```
    /// let knob = strata_config::find("sampling.top_k").unwrap();
    /// assert_eq!(knob.parse("20").unwrap(), strata_config::Value::Int(20));
    /// let error = knob.parse("many").unwrap_err().to_string();
    /// assert_eq!(error, r#"sampling.top_k is "many", expected a whole number from 0 to 1000000"#);
    /// ```
    pub fn parse(&self, text: &str) -> Result<Value, ConfigError> {
        let word = text.trim();
        let value = match self.kind {
            Kind::Int { min, max } => word.parse().ok().filter(|v| (min..=max).contains(v)).map(Value::Int),
            Kind::IntOrAuto { .. } if word.eq_ignore_ascii_case(AUTO) => Some(Value::Text(AUTO.into())),
            Kind::IntOrAuto { min, max } => word.parse().ok().filter(|v| (min..=max).contains(v)).map(Value::Int),
            Kind::Float { min, max } => {
                // A NaN is in no range, and an infinity in none of ours.
                word.parse().ok().filter(|v| (min..=max).contains(v)).map(Value::Float)
            }
            Kind::Bool => parse_bool(word).map(Value::Bool),
            Kind::Text => Some(Value::Text(text.into())),
            Kind::Path => (!text.is_empty()).then(|| Value::Path(text.into())),
            Kind::Choice(words) => {
                words.iter().find(|w| w.eq_ignore_ascii_case(word)).map(|w| Value::Text((*w).into()))
            }
            Kind::Bytes => parse_bytes(word).map(Value::Int),
            Kind::Device => parse_device(word).map(Value::Text),
        };
        value.ok_or_else(|| self.refuse(quoted(text)))
    }

    /// The error that this knob does not take what was found.
    pub(crate) fn refuse(&self, found: String) -> ConfigError {
        ConfigError::Value { name: self.key.into(), found, expected: self.kind.to_string() }
    }

    /// [`Knob::parse`] with the flag's name in the error.
    pub fn parse_flag(&self, text: &str) -> Result<Value, ConfigError> {
        self.parse(text).map_err(|e| e.named(&format!("--{}", self.flag)))
    }

    /// The first part of the key, under which knobs are grouped in files and help.
    pub fn section(&self) -> &'static str {
        self.key.split_once('.').map_or("", |(section, _)| section)
    }

    /// The second part of the key.
    pub fn name(&self) -> &'static str {
        self.key.split_once('.').map_or(self.key, |(_, name)| name)
    }

    /// What stands for the value in help: `<TOKENS>`, `<X>`, `<TEXT>`.
    pub fn placeholder(&self) -> String {
        match self.kind {
            Kind::Int { .. } if self.unit.is_empty() => "N".into(),
            Kind::Float { .. } if self.unit.is_empty() => "X".into(),
            Kind::Int { .. } | Kind::Float { .. } => self.unit.to_uppercase(),
            Kind::Bool => "BOOL".into(),
            Kind::Text => "TEXT".into(),
            Kind::Path => "PATH".into(),
            Kind::IntOrAuto { .. } => "auto|N".into(),
            Kind::Choice(words) => words.join("|"),
            Kind::Bytes => "BYTES".into(),
            Kind::Device => "auto|cpu|cuda[:N]".into(),
        }
    }
}

/// Bytes as people write them: `12GiB`, `1.5 GB`, `4096`. At least one, and fewer than 2^60.
fn parse_bytes(word: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 9] = [
        ("kib", 1 << 10),
        ("mib", 1 << 20),
        ("gib", 1 << 30),
        ("tib", 1 << 40),
        ("kb", 1_000),
        ("mb", 1_000_000),
        ("gb", 1_000_000_000),
        ("tb", 1_000_000_000_000),
        ("b", 1),
    ];
    let lower = word.to_ascii_lowercase();
    let found = UNITS.iter().find_map(|(unit, size)| Some((lower.strip_suffix(unit)?, *size)));
    let (number, size) = found.unwrap_or((&lower, 1));
    let number = number.trim();
    // Digits and one point alone: a float would also be `1e9`, `inf` or `-1`.
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return None;
    }
    let bytes = match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(size)?,
        Err(_) => (number.parse::<f64>().ok()? * size as f64) as u64,
    };
    (1..1 << 60).contains(&bytes).then_some(bytes)
}

/// A device in small letters, if it is one.
fn parse_device(word: &str) -> Option<String> {
    let word = word.to_ascii_lowercase();
    let number = |text: &str| text.len() <= 3 && text.parse::<u16>().is_ok() && !text.starts_with('+');
    let known = matches!(word.as_str(), "auto" | "cpu" | "cuda") || word.strip_prefix("cuda:").is_some_and(number);
    known.then_some(word)
}

/// The words people write for yes and no in variables and files.
fn parse_bool(word: &str) -> Option<bool> {
    let is = |words: &[&str]| words.iter().any(|w| w.eq_ignore_ascii_case(word));
    if is(&["true", "yes", "on", "1"]) {
        Some(true)
    } else if is(&["false", "no", "off", "0"]) {
        Some(false)
    } else {
        None
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Int { min, max: u64::MAX } => write!(f, "a whole number, at least {min} and below 2^64"),
            Kind::Int { min, max } => write!(f, "a whole number from {min} to {max}"),
            Kind::IntOrAuto { min, max } => write!(f, "auto or a whole number from {min} to {max}"),
            Kind::Float { min, max } => write!(f, "a number from {min} to {max}"),
            Kind::Bool => f.write_str("true or false"),
            Kind::Text => f.write_str("text"),
            Kind::Path => f.write_str("a path"),
            Kind::Choice(words) => write!(f, "one of {}", words.join(", ")),
            Kind::Bytes => f.write_str("a number of bytes, such as 12GiB or 800MB"),
            Kind::Device => f.write_str("auto, cpu, cuda or cuda:N with the number of a GPU"),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Int(v) => write!(f, "{v}"),
            Value::Float(v) => write!(f, "{v}"),
            Value::Bool(v) => write!(f, "{v}"),
            Value::Text(v) => f.write_str(v),
            Value::Path(v) => write!(f, "{}", v.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knob(kind: Kind) -> Knob {
        Knob {
            key: "part.name",
            flag: "name",
            short: None,
            env: "STRATA_NAME",
            kind,
            unit: "",
            help: "",
            long_help: "",
            unset: None,
            model_key: None,
            secret: false,
            verbs: &[],
        }
    }

    #[test]
    fn ranges_include_their_ends_and_nothing_beyond() {
        let int = knob(Kind::Int { min: 1, max: 8 });
        assert_eq!(int.parse("1"), Ok(Value::Int(1)));
        assert_eq!(int.parse(" 8 "), Ok(Value::Int(8)));
        for bad in ["0", "9", "-1", "1.5", "", "x", "99999999999999999999"] {
            let e = int.parse(bad).unwrap_err().to_string();
            assert_eq!(e, format!("part.name is \"{bad}\", expected a whole number from 1 to 8"));
        }
        let float = knob(Kind::Float { min: -2.0, max: 2.0 });
        assert_eq!(float.parse("-2"), Ok(Value::Float(-2.0)));
        assert_eq!(float.parse("1e-1"), Ok(Value::Float(0.1)));
        for bad in ["2.01", "nan", "inf", "-inf", "1,5"] {
            assert!(float.parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_number_may_be_left_to_the_program() {
        let spec = knob(Kind::IntOrAuto { min: 0, max: 15 });
        assert_eq!(spec.parse("AUTO"), Ok(Value::Text("auto".into())));
        assert_eq!(spec.parse("15"), Ok(Value::Int(15)));
        for bad in ["16", "-1", "", "some"] {
            let e = spec.parse(bad).unwrap_err().to_string();
            assert_eq!(e, format!("part.name is \"{bad}\", expected auto or a whole number from 0 to 15"));
        }
    }

    #[test]
    fn words() {
        let bool = knob(Kind::Bool);
        assert_eq!(bool.parse("Yes"), Ok(Value::Bool(true)));
        assert_eq!(bool.parse("0"), Ok(Value::Bool(false)));
        assert_eq!(bool.parse("2").unwrap_err().to_string(), "part.name is \"2\", expected true or false");
        let choice = knob(Kind::Choice(&["lru", "lfu"]));
        assert_eq!(choice.parse("LRU"), Ok(Value::Text("lru".into())));
        assert_eq!(choice.parse("x").unwrap_err().to_string(), "part.name is \"x\", expected one of lru, lfu");
        assert_eq!(knob(Kind::Text).parse(" a "), Ok(Value::Text(" a ".into())));
        assert!(knob(Kind::Path).parse("").is_err());
    }

    #[test]
    fn bytes_have_units() {
        let bytes = knob(Kind::Bytes);
        for (text, want) in [
            ("12GiB", 12 << 30),
            ("1.5 GB", 1_500_000_000),
            ("4096", 4096),
            ("8 kib", 8192),
            ("7b", 7),
            ("2TB", 2_000_000_000_000),
        ] {
            assert_eq!(bytes.parse(text), Ok(Value::Int(want)), "{text}");
        }
        for bad in ["", "0", "GiB", "-1", "1e9", "inf", "12 Gi", "1.2.3GB", "99999999999TB", "0.0001B"] {
            let e = bytes.parse(bad).unwrap_err().to_string();
            assert_eq!(e, format!("part.name is \"{bad}\", expected a number of bytes, such as 12GiB or 800MB"));
        }
    }

    #[test]
    fn devices() {
        let device = knob(Kind::Device);
        for good in ["auto", "cpu", "cuda", "cuda:0", "cuda:12"] {
            assert_eq!(device.parse(good), Ok(Value::Text(good.into())));
        }
        assert_eq!(device.parse("CUDA:1"), Ok(Value::Text("cuda:1".into())));
        for bad in ["gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:+1", "cuda:1000", ""] {
            assert!(device.parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_was_found_is_shown_safely() {
        let e = knob(Kind::Bool).parse(&"\u{1b}[31m".repeat(40)).unwrap_err().to_string();
        assert!(!e.contains('\u{1b}') && e.len() < 400, "{e}");
    }
}
