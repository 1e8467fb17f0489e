//! How the program ends: the sentence on stderr and the exit code.

use crate::interrupt;
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use strata_config::ConfigError;

/// Something failed.
const FAILED: u8 = 1;
/// The command line or a setting is wrong.
const USAGE: u8 = 2;
/// Nobody reads stdout any more: what a shell reports for a program that SIGPIPE ended.
const CLOSED_PIPE: u8 = 141;

/// The user ended it with Ctrl-C: 128 plus the number of the signal, as shells have it.
pub(crate) const INTERRUPTED: u8 = 130;

/// The error of work that the user ended, or whoever sent a signal. It is not reported: who did that knows.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl Error for Interrupted {}

/// Writes an error to stderr and chooses the exit code.
///
/// A closed stdout is not worth a sentence: whoever reads decides how much to read, as `strata list | head -1` does. The
/// code is still not 0, since what was left unsaid may have been a failure.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if error.chain().any(is_closed_pipe) {
        return ExitCode::from(CLOSED_PIPE);
    }
    if error.chain().any(|e| e.is::<Interrupted>()) {
        return ExitCode::from(interrupt::exit_code());
    }
    let mut stderr = std::io::stderr().lock();
    // Nothing is left to do when stderr is closed as well.
    if let Some(usage) = error.downcast_ref::<clap::Error>() {
        let _ = usage.print();
        return ExitCode::from(USAGE);
    }
    let _ = writeln!(stderr, "error: {}", sentence(error));
    let usage = error.chain().any(|e| e.is::<ConfigError>());
    ExitCode::from(if usage { USAGE } else { FAILED })
}

fn is_closed_pipe(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}

/// The chain of causes in one line. Some errors end with their cause already; it is not said twice.
pub(crate) fn sentence(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_joined_and_said_once() {
        let e = anyhow::anyhow!("no such file").context("cannot open x: no such file").context("cannot run");
        assert_eq!(sentence(&e), "cannot run: cannot open x: no such file");
    }
}
