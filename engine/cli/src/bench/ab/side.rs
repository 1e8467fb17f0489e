//! What one side of a comparison runs.

use crate::bench::model::Kind;
use crate::bench::values;
use anyhow::{Context, Result};
use serde::Serialize;
use std::path::PathBuf;
use strata_config::ConfigError;

/// Flags that a comparison sets itself.
const OURS: [&str; 4] = ["--repetitions", "--skip", "--json", "--out"];

/// A strata binary and what it is to measure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Side {
    /// `A` or `B`.
    #[serde(skip)]
    pub(crate) name: &'static str,
    /// What the user wrote.
    pub(crate) text: String,
    /// The program.
    pub(crate) binary: PathBuf,
    #[serde(skip)]
    pub(crate) kind: Kind,
    /// What follows `bench decode` or `bench prefill`.
    pub(crate) arguments: Vec<String>,
}

impl Side {
    /// Takes `[BINARY] [bench] decode|prefill [ARGUMENT]...` apart.
    ///
    /// # Errors
    /// It is something else, names a file that is not there, or sets what the comparison sets.
    pub(crate) fn parse(name: &'static str, text: &str) -> Result<Side> {
        let refuse = |found: &str, expected: &str| ConfigError::value(name, found, expected);
        let words = values::words(text).ok_or_else(|| refuse(text, "text whose quotes are closed"))?;
        let mut rest = words.as_slice();
        let mut binary = None;
        let verb = |word: &String| word == "bench" || Kind::from_name(word).is_some();
        if let Some((first, after)) = rest.split_first().filter(|(first, _)| !verb(first)) {
            let path = PathBuf::from(first);
            if !path.is_file() {
                let expected = "decode or prefill with their flags, or before them the path of a strata binary";
                return Err(refuse(text, expected).into());
            }
            binary = Some(path);
            rest = after;
        }
        if let Some((_, after)) = rest.split_first().filter(|(first, _)| *first == "bench") {
            rest = after;
        }
        let kind = rest.first().and_then(|word| Kind::from_name(word));
        let kind = kind.ok_or_else(|| refuse(text, "decode or prefill, with their flags behind it"))?;
        let arguments = rest.get(1..).unwrap_or_default().to_vec();
        let given = |flag: &&&str| {
            let is =
                |word: &String| word == **flag || word.strip_prefix(**flag).is_some_and(|rest| rest.starts_with('='));
            arguments.iter().any(is)
        };
        if let Some(flag) = OURS.iter().find(given) {
            return Err(refuse(text, &format!("no {flag}, which a comparison sets itself")).into());
        }
        let binary = match binary {
            // A program without a folder in its name would be looked for where the shell looks for programs.
            Some(path) => path.canonicalize().with_context(|| format!("{name}: cannot find {}", path.display()))?,
            None => std::env::current_exe().context("cannot find the program that is running")?,
        };
        Ok(Side { name, text: text.to_owned(), binary, kind, arguments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_side_is_arguments_with_or_without_a_binary() {
        let own = std::env::current_exe().unwrap();
        for text in ["decode m.gguf --threads 2", "bench decode m.gguf --threads 2"] {
            let side = Side::parse("A", text).unwrap();
            assert_eq!((side.kind, &side.binary), (Kind::Decode, &own));
            assert_eq!(side.arguments, ["m.gguf", "--threads", "2"]);
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("old strata");
        std::fs::write(&path, "").unwrap();
        for bench in ["", "bench "] {
            let side = Side::parse("B", &format!("'{}' {bench}prefill", path.display())).unwrap();
            assert_eq!((side.kind, side.arguments.len()), (Kind::Prefill, 0));
            assert_eq!(side.binary, path.canonicalize().unwrap());
        }
    }

    #[test]
    fn what_is_no_side_is_refused_with_what_is_expected() {
        for (text, want) in [
            ("", "expected decode or prefill"),
            ("'decode", "quotes are closed"),
            ("frob", "path of a strata binary"),
            ("/nowhere/strata decode", "path of a strata binary"),
            ("bench memory", "expected decode or prefill"),
            ("decode --repetitions 3", "no --repetitions"),
            ("prefill --json", "no --json"),
            ("decode --out=x", "no --out"),
        ] {
            let error = Side::parse("A", text).unwrap_err().to_string();
            assert!(error.starts_with("A is \"") && error.contains(want), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_taken_or_refused(text in "[a-z' \"\\\\-]{0,24}") {
            let _ = Side::parse("A", &text);
        }
    }
}
