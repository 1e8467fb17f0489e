//! A stretch of work whose output goes to a file.
//!
//! The criterion library prints a report of each benchmark to stdout and its progress to stderr, and has no switch for
//! either. stdout is where our own document goes.

use anyhow::{Context, Result};
use std::fs::File;
use std::path::Path;
use strata_gguf::show_path;

/// Calls `f` while whatever this process prints goes to the end of the file at `log`.
///
/// # Errors
/// The file cannot be written, or `f` panics; then the panic's words are in the file and in the error.
pub(crate) fn quietly<T>(log: &Path, f: impl FnOnce() -> T) -> Result<T> {
    let file = File::options().create(true).append(true).open(log);
    let file = file.with_context(|| format!("cannot write {}", show_path(log)))?;
    let redirected = Redirected::to(&file).context("cannot redirect what criterion prints")?;
    // The library's own checks panic, on a full disk for one. That is an error like any other.
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
    drop(redirected);
    outcome.map_err(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        anyhow::anyhow!("criterion gave up: {}", words.unwrap_or("it does not say why"))
    })
}

/// stdout and stderr lead elsewhere until this is dropped.
#[cfg(unix)]
struct Redirected {
    stdout: rustix::fd::OwnedFd,
    stderr: rustix::fd::OwnedFd,
}

#[cfg(unix)]
impl Redirected {
    fn to(file: &File) -> std::io::Result<Redirected> {
        flush();
        // Children must not inherit the copies: a pipe is at its end only when nobody holds it any more.
        let copy = |fd: rustix::fd::BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 0);
        let kept = Redirected { stdout: copy(rustix::stdio::stdout())?, stderr: copy(rustix::stdio::stderr())? };
        rustix::stdio::dup2_stdout(file)?;
        rustix::stdio::dup2_stderr(file)?;
        Ok(kept)
    }
}

#[cfg(unix)]
impl Drop for Redirected {
    fn drop(&mut self) {
        flush();
        // They led there before, so this fails only when the process has been robbed of its descriptors.
        let _ = rustix::stdio::dup2_stdout(&self.stdout);
        let _ = rustix::stdio::dup2_stderr(&self.stderr);
    }
}

/// Elsewhere criterion's lines stand among ours; `--out` has the document alone.
#[cfg(not(unix))]
struct Redirected;

#[cfg(not(unix))]
impl Redirected {
    fn to(_: &File) -> std::io::Result<Redirected> {
        flush();
        Ok(Redirected)
    }
}

/// What was printed so far goes where it was meant to go.
fn flush() {
    use std::io::Write;
    let _ = std::io::stdout().flush();
}
