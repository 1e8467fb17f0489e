//! What one side of a comparison runs.

use crate::bench::model::{self, Kind};
use crate::bench::values;
use anyhow::{Context, Result};
use clap::error::ErrorKind;
use serde::Serialize;
use std::path::PathBuf;
use std::process::{Command, Stdio};
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
    /// Whether that is not the one that is running.
    #[serde(skip)]
    other: bool,
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
        let other = binary.is_some();
        let binary = match binary {
            // A program without a folder in its name would be looked for where the shell looks for programs.
            Some(path) => path.canonicalize().with_context(|| format!("{name}: cannot find {}", path.display()))?,
            None => std::env::current_exe().context("cannot find the program that is running")?,
        };
        Ok(Side { name, text: text.to_owned(), binary, other, kind, arguments })
    }

    /// Finds out what is wrong with the flags before a round is run. This binary reads them as it will then; another is
    /// asked for its help behind them, which it gives only if it knows them.
    ///
    /// # Errors
    /// They are wrong usage.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |what: &str| {
            let what = what.trim_start_matches("error: ").trim_end();
            clap::Error::raw(ErrorKind::InvalidValue, format!("{}: {what}\n", self.name)).into()
        };
        let arguments = self.arguments.iter().map(String::as_str);
        if self.other {
            let mut command = Command::new(&self.binary);
            command.args(["bench", self.kind.name()]).args(arguments).arg("--help").stdin(Stdio::null());
            let asked =
                command.output().with_context(|| format!("{}: cannot run {}", self.name, self.binary.display()))?;
            let said = || super::child::why(&String::from_utf8_lossy(&asked.stderr)).unwrap_or_default();
            // What else it may fail at is found in its first run.
            return if asked.status.code() == Some(2) { Err(refuse(&said())) } else { Ok(()) };
        }
        let words = ["bench", self.kind.name()].into_iter().chain(arguments);
        let matches = crate::verbs::bench::command().try_get_matches_from(words);
        let matches = matches.map_err(|e| refuse(e.to_string().lines().next().unwrap_or_default()))?;
        let Some((_, matches)) = matches.subcommand() else { return Ok(()) };
        model::check(self.kind, matches).map(drop).map_err(|e| match e.downcast_ref::<ConfigError>() {
            Some(wrong) => refuse(&wrong.to_string()),
            None => e.context(self.name),
        })
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

    #[test]
    fn flags_are_looked_at_before_anything_is_run() {
        for (text, want) in [
            ("decode --threads -1", "A: --threads is \"-1\", expected a whole number"),
            ("decode --output-tokens 1", "A: --output-tokens is \"1\", expected a whole number from 2"),
            ("prefill --frob", "A: unexpected argument '--frob' found"),
        ] {
            let error = Side::parse("A", text).unwrap().check().unwrap_err();
            let error = error.downcast_ref::<clap::Error>().unwrap().to_string();
            assert!(error.contains(want), "{text}: {error}");
        }
        Side::parse("A", "decode nowhere.gguf --threads 1").unwrap().check().unwrap();
    }

    proptest! {
        #[test]
        fn any_text_is_taken_or_refused(text in "[a-z' \"\\\\-]{0,24}") {
            let _ = Side::parse("A", &text);
        }
    }
}
