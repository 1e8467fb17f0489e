//! The Model Context Protocol over HTTP and over a pipe, with scripted answers and a scripted program behind it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Reply, Server};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use strata_server::Options;
use strata_server::backend::State;
use strata_server::mcp::control::{Ended, Experiment, Later, Loaded, Models, Serving, Start, Step, Stopped, Told};
use strata_server::mcp::{Control, Mcp, Rights, serve};
use strata_server::scripted::{Script, Scripted, Step as Do};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

/// Notes what is asked of it.
#[derive(Default)]
struct Program(Mutex<Vec<String>>);

impl Program {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn noted(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Control for Program {
    fn begin(&self) -> Result<(), String> {
        Ok(())
    }

    fn models(&self, folder: Option<PathBuf>) -> Result<Models, String> {
        let folder = folder.map_or("usual".to_owned(), |f| f.to_string_lossy().into_owned());
        if folder == "gone" { Err("there is no folder gone".to_owned()) } else { Ok(Models { folder, models: vec![] }) }
    }

    fn load(&self, model: String, told: Told) -> Later<Loaded> {
        self.note(format!("load {model}"));
        Box::pin(async move {
            told.send_replace(Step { share: Some(0.5), text: "half of it".to_owned() });
            tokio::time::sleep(Duration::from_millis(100)).await;
            match model.as_str() {
                "bad" => Err("bad is no model; nano answers as before".to_owned()),
                _ => Ok(Loaded { model, before: None, context: 100, seconds: 0.1 }),
            }
        })
    }

    fn serving(&self) -> Option<String> {
        Some("http://here".to_owned())
    }

    fn start(&self, _: Start) -> Later<Serving> {
        Box::pin(async { Ok(Serving { url: "http://here".to_owned(), already: true, key_needed: false }) })
    }

    fn stop(&self, wait: bool) -> Later<Stopped> {
        self.note(format!("stop {wait}"));
        Box::pin(async move { Ok(Stopped { url: "http://here".to_owned(), ended: wait }) })
    }

    fn experiment(&self, which: Experiment, _: Told) -> Later<Ended> {
        self.note(format!("run {}", which.name));
        let exit_status = Some(if which.name == "fails" { 1 } else { 0 });
        let ended = Ended { name: which.name, exit_status, output_end: "the end".into(), result: None, seconds: 1.0 };
        Box::pin(async move { Ok(ended) })
    }
}

const STARTS: [(&str, &str); 2] =
    [("Accept", "application/json, text/event-stream"), ("Content-Type", "application/json")];

fn start(backend: Scripted, rights: Rights, change: impl FnOnce(&mut Options)) -> (Server, Arc<Program>) {
    let program = Arc::new(Program::default());
    let control = Arc::clone(&program);
    let server = Server::start(backend, |options| {
        options.mcp = Some(Mcp { control, rights });
        change(options);
    });
    (server, program)
}

fn initialize() -> Value {
    let client = json!({"name": "test", "version": "1"});
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
}

fn post(server: &Server, headers: &[(&str, &str)], message: &Value) -> Reply {
    server.send("POST", "/mcp", &[&STARTS[..], headers].concat(), message.to_string().as_bytes())
}

/// The messages of an answer, whichever form it has.
fn messages(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.status, 200, "{}", reply.body);
    if reply.header("content-type").is_some_and(|t| t.starts_with("application/json")) {
        return vec![reply.json()];
    }
    let data = reply.body.lines().filter_map(|line| line.strip_prefix("data:"));
    data.filter(|data| !data.trim().is_empty()).map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// A client with a session.
struct Session<'a> {
    server: &'a Server,
    id: String,
}

impl Session<'_> {
    fn of(server: &Server) -> Session<'_> {
        let reply = post(server, &[], &initialize());
        let id = reply.header("mcp-session-id").expect("a session").to_owned();
        assert_eq!(messages(&reply).last().unwrap()["result"]["serverInfo"]["name"], "strata");
        let session = Session { server, id };
        let told = session.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        assert_eq!(told.status, 202);
        session
    }

    fn send(&self, message: &Value) -> Reply {
        post(self.server, &[("Mcp-Session-Id", &self.id)], message)
    }

    /// All messages that come while a tool is called, the result last.
    fn messages(&self, tool: &str, arguments: Value) -> Vec<Value> {
        let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": "p"}});
        messages(&self.send(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params})))
    }

    fn call(&self, tool: &str, arguments: Value) -> Value {
        self.messages(tool, arguments).pop().unwrap()["result"].clone()
    }

    /// The sentence of a call that has to fail.
    fn refused(&self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }
}

fn hello() -> Scripted {
    let steps = [Do::Prompt(1), Do::Think("Hm.".into()), Do::Text("Hello ".into()), Do::Text("there".into())];
    Scripted::always(Script::new(steps))
}

#[test]
fn a_prompt_is_answered_with_timings() {
    let (server, _) = start(hello(), Rights::ALL, |_| ());
    let session = Session::of(&server);
    let asked = json!({"prompt": "Hi", "system": "Be kind.", "max_tokens": 9, "temperature": 0.5, "thinking": true});
    let result = session.call("run_prompt", asked);
    assert_eq!(result["content"][0]["text"], "Hello there", "{result}");
    let whole = &result["structuredContent"];
    assert_eq!(
        (&whole["text"], &whole["thinking"], &whole["finish"]),
        (&json!("Hello there"), &json!("Hm."), &json!("stop"))
    );
    assert!(whole["timings"]["predicted_ms"].is_number() && whole["output_tokens"] == 4, "{whole}");
    let (request, chat) = server.backend.seen().pop().unwrap();
    let chat = chat.unwrap();
    assert_eq!((request.params.max_tokens, request.params.sampling.temp, chat.think), (9, 0.5, Some(true)));
    assert_eq!(chat.messages[0]["content"], "Be kind.");
    assert_eq!(chat.messages[1]["content"], "Hi");
}

#[test]
fn progress_is_told_and_only_grows() {
    let wait = || Do::Wait(Duration::from_millis(250));
    let steps = [Do::Prompt(1), wait(), Do::Prompt(2), wait(), Do::Text("a".into()), wait(), Do::Text("b".into())];
    let (server, _) = start(Scripted::always(Script::new(steps)), Rights::ALL, |_| ());
    let mut all = Session::of(&server).messages("run_prompt", json!({"prompt": "Hi"}));
    assert_eq!(all.pop().unwrap()["result"]["content"][0]["text"], "ab");
    let told: Vec<f64> = all.iter().map(|m| m["params"]["progress"].as_f64().unwrap()).collect();
    assert!(told.len() >= 3 && told.windows(2).all(|two| two[0] < two[1]), "{all:?}");
    assert!(all.iter().all(|m| m["params"]["progressToken"] == "p"), "{all:?}");
}

#[test]
fn a_cancelled_call_cancels_its_request() {
    let steps = [Do::Text("a".into()), Do::Wait(Duration::from_secs(60))];
    let (server, _) = start(Scripted::always(Script::new(steps)), Rights::ALL, |_| ());
    let session = Session::of(&server);
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
                      "params": {"name": "run_prompt", "arguments": {"prompt": "Hi"}}});
    std::thread::scope(|scope| {
        scope.spawn(|| session.send(&call));
        while server.backend.running() == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let told = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
        assert_eq!(session.send(&told).status, 202);
        assert!(server.becomes_idle());
    });
    assert_eq!(server.backend.cancelled(), 1);
}

#[test]
fn what_is_wrong_is_said_by_name() {
    let (server, _) = start(hello(), Rights::ALL, |_| ());
    let session = Session::of(&server);
    for (tool, arguments, want) in [
        ("run_prompt", json!({}), "missing field `prompt`"),
        ("run_prompt", json!({"prompt": 5}), "prompt is wrong: invalid type: integer `5`"),
        ("run_prompt", json!({"prompt": "x", "temp": 1}), "unknown field `temp`"),
        ("run_prompt", json!({"prompt": "x", "temperature": 3}), "temperature is 3; expected a number from 0 to 2"),
        ("run_prompt", json!({"prompt": "x", "max_tokens": 0}), "max_tokens is 0"),
        ("run_prompt", json!({"prompt": "x".repeat(5000)}), "prompt is too long"),
        ("status", json!({"x": 1}), "x is wrong: this tool takes no arguments"),
        ("list_models", json!({"folder": "gone"}), "there is no folder gone"),
        ("load_model", json!({"model": "bad"}), "bad is no model; nano answers as before"),
        ("load_model", json!({"model": " "}), "model is empty; expected a .gguf file"),
        ("run_prompt", json!({"prompt": "x", "max_tokens": -1}), "`-1`, expected a whole number of at least 0"),
        ("run_prompt", json!({"prompt": "x", "temperature": "hot"}), "\"hot\", expected a number"),
        (
            "start_serving",
            json!({"port": 70_000}),
            "port is wrong: invalid value: integer `70000`, expected a whole number from 0 to 65535",
        ),
    ] {
        let said = session.refused(tool, arguments);
        assert!(said.contains(want), "{tool}: {said}");
    }
    let unknown = session.messages("dance", json!({})).pop().unwrap();
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    assert!(unknown["error"]["message"].as_str().unwrap().contains("there are: status, list_models"), "{unknown}");
}

#[test]
fn status_is_that_of_the_other_path() {
    let (server, _) = start(hello(), Rights::ALL, |_| ());
    let told = Session::of(&server).call("status", json!({}))["structuredContent"].clone();
    let other = server.get("/v1/status").json();
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<std::collections::BTreeSet<_>>();
    let mut want = keys(&other);
    want.insert("serving".to_owned());
    assert_eq!(keys(&told), want);
    assert_eq!(
        (&told["serving"], &told["state"], &told["info"]),
        (&json!("http://here"), &json!("ready"), &other["info"])
    );
}

#[test]
fn a_model_that_failed_is_said_to_have() {
    let (server, _) = start(hello(), Rights::ALL, |_| ());
    server.backend.set_state(State::Failed("the file is torn".to_owned()));
    let said = Session::of(&server).refused("run_prompt", json!({"prompt": "Hi"}));
    assert!(said.contains("the file is torn"), "{said}");
}

#[test]
fn the_program_is_steered() {
    let (server, program) = start(hello(), Rights::ALL, |_| ());
    let session = Session::of(&server);
    assert_eq!(session.call("load_model", json!({"model": "m"}))["structuredContent"]["model"], "m");
    assert_eq!(session.call("start_serving", json!({}))["structuredContent"]["already"], true);
    // Who is served over HTTP must not wait for the end of that.
    assert_eq!(session.call("stop_serving", json!({}))["structuredContent"]["ended"], false);
    assert_eq!(session.call("run_experiment", json!({"name": "works"}))["isError"], false);
    assert!(session.refused("run_experiment", json!({"name": "fails"})).contains("exit status 1"));
    assert_eq!(program.noted(), ["load m", "stop false", "run works", "run fails"]);
}

#[test]
fn without_the_right_nothing_is_done() {
    let rights = Rights { steer: Err("not here"), programs: Err("no programs") };
    let (server, program) = start(hello(), rights, |_| ());
    let session = Session::of(&server);
    for (tool, arguments, want) in [
        ("load_model", json!({"model": "m"}), "not here"),
        ("list_models", json!({"folder": "/"}), "not here"),
        ("stop_serving", json!({}), "not here"),
        ("start_serving", json!({"port": 1}), "not here"),
        ("run_experiment", json!({"name": "works"}), "no programs"),
    ] {
        assert_eq!(session.refused(tool, arguments), want, "{tool}");
    }
    assert!(program.noted().is_empty());
    for (tool, arguments) in
        [("list_models", json!({})), ("run_prompt", json!({"prompt": "Hi"})), ("start_serving", json!({}))]
    {
        assert_eq!(session.call(tool, arguments)["isError"], false, "{tool}");
    }
}

#[test]
fn the_path_has_the_checks_of_all_others() {
    let (server, _) = start(hello(), Rights::ALL, |o| {
        o.keys = vec!["k".to_owned()];
        o.body_limit = 2000;
    });
    let with_key = ("x-api-key", "k");
    assert_eq!(post(&server, &[], &initialize()).status, 401);
    assert_eq!(post(&server, &[("Host", "evil.example")], &initialize()).status, 403);
    assert_eq!(post(&server, &[("Origin", "https://evil.example")], &initialize()).status, 403);
    assert_eq!(post(&server, &[with_key], &initialize()).status, 200);
    assert_eq!(post(&server, &[("Authorization", "Bearer k")], &initialize()).status, 200);
    let mut large = initialize();
    large["params"]["clientInfo"]["name"] = json!("x".repeat(3000));
    assert_eq!(post(&server, &[with_key], &large).status, 413);
    for method in ["GET", "DELETE"] {
        assert_eq!(server.send(method, "/mcp", &STARTS, b"").status, 401, "{method}");
    }
    // Turns in the queue are by key here as well.
    let (server, _) = start(hello(), Rights::ALL, |_| ());
    Session::of(&server).call("run_prompt", json!({"prompt": "Hi"}));
    assert_eq!(server.backend.seen()[0].0.client, "127.0.0.1");
}

#[test]
fn what_is_not_set_is_not_there() {
    let server = Server::start(hello(), |_| ());
    assert_eq!(post(&server, &[], &initialize()).status, 404);
}

#[test]
fn clients_of_the_newest_version_need_no_session() {
    let (server, _) = start(hello(), Rights::ALL, |_| ());
    let version = "2026-07-28";
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"name": "run_prompt", "arguments": {"prompt": "Hi"}, "_meta": meta});
    let call = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params});
    let headers = [("MCP-Protocol-Version", version), ("Mcp-Method", "tools/call"), ("Mcp-Name", "run_prompt")];
    let reply = post(&server, &headers, &call);
    assert_eq!(reply.header("mcp-session-id"), None);
    assert_eq!(messages(&reply).pop().unwrap()["result"]["content"][0]["text"], "Hello there", "{}", reply.body);
}

#[test]
fn sessions_are_bounded_and_come_free() {
    let (server, _) = start(hello(), Rights::ALL, |_| ());
    let sessions: Vec<Session<'_>> = (0..1000).map(|_| Session::of(&server)).collect();
    let refused = post(&server, &[], &initialize());
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (503, &json!("too_many_sessions")));
    assert_eq!(sessions[999].call("status", json!({}))["isError"], false);
    let headers = [&STARTS[..], &[("Mcp-Session-Id", &sessions[0].id)]].concat();
    assert!(server.send("DELETE", "/mcp", &headers, b"").status < 300);
    assert_eq!(post(&server, &[], &initialize()).status, 200);
}

#[test]
fn an_open_stream_does_not_keep_the_server_from_ending() {
    let (mut server, _) = start(hello(), Rights::ALL, |_| ());
    let id = Session::of(&server).id;
    let mut stream = server.connect();
    let head =
        format!("GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\nMcp-Session-Id: {id}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    let since = Instant::now();
    server.ask_to_stop();
    server.wait();
    assert!(since.elapsed() < Duration::from_secs(10));
    // The stream has ended, too.
    stream.read_to_end(&mut Vec::new()).unwrap();
}

#[tokio::test]
async fn over_a_pipe_the_same_is_said_until_the_client_leaves() {
    let (near, far) = tokio::io::duplex(1 << 16);
    let (reader, writer) = tokio::io::split(far);
    let control = Arc::new(Program::default());
    let served = tokio::spawn(serve(
        reader,
        writer,
        Arc::new(hello()),
        Arc::clone(&control) as _,
        Options::default(),
        std::future::pending(),
    ));
    let (near_reader, mut near_writer) = tokio::io::split(near);
    let mut lines = BufReader::new(near_reader).lines();
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
                      "params": {"name": "stop_serving", "arguments": {}}});
    for message in [initialize(), json!({"jsonrpc": "2.0", "method": "notifications/initialized"}), call] {
        near_writer.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }
    let mut replies = Vec::new();
    for _ in 0..2 {
        replies.push(serde_json::from_str::<Value>(&lines.next_line().await.unwrap().unwrap()).unwrap());
    }
    assert_eq!(replies[0]["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(replies[1]["result"]["structuredContent"]["ended"], true);
    assert_eq!(control.noted(), ["stop true"]);
    near_writer.shutdown().await.unwrap();
    drop((near_writer, lines));
    assert_eq!(served.await.unwrap(), Ok(()));
}
