//! `--device`, `strata plan` and profiles, where there is no GPU: one that is there is hidden.

use crate::common::{Run, finish, nano, strata, tiny};
use serde_json::Value;

/// Runs the binary as on a machine without a GPU.
fn run(args: &[&str]) -> Run {
    finish(strata(args).env("CUDA_VISIBLE_DEVICES", "").output().unwrap())
}

fn json(run: &Run) -> Value {
    assert_eq!(run.code, Some(0), "{}", run.err);
    serde_json::from_str(&run.out).unwrap()
}

#[test]
fn the_cpu_answers_where_there_is_no_gpu() {
    let answer = |device: &str| {
        let run = run(&["run", "--device", device, "--json", "--max-tokens", "8", "What is the capital of France?"]);
        (json(&run), run.err)
    };
    let ((cpu, _), (auto, err)) = (answer("cpu"), answer("auto"));
    assert_eq!(cpu["tokens"], auto["tokens"]);
    assert!(auto["device"].as_str().unwrap().starts_with("the CPU, "), "{auto}");
    // A machine without a driver is nothing to warn of; one whose GPU is hidden from us has one.
    assert!(!err.contains("no NVIDIA driver"), "{err}");
}

#[test]
fn a_gpu_that_is_asked_for_and_not_there_is_a_sentence() {
    let profile = tempfile::NamedTempFile::new().unwrap();
    for verb in [
        &["run", "Hello", "--device", "cuda"][..],
        &["run", "Hello", "--device", "cuda:7"],
        &["serve", "--port", "0", "--device", "cuda"],
        &["bench", "decode", "--device", "cuda", "--repetitions", "1"],
        &["trace", "record", "--device", "cuda", "--force", "--out", profile.path().to_str().unwrap()],
        &["plan", "--device", "cuda"],
    ] {
        let run = run(verb);
        assert_eq!(run.code, Some(1), "{verb:?}: {}", run.err);
        let errors: Vec<&str> = run.err.lines().filter(|line| line.starts_with("error: ")).collect();
        let [error] = errors[..] else { panic!("{verb:?}: {}", run.err) };
        assert!(error.starts_with("error: --device cuda") && error.contains("cannot be used: "), "{error}");
    }
}

#[test]
fn devices_and_budgets_that_are_none_are_wrong_usage() {
    for (args, expected) in [
        (&["--device", "gpu"][..], "--device is \"gpu\", expected auto, cpu, cuda or cuda:N with the number of a GPU"),
        (&["--vram-budget", "much"], "--vram-budget is \"much\", expected a number of bytes, such as 12GiB or 800MB"),
        (&["--ram-budget", "0"], "--ram-budget is \"0\", expected a number of bytes, such as 12GiB or 800MB"),
    ] {
        let run = run(&[&["plan", "nano"], args].concat());
        assert_eq!(run.code, Some(2), "{}", run.err);
        assert!(run.err.contains(expected), "{}", run.err);
    }
}

#[test]
fn a_plan_for_another_machine_needs_no_gpu() {
    for model in [nano(), tiny()] {
        let model = model.to_str().unwrap();
        let plan = json(&run(&["plan", model, "--vram-budget", "12GiB", "--ram-budget", "64GiB", "--json"]));
        let gpu = &plan["gpu"];
        let n = |key: &str| gpu[key].as_u64().unwrap();
        let parts =
            ["dense", "draft_layer", "caches", "states", "windows", "scratch", "reserve", "slots_bytes", "free"];
        assert_eq!(parts.map(n).iter().sum::<u64>(), 12 << 30);
        assert_eq!((n("slots"), n("budget")), (plan["experts"].as_u64().unwrap(), 12 << 30));
        assert_eq!((plan["ram"]["pageable"].as_u64(), plan["ram"]["budget"].as_u64()), (Some(0), Some(64 << 30)));
        assert_eq!(plan["warnings"], serde_json::json!([]));
    }
}

#[test]
fn a_longer_context_leaves_fewer_experts_and_what_is_reduced_is_said() {
    let plan = |ctx: &str| json(&run(&["plan", "--vram-budget", "400MiB", "--ctx", ctx, "--slots", "100", "--json"]));
    let (short, long) = (plan("256"), plan("2048"));
    assert!(long["gpu"]["caches"].as_u64() > short["gpu"]["caches"].as_u64());
    let few = run(&["plan", "--vram-budget", "300MiB", "--ram-budget", "1MB", "--slots", "10"]);
    assert_eq!(few.code, Some(0), "{}", few.err);
    assert!(few.out.contains("10 of "), "{}", few.out);
    assert!(few.err.contains("warning: ") && few.err.contains("do not fit 1.000 MB of memory"), "{}", few.err);
    let none = run(&["plan", "--vram-budget", "1MiB"]);
    assert_eq!(none.code, Some(0), "{}", none.err);
    assert!(none.err.contains("the GPU has no room: ") && none.err.contains("; the CPU would compute"), "{}", none.err);
    let refused = run(&["plan", "--vram-budget", "1MiB", "--device", "cuda"]);
    assert_eq!(refused.code, Some(1), "{}", refused.err);
    assert!(refused.err.contains("error: --device cuda cannot be used: the GPU has no room: "), "{}", refused.err);
}

#[test]
fn without_a_gpu_everything_is_in_memory() {
    let run = run(&["plan", "nano", "--device", "cpu"]);
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""));
    for line in ["memory\n", "other weights", "n-gram table", "the CPU would compute"] {
        assert!(run.out.contains(line), "{}", run.out);
    }
}

#[test]
fn a_trace_makes_a_profile_of_its_model_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (trace, profile) = (path("nano.strace"), path("profile.json"));
    let args = ["--requests", "1", "--prompt-tokens", "16", "--output-tokens", "8"];
    let recorded = run(&[&["trace", "record", "--out", &trace], &args[..]].concat());
    assert_eq!(recorded.code, Some(0), "{}", recorded.err);
    let made = run(&["trace", "profile", &trace, "--out", &profile]);
    assert_eq!(made.code, Some(0), "{}", made.err);
    assert!(
        made.out.contains("the experts of 23 tokens") || made.out.contains("the experts of 24 tokens"),
        "{}",
        made.out
    );
    let read: Value = serde_json::from_str(&std::fs::read_to_string(&profile).unwrap()).unwrap();
    let layers = read["counts"].as_array().unwrap();
    let uses = |layer: &Value| layer.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum::<u64>();
    let tokens = read["tokens"].as_u64().unwrap();
    // Every kept token uses equally many experts in every layer.
    assert!(layers.iter().all(|layer| uses(layer) == uses(&layers[0]) && uses(layer) % tokens == 0));
    let again = run(&["trace", "profile", &trace, "--out", &profile]);
    assert_eq!(again.code, Some(1));
    assert!(again.err.contains("exists already; --force replaces it"), "{}", again.err);
    let good = run(&["run", "--expert-profile", &profile, "--max-tokens", "2", "Hello"]);
    assert_eq!(good.code, Some(0), "{}", good.err);
    let tiny = tiny();
    let other = run(&["run", "--raw", "--model", tiny.to_str().unwrap(), "--expert-profile", &profile, "Hello"]);
    assert_eq!(other.code, Some(1));
    assert!(
        other.err.contains("error: cannot read the expert profile ") && other.err.contains("as the model has"),
        "{}",
        other.err
    );
}
