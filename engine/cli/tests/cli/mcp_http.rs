//! `/mcp` of the real server.

use crate::common::nano;
use crate::mcp::laboratory;
use crate::serve::Server;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Sends a message; returns the answer with its head.
fn post(server: &Server, session: Option<&str>, message: &Value) -> String {
    let body = message.to_string();
    let session = session.map_or_else(String::new, |id| format!("mcp-session-id: {id}\r\n"));
    let head = format!(
        "host: {}\r\nconnection: close\r\naccept: application/json, text/event-stream\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n{session}",
        server.address,
        body.len()
    );
    server.send(&format!("POST /mcp HTTP/1.1\r\n{head}\r\n{body}"))
}

fn initialize() -> Value {
    let who = json!({"name": "test", "version": "1"});
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": who});
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
}

/// Begins a session; returns its name.
fn session(server: &Server) -> String {
    let reply = post(server, None, &initialize());
    let id = reply.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap_or_else(|| panic!("{reply}"));
    post(server, Some(id), &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    id.to_owned()
}

/// The result of a call.
fn call(server: &Server, session: &str, tool: &str, arguments: &Value) -> Value {
    let params = json!({"name": tool, "arguments": arguments});
    let reply =
        post(server, Some(session), &json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}));
    let data = reply.lines().filter_map(|line| line.strip_prefix("data:"));
    let mut messages = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    let answer = messages.find(|message| message["id"] == 2).unwrap_or_else(|| panic!("{reply}"));
    answer["result"].clone()
}

#[test]
fn a_served_model_is_asked_replaced_and_stopped() {
    let server = Server::start(&[]);
    let session = session(&server);
    let asked = json!({"prompt": "What is the capital of France?", "thinking": false});
    let result = call(&server, &session, "run_prompt", &asked);
    assert_eq!(result["content"][0]["text"], "The capital of France is Paris.", "{result}");

    // An answer that runs comes to its end, and is by the model that it began with.
    let body = json!({
        "messages": [{"role": "user", "content": "Tell me a story."}], "stream": true, "max_tokens": 400,
        "temperature": 1.2, "seed": 3,
    });
    let body = body.to_string();
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let head = format!("host: {}\r\nconnection: close\r\ncontent-length: {}\r\n", server.address, body.len());
    stream.write_all(format!("POST /v1/chat/completions HTTP/1.1\r\n{head}\r\n{body}").as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("\"content\":\"")), "it writes");
    let loaded = call(&server, &session, "load_model", &json!({"model": nano().to_str().unwrap()}));
    assert_eq!(loaded["structuredContent"]["before"], "nano", "{loaded}");
    let rest: Vec<String> = lines.collect();
    assert!(rest.iter().any(|line| line.contains("[DONE]")), "{rest:?}");
    assert!(!rest.iter().any(|line| line.contains("\"error\"")), "{rest:?}");

    let result = call(&server, &session, "run_prompt", &asked);
    assert_eq!(result["structuredContent"]["text"], "The capital of France is Paris.", "{result}");
    assert_ne!(result["structuredContent"]["model"], "nano");
    assert!(!server.get("/v1/models").contains("\"id\":\"nano\""));

    let already = call(&server, &session, "start_serving", &json!({}));
    assert_eq!(already["structuredContent"]["url"], format!("http://{}", server.address));
    assert_eq!(already["structuredContent"]["already"], true);
    let stopped = call(&server, &session, "stop_serving", &json!({}));
    assert_eq!(stopped["isError"], false, "{stopped}");
    let (code, err) = server.wait();
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("as a client asked"), "{err}");
}

#[test]
fn programs_are_started_over_http_only_if_that_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let lab = laboratory(dir.path());
    let lab = lab.to_str().unwrap();
    let run = |args: &[&str]| {
        let server = Server::start(&[&["--lab", lab], args].concat());
        call(&server, &session(&server), "run_experiment", &json!({"name": "001"}))
    };
    let refused = run(&[]);
    assert_eq!(refused["isError"], true);
    let said = refused["content"][0]["text"].as_str().unwrap();
    assert!(said.contains("started with --mcp all"), "{said}");
    let ended = run(&["--mcp", "all"]);
    assert_eq!(ended["structuredContent"]["exit_status"], 0, "{ended}");
}

#[test]
fn who_comes_without_a_key_from_elsewhere_may_only_ask() {
    let server = Server::start(&["--host", "0.0.0.0", "--insecure", "--mcp", "all"]);
    let session = session(&server);
    for (tool, arguments) in [
        ("load_model", json!({"model": "nano"})),
        ("stop_serving", json!({})),
        ("run_experiment", json!({"name": "001"})),
        ("list_models", json!({"folder": "/"})),
    ] {
        let result = call(&server, &session, tool, &arguments);
        assert!(result["content"][0]["text"].as_str().unwrap().contains("--api-key"), "{tool}: {result}");
    }
    assert_eq!(call(&server, &session, "run_prompt", &json!({"prompt": "Hello"}))["isError"], false);
}

#[test]
fn it_can_be_left_out_and_asks_for_the_key() {
    let server = Server::start(&["--mcp", "off"]);
    assert!(post(&server, None, &initialize()).starts_with("HTTP/1.1 404"));
    let server = Server::start(&["--api-key", "k"]);
    assert!(post(&server, None, &initialize()).starts_with("HTTP/1.1 401"));
}
