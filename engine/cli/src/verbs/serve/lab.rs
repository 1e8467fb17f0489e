//! Experiments, which another program runs: `strata-lab`.
//!
//! It is started by itself, without a shell, and a name goes to it only if there is an experiment of that name. What it has
//! done it keeps, so it may be killed.

use std::collections::VecDeque;
use std::env::consts::EXE_SUFFIX;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;
use strata_gguf::show_path;
use strata_server::mcp::control::{Ended, Experiment, Step, Told};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Lines of the program's output that are kept, and bytes of each.
const LINES: usize = 40;
const LINE: usize = 500;

/// Where the program is, and whether it runs.
pub(super) struct Lab {
    /// What a setting names.
    named: Option<PathBuf>,
    /// Held while it runs.
    running: Mutex<()>,
}

impl Lab {
    /// The program at this path, or the one that is found.
    pub(super) fn new(named: Option<PathBuf>) -> Lab {
        Lab { named, running: Mutex::default() }
    }

    /// Runs an experiment. Dropping this kills the program.
    ///
    /// # Errors
    /// There is no such program or experiment, or one runs already, as a sentence.
    pub(super) async fn run(&self, which: &Experiment, told: &Told) -> Result<Ended, String> {
        let program = self.program()?;
        let root = root(&program)?;
        let name = resolve(&names(&root)?, &which.name)?;
        let Ok(_alone) = self.running.try_lock() else {
            return Err(
                "an experiment runs already; it is better to wait for it than to have both slowed down".to_owned()
            );
        };
        let since = Instant::now();
        let mut command = Command::new(&program);
        command.arg("--root").arg(&root).args(["run", &name]).current_dir(&root);
        if which.dry_run {
            command.arg("--dry-run");
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let failed = |e: std::io::Error| format!("cannot run {}: {e}", show_path(&program));
        let mut child = command.spawn().map_err(failed)?;
        let (sender, mut lines) = unbounded_channel();
        if let Some(out) = child.stdout.take() {
            tokio::spawn(read(out, sender.clone()));
        }
        if let Some(err) = child.stderr.take() {
            tokio::spawn(read(err, sender));
        }
        let mut tail = VecDeque::new();
        while let Some(line) = lines.recv().await {
            told.send_replace(Step { share: None, text: line.clone() });
            if tail.len() >= LINES {
                tail.pop_front();
            }
            tail.push_back(line);
        }
        let status = child.wait().await.map_err(failed)?;
        let folder = root.join("results").join(&name);
        let written = !which.dry_run && status.success() && folder.is_dir();
        Ok(Ended {
            name,
            exit_status: status.code(),
            output_end: Vec::from(tail).join("\n"),
            result: written.then(|| folder.to_string_lossy().into_owned()),
            seconds: since.elapsed().as_secs_f64(),
        })
    }

    /// Waits until no program runs, which is soon after what ran one was dropped.
    pub(super) async fn idle(&self) {
        drop(self.running.lock().await);
    }

    fn program(&self) -> Result<PathBuf, String> {
        if let Some(named) = &self.named {
            let there = named.is_file().then(|| named.clone());
            return there.ok_or_else(|| format!("--lab names {}, and there is no such program", show_path(named)));
        }
        let own = std::env::current_exe().ok();
        let folder = own.as_deref().and_then(Path::parent);
        let path = std::env::var_os("PATH");
        found(folder, path.as_deref()).ok_or_else(|| {
            "strata-lab is neither beside this program nor in PATH; `cargo build --profile lab -p strata-report` builds it, and \
             --lab (or STRATA_LAB) names it elsewhere"
                .to_owned()
        })
    }
}

/// The program beside this one, where its own profile of a build puts it, or in `PATH`.
fn found(beside: Option<&Path>, path: Option<&OsStr>) -> Option<PathBuf> {
    let built = beside.and_then(Path::parent).map(|target| target.join("lab"));
    let folders = beside.map(Path::to_owned).into_iter().chain(built);
    let name = format!("strata-lab{EXE_SUFFIX}");
    let in_path = path.into_iter().flat_map(std::env::split_paths);
    folders.chain(in_path).map(|folder| folder.join(&name)).find(|program| program.is_file())
}

/// The project's folder: the nearest above the folder that the program was started in, above the other program, or above this.
fn root(program: &Path) -> Result<PathBuf, String> {
    let here = std::env::current_dir().ok();
    let own = std::env::current_exe().ok();
    let starts = [here.as_deref(), Some(program), own.as_deref()];
    let above = starts.into_iter().flatten().find_map(project);
    above.ok_or_else(|| {
        "there is no folder experiments/ above the one this program was started in, nor above strata-lab".to_owned()
    })
}

/// The nearest folder that has experiments; one that is only called so is somebody else's.
fn project(below: &Path) -> Option<PathBuf> {
    let some = |folder: &&Path| names(folder).is_ok_and(|names| !names.is_empty());
    below.ancestors().find(some).map(Path::to_owned)
}

/// The experiments that there are.
fn names(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join("experiments");
    let failed = |e: std::io::Error| format!("cannot list {}: {e}", show_path(&folder));
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.path().join("experiment.toml").is_file() {
            names.extend(entry.file_name().into_string());
        }
    }
    names.sort();
    Ok(names)
}

/// The experiment of this name, or with this number before its first dash.
fn resolve(names: &[String], asked: &str) -> Result<String, String> {
    let numbered = |name: &&String| name.split_once('-').is_some_and(|(number, _)| number == asked);
    let meant = names.iter().find(|name| *name == asked).or_else(|| {
        let mut meant = names.iter().filter(numbered);
        meant.next().filter(|_| meant.next().is_none())
    });
    meant.cloned().ok_or_else(|| format!("there is no one experiment {asked:?}; there are: {}", names.join(", ")))
}

/// Hands over what a program says, line by line.
async fn read(out: impl AsyncRead + Unpin, lines: UnboundedSender<String>) {
    let mut out = BufReader::new(out);
    let mut line = Vec::new();
    // A program whose output cannot be read any more is one that has nothing more to say.
    while let Ok(1..) = out.read_until(b'\n', &mut line).await {
        let text = String::from_utf8_lossy(&line);
        let text: String = text.trim_end().chars().filter(|c| !c.is_control()).take(LINE).collect();
        line.clear();
        if lines.send(text).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_there_are_are_run() {
        let names = ["001-a", "002-b", "002-c"].map(String::from);
        assert_eq!(resolve(&names, "001").unwrap(), "001-a");
        assert_eq!(resolve(&names, "002-c").unwrap(), "002-c");
        for wrong in ["002", "003", "", "all", "--root", "001-a; ls", "../001-a", "00"] {
            let refused = resolve(&names, wrong).unwrap_err();
            assert!(refused.ends_with("there are: 001-a, 002-b, 002-c"), "{refused}");
        }
    }

    #[test]
    fn the_program_is_looked_for_beside_this_one_first() {
        let dir = tempfile::tempdir().unwrap();
        let name = format!("strata-lab{EXE_SUFFIX}");
        let put = |folder: &str| {
            std::fs::create_dir_all(dir.path().join(folder)).unwrap();
            std::fs::write(dir.path().join(folder).join(&name), "").unwrap();
        };
        let beside = dir.path().join("target/debug");
        let path = dir.path().join("bin").into_os_string();
        let look = || found(Some(&beside), Some(&path));
        assert_eq!(look(), None);
        for folder in ["bin", "target/lab", "target/debug"] {
            put(folder);
            assert_eq!(look(), Some(dir.path().join(folder).join(&name)));
        }
    }
}
