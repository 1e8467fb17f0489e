//! What is said: text on stdout, which may be full or closed, and notes on stderr.

use anyhow::{Context, Result};
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// Nobody reads stdout any more: what a shell reports for a program that SIGPIPE ended.
const CLOSED_PIPE: u8 = 141;

/// Writes to stdout and ends the text with a line break. A closed pipe is an error that [`failed`] keeps quiet about.
pub(super) fn say(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    out.write_all(text.as_bytes())
        .and_then(|()| out.write_all(end.as_bytes()))
        .and_then(|()| out.flush())
        .context("cannot write to stdout")
}

/// A line to stderr. Nothing can be done when that is closed.
pub(super) fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Reports an error and chooses the exit code. Whoever closes a pipe has read enough, which is not worth a sentence.
pub(super) fn failed(error: &anyhow::Error) -> ExitCode {
    let closed = |e: &std::io::Error| e.kind() == ErrorKind::BrokenPipe;
    if error.chain().any(|e| e.downcast_ref().is_some_and(closed)) {
        return ExitCode::from(CLOSED_PIPE);
    }
    note(&format!("error: {error:#}"));
    ExitCode::FAILURE
}
