//! One run of one side, in a process of its own.

use super::side::Side;
use crate::exit::Interrupted;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often it is looked whether the process has ended. Short beside a run, long beside what looking costs.
const PAUSE: Duration = Duration::from_millis(20);

/// Measures a side once and returns the document that it printed. Both sides of a round read the same text, and each
/// round another.
pub(super) fn run(side: &Side, round: usize, cancel: &AtomicBool) -> Result<Value> {
    let what = || format!("{} in round {}", side.name, round + 1);
    let mut child = Command::new(&side.binary)
        .args(["bench", side.kind.name()])
        .args(&side.arguments)
        .args(["--repetitions", "1", "--skip", &round.to_string(), "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("{}: cannot run {}", what(), side.binary.display()))?;
    // Both pipes are emptied meanwhile, or a process that prints much would wait for us for ever.
    let (out, err) = (collect(child.stdout.take()), collect(child.stderr.take()));
    let status = wait(&mut child, cancel)?;
    let (out, err) = (text(out), text(err));
    if !status.success() {
        bail!("{} failed: {}", what(), why(&err).unwrap_or_else(|| ended(status)));
    }
    serde_json::from_str(&out).with_context(|| format!("{}: what {} printed is no JSON", what(), side.binary.display()))
}

/// What a process gave as its reason: its error, or else the last that it said.
pub(super) fn why(err: &str) -> Option<String> {
    let last = || err.lines().rev().find(|line| !line.trim().is_empty());
    let words = err.lines().find(|line| line.starts_with("error: ")).or_else(last)?;
    Some(words.trim_start_matches("error: ").to_owned())
}

/// How a process ended that says nothing.
fn ended(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return format!("signal {signal} ended it");
    }
    status.code().map_or_else(|| "it does not say why".to_owned(), |code| format!("it ended with exit code {code}"))
}

/// Waits for the end of a process. After Ctrl-C or SIGTERM it is ended: a terminal tells it too, but others may not.
fn wait(child: &mut Child, cancel: &AtomicBool) -> Result<ExitStatus> {
    loop {
        if cancel.load(Ordering::Relaxed) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Interrupted.into());
        }
        if let Some(status) = child.try_wait().context("cannot wait for a run")? {
            return Ok(status);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Reads a pipe to its end.
fn collect(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came before a failure is worth showing.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        bytes
    })
}

fn text(reader: JoinHandle<Vec<u8>>) -> String {
    String::from_utf8_lossy(&reader.join().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_counts_more_than_what_is_said_last() {
        assert_eq!(why("note: x\nerror: no memory\nbye\n").as_deref(), Some("no memory"));
        assert_eq!(why("a\nb\n\n").as_deref(), Some("b"));
        assert_eq!(why(" \n"), None);
    }

    #[test]
    #[cfg(unix)]
    fn a_process_that_says_nothing_has_its_signal_or_code_named() {
        let status = |script: &str| Command::new("sh").args(["-c", script]).status().unwrap();
        assert_eq!(ended(status("kill -9 $$")), "signal 9 ended it");
        assert_eq!(ended(status("exit 3")), "it ended with exit code 3");
    }
}
