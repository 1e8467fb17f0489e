//! `strata bench`: what it prints, in the smallest configuration of each measurement, and what is wrong in a sentence.
//! No test asserts a time.

use crate::common::{Model, Run, finish, nano, run, strata, tiny};
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use strata_gguf::{ArrayValue, Value as Meta};

fn bench(args: &[&str]) -> Run {
    run(&[&["bench"], args].concat())
}

/// The one document that a measurement prints.
fn json(args: &[&str]) -> Value {
    let r = bench(&[args, &["--json"]].concat());
    assert_eq!(r.code, Some(0), "{args:?}: {}", r.err);
    assert!(r.err.lines().all(|l| l.starts_with("note: ")), "{}", r.err);
    serde_json::from_str(&r.out).unwrap_or_else(|e| panic!("{e}: {}", r.out))
}

/// Checks what all documents have, and that each result has so many samples, all above 0.
fn whole<'a>(document: &'a Value, what: &str, samples: usize) -> &'a [Value] {
    assert_eq!((&document["schema"], &document["bench"]), (&1.into(), &what.into()));
    let date = document["date"].as_str().unwrap();
    assert!(date.len() == 20 && date.ends_with('Z'), "{date}");
    assert!(document["command"].as_array().unwrap().contains(&what.into()));
    assert!(document["machine"]["logical_cpus"].as_u64().unwrap() > 0);
    if cfg!(target_os = "linux") {
        assert_eq!(document["before"]["load_average"].as_array().unwrap().len(), 3);
        assert!(document["memory"]["peak_resident_bytes"].as_u64().unwrap() > 1 << 20);
    }
    let results = document["results"].as_array().unwrap();
    for result in results {
        let all: Vec<f64> = result["samples"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
        assert_eq!(all.len(), samples, "{result}");
        assert!(all.iter().all(|v| *v > 0.0), "{result}");
        let median = result["median"].as_f64().unwrap();
        match result["interval"].as_array() {
            None => assert!(samples < 6),
            Some(ends) if samples < 6 => panic!("{ends:?} of {samples} samples"),
            Some(ends) => assert!(ends[0].as_f64().unwrap() <= median && median <= ends[1].as_f64().unwrap()),
        }
    }
    results
}

/// A small model with a vocabulary of its own: the 256 bytes, some names, and here the one merge that it lists.
fn synthetic(dir: &Path) -> String {
    let mut model = Model::read(&tiny());
    for (key, value) in &mut model.meta {
        match (key.as_str(), value) {
            ("tokenizer.ggml.tokens", Meta::Array(ArrayValue::String(tokens))) => tokens[299] = "ab".into(),
            ("tokenizer.ggml.token_type", Meta::Array(ArrayValue::I32(types))) => types[299] = 1,
            _ => {}
        }
    }
    let path = dir.join("synthetic.gguf");
    model.write(&path);
    path.to_str().unwrap().to_owned()
}

#[test]
fn memory_is_read_by_each_number_of_threads() {
    let document = json(&["memory", "--threads", "1", "--size", "2M", "--repetitions", "3"]);
    let results = whole(&document, "memory", 3);
    assert_eq!((results.len(), &results[0]["threads"], &results[0]["unit"]), (1, &1.into(), &"GB/s".into()));
    assert_eq!(document["settings"]["bytes"], 2 << 20);
    let r = bench(&["memory", "--size", "1M", "--repetitions", "1"]);
    assert_eq!(r.code, Some(0), "{}", r.err);
    assert!(r.out.contains("threads") && r.out.contains("GB/s"), "{}", r.out);
}

#[test]
fn kernels_stand_beside_the_ceiling() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("a/b");
    let args = ["--types", "q8_0,F16", "--tokens", "1,2", "--threads", "1", "--seconds", "0.02"];
    let document = json(&[&["kernels", "--out", out.to_str().unwrap()], &args[..]].concat());
    let results = whole(&document, "kernels", 15);
    let cells: Vec<_> = results.iter().map(|r| (r["type"].as_str().unwrap(), r["tokens"].as_u64().unwrap())).collect();
    assert_eq!(cells, [("Q8_0", 1), ("Q8_0", 2), ("F16", 1), ("F16", 2)]);
    let ceiling = document["ceiling"]["median"].as_f64().unwrap();
    for r in results {
        let share = r["median"].as_f64().unwrap() / ceiling;
        assert!((r["share_of_ceiling"].as_f64().unwrap() - share).abs() < 1e-9, "{r}");
        let rate = r["median"].as_f64().unwrap() * 1e9 * 8.0 / r["bits_per_weight"].as_f64().unwrap();
        let products = rate * r["tokens"].as_f64().unwrap();
        assert!((r["products_per_second"].as_f64().unwrap() / products - 1.0).abs() < 1e-9, "{r}");
    }
    assert_eq!(document["settings"]["threads"], 1);
    assert!(out.join("criterion/F16/2/new/sample.json").is_file());
    let csv = std::fs::read_to_string(out.join("samples.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 2 * 9 + 4 * 15, "{csv}");
}

#[test]
fn criterion_leaves_nothing_on_the_screen_nor_on_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["bench", "kernels", "--types", "Q4_0", "--tokens", "1", "--seconds", "0.01", "--isa", "scalar"];
    let r = finish(strata(&args).env("TMPDIR", dir.path()).output().unwrap());
    assert_eq!(r.code, Some(0), "{}", r.err);
    assert!(!r.out.contains("time:") && !r.err.contains("Benchmarking"), "{}{}", r.out, r.err);
    assert!(r.out.contains("scalar") && r.out.contains("Q4_0"), "{}", r.out);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn decode_writes_so_many_tokens_in_each_repetition() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    let args = ["--prompt-tokens", "8", "--output-tokens", "3", "--repetitions", "2", "--threads", "1", "--out", out];
    let document = json(&[&["decode"], &args[..]].concat());
    let results = whole(&document, "decode", 2);
    assert_eq!(results.len(), 1);
    for timing in results[0]["timings"].as_array().unwrap() {
        let count = |key: &str| timing[key].as_u64().unwrap();
        assert_eq!((count("prompt_tokens"), count("output_tokens"), count("cached_tokens")), (8, 3, 0));
    }
    assert_eq!((&document["model"]["type"], &document["model"]["bytes"]), (&"IQ3_S".into(), &17_858_496.into()));
    let written = std::fs::read_to_string(dir.path().join("result.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), document);
    let csv = std::fs::read_to_string(dir.path().join("samples.csv")).unwrap();
    assert_eq!(csv.lines().count(), 3, "{csv}");

    // A second measurement does not write over the first.
    let r = bench(&["decode", "--out", out]);
    assert_eq!(r.code, Some(1));
    assert!(r.err.contains("holds a result.json already"), "{}", r.err);
}

#[test]
fn prefill_reads_each_length_in_each_repetition() {
    let file = nano();
    let args = ["--prompt-tokens", "4,9", "--repetitions", "2", "--warm-up", "0", "--prefill-chunk", "3"];
    let document = json(&[&["prefill", file.to_str().unwrap()], &args[..]].concat());
    let results = whole(&document, "prefill", 2);
    let labels: Vec<_> = results.iter().map(|r| r["label"].as_str().unwrap()).collect();
    assert_eq!(labels, ["prefill 4", "prefill 9"]);
    assert_eq!(document["settings"]["prefill_chunk"], 3);
    assert!(document["model"]["file"].as_str().unwrap().ends_with("nano-IQ3_S.gguf"));
}

#[test]
fn a_line_for_each_repetition_then_the_median() {
    let r = bench(&["decode", "--prompt-tokens", "4", "--output-tokens", "2", "--repetitions", "2"]);
    assert_eq!(r.code, Some(0), "{}", r.err);
    for part in ["  1: read 4 at ", "  2: read 4 at ", "decode 2 behind 4", "95 % interval", "peak memory"] {
        assert!(r.out.contains(part), "{part}: {}", r.out);
    }
}

#[test]
fn text_is_cut_by_the_models_own_tokenizer() {
    let dir = tempfile::tempdir().unwrap();
    let model = synthetic(dir.path());
    let corpus = dir.path().join("corpus.txt");
    std::fs::write(&corpus, "abc".repeat(20)).unwrap();
    let args = ["--prompt-tokens", "5", "--repetitions", "2", "--corpus", corpus.to_str().unwrap()];
    whole(&json(&[&["prefill", &model], &args[..]].concat()), "prefill", 2);
    let r = bench(&["prefill", &model, "--prompt-tokens", "50", "--corpus", corpus.to_str().unwrap()]);
    assert_eq!(r.code, Some(1));
    assert!(r.err.contains("tokens and 400 different ones are to be read"), "{}", r.err);
}

#[test]
fn a_and_b_take_turns() {
    let own = env!("CARGO_BIN_EXE_strata");
    let a = "prefill --prompt-tokens 4,6 --warm-up 0 --threads 1";
    let b = format!("'{own}' bench {a} --prefill-chunk 2");
    let document = json(&["ab", a, &b, "--rounds", "2"]);
    let results = whole(&document, "ab", 2);
    assert_eq!(results.len(), 2);
    for r in results {
        for (i, ratio) in r["samples"].as_array().unwrap().iter().enumerate() {
            let [a, b] = ["a", "b"].map(|side| r[side]["samples"][i].as_f64().unwrap());
            assert!((ratio.as_f64().unwrap() - b / a).abs() < 1e-9, "{r}");
        }
    }
    let runs = document["runs"].as_array().unwrap();
    let first: Vec<_> = runs.iter().map(|r| r["first"].as_str().unwrap()).collect();
    assert_eq!(first, ["A", "B"]);
    assert_eq!(runs[0]["b"]["settings"]["prefill_chunk"], 2);
    let r = bench(&["ab", a, a, "--rounds", "1"]);
    assert_eq!(r.code, Some(0), "{}", r.err);
    assert!(r.out.contains("B/A") && r.out.contains("too few rounds to tell"), "{}", r.out);
    assert!(r.err.contains("note: fewer than 6 rounds cannot tell"), "{}", r.err);
}

#[test]
fn a_side_that_fails_says_why() {
    let r = bench(&["ab", "decode --threads 1 nowhere.gguf", "decode"]);
    assert_eq!(r.code, Some(1));
    assert!(r.err.contains("error: A in round 1 failed: cannot open nowhere.gguf"), "{}", r.err);
}

/// Stands for another build: it knows one flag, and dies without a word when it is to measure.
#[cfg(unix)]
fn other_build(dir: &Path, last: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = dir.join("strata");
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *frob*) echo \"error: unexpected argument '--frob' found\" >&2; exit 2;; \
         *--help) exit 0;; esac\n{last}\n"
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
#[cfg(unix)]
fn the_flags_of_both_sides_are_looked_at_before_the_first_round() {
    let dir = tempfile::tempdir().unwrap();
    let other = other_build(dir.path(), "kill -9 $$");
    for (b, want) in [
        ("decode --threads 100000".to_owned(), "error: B: --threads is \"100000\", expected "),
        ("decode --frob".to_owned(), "B: unexpected argument '--frob' found"),
        (format!("{other} decode --frob"), "B: unexpected argument '--frob' found"),
    ] {
        let r = bench(&["ab", "decode nowhere.gguf", &b]);
        assert_eq!((r.code, r.out.as_str()), (Some(2), ""), "{b}: {}", r.err);
        assert!(r.err.contains(want), "{b}: {}", r.err);
    }
    let r = bench(&["ab", &format!("{other} decode"), "decode"]);
    assert_eq!(r.code, Some(1));
    assert!(r.err.contains("error: A in round 1 failed: signal 9 ended it"), "{}", r.err);
}

#[test]
#[cfg(unix)]
fn a_comparison_that_is_ended_leaves_no_run_behind() {
    let dir = tempfile::tempdir().unwrap();
    let pid = dir.path().join("pid");
    let other = other_build(dir.path(), &format!("echo $$ > {}; exec sleep 60", pid.display()));
    let child = strata(&["bench", "ab", &format!("{other} decode"), "decode"]);
    let child = { child }.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let read = || std::fs::read_to_string(&pid).ok().filter(|text| text.ends_with('\n'));
    let run = std::iter::repeat_with(|| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        read()
    });
    let run = run.take(1200).flatten().next().expect("the run began");
    let kill = |signal: &str, pid: &str| {
        std::process::Command::new("kill").args([signal, pid.trim()]).stderr(Stdio::null()).status().unwrap().success()
    };
    assert!(kill("-TERM", &child.id().to_string()));
    let r = finish(child.wait_with_output().unwrap());
    assert_eq!(r.code, Some(143), "{}", r.err);
    assert!(!kill("-0", &run), "the run goes on");
}

/// A limit of memory stands for a machine with less.
#[test]
#[cfg(target_os = "linux")]
fn memory_that_is_not_there_is_said() {
    let own = env!("CARGO_BIN_EXE_strata");
    let script = format!("ulimit -v 1000000; exec '{own}' bench memory --size 1500M --threads 1");
    let r = finish(std::process::Command::new("sh").args(["-c", &script]).output().unwrap());
    // A machine of less than 2 GB refuses the size itself.
    assert!(matches!(r.code, Some(1 | 2)), "{:?} {}", r.code, r.err);
    assert!(r.code == Some(2) || r.err.contains("error: the system does not give 1.573 GB of memory"), "{}", r.err);
}

#[test]
fn wrong_usage_is_2_with_what_was_found_and_expected() {
    for (args, want) in [
        (&[][..], "memory, kernels, hardware, decode, prefill, ab"),
        (&["frob"], "unrecognized subcommand 'frob'"),
        (&["memory", "--threads", "0"], "--threads is \"0\", expected whole numbers from 1 to "),
        (&["memory", "--threads", "1,100000"], "--threads is \"1,100000\", expected whole numbers from 1 to "),
        (&["memory", "--size", "5"], "--size is \"5\", expected a size from 1M to "),
        (&["memory", "--size", "9999999G"], "--size is \"9999999G\", expected a size from 1M to "),
        (&["memory", "--repetitions", "0"], "--repetitions is \"0\", expected a whole number from 1 to 10000"),
        (&["kernels", "--types", "Q4_K,Q9"], "--types is \"Q9\", expected all, or some of F32, F16"),
        (&["kernels", "--tokens", ""], "--tokens is \"\", expected whole numbers from 1 to 4096"),
        (&["kernels", "--seconds", "nan"], "--seconds is \"nan\", expected a number of seconds from 0.01 to 60"),
        (&["kernels", "--threads", "1000"], "--threads is \"1000\", expected at most "),
        (&["kernels", "--isa", "mmx"], "--isa is \"mmx\", expected one of auto, scalar, avx2, avx512"),
        (&["decode", "--repetitions", "0"], "--repetitions is \"0\", expected a whole number from 1 to 10000"),
        (&["decode", "--repetitions", "-3"], "--repetitions is \"-3\", expected a whole number"),
        (&["decode", "--output-tokens", "1"], "--output-tokens is \"1\", expected a whole number from 2 to 1048576"),
        (&["decode", "--prompt-tokens", "1,2"], "--prompt-tokens is \"1,2\", expected a whole number from 1"),
        (&["decode", "--threads", "1024"], "--threads is \"1024\", expected at most "),
        (&["decode", "--temp", "1"], "unexpected argument '--temp'"),
        (&["prefill", "--prompt-tokens", "8,0"], "--prompt-tokens is \"8,0\", expected whole numbers from 1 to"),
        (
            &["prefill", "--prefill-chunk", "16385"],
            "--prefill-chunk is \"16385\", expected a whole number from 0 to 16384",
        ),
        (&["ab", "decode"], "<B>"),
        (&["ab", "decode", "frob"], "B is \"frob\", expected decode or prefill"),
        (&["ab", "decode", "prefill"], "B is \"prefill\", expected decode, as A is"),
        (&["ab", "decode --json", "decode"], "expected no --json"),
        (&["ab", "decode", "decode", "--rounds", "0"], "--rounds is \"0\", expected a whole number from 1 to 10000"),
    ] {
        let r = bench(args);
        assert_eq!((r.code, r.out.as_str()), (Some(2), ""), "{args:?}: {}", r.err);
        assert!(r.err.contains(want), "{args:?}: {}", r.err);
    }
}

#[test]
fn threads_from_elsewhere_are_named_as_such() {
    let r = finish(strata(&["bench", "decode"]).env("STRATA_THREADS", "1024").output().unwrap());
    assert_eq!((r.code, r.out.as_str()), (Some(2), ""));
    assert!(r.err.contains("error: STRATA_THREADS is \"1024\", expected at most "), "{}", r.err);
}

#[test]
fn what_cannot_be_measured_is_1_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (short, binary) = (file("short.txt", b"Not much."), file("binary.txt", b"\xff\xfe"));
    let (lines, plain) = (file("lines.jsonl", b"{\"text\": \"a\"}\nb\n"), file("plain", b""));
    let below = format!("{plain}/x");
    for (args, want) in [
        (&["decode", "nowhere.gguf"][..], "cannot open nowhere.gguf"),
        (&["decode", "--corpus", "nowhere.txt"], "cannot read the corpus nowhere.txt"),
        (&["decode", "--corpus", &short], "short.txt has "),
        (&["decode", "--corpus", &binary], "binary.txt is not UTF-8, and text in UTF-8 is expected"),
        (&["decode", "--corpus", &lines], "line 2 is not what is expected"),
        (
            &["prefill", "--prompt-tokens", "40000", "--repetitions", "1", "--warm-up", "0"],
            "at most 32768 are expected",
        ),
        (&["decode", "--skip", "1000000"], "a smaller --skip"),
        (&["decode", "--prompt-tokens", "40000"], "at most 32768 are expected"),
        (&["decode", "--out", &below], "cannot make the folder"),
        (&["decode", "--out", &plain], "plain is a file, and a folder is expected"),
    ] {
        let r = bench(args);
        assert_eq!((r.code, r.out.as_str()), (Some(1), ""), "{args:?}: {}", r.err);
        let error = r.err.lines().find(|l| l.starts_with("error: ")).unwrap_or_default();
        assert!(error.contains(want), "{args:?}: {}", r.err);
    }
}

#[test]
#[cfg(unix)]
fn an_interrupt_ends_it_and_leaves_nothing_behind() {
    for args in [
        &["bench", "decode", "--repetitions", "1000", "--prompt-tokens", "8"][..],
        &["bench", "kernels", "--seconds", "0.2"],
        &["bench", "memory", "--repetitions", "10000"],
        &["bench", "ab", "decode", "decode"],
    ] {
        let dir = tempfile::tempdir().unwrap();
        let child =
            strata(args).env("TMPDIR", dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1500));
        let sent = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let r = finish(child.wait_with_output().unwrap());
        assert_eq!(r.code, Some(130), "{args:?}: {}", r.err);
        assert!(!r.err.contains("error"), "{args:?}: {}", r.err);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{args:?}");
    }
}

#[test]
fn hardware_becomes_a_profile_that_is_not_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let (profile, disk) = (dir.path().join("desk.toml"), dir.path().join("disk"));
    std::fs::write(&disk, vec![7; 1 << 20]).unwrap();
    let out = profile.to_str().unwrap();
    let small = ["--threads", "1", "--size", "1M", "--repetitions", "2", "--types", "Q2_0", "--seconds", "0.01"];
    let mut args = [&["hardware", "-o", out], &small[..]].concat();
    if cfg!(target_os = "linux") {
        args.extend(["--disk", disk.to_str().unwrap()]);
    }
    let document = json(&args);
    assert_eq!((&document["bench"], &document["settings"]["threads"]), (&"hardware".into(), &vec![1].into()));
    let read = strata_config::HardwareProfile::from_file(&profile).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), document["profile"]);
    assert_eq!((read.name.as_str(), &read.gpu, &read.link), ("desk", &None, &None));
    let kernels: Vec<_> = read.cpu.kernels.iter().map(|k| (k.ty.as_str(), k.tokens, k.threads)).collect();
    assert_eq!((read.cpu.read_gb_s.len(), kernels), (1, vec![("Q2_0", 1, 1), ("Q2_0", 4, 1)]));
    assert_eq!(read.ssd.is_some(), cfg!(target_os = "linux"));
    assert!(read.numbers().iter().all(|n| !n.assumed()), "{read:?}");
    let labels: Vec<_> = document["results"].as_array().unwrap().iter().map(|r| r["label"].as_str().unwrap()).collect();
    assert_eq!(labels[..4], ["memory x 1", "waking", "Q2_0 x 1", "Q2_0 x 4"]);

    let before = std::fs::read(&profile).unwrap();
    let r = bench(&args);
    assert_eq!(r.code, Some(1));
    assert!(r.err.contains("desk.toml is there already; --force writes over it"), "{}", r.err);
    assert_eq!(std::fs::read(&profile).unwrap(), before);
    let r = bench(&[&args[..], &["--force", "--name", "other"]].concat());
    assert_eq!(r.code, Some(0), "{}", r.err);
    assert!(r.out.contains("written: ") && r.out.contains("waking"), "{}", r.out);
    assert_eq!(strata_config::HardwareProfile::from_file(&profile).unwrap().name, "other");

    // Without a file the profile itself is what is printed.
    let r = bench(&[&["hardware"], &small[..]].concat());
    assert!(r.code == Some(0) && r.out.contains("[cpu]\n") && r.out.contains("name = \"this-machine\""), "{}", r.out);
    let r = bench(&["hardware", "-o", "/nowhere/at/all.toml"]);
    assert!(r.code == Some(1) && r.err.contains("is no folder"), "{}", r.err);
    let r = bench(&["hardware", "--disk", "/nowhere"]);
    assert!(r.code == Some(1) && r.err.contains("cannot read /nowhere"), "{}", r.err);
}
