//! What can be wrong with a setting, one sentence each.

use std::path::PathBuf;

/// Why a setting was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value has the wrong form or lies outside its range.
    #[error("{name} is {found}, expected {expected}")]
    Value {
        /// The knob as the user wrote it: `--top-k`, `STRATA_TOP_K` or `strata.toml line 3: sampling.top_k`.
        name: String,
        /// What was given, quoted.
        found: String,
        /// What the knob takes.
        expected: String,
    },
    /// No knob has this name.
    #[error("{name} is not a setting{hint}")]
    Unknown {
        /// The name as the user wrote it.
        name: String,
        /// A near name, as the end of the sentence; empty when nothing is near.
        hint: String,
    },
    /// A file could not be read.
    #[error("cannot read {path}: {reason}", path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        reason: String,
    },
    /// A file is not TOML.
    #[error("{file}{place}: {reason}")]
    Syntax {
        /// The file.
        file: String,
        /// ` line N`, or empty when the parser gives no place.
        place: String,
        /// What the parser says.
        reason: String,
    },
    /// A knob has neither a value nor leave to be absent. Only a broken `defaults.toml` can cause it.
    #[error("{name} has no value and no default")]
    Missing {
        /// The knob's key.
        name: String,
    },
}

impl ConfigError {
    /// The error that `name` was given `found`, which is shown quoted and cut, and takes something else.
    pub fn value(name: impl Into<String>, found: &str, expected: impl Into<String>) -> ConfigError {
        ConfigError::Value { name: name.into(), found: quoted(found), expected: expected.into() }
    }

    /// The same error about a value under another name, such as the flag instead of the key.
    pub(crate) fn named(self, new: &str) -> ConfigError {
        match self {
            ConfigError::Value { found, expected, .. } => ConfigError::Value { name: new.into(), found, expected },
            other => other,
        }
    }
}

/// Text from a user, quoted for a message: control characters are escaped and long text is cut.
pub(crate) fn quoted(text: &str) -> String {
    const MOST: usize = 60;
    let mut shown: String = text.chars().take(MOST).flat_map(char::escape_debug).collect();
    if text.chars().nth(MOST).is_some() {
        shown.push('…');
    }
    format!("\"{shown}\"")
}
