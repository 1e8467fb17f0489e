//! The binary at the edges: a stdout that is full or closed, files that are there, numbers without sense.

use crate::cluster::{lab, repository};
use std::path::Path;
use std::process::{Command, Output, Stdio};

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn into(stdout: Stdio, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strata-lab"));
    command.args(arguments).current_dir(repository()).stdout(stdout).stderr(Stdio::piped()).output().unwrap()
}

const PRINTING: [&[&str]; 4] = [
    &["list"],
    &["run", "001", "--dry-run"],
    &["replay", "traces/nano-lru.strace", "--slots", "64", "--policy", "lru"],
    &["fit", "--constants", "node_us"],
];

#[cfg(target_os = "linux")]
#[test]
fn a_stdout_that_is_full_is_one_sentence() {
    for arguments in PRINTING {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let done = into(full.into(), arguments);
        assert_eq!(done.status.code(), Some(1), "{arguments:?}: {}", said(&done));
        assert!(said(&done).starts_with("error: cannot write to stdout: "), "{arguments:?}: {}", said(&done));
        assert_eq!(said(&done).lines().count(), 1, "{}", said(&done));
    }
}

#[cfg(unix)]
#[test]
fn a_closed_pipe_ends_quietly() {
    for arguments in PRINTING {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let done = into(writer.into(), arguments);
        assert_eq!((done.status.code(), said(&done)), (Some(141), String::new()), "{arguments:?}");
    }
}

#[test]
fn a_fit_replaces_a_file_only_when_told() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("constants.toml");
    let fit = |more: &[&str]| {
        let out = ["fit", "--constants", "node_us", "-o", "constants.toml"];
        lab(dir.path(), &[&out, more].concat())
    };
    std::fs::write(&file, "mine").unwrap();
    let refused = fit(&[]);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(said(&refused), "error: constants.toml is there already: --force replaces it\n");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    assert!(fit(&["--force"]).status.success());
    assert!(std::fs::read_to_string(&file).unwrap().contains("[round]"));
    std::fs::remove_file(&file).unwrap();
    assert!(fit(&[]).status.success() && file.is_file());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn an_import_leaves_what_it_reads() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.jsonl"), "{}\n").unwrap();
    for out in ["a.jsonl", "./a.jsonl"] {
        let refused = lab(dir.path(), &["trace", "import", "a.jsonl", "-o", out, "--force"]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(said(&refused).contains("is what is read, expected another file to write"), "{}", said(&refused));
    }
    let refused = lab(dir.path(), &["trace", "import", "a.jsonl", "-o", "/dev/null", "--force"]);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(std::fs::read_to_string(dir.path().join("a.jsonl")).unwrap(), "{}\n");
}

#[cfg(unix)]
#[test]
fn inputs_without_end_are_refused() {
    let dir = crate::cluster::project();
    std::os::unix::fs::symlink("/dev/zero", dir.path().join("endless.toml")).unwrap();
    let fit = lab(dir.path(), &["fit", "--windows", "endless.toml", "--machines", "endless.toml"]);
    assert_eq!(fit.status.code(), Some(1));
    assert_eq!(said(&fit), "error: endless.toml: found a device or a pipe, expected a file\n");
    let input = crate::project::Project::new(&crate::project::PLAIN.replace("clay.txt", "endless"));
    std::os::unix::fs::symlink("/dev/zero", input.root().join("traces/endless")).unwrap();
    let error = strata_report::run::rows(input.root(), &input.experiment()).unwrap_err().to_string();
    assert!(error.ends_with("clay = traces/endless, which is neither a file nor a folder"), "{error}");
}

fn run(root: &Path, more: &[&str]) -> Output {
    lab(root, &[&["run", "001"], more].concat())
}

#[test]
fn as_many_jobs_as_a_number_can_say_are_as_many_as_there_are_points() {
    for jobs in ["100000", "18446744073709551615"] {
        let dir = crate::cluster::project();
        let done = run(dir.path(), &["--jobs", jobs]);
        assert!(done.status.success(), "{jobs}: {}", said(&done));
    }
}
