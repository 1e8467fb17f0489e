//! `strata list`

use crate::common::{Model, run, shared, tiny};

#[test]
fn one_line_for_each_model() {
    let Some(shared) = shared() else { return };
    let r = run(&["list", shared.join("nano").to_str().unwrap()]);
    assert_eq!(r.code, Some(0));
    let lines: Vec<Vec<&str>> = r.out.lines().map(|l| l.split_whitespace().collect()).collect();
    let want = ["nano-IQ3_S", "17.86", "MB", "1", "of", "1", "shard"];
    assert!(lines.iter().any(|l| l == &want), "{}", r.out);
    assert_eq!(lines.len(), 7, "{}", r.out);
}

#[test]
fn a_set_is_one_model_and_its_gaps_are_named() {
    let tiny = tiny();
    let dir = tempfile::tempdir().unwrap();
    let shards = Model::read(&tiny).write_shards(dir.path(), "set", 3);
    std::fs::write(dir.path().join("note.txt"), "x").unwrap();
    let list = || run(&["list", dir.path().to_str().unwrap()]);
    let r = list();
    assert_eq!(r.out.lines().count(), 1, "{}", r.out);
    assert!(r.out.starts_with("set ") && r.out.contains("3 of 3 shards"), "{}", r.out);
    std::fs::remove_file(&shards[1]).unwrap();
    let r = list();
    assert!(r.out.contains("2 of 3 shards") && r.out.contains("missing: set-00002-of-00003.gguf"), "{}", r.out);
}

#[test]
fn an_empty_folder_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let r = run(&["list", dir.path().to_str().unwrap()]);
    assert_eq!((r.code, r.out.as_str()), (Some(0), ""));
    assert!(r.err.starts_with("no .gguf files in "), "{}", r.err);
}
