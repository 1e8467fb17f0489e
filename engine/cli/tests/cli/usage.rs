//! Exit codes, errors, and a stdout that nobody reads.

use crate::common::{finish, run, shared, strata};
use std::process::Stdio;

#[test]
fn wrong_usage_is_2_and_says_what_is_expected() {
    for (args, want) in [
        (&["frob"][..], "error: unrecognized subcommand 'frob'"),
        (&["inspect"], "<FILE>"),
        (&["inspect", "a", "b"], "error: unexpected argument 'b'"),
        (&["run", "--top-q", "1"], "'--top-p'"),
        (&["run", "--temp", "11"], "error: --temp is \"11\", expected a number from 0 to 10\n"),
        (&["run", "--top-k", "-1"], "error: --top-k is \"-1\", expected a whole number from 0 to 1000000\n"),
        (&["run", "--spec", "-1"], "error: --spec is \"-1\", expected auto or a whole number from 0 to 15\n"),
        (&["run", "--config", "/nowhere.toml"], "error: cannot read /nowhere.toml: "),
        (&["config"], "show"),
    ] {
        let r = run(args);
        assert_eq!((r.code, r.out.as_str()), (Some(2), ""), "{args:?}: {}", r.err);
        assert!(r.err.contains(want), "{args:?}: {}", r.err);
    }
}

#[test]
fn a_missing_file_is_1_and_said_once() {
    for verb in ["inspect", "check", "list"] {
        let r = run(&[verb, "/nowhere/m.gguf"]);
        assert_eq!((r.code, r.out.as_str()), (Some(1), ""));
        assert!(r.err.starts_with("error: ") && r.err.contains("/nowhere/m.gguf"), "{}", r.err);
        assert_eq!(r.err.matches("os error 2").count(), 1, "{}", r.err);
    }
}

#[test]
fn invisible_characters_of_a_path_are_shown() {
    let r = run(&["inspect", "\u{202a}/nowhere/m.gguf"]);
    assert_eq!(r.code, Some(1));
    assert!(r.err.contains("202a") && !r.err.contains('\u{202a}'), "{}", r.err);
}

#[test]
fn a_closed_stdout_ends_quietly() {
    let Some(shared) = shared() else { return };
    let nano = shared.join("nano/nano-IQ3_S.gguf");
    for args in
        [&["inspect", nano.to_str().unwrap()][..], &["check", nano.to_str().unwrap()], &["--help"], &["config", "show"]]
    {
        let mut child = strata(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let r = finish(child.wait_with_output().unwrap());
        // 0 when everything fitted into the pipe before it was closed.
        assert!(matches!(r.code, Some(0 | 141)) && r.err.is_empty(), "{args:?}: {:?} {}", r.code, r.err);
    }
}
