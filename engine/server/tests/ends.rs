//! Before the model is loaded, and when the engine ends in the middle of an answer: in each interface's form.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Reply, Server};
use serde_json::{Value, json};
use strata_server::backend::{Refusal, RefusalKind, State};
use strata_server::scripted::{Script, Step};

/// Every path that is answered by the model, with a request to it.
fn requests() -> [(&'static str, Value); 6] {
    let messages = json!([{"role": "user", "content": "Hello"}]);
    [
        ("/v1/chat/completions", json!({"messages": messages})),
        ("/v1/completions", json!({"prompt": "Hello"})),
        ("/v1/responses", json!({"input": "Hello"})),
        ("/v1/responses/input_tokens", json!({"input": "Hello"})),
        ("/v1/messages", json!({"messages": messages, "max_tokens": 5})),
        ("/v1/messages/count_tokens", json!({"messages": messages})),
    ]
}

fn streams(path: &str) -> bool {
    !path.ends_with("tokens")
}

fn with_stream(body: &Value) -> Value {
    let mut body = body.clone();
    body["stream"] = json!(true);
    body
}

/// An error has the form that clients of this path read.
fn must_be_an_error(path: &str, error: &Value, kind: (&str, &str), says: &str) {
    let (openai, anthropic) = kind;
    if path.starts_with("/v1/messages") {
        assert_eq!((&error["type"], &error["error"]["type"]), (&json!("error"), &json!(anthropic)), "{path}: {error}");
        assert!(error["request_id"].as_str().is_some_and(|id| id.starts_with("req_")), "{path}: {error}");
    } else {
        assert_eq!(error["error"]["type"], openai, "{path}: {error}");
        assert!(error["error"].get("param").is_some() && error["error"]["code"].is_string(), "{path}: {error}");
    }
    assert!(error["error"]["message"].as_str().unwrap().contains(says), "{path}: {error}");
}

#[test]
fn while_it_loads_every_interface_says_so_and_when_to_come_back() {
    let server = Server::text(["Hi"]);
    for state in [State::Loading { share: 0.25 }, State::Stopping] {
        let says = if state == State::Stopping { "stopping" } else { "25 %" };
        server.backend.set_state(state);
        for (path, body) in requests() {
            for body in [Some(&body), Some(&with_stream(&body)).filter(|_| streams(path))].into_iter().flatten() {
                let reply = server.post(path, body);
                assert_eq!((reply.status, reply.header("content-type")), (503, Some("application/json")), "{path}");
                let after = reply.header("retry-after").and_then(|seconds| seconds.parse::<u64>().ok());
                assert!(after.is_some_and(|seconds| (1..10).contains(&seconds)), "{path}: {after:?}");
                assert_eq!(reply.header("x-should-retry"), None, "{path}");
                must_be_an_error(path, &reply.json(), ("server_error", "api_error"), says);
            }
        }
        assert_eq!((server.get("/ready").status, server.get("/health").status), (503, 200));
    }
    assert!(server.backend.seen().is_empty());
    server.backend.set_state(State::Ready);
    for (path, body) in requests() {
        assert_eq!(server.post(path, &body).status, 200, "{path}");
    }
}

/// A stream says that it broke off, and does not look as if it were whole.
fn must_break_off(path: &str, reply: &Reply, says: &str) {
    assert_eq!(reply.status, 200, "{path}");
    let events = reply.events();
    let (name, data) = events.last().unwrap();
    let data: Value = serde_json::from_str(data).unwrap();
    match path {
        "/v1/messages" => {
            assert_eq!(name.as_deref(), Some("error"));
            must_be_an_error(path, &data, ("", "api_error"), says);
        }
        "/v1/responses" => {
            assert_eq!((name.as_deref(), &data["response"]["status"]), (Some("response.failed"), &json!("failed")));
            assert!(data["response"]["error"]["message"].as_str().unwrap().contains(says), "{data}");
            let (name, error) = &events[events.len() - 2];
            assert_eq!(name.as_deref(), Some("error"));
            assert!(error.contains(says), "{error}");
        }
        _ => {
            assert_eq!(*name, None);
            must_be_an_error(path, &data, ("server_error", ""), says);
        }
    }
    for end in ["[DONE]", "message_stop", "response.completed", "\"finish_reason\":\"stop\""] {
        assert!(!reply.body.contains(end), "{path}: {end}");
    }
}

#[test]
fn an_engine_that_ends_in_the_middle_of_an_answer_is_an_error() {
    let fail = Step::Fail(Refusal::new(RefusalKind::Engine, "the engine broke off: out of order"));
    for (end, says) in [(fail, "out of order"), (Step::Vanish, "without finishing")] {
        // In the middle of text, of a call, and before anything.
        let call =
            ["<tool_call>", "\n<function=f>\n<parameter=a>\nx"].map(|piece| Script::text([piece]).steps).concat();
        for before in [vec![Step::Text("Hi ".to_owned()), Step::Think("So".to_owned())], call, Vec::new()] {
            let server = Server::always(Script::new(before.into_iter().chain([end.clone()])));
            for (path, mut body) in requests().into_iter().filter(|(path, _)| streams(path)) {
                if path != "/v1/completions" {
                    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
                    body["tools"] = match path {
                        "/v1/messages" => json!([{"name": "f", "input_schema": schema}]),
                        "/v1/responses" => json!([{"type": "function", "name": "f", "parameters": schema}]),
                        _ => json!([{"type": "function", "function": {"name": "f", "parameters": schema}}]),
                    };
                }
                let reply = server.post(path, &body);
                assert_eq!((reply.status, reply.header("x-should-retry")), (500, Some("false")), "{path}");
                must_be_an_error(path, &reply.json(), ("server_error", "api_error"), says);
                must_break_off(path, &server.post(path, &with_stream(&body)), says);
            }
            assert_eq!(server.get("/health").status, 200);
        }
    }
}
