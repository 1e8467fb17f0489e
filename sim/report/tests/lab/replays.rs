//! `strata-lab replay` on a recording of the built-in model.

use crate::cluster::{lab, repository};
use crate::command::said;

/// What is printed, and the names of the files.
fn replay(arguments: &[&str]) -> (String, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let (out, trace) = (dir.path().join("out"), repository().join("traces/nano-lru.strace"));
    let fixed = ["replay", trace.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let done = lab(dir.path(), &[&fixed, arguments].concat());
    assert!(done.status.success(), "{arguments:?}: {}", said(&done));
    let mut names: Vec<String> =
        std::fs::read_dir(&out).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    (String::from_utf8(done.stdout).unwrap(), names)
}

fn refused(arguments: &[&str]) -> String {
    let trace = repository().join("traces/nano-lru.strace");
    let done = lab(&repository(), &[&["replay", trace.to_str().unwrap()], arguments].concat());
    assert_eq!(done.status.code(), Some(1), "{arguments:?}");
    said(&done).trim_end().to_owned()
}

/// The number in the second column of the row that begins so.
fn number(text: &str, row: &str) -> f64 {
    let line = text.lines().find(|l| l.starts_with(&format!("| {row} |"))).unwrap();
    line.split('|').nth(2).unwrap().trim().parse().unwrap()
}

#[test]
fn the_oracle_stands_beside_the_policies_and_is_explained() {
    let (text, names) = replay(&["--slots", "128,256", "--policy", "lru,belady"]);
    assert_eq!(names, ["hits.svg", "inserts.svg", "rows.csv", "rows.parquet", "summary.md"]);
    assert!(number(&text, "oracle") > number(&text, "belady"), "{text}");
    assert!(text.trim_end().ends_with("so `belady` is no bound."), "{text}");
    assert_eq!(text.matches("| oracle | 128 |").count(), 1, "{text}");
}

#[test]
fn figures_that_a_mode_does_not_give_are_left_out() {
    let (text, names) = replay(&["--policy", "lru,belady", "--set", "mode=classic", "--set", "start=cold"]);
    assert_eq!(names, ["hits.svg", "rows.csv", "rows.parquet", "summary.md"]);
    assert!(!text.contains("inserts") && text.contains("of_oracle"), "{text}");
    // The policy may leave a miss out, which the oracle of this mode does not.
    assert!(number(&text, "oracle") < number(&text, "belady"), "{text}");
    assert!(text.trim_end().ends_with("may leave a miss out (`experts.bypass`) and so hit more."), "{text}");
    let all = ["--policy", "belady", "--set", "mode=classic", "--set", "start=cold", "--set", "experts.bypass=false"];
    let (text, _) = replay(&all);
    assert_eq!(number(&text, "oracle"), number(&text, "belady"));
}

#[test]
fn room_may_be_memory() {
    let (text, _) = replay(&["--policy", "lru", "--set", "experts.vram=5"]);
    assert!(text.contains("experts.vram 5") && !text.contains("experts.slots"), "{text}");
}

#[test]
fn what_is_wrong_names_the_flag() {
    for (arguments, want) in [
        (vec!["--policy", "lru,mru"], "error: --policy: experts.policy is \"mru\", expected "),
        (vec!["--slots", "64,64"], "error: --slots: experts.slots: found 64 twice"),
        (vec!["--set", "strat=cold"], "error: --set strat: found axis \"strat\"; did you mean \"start\"?"),
        (vec!["--set", "experts.scope=all"], "error: --set experts.scope: experts.scope is \"all\", expected "),
        (vec!["--set", "start=[1]"], "error: --set start: invalid type: sequence"),
        (vec!["--set", "experts.vram=-1"], "error: --set experts.vram: experts.vram is \"-1\", expected "),
        (vec!["--set", "start=cold", "--set", "start=cold"], "error: --set start: found it twice"),
        (vec!["--set", "experts.policy=lru"], "error: --set experts.policy: expected --policy"),
        (
            vec!["--slots", "64", "--set", "experts.vram=5"],
            "error: --set experts.vram: found room given in another way",
        ),
        (vec!["--set", "experts.slots=5", "--set", "experts.vram=5"], "error: --set experts.vram: found room given"),
    ] {
        let error = refused(&arguments);
        assert!(error.starts_with(want), "{arguments:?}\n  gave {error}\n  not  {want}");
    }
}
