//! The program on a GPU, or on the one that `engine/cuda/emulator` makes: wherever things lie, answers are those of the CPU. Says so
//! where there is none.

use crate::common::{Run, run};
use crate::serve::Server;
use serde_json::{Value, json};

const QUESTION: &str = "What is the capital of France?";

/// Whether there is a GPU to test.
fn is_there() -> bool {
    let plan = run(&["plan", "--device", "cuda"]);
    let emulated = std::env::var_os("EMULATED_GPU_SEED").is_some();
    assert!(plan.code == Some(0) || !emulated, "the emulated GPU is not there: {}", plan.err);
    if plan.code != Some(0) {
        println!("skipped: {}", plan.err);
    }
    plan.code == Some(0)
}

fn answer(args: &[&str]) -> (Value, Run) {
    let run = run(&[&["run", "--json", "--max-tokens", "16"], args].concat());
    assert_eq!(run.code, Some(0), "{args:?}: {}", run.err);
    (serde_json::from_str(&run.out).unwrap(), run)
}

/// The number before a word in a text.
fn number_before(text: &str, word: &str) -> u64 {
    let before: Vec<&str> = text.split(word).next().unwrap().split_whitespace().collect();
    before.last().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("no number before {word}: {text}"))
}

#[test]
fn a_gpu_answers_as_the_cpu_does_wherever_experts_lie() {
    if !is_there() {
        return;
    }
    let (expected, _) = answer(&["--device", "cpu", QUESTION]);
    // Less than what is needed without experts is refused, with what would be.
    let little = run(&["run", "--device", "cuda", "--vram-budget", "64MiB", QUESTION]);
    assert_eq!(little.code, Some(1));
    assert!(little.err.contains("are needed without any expert, and 64 MiB are there"), "{}", little.err);
    // A twentieth of a larger budget stays free, too.
    let least = number_before(&little.err, " MiB are needed without any expert") * 21 / 20;
    let (mut some, mut all) = (false, false);
    for (more, drafts) in [(2, true), (2, false), (6, true), (400, true)] {
        let budget = format!("{}MiB", least + more);
        let no_drafts = if drafts { &[][..] } else { &["--spec", "0"] };
        let args = [&["--device", "cuda", "--vram-budget", &budget][..], no_drafts, &[QUESTION]].concat();
        let (found, _) = answer(&args);
        assert_eq!((&found["text"], &found["tokens"]), (&expected["text"], &expected["tokens"]), "{args:?}");
        let device = found["device"].as_str().unwrap();
        (some, all) = (some || device.contains("the others on the CPU"), all || device.contains("with all experts"));
    }
    assert!(some && all, "experts were never on both sides, or never all on the GPU");
}

#[test]
fn a_gpu_serves_answers_and_says_what_is_where() {
    if !is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // As little as lets some experts have slots, and their use be seen.
    let little = run(&["run", "--device", "cuda", "--vram-budget", "64MiB", QUESTION]);
    let least = number_before(&little.err, " MiB are needed without any expert") * 21 / 20;
    let traces = folder.path().to_str().unwrap();
    let budget = format!("{}MiB", least + 2);
    let server = Server::start(&["--device", "cuda", "--vram-budget", &budget, "--policy", "lru", "--trace", traces]);
    let asked = json!({"temperature": 0, "max_tokens": 12, "messages": [{"role": "user", "content": QUESTION}]});
    let replies: Vec<String> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..2).map(|_| scope.spawn(|| server.post(&asked))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    for reply in replies {
        assert!(reply.contains("The capital of France is Paris."), "{reply}");
    }
    let status: Value = serde_json::from_str(server.get("/v1/status").split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let (code, err) = server.end();
    assert_eq!(code, Some(0), "{err}");
    assert!(status["device"].as_str().unwrap().contains("GPU"), "{status}");
    let layers = status["expert_cache"].as_array().unwrap();
    assert!(layers.len() == 8 && layers.iter().any(|layer| layer["hits"].as_u64() > Some(0)), "{status}");
    assert_eq!(status["expert_cache_on_paper"], false);
    // What was recorded of it is what the trace has.
    let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().path()).collect();
    let [trace] = files.as_slice() else { panic!("{files:?}") };
    let info = run(&["trace", "info", trace.to_str().unwrap()]);
    assert_eq!(info.code, Some(0), "{}", info.err);
    assert!(info.out.contains("cache hits"), "{}", info.out);
}
