//! `strata serve` and what becomes of its model file: one that cannot be loaded, is damaged, deleted or cut.

use crate::common::{Model, nano};
use crate::serve::Server;
use serde_json::json;
use std::path::Path;

const QUESTION: &str = "What is the capital of France?";
const ANSWER: &str = "The capital of France is Paris.";

/// A changed copy of nano.
fn changed(dir: &Path, change: impl FnOnce(&mut Model)) -> String {
    let mut model = Model::read(&nano());
    change(&mut model);
    let path = dir.join("m.gguf");
    model.write(&path);
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_model_that_cannot_be_loaded_is_said_once_and_to_everybody() {
    let dir = tempfile::tempdir().unwrap();
    let path = changed(dir.path(), |m| m.tensors.retain(|t| t.name != "blk.3.attn_k.weight"));
    let server = Server::spawn(&["--model", &path]);
    server.becomes(500);
    for reply in [server.ask(QUESTION), server.get("/ready")] {
        assert!(reply.starts_with("HTTP/1.1 500") && reply.contains("x-should-retry: false"), "{reply}");
        assert!(reply.contains("blk.3.attn_k.weight"), "{reply}");
    }
    let health = server.get("/health");
    assert!(health.starts_with("HTTP/1.1 200") && health.contains("\"failed\""), "{health}");
    let (code, err) = server.end();
    assert_eq!(code, Some(0));
    assert_eq!(err.matches("blk.3.attn_k.weight").count(), 1, "{err}");
    assert_eq!(err.matches("error: ").count(), 1, "{err}");
}

#[test]
fn warnings_are_said_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = changed(dir.path(), |_| ());
    let server = Server::start(&["--model", &path, "--spec", "2", "--ctx", "1048576", "--device", "cpu"]);
    let status = server.get("/v1/status");
    assert_eq!(status.matches("no_draft_layer").count(), 1, "{status}");
    let (_, err) = server.end();
    assert_eq!(err.matches("there is no draft layer").count(), 1, "{err}");
    assert_eq!(err.matches("the context is lowered").count(), 1, "{err}");
    assert_eq!(err.matches("warning: ").count(), 2, "{err}");
}

#[test]
fn numbers_that_are_none_end_an_answer_with_their_layer() {
    let dir = tempfile::tempdir().unwrap();
    // Only layer 5 is broken, so the first pass finds it.
    let path = changed(dir.path(), |m| m.tensor("blk.5.attn_qkv.weight").data[..2].copy_from_slice(&[0x00, 0x7e]));
    let server = Server::start(&["--model", &path]);
    let reply = server.ask(QUESTION);
    assert!(reply.starts_with("HTTP/1.1 500") && reply.contains("x-should-retry: false"), "{reply}");
    assert!(reply.contains("NaN") && reply.contains("layer 5 (delta-net)"), "{reply}");
    let stream = server.post(&json!({"stream": true, "messages": [{"role": "user", "content": QUESTION}]}));
    let last = stream.lines().rfind(|line| line.starts_with("data: ")).unwrap();
    assert!(stream.starts_with("HTTP/1.1 200") && last.contains("\"error\""), "{stream}");
    assert!(last.contains("layer 5 (delta-net)") && !stream.contains("[DONE]"), "{stream}");
    // Others may fare better, so it goes on, and counts.
    assert!(server.get("/ready").starts_with("HTTP/1.1 200"));
    assert!(server.get("/metrics").contains("strata_refused_total{kind=\"engine\"} 2\n"));
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn a_deleted_model_goes_on_and_a_cut_one_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    for cut in [false, true] {
        std::fs::copy(nano(), &path).unwrap();
        let server = Server::start(&["--model", path.to_str().unwrap(), "--no-think"]);
        assert!(server.ask(QUESTION).contains(ANSWER));
        if !cut {
            std::fs::remove_file(&path).unwrap();
            // Another one of its name is another file.
            std::fs::write(&path, "short").unwrap();
            assert!(server.ask("Name the capital of France.").starts_with("HTTP/1.1 200"));
            assert!(server.ask(QUESTION).contains(ANSWER));
        } else {
            std::fs::File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
            for _ in 0..2 {
                let reply = server.ask(QUESTION);
                assert!(
                    reply.starts_with("HTTP/1.1 500") && reply.contains("m.gguf: the file has 4096 bytes"),
                    "{reply}"
                );
            }
            server.becomes(500);
            assert!(server.get("/health").contains("start again with a whole file"));
        }
        let (code, err) = server.end();
        assert_eq!(code, Some(0), "{err}");
    }
}
