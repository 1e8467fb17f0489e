//! One sentence for each thing that can be wrong with a file.

use std::path::PathBuf;

/// The result of reading a file.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a file was refused. Each message names the file, tensor or key, what was found and what was expected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation on a path.
    #[error("cannot {action} {path}: {source}", path = show_path(.path))]
    Io {
        /// What was attempted, as a verb: `open`, `read`, `map`.
        action: &'static str,
        /// The path as given.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file or set of files breaks the format or is not what the engine needs.
    #[error("{file}: {what}")]
    Invalid {
        /// The file's name, with unprintable characters escaped.
        file: String,
        /// What was found and what was expected.
        what: String,
    },
}

/// A path for a message: invisible and control characters are shown as their code points.
pub fn show_path(path: &std::path::Path) -> String {
    show_text(&path.to_string_lossy())
}

/// Text from a file or a user for a message: control, bidirectional and zero-width characters become `\u{..}`.
pub fn show_text(text: &str) -> String {
    let invisible = |c: char| {
        c.is_control()
            || matches!(c, '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}')
    };
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        if invisible(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
        out
    })
}
