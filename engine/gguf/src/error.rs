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

/// Characters of a name or text that a message shows: more than any honest one has, paths aside.
const LONGEST_SHOWN: usize = 1024;

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
    let shown = text.chars().take(LONGEST_SHOWN).fold(String::new(), |mut out, c| {
        if invisible(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
        out
    });
    if text.chars().nth(LONGEST_SHOWN).is_some() { shown + "…" } else { shown }
}
