//! The help texts, word by word. `UPDATE_HELP=1 cargo test -p strata help` writes them anew.

use crate::common::run;
use std::path::Path;

#[test]
fn help_texts_are_as_committed() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help");
    let verbs: [(&str, &[&str]); 26] = [
        ("strata", &[]),
        ("run", &["run"]),
        ("serve", &["serve"]),
        ("mcp", &["mcp"]),
        ("list", &["list"]),
        ("inspect", &["inspect"]),
        ("check", &["check"]),
        ("plan", &["plan"]),
        ("bench", &["bench"]),
        ("bench-memory", &["bench", "memory"]),
        ("bench-kernels", &["bench", "kernels"]),
        ("bench-hardware", &["bench", "hardware"]),
        ("bench-decode", &["bench", "decode"]),
        ("bench-prefill", &["bench", "prefill"]),
        ("bench-ab", &["bench", "ab"]),
        ("trace", &["trace"]),
        ("trace-record", &["trace", "record"]),
        ("trace-info", &["trace", "info"]),
        ("trace-csv", &["trace", "csv"]),
        ("trace-jsonl", &["trace", "jsonl"]),
        ("trace-profile", &["trace", "profile"]),
        ("trace-synth", &["trace", "synth"]),
        ("pack", &["pack"]),
        ("pack-mtp", &["pack", "mtp"]),
        ("config", &["config"]),
        ("config-show", &["config", "show"]),
    ];
    for (name, verb) in verbs {
        let shown = run(&[verb, &["--help"]].concat());
        assert_eq!((shown.code, shown.err.as_str()), (Some(0), ""));
        let path = dir.join(format!("{name}.txt"));
        // Wrapping leaves spaces on empty lines; editors take them away.
        let text: String = shown.out.lines().flat_map(|l| [l.trim_end(), "\n"]).collect();
        if std::env::var_os("UPDATE_HELP").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(text == committed, "{} differs; UPDATE_HELP=1 writes it anew. It is now:\n{text}", path.display());
        assert!(text.lines().all(|l| l.chars().count() <= 100), "{name}: a line is too long");
    }
}

#[test]
fn no_arguments_give_help() {
    let (bare, help) = (run(&[]), run(&["--help"]));
    assert_eq!(bare.code, Some(0));
    assert_eq!(bare.out, help.out);
}

#[test]
fn the_version_is_told() {
    let shown = run(&["--version"]);
    assert_eq!((shown.code, shown.out), (Some(0), format!("strata {}\n", env!("CARGO_PKG_VERSION"))));
}
