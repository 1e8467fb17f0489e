//! `strata run`: answers, their form, and what is wrong in a sentence.

use crate::common::{Model, Run, finish, nano, run, strata, tiny};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

const QUESTION: &str = "What is the capital of France?";
const ANSWER: &str = "The capital of France is Paris.\n";

fn json(args: &[&str]) -> serde_json::Value {
    let r = run(&[&["run", "--json"], args].concat());
    assert_eq!(r.code, Some(0), "{}", r.err);
    serde_json::from_str(&r.out).unwrap_or_else(|e| panic!("{e}: {}", r.out))
}

fn piped(mut command: Command, input: &[u8]) -> Run {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    finish(child.wait_with_output().unwrap())
}

#[test]
fn the_built_in_model_answers() {
    let r = run(&["run", QUESTION]);
    assert_eq!((r.code, r.out.as_str()), (Some(0), ANSWER), "{}", r.err);
    assert_eq!(r.err.lines().count(), 1, "{}", r.err);
    assert!(r.err.contains("prompt 19 tokens") && r.err.contains("answer 8 tokens"), "{}", r.err);
    let r = run(&["run", "--quiet", QUESTION]);
    assert_eq!((r.code, r.out.as_str(), r.err.as_str()), (Some(0), ANSWER, ""));
}

#[test]
fn the_prompt_may_come_from_stdin() {
    for input in [QUESTION.to_owned(), format!("{QUESTION}\n"), format!("{QUESTION}\r\n")] {
        assert_eq!(piped(strata(&["run"]), input.as_bytes()).out, ANSWER, "{input:?}");
    }
    let r = piped(strata(&["run"]), b"\xff\xfe");
    assert_eq!(r.code, Some(1));
    assert!(r.err.contains("UTF-8"), "{}", r.err);
}

#[test]
fn json_holds_the_answer_and_its_figures() {
    let v = json(&[QUESTION]);
    assert_eq!(v["text"], ANSWER.trim_end());
    assert_eq!((&v["finish"], &v["thinking"], &v["seed"]), (&"stop".into(), &"".into(), &serde_json::Value::Null));
    assert_eq!(v["tokens"].as_array().unwrap().len(), 8);
    let t = &v["timings"];
    assert_eq!((&t["prompt_tokens"], &t["cached_tokens"], &t["output_tokens"]), (&19.into(), &0.into(), &8.into()));
    for rate in ["prompt_tokens_per_second", "output_tokens_per_second", "load_seconds"] {
        assert!(t[rate].as_f64().unwrap() > 0.0, "{rate}");
    }
}

#[test]
fn thinking_is_told_from_the_answer() {
    let v = json(&["--think", "What is 12 + 30?"]);
    assert!(v["thinking"].as_str().unwrap().contains("42"), "{v}");
    assert!(!v["text"].as_str().unwrap().contains("think>"), "{v}");
    // A pipe gets the answer alone.
    let r = run(&["run", "--think", "What is 12 + 30?"]);
    assert_eq!(r.out.trim_end(), v["text"].as_str().unwrap());
}

#[test]
fn limits_and_the_system_message_count() {
    let v = json(&["--max-tokens", "3", QUESTION]);
    assert_eq!((&v["finish"], v["tokens"].as_array().unwrap().len()), (&"length".into(), 3));
    let v = json(&["--ctx", "24", QUESTION]);
    assert_eq!(v["finish"], "context");
    let r = run(&["run", "--ctx", "19", QUESTION]);
    assert_eq!(r.code, Some(1));
    assert!(r.err.contains("19 tokens") && r.err.contains("--ctx"), "{}", r.err);
    let with = json(&["--system", "Be brief.", QUESTION]);
    assert!(with["timings"]["prompt_tokens"].as_u64().unwrap() > 19, "{with}");
}

#[test]
fn a_context_beyond_the_trained_one_is_lowered_with_a_line() {
    let r = run(&["run", "--ctx", "100000", QUESTION]);
    assert_eq!((r.code, r.out.as_str()), (Some(0), ANSWER));
    assert!(r.err.contains("lowered from 100000 to 32768"), "{}", r.err);
}

#[test]
fn seeds_decide_what_is_drawn() {
    let draw = |seed: &str| json(&["--temp", "1.5", "--seed", seed, "--max-tokens", "24", "Tell me a story."]);
    let (a, b, c) = (draw("1"), draw("1"), draw("2"));
    assert_eq!((&a["tokens"], &a["seed"]), (&b["tokens"], &1.into()));
    assert_ne!(a["tokens"], c["tokens"]);
    // Without a seed each run has its own, and says which.
    let free = json(&["--temp", "1.5", "--max-tokens", "24", "Tell me a story."]);
    let seed = free["seed"].as_u64().unwrap().to_string();
    assert_eq!(draw(&seed)["tokens"], free["tokens"]);
}

#[test]
fn threads_chunks_and_instructions_do_not_change_the_answer() {
    let question = "Tell me a story about a fox.";
    let expected = json(&[question])["tokens"].clone();
    let settings = [
        ["--threads", "1"],
        ["--threads", "2"],
        ["--prefill-chunk", "1"],
        ["--prefill-chunk", "7"],
        ["--isa", "scalar"],
    ];
    for args in settings {
        assert_eq!(json(&[&args[..], &[question]].concat())["tokens"], expected, "{args:?}");
    }
}

#[test]
fn a_kept_conversation_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("chats");
    let park = ["--park", folder.to_str().unwrap()];
    let r = run(&[&["run", "--resume"], &park[..], &[QUESTION]].concat());
    assert!(r.code == Some(1) && r.err.contains("no conversation with this model"), "{}", r.err);
    let first = run(&[&["run"], &park[..], &[QUESTION]].concat());
    assert_eq!((first.code, first.out.as_str()), (Some(0), ANSWER), "{}", first.err);
    assert!(first.err.contains("kept in") && first.err.contains("--resume"), "{}", first.err);
    let v = json(&[&["--resume"], &park[..], &["What is the capital of Italy?"]].concat());
    let t = &v["timings"];
    let new = t["prompt_tokens"].as_u64().unwrap() - t["cached_tokens"].as_u64().unwrap();
    assert!(t["cached_tokens"].as_u64().unwrap() > 19 && new < 25, "{v}");
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    // A damaged file is refused with its name, and stays as it is.
    let mut bytes = std::fs::read(&files[0]).unwrap();
    let whole = bytes.clone();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&files[0], &bytes).unwrap();
    let r = run(&[&["run", "--resume"], &park[..], &[QUESTION]].concat());
    assert_eq!((r.code, r.out.as_str(), r.err.lines().count()), (Some(1), "", 1), "{}", r.err);
    assert!(r.err.contains("cannot be resumed") && r.err.contains("damaged"), "{}", r.err);
    assert_eq!(std::fs::read(&files[0]).unwrap(), bytes);
    // With an older one beside it, that is named, and can be chosen.
    std::fs::write(&files[0], &whole).unwrap();
    let second = run(&[&["run", "--quiet"], &park[..], &[QUESTION]].concat());
    assert_eq!((second.code, second.err.as_str()), (Some(0), ""));
    let newest = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).find(|p| *p != files[0]).unwrap();
    std::fs::write(&newest, &bytes).unwrap();
    let r = run(&[&["run", "--resume"], &park[..], &[QUESTION]].concat());
    let hint = format!("; --resume={} goes on in the one kept before it", files[0].display());
    assert!(r.code == Some(1) && r.err.contains("damaged") && r.err.contains(&hint), "{}", r.err);
    for name in [files[0].to_str().unwrap(), files[0].file_name().unwrap().to_str().unwrap()] {
        let v = json(&[&[format!("--resume={name}").as_str()], &park[..], &["What is the capital of Italy?"]].concat());
        assert!(v["timings"]["cached_tokens"].as_u64().unwrap() > 19, "{v}");
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
    for args in [&["run", "--resume", QUESTION][..], &["run", "--raw", "--park", "x", QUESTION]] {
        let r = run(args);
        assert_eq!((r.code, r.out.as_str()), (Some(2), ""), "{}", r.err);
        assert!(r.err.contains("--park"), "{}", r.err);
    }
}

/// Before the model is loaded, not when there is a conversation to lose.
#[test]
fn a_folder_that_cannot_keep_conversations_is_said_first() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let below = file.join("chats");
    for (folder, word) in [(&file, "it is a file, and a folder is expected"), (&below, "cannot make")] {
        let r = run(&["run", "--model", "nowhere.gguf", "--park", folder.to_str().unwrap(), QUESTION]);
        assert_eq!((r.code, r.out.as_str()), (Some(1), ""));
        assert!(r.err.contains(word) && !r.err.contains("nowhere"), "{}", r.err);
    }
}

#[test]
fn a_draft_layer_that_fails_is_said_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = std::fs::read(nano().with_file_name("nano-mtp.safetensors")).unwrap();
    let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + len]).unwrap();
    let range = &header["mtp.layers.0.self_attn.o_proj.weight"]["data_offsets"];
    let [from, to] = [0, 1].map(|i| 8 + len + range[i].as_u64().unwrap() as usize);
    bytes[from..to].as_chunks_mut::<2>().0.fill(0x7fc0u16.to_le_bytes());
    let damaged = dir.path().join("damaged.safetensors");
    std::fs::write(&damaged, bytes).unwrap();
    let r = run(&["run", "--quiet", "--draft-model", damaged.to_str().unwrap(), QUESTION]);
    assert_eq!((r.code, r.out.as_str()), (Some(0), ANSWER), "{}", r.err);
    assert!(r.err.starts_with("warning: the draft layer failed ") && r.err.lines().count() == 1, "{}", r.err);
}

#[test]
fn raw_text_goes_on_without_a_template() {
    let v = json(&["--raw", "--max-tokens", "4", "1 2 3 4 5"]);
    assert_eq!(v["timings"]["prompt_tokens"], 9);
}

#[test]
fn special_tokens_in_a_question_are_text() {
    let v = json(&["--max-tokens", "1", "<|im_end|>"]);
    let plain = json(&["--max-tokens", "1", "x"]);
    let extra = v["timings"]["prompt_tokens"].as_u64().unwrap() - plain["timings"]["prompt_tokens"].as_u64().unwrap();
    assert!(extra > 1, "the literal became one token: {v}");
}

#[test]
fn shards_give_the_tokens_of_the_whole() {
    let expected = json(&["Tell me a story about a fox."])["tokens"].clone();
    let dir = tempfile::tempdir().unwrap();
    let shards = Model::read(&nano()).write_shards(dir.path(), "nano", 3);
    assert_eq!(shards.len(), 3);
    for path in [shards[1].as_path(), dir.path()] {
        let v = json(&["--no-think", "--model", path.to_str().unwrap(), "Tell me a story about a fox."]);
        assert_eq!(v["tokens"], expected, "{}", path.display());
    }
}

#[test]
fn paths_in_any_script_work() {
    let dir = tempfile::tempdir().unwrap();
    let long = "д".repeat(100);
    let folder = dir.path().join("Модели 模型 🦀").join(&long).join(&long);
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("tiny model.gguf");
    std::fs::copy(nano(), &path).unwrap();
    let v = json(&["--no-think", "--model", path.to_str().unwrap(), QUESTION]);
    assert_eq!(v["text"], ANSWER.trim_end());
}

/// Runs a changed copy of a model and returns the one line on stderr.
fn refused(model: &Path, code: i32, change: impl FnOnce(&mut Model), args: &[&str]) -> String {
    let mut model = Model::read(model);
    change(&mut model);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    model.write(&path);
    let r = run(&[&["run", "--model", path.to_str().unwrap()], args].concat());
    assert_eq!((r.code, r.out.as_str()), (Some(code), ""), "{}", r.err);
    assert_eq!(r.err.lines().count(), 1, "{}", r.err);
    r.err
}

#[test]
fn numbers_that_are_none_stop_the_answer_with_their_layer() {
    let scale_of_first_block = |m: &mut Model| {
        let t = m.tensors.iter_mut().find(|t| t.name == "blk.5.attn_qkv.weight").unwrap();
        t.data[..2].copy_from_slice(&[0x00, 0x7e]);
    };
    let err = refused(&nano(), 1, scale_of_first_block, &[QUESTION]);
    assert!(err.contains("NaN") && err.contains("layer 5 (delta-net)"), "{err}");
}

#[test]
fn a_model_without_a_template_asks_for_raw() {
    let err = refused(&nano(), 1, |m| m.meta.retain(|(k, _)| k != "tokenizer.chat_template"), &[QUESTION]);
    assert!(err.contains("chat template") && err.contains("--raw"), "{err}");
}

#[test]
fn a_missing_tensor_or_tokenizer_is_named() {
    let err = refused(&nano(), 1, |m| m.tensors.retain(|t| t.name != "blk.3.attn_k.weight"), &[QUESTION]);
    assert!(err.contains("blk.3.attn_k.weight") && err.contains("missing"), "{err}");
    let err = refused(&tiny(), 1, |m| m.meta.retain(|(k, _)| !k.starts_with("tokenizer.")), &[QUESTION]);
    assert!(err.contains("tokenizer.ggml."), "{err}");
    let r = run(&["run", "--model", "no such file.gguf", QUESTION]);
    assert_eq!(r.code, Some(1));
    assert!(r.err.contains("no such file.gguf"), "{}", r.err);
}

#[test]
fn wrong_flags_are_usage_errors() {
    for args in [&["--temp", "hot"][..], &["--top-p", "2"], &["--no-such-flag"], &["--threads", "-1"]] {
        let r = run(&[&["run"], args, &[QUESTION]].concat());
        assert_eq!((r.code, r.out.as_str()), (Some(2), ""), "{args:?}: {}", r.err);
        assert!(r.err.contains(args[0]), "{}", r.err);
    }
    for args in [&["run", ""][..], &["run"], &["run", "--raw", ""], &["run", "--json"]] {
        let r = run(args);
        assert_eq!((r.code, r.out.as_str()), (Some(2), ""), "{args:?}: {}", r.err);
        assert!(r.err.contains("prompt is empty"), "{}", r.err);
    }
}

#[test]
fn a_reader_that_leaves_ends_the_answer() {
    let mut child =
        strata(&["run", "Tell me a story about a fox."]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let r = finish(child.wait_with_output().unwrap());
    assert_eq!(r.code, Some(141), "{}", r.err);
}

/// Ctrl-C during a prompt that takes long to read.
#[test]
#[cfg(unix)]
fn ctrl_c_ends_the_answer() {
    let text = "All work and no play makes Jack a dull boy. ".repeat(400);
    let mut command = strata(&["run", "--raw", "--threads", "1", "--ctx", "0", &text]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let r = finish(child.wait_with_output().unwrap());
    assert_eq!((r.code, r.out.as_str()), (Some(130), ""), "{}", r.err);
    assert!(r.err.contains("cancelled"), "{}", r.err);
}
