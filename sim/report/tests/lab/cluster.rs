//! The examples of `experiments/cluster` and the binary: a sweep shared by processes gives the bytes of one.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const NAME: &str = "001-split-model";

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A project with one of the real experiments.
pub(crate) fn project() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let file = format!("experiments/{NAME}/experiment.toml");
    std::fs::create_dir_all(dir.path().join(&file).parent().unwrap()).unwrap();
    std::fs::copy(repository().join(&file), dir.path().join(&file)).unwrap();
    dir
}

pub(crate) fn lab(root: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_strata-lab")).args(arguments).current_dir(root).output().unwrap()
}

fn files(root: &Path) -> Vec<(String, Vec<u8>)> {
    let dir = root.join("results").join(NAME);
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap())
        .map(|e| (e.file_name().to_string_lossy().into_owned(), std::fs::read(e.path()).unwrap()))
        .collect();
    files.sort();
    files
}

fn shared_by(script: &str) {
    let (whole, shared) = (project(), project());
    let done = lab(whole.path(), &["run", "001"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let done = Command::new(repository().join("experiments/cluster").join(script))
        .args([NAME, "3"])
        .env("LAB", env!("CARGO_BIN_EXE_strata-lab"))
        .current_dir(shared.path())
        .output()
        .unwrap();
    assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
    let want = files(whole.path());
    assert_eq!(want.len(), 5, "summary, rows as CSV and Parquet, meta and a figure");
    assert!(files(shared.path()) == want, "{script}: other bytes than one process gives");
}

#[test]
fn the_plain_example_gives_the_bytes_of_one_process() {
    shared_by("plain.sh");
}

#[test]
fn the_example_with_gnu_parallel_gives_the_bytes_of_one_process() {
    let version = Command::new("parallel").arg("--version").output();
    if !version.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains("GNU parallel")) {
        println!("skipped: GNU parallel is not installed");
        return;
    }
    shared_by("parallel.sh");
}

#[test]
fn what_goes_wrong_is_one_sentence() {
    let dir = project();
    let unknown = lab(dir.path(), &["run", "nothing"]);
    assert_eq!(unknown.status.code(), Some(1));
    let text = String::from_utf8_lossy(&unknown.stderr);
    assert_eq!(text.trim(), format!("error: experiment \"nothing\" is not known; there are: {NAME}"));
    let elsewhere = tempfile::tempdir().unwrap();
    let text = lab(elsewhere.path(), &["list"]).stderr;
    assert!(String::from_utf8_lossy(&text).contains("holds no experiments/"));
    // A result that nobody has made yet is no difference; one that was changed is.
    assert!(lab(dir.path(), &["run", "all"]).status.success());
    assert!(lab(dir.path(), &["report", "--check"]).status.success());
    let summary = dir.path().join("results").join(NAME).join("summary.md");
    std::fs::write(&summary, "all is well").unwrap();
    let checked = lab(dir.path(), &["report", "--check"]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&checked.stderr).contains("summary.md line 1: found \"all is well\""));
}
