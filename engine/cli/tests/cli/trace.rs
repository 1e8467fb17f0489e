//! `strata trace`, and `--trace` of other verbs: what is recorded, what is said of it, and what is wrong in a sentence.

use crate::common::{Run, finish, run, strata};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;

const QUESTION: &str = "What is the capital of France?";

fn trace(args: &[&str]) -> Run {
    run(&[&["trace"], args].concat())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn info(path: &Path) -> Value {
    let r = trace(&["info", text(path), "--json"]);
    assert_eq!((r.code, r.err.as_str()), (Some(0), ""));
    serde_json::from_str(&r.out).unwrap_or_else(|e| panic!("{e}: {}", r.out))
}

/// A folder with a small trace in it.
fn recorded(more: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nano.strace");
    let args = ["record", "--out", text(&path), "--requests", "2", "--prompt-tokens", "9", "--output-tokens", "12"];
    let r = trace(&[&args, more].concat());
    assert_eq!((r.code, r.err.as_str()), (Some(0), ""), "{}", r.out);
    assert!(r.out.starts_with(text(&path)) && r.out.trim_end().ends_with("; 2 requests"), "{}", r.out);
    assert!(!part(&path).exists());
    (dir, path)
}

fn part(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}.part", text(path)))
}

/// The lines of a trace as JSON: the meta, the rounds, the end.
fn lines(path: &Path) -> Vec<Value> {
    let r = trace(&["jsonl", text(path)]);
    assert_eq!((r.code, r.err.as_str()), (Some(0), ""));
    r.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Tokens of a round that were kept.
fn kept(round: &Value) -> Vec<u64> {
    let tokens = round["tokens"].as_array().unwrap().iter().map(|t| t["id"].as_u64().unwrap());
    tokens.take(round["committed"].as_u64().unwrap() as usize).collect()
}

#[test]
fn a_recording_says_what_was_done() {
    let (_dir, path) = recorded(&["--prefill-chunk", "4"]);
    let v = info(&path);
    let (meta, summary) = (&v["meta"], &v["summary"]);
    assert_eq!(
        (&meta["origin"], &meta["engine"]),
        (&"recorded".into(), &format!("strata {}", env!("CARGO_PKG_VERSION")).into())
    );
    assert_eq!((&meta["model"]["name"], &meta["model"]["quant"]), (&"nano (built in)".into(), &"IQ3_S".into()));
    assert_eq!((&meta["layers"], &meta["experts"], &meta["used"]), (&8.into(), &64.into(), &6.into()));
    let knob =
        |key: &str| (meta["knobs"][key]["value"].as_str().unwrap(), meta["knobs"][key]["origin"].as_str().unwrap());
    assert_eq!(knob("engine.prefill_chunk"), ("4", "flag"));
    assert_eq!(knob("speculation.spec"), ("auto", "default"));
    // What was found out, not `0` and `auto`.
    assert!(knob("engine.threads").0 != "0" && knob("engine.isa").0 != "auto");
    assert_eq!((&summary["requests"], &summary["lost"]), (&2.into(), &0.into()));
    // Nine tokens in chunks of four, twice; and of twelve tokens the last one is not read.
    assert_eq!((&summary["prefill"]["rounds"], &summary["prefill"]["kept"]), (&6.into(), &18.into()));
    assert_eq!(summary["decode"]["kept"], 22);
    assert!(summary["decode"]["tokens_per_second"].as_f64().unwrap() > 0.0);
    let branches = summary["decode"]["branches"].as_array().unwrap();
    let bytes = |name: &str| branches.iter().find(|b| b["branch"] == name).unwrap()["bytes"].as_u64().unwrap();
    assert!(bytes("cpu_experts") > 0 && bytes("other") > 0);
    assert!(v["routing"]["reuse"].as_f64().unwrap() > 0.0);
    assert_eq!(v["coverage"].as_array().unwrap().len(), 5);
    let r = trace(&["info", text(&path)]);
    for part in
        ["nano (built in), mostly IQ3_S", "recorded by strata", "8 layers, 64 experts each, 6 used", "cpu experts"]
    {
        assert!(r.out.contains(part), "{part}: {}", r.out);
    }
}

/// Tokens and experts follow from the model and the text alone.
#[test]
fn the_same_recording_twice_differs_in_its_times_alone() {
    let routing = |path: &Path| -> Vec<Value> {
        let rounds = lines(path).into_iter().filter(|line| line.get("tokens").is_some());
        rounds.map(|line| serde_json::json!([line["request"], line["tokens"], line["bytes"]])).collect()
    };
    let fixed = ["--spec", "2", "--draft-norm", "whole"];
    let ((_a, one), (_b, two)) = (recorded(&fixed), recorded(&[&fixed[..], &["--threads", "1"]].concat()));
    assert_eq!(routing(&one), routing(&two));
    let (_c, other) = recorded(&["--spec", "0", "--skip", "1"]);
    assert_ne!(routing(&one), routing(&other));
}

#[test]
fn an_answer_is_recorded_and_stays_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("answer.strace");
    let json = |more: &[&str]| -> Value {
        let r = run(&[&["run", "--json", QUESTION], more].concat());
        assert_eq!(r.code, Some(0), "{}", r.err);
        serde_json::from_str(&r.out).unwrap()
    };
    let (without, with) = (json(&[]), json(&["--trace", text(&path)]));
    assert_eq!((&with["tokens"], &with["text"]), (&without["tokens"], &without["text"]));
    let lines = lines(&path);
    let rounds = &lines[1..lines.len() - 1];
    let written: Vec<u64> = rounds.iter().filter(|r| r["phase"] == "decode").flat_map(kept).collect();
    let answer: Vec<u64> = with["tokens"].as_array().unwrap().iter().map(|t| t.as_u64().unwrap()).collect();
    assert_eq!(written, answer[..answer.len() - 1]);
    let read: usize = rounds.iter().filter(|r| r["phase"] == "prefill").map(|r| kept(r).len()).sum();
    assert_eq!(read as u64, with["timings"]["prompt_tokens"].as_u64().unwrap());
    assert_eq!(lines[lines.len() - 1]["end"]["rounds"], rounds.len());

    // Prompts that are recorded are answered the same way.
    let other = dir.path().join("prompt.strace");
    let r = trace(&["record", "-o", text(&other), "--prompt", QUESTION, "--prompt", "What is 2 + 2?"]);
    assert_eq!(r.code, Some(0), "{}", r.err);
    let first: Vec<u64> = self::lines(&other)[1..]
        .iter()
        .filter(|r| r["phase"] == "decode" && r["request"] == 0)
        .flat_map(kept)
        .collect();
    assert_eq!(first, written);
    assert_eq!(info(&other)["summary"]["requests"], 2);
    let r = trace(&[
        "record",
        "-o",
        text(&other),
        "--force",
        "--raw",
        "--prompt",
        "In the beginning",
        "--output-tokens",
        "5",
    ]);
    assert_eq!(r.code, Some(0), "{}", r.err);
    assert_eq!(info(&other)["summary"]["decode"]["kept"], 4);
    // Without --quiet a line says where it is.
    let r = run(&["run", "--trace", text(&path), "--force", QUESTION]);
    assert!(r.err.lines().any(|l| l.starts_with(&format!("trace: {}: ", text(&path)))), "{}", r.err);
}

#[test]
fn a_measurement_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bench.strace");
    let args = ["bench", "decode", "--prompt-tokens", "4", "--output-tokens", "3", "--repetitions", "2", "--json"];
    let r = run(&[&args[..], &["--trace", text(&path)]].concat());
    assert_eq!(r.code, Some(0), "{}", r.err);
    let document: Value = serde_json::from_str(&r.out).unwrap();
    let v = info(&path);
    // The warm-up is a request too.
    assert_eq!((&v["summary"]["requests"], &document["trace"]["lost"]), (&3.into(), &0.into()));
    assert_eq!(document["trace"]["bytes"], std::fs::metadata(&path).unwrap().len());
    let b = format!("decode --prompt-tokens 4 --output-tokens 3 --trace '{}' --force", text(&path));
    let r = run(&["bench", "ab", "decode --prompt-tokens 4 --output-tokens 3", &b, "--rounds", "2"]);
    assert_eq!(r.code, Some(0), "{}", r.err);
}

#[test]
fn text_is_written_to_a_file_or_to_stdout() {
    let (dir, path) = recorded(&[]);
    let (csv, jsonl) = (dir.path().join("t.csv"), dir.path().join("t.jsonl"));
    let shown = trace(&["csv", text(&path)]);
    let r = trace(&["csv", text(&path), "-o", text(&csv)]);
    assert_eq!((r.code, shown.code), (Some(0), Some(0)));
    assert_eq!(std::fs::read_to_string(&csv).unwrap(), shown.out);
    assert!(r.out.starts_with(&format!("{}: ", text(&csv))), "{}", r.out);
    let tokens = info(&path)["summary"]["prefill"]["tokens"].as_u64().unwrap()
        + info(&path)["summary"]["decode"]["tokens"].as_u64().unwrap();
    assert_eq!(shown.out.lines().count() as u64, 1 + 8 * tokens);
    assert_eq!(trace(&["jsonl", text(&path), "-o", text(&jsonl)]).code, Some(0));
    let (mut a, mut b) = (info(&path), info(&jsonl));
    [&mut a, &mut b].into_iter().for_each(|v| v["file"] = Value::Null);
    assert_eq!(a, b);
}

#[test]
fn what_is_there_stays_unless_it_may_be_replaced() {
    let (dir, path) = recorded(&[]);
    let before = std::fs::read(&path).unwrap();
    let refused = |args: &[&str], there: &Path| {
        let r = run(args);
        let want = format!("error: {} exists already; --force replaces it\n", text(there));
        assert_eq!((r.code, r.out.as_str(), r.err), (Some(1), "", want), "{args:?}");
    };
    refused(&["trace", "record", "--out", text(&path)], &path);
    refused(&["run", "--trace", text(&path), QUESTION], &path);
    refused(&["bench", "decode", "--trace", text(&path)], &path);
    refused(&["trace", "csv", text(&path), "-o", text(&path)], &path);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let fresh = dir.path().join("fresh.strace");
    std::fs::write(part(&fresh), "x").unwrap();
    refused(&["trace", "record", "--out", text(&fresh)], &part(&fresh));
    let r = trace(&["record", "--out", text(&fresh), "--force", "--prompt", QUESTION]);
    assert_eq!(r.code, Some(0), "{}", r.err);
    assert!(fresh.exists() && !part(&fresh).exists());
}

#[test]
fn a_broken_off_trace_is_read_with_a_warning_and_a_damaged_one_is_refused() {
    let (dir, path) = recorded(&[]);
    let bytes = std::fs::read(&path).unwrap();
    let other = dir.path().join("other.strace");
    std::fs::write(&other, &bytes[..bytes.len() - 50]).unwrap();
    let r = trace(&["info", text(&other)]);
    assert_eq!(r.code, Some(0), "{}", r.err);
    assert!(r.err.starts_with("warning: ") && r.err.contains("the recording was broken off: "), "{}", r.err);
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    std::fs::write(&other, &damaged).unwrap();
    for verb in ["info", "csv", "jsonl"] {
        let r = trace(&[verb, text(&other)]);
        assert_eq!((r.code, r.out.as_str()), (Some(1), ""));
        let start = format!("error: cannot read the trace: {} byte ", text(&other));
        assert!(r.err.starts_with(&start) && r.err.ends_with(": the file is damaged\n"), "{}", r.err);
    }
    for (name, content, want) in [
        (
            "model.gguf",
            &b"GGUF and so on and so on"[..],
            "byte 0: found something else, expected a trace, which begins with STRATATR",
        ),
        ("empty", b"", "byte 0: found something else, expected a trace"),
        ("t.jsonl", b"{\"a\": 1}\n", "line 1, column 4: found unknown field `a`, expected `strata_trace` or `meta`"),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        let r = trace(&["info", text(&path)]);
        assert_eq!((r.code, r.out.as_str()), (Some(1), ""));
        assert!(r.err.contains(&format!("error: cannot read the trace: {} {want}", text(&path))), "{}", r.err);
    }
    let r = trace(&["info", "nowhere.strace"]);
    assert_eq!(r.code, Some(1));
    assert!(r.err.starts_with("error: cannot read the trace: nowhere.strace: "), "{}", r.err);
}

#[test]
fn wrong_usage_is_2_with_what_was_found_and_expected() {
    for (args, want) in [
        (&["trace"][..], "record, info, csv, jsonl"),
        (&["trace", "record"], "--out <FILE>"),
        (
            &["trace", "record", "--out", "x", "--requests", "0"],
            "--requests is \"0\", expected a whole number from 1 to 100000",
        ),
        (
            &["trace", "record", "--out", "x", "--output-tokens", "-1"],
            "--output-tokens is \"-1\", expected a whole number",
        ),
        (&["trace", "record", "--out", "x", "--prompt", ""], "--prompt is \"\", expected a question"),
        (&["trace", "record", "--out", "x", "--raw"], "--prompt <TEXT>"),
        (&["trace", "record", "--out", "x", "--prompt", "a", "--requests", "2"], "cannot be used with"),
        (&["trace", "info", "x", "--force"], "unexpected argument '--force'"),
        (&["trace", "csv", "x", "--force"], "--output <OUT>"),
        (&["run", "--force", QUESTION], "--trace <FILE>"),
        (&["bench", "decode", "--force"], "--trace <FILE>"),
    ] {
        let r = run(args);
        assert_eq!((r.code, r.out.as_str()), (Some(2), ""), "{args:?}: {}", r.err);
        assert!(r.err.contains(want), "{args:?}: {}", r.err);
    }
    for (args, want) in [
        (&["--out", "nowhere/x"][..], "error: nowhere is no folder to write nowhere/x into"),
        (&["--out", "x", "nowhere.gguf"], "error: cannot open nowhere.gguf"),
        (&["--out", "x", "--corpus", "nowhere.txt"], "error: cannot read the corpus nowhere.txt"),
        (
            &["--out", "x", "--requests", "90000"],
            "fewer --requests, a smaller --skip, shorter --prompt-tokens or a longer --corpus",
        ),
        (&["--out", "x", "--output-tokens", "40000"], "at most 32768 are expected, what the model was trained for"),
    ] {
        let r = trace(&[&["record"], args].concat());
        assert_eq!((r.code, r.out.as_str()), (Some(1), ""), "{args:?}: {}", r.err);
        assert!(r.err.contains(want), "{args:?}: {}", r.err);
        assert!(!Path::new(env!("CARGO_TARGET_TMPDIR")).join("x.part").exists());
    }
}

#[test]
#[cfg(unix)]
fn an_interrupted_recording_keeps_what_it_has_under_another_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("long.strace");
    let args = ["trace", "record", "--out", text(&path), "--prompt-tokens", "16", "--requests", "1000"];
    let child = strata(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Until something is recorded.
    let size = || std::fs::metadata(part(&path)).map_or(0, |m| m.len());
    while size() < 5000 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let sent = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let r = finish(child.wait_with_output().unwrap());
    assert_eq!((r.code, r.out.as_str()), (Some(130), ""), "{}", r.err);
    assert!(r.err.contains(&format!("note: what was recorded is in {}\n", text(&part(&path)))), "{}", r.err);
    assert!(!path.exists());
    let r = trace(&["info", text(&part(&path))]);
    assert_eq!(r.code, Some(0), "{}", r.err);
    assert!(r.err.contains("the recording was broken off behind ") && r.out.contains("requests"), "{}{}", r.err, r.out);
}

#[test]
fn a_made_up_trace_is_what_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("synth.strace");
    let out = ["synth", "--out", text(&path)];
    let shape = ["--layers", "3", "--experts", "64", "--used", "4", "--tokens", "3000", "--requests", "5"];
    let asked = ["--zipf", "0.8", "--zipf-spread", "0", "--reuse", "0.4", "--window", "3", "--accept", "0.5"];
    let args = [&out[..], &shape, &asked].concat();
    let r = trace(&[&args[..], &["--json"]].concat());
    assert_eq!((r.code, r.err.as_str()), (Some(0), ""));
    let document: Value = serde_json::from_str(&r.out).unwrap();
    assert_eq!((&document["asked"]["zipf"], &document["measured"]["tokens"]), (&0.8.into(), &3000.into()));
    let near = |key: &str, want: f64, by: f64| {
        let found = document["measured"][key].as_f64().unwrap();
        assert!((found - want).abs() < by, "{key}: {found}, asked for {want}");
    };
    near("reuse", 0.4, 0.02);
    let said = info(&path);
    assert_eq!((&said["meta"]["origin"], &said["meta"]["layers"]), (&"synthetic".into(), &3.into()));
    assert_eq!(said["routing"], document["measured"]);
    assert_eq!(document["bytes"], std::fs::metadata(&path).unwrap().len());

    // What is there stays, and the same flags give the same bytes.
    let first = std::fs::read(&path).unwrap();
    let r = trace(&args);
    assert!(r.code == Some(1) && r.err.contains("exists already; --force replaces it"), "{}", r.err);
    let r = trace(&[&args[..], &["--force"]].concat());
    assert_eq!(r.code, Some(0), "{}", r.err);
    for part in ["asked  measured", "next-token reuse", "hits of the best 18 % of pairs", "share of drafts kept"] {
        assert!(r.out.contains(part), "{part}: {}", r.out);
    }
    assert_eq!(std::fs::read(&path).unwrap(), first);
}

#[test]
fn a_trace_that_cannot_be_made_up_is_refused_with_its_flag() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("synth.strace");
    for (flag, value, want) in [
        ("--used", "513", "--used is \"513\", expected a whole number from 1 to 512"),
        ("--layers", "0", "--layers is \"0\", expected a whole number from 1 to 65535"),
        ("--zipf", "-1", "--zipf is \"-1\", expected a number from 0 to 8"),
        ("--zipf", "NaN", "--zipf is \"NaN\", expected a number from 0 to 8"),
        ("--reuse", "1.5", "--reuse is \"1.5\", expected a number from 0 to 1"),
        ("--tokens", "1.5", "--tokens is \"1.5\", expected a whole number"),
        ("--accept", "often", "--accept is \"often\", expected a number"),
        ("--topic-share", "2", "--topic-share is \"2\", expected a number from 0 to 1"),
    ] {
        let r = trace(&["synth", "--out", text(&path), flag, value]);
        assert!(r.code == Some(2) && r.err.contains(want), "{flag} {value}: {:?} {}", r.code, r.err);
    }
    assert!(!path.exists());
}

#[cfg(unix)]
#[test]
fn what_is_no_file_is_not_replaced_and_what_is_read_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let trace = path("a.strace");
    let small = ["--layers", "2", "--experts", "8", "--used", "2", "--tokens", "20", "--requests", "1"];
    let made = run(&[&["trace", "synth", "-o", &trace], &small[..]].concat());
    assert_eq!(made.code, Some(0), "{}", made.err);
    let before = std::fs::read(&trace).unwrap();
    for verb in ["csv", "jsonl"] {
        let shown = run(&["trace", verb, &trace, "-o", &trace, "--force"]);
        assert_eq!(shown.code, Some(1));
        assert!(shown.err.contains("is what is read; expected another file to write"), "{}", shown.err);
        let shown = run(&["trace", verb, &trace, "-o", "/dev/null", "--force"]);
        assert!(shown.err.contains("/dev/null is not a regular file"), "{}", shown.err);
    }
    assert_eq!(std::fs::read(&trace).unwrap(), before);
}
