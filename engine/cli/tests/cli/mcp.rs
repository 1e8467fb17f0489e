//! `strata mcp`: the protocol over a pipe, and what its tools do to the real program.

use crate::common::{nano, strata, tiny};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Longer than anything takes, and shorter than for ever.
const LONG: Duration = Duration::from_secs(120);
const PARIS: &str = "The capital of France is Paris.";

/// A client that started the program.
pub(crate) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    messages: Receiver<Value>,
    /// Notifications that came so far.
    told: Vec<Value>,
    next: u64,
}

impl Client {
    fn start(args: &[&str]) -> Client {
        Client::spawn(strata(&[&["mcp"], args].concat()))
    }

    fn spawn(mut command: Command) -> Client {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let (sender, messages) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        // Whatever comes that is no message ends the test: stdout is the protocol's alone.
        std::thread::spawn(move || {
            for line in out.lines() {
                let line = line.unwrap();
                let message =
                    serde_json::from_str(&line).unwrap_or_else(|e| json!({"no JSON": line, "why": e.to_string()}));
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        let mut client = Client { child, stdin, messages, told: Vec::new(), next: 0 };
        let who = json!({"name": "test", "version": "1"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": who});
        let begun = client.ask("initialize", params);
        assert_eq!(begun["result"]["serverInfo"]["name"], "strata", "{begun}");
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn send(&mut self, message: &Value) {
        self.stdin.as_mut().unwrap().write_all(format!("{message}\n").as_bytes()).unwrap();
    }

    /// Sends a request and returns its number.
    fn begin(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params}));
        self.next
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        self.answer(id)
    }

    fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.messages.recv_timeout(LONG).unwrap();
            assert_eq!(message["jsonrpc"], "2.0", "{message}");
            if message["id"] == id {
                return message;
            }
            assert!(message.get("id").is_none(), "an answer to nothing: {message}");
            self.told.push(message);
        }
    }

    /// The status, after which no answer to a call that was cancelled is waited for.
    fn finished(&mut self, cancelled: u64) -> Value {
        let id = self.begin("tools/call", json!({"name": "status", "arguments": {}}));
        loop {
            let message = self.messages.recv_timeout(LONG).unwrap();
            if message["id"] == id {
                return message["result"]["structuredContent"].clone();
            }
            assert!(message.get("id").is_none_or(|id| *id == cancelled), "{message}");
        }
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.ask("tools/call", json!({"name": tool, "arguments": arguments}));
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].clone()
    }

    /// The result of a call that has to succeed, as programs read it.
    fn does(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments);
        assert_ne!(result["isError"], true, "{result}");
        result["structuredContent"].clone()
    }

    /// The sentence of a call that has to fail.
    fn refused(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Leaves; returns the program's exit code and what it said.
    fn leave(mut self) -> (Option<i32>, String) {
        drop(self.stdin.take());
        self.ended()
    }

    fn ended(&mut self) -> (Option<i32>, String) {
        let since = Instant::now();
        let code = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.code();
            }
            assert!(since.elapsed() < LONG, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        };
        let mut err = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert!(!err.contains("panicked"), "{err}");
        (code, err)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn path(path: &Path) -> Value {
    json!(path.to_str().unwrap())
}

#[test]
fn a_client_finds_tools_asks_and_leaves() {
    let mut client = Client::start(&[]);
    let tools = client.ask("tools/list", json!({}))["result"]["tools"].clone();
    let names: Vec<&str> = tools.as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    let want = ["status", "list_models", "load_model", "start_serving", "stop_serving", "run_prompt", "run_experiment"];
    assert_eq!(names, want);
    let read_only = |name: &str| {
        let at = names.iter().position(|n| *n == name).unwrap();
        tools[at]["annotations"]["readOnlyHint"] == true
    };
    assert!(read_only("status") && read_only("list_models") && read_only("run_prompt"));
    assert!(!read_only("load_model") && !read_only("stop_serving") && !read_only("run_experiment"));

    let before = client.does("status", json!({}));
    assert_eq!((&before["state"], &before["serving"]), (&json!("empty"), &Value::Null), "{before}");
    let result = client.call("run_prompt", json!({"prompt": "What is the capital of France?"}));
    assert_eq!(result["content"][0]["text"], PARIS, "{result}");
    let whole = &result["structuredContent"];
    assert_eq!((&whole["model"], &whole["finish"]), (&json!("nano"), &json!("stop")));
    assert!(whole["timings"]["predicted_per_second"].as_f64().unwrap() > 0.0, "{whole}");
    let after = client.does("status", json!({}));
    assert_eq!((&after["state"], &after["model"]), (&json!("ready"), &json!("nano")));
    assert_eq!(after["counters"]["requests"], 1);
    let (code, err) = client.leave();
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("nano is ready after"), "{err}");
}

#[test]
fn a_long_answer_tells_how_far_it_is_and_can_be_cancelled() {
    let mut client = Client::start(&[]);
    client.does("run_prompt", json!({"prompt": "Hello"}));
    let arguments = json!({"prompt": "Tell me a story.", "temperature": 1.5, "seed": 1, "max_tokens": 8000});
    let params = json!({"name": "run_prompt", "arguments": arguments, "_meta": {"progressToken": 5}});
    // As often as it takes to be faster than the answer.
    let since = Instant::now();
    loop {
        let id = client.begin("tools/call", params.clone());
        while client.messages.recv_timeout(LONG).unwrap()["method"] != "notifications/progress" {}
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
        let mut status = client.finished(id);
        while status["queue"]["running"] != 0 {
            status = client.finished(id);
        }
        if status["counters"]["cancelled"] != 0 {
            break;
        }
        assert!(since.elapsed() < LONG, "{status}");
    }
    let told = client.told.len();
    let answer = client.ask("tools/call", params);
    assert!(answer["result"]["structuredContent"]["output_tokens"].as_u64().unwrap() > 20, "{answer}");
    let progress = &client.told[told..];
    assert!(!progress.is_empty() && progress.iter().all(|m| m["method"] == "notifications/progress"), "{progress:?}");
}

#[test]
fn models_are_listed_and_one_takes_the_place_of_another() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(nano(), dir.path().join("copy.gguf")).unwrap();
    std::fs::write(dir.path().join("torn.gguf"), b"GGUF\x03\0\0\0").unwrap();
    let mut client = Client::start(&[]);
    let listed = client.does("list_models", json!({"folder": path(dir.path())}));
    let names: Vec<&str> = listed["models"].as_array().unwrap().iter().map(|m| m["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["nano", "copy", "torn"]);
    let copy = listed["models"][1]["model"].clone();

    assert_eq!(client.does("load_model", json!({"model": copy}))["before"], Value::Null);
    let asked = json!({"prompt": "What is the capital of France?", "thinking": false});
    let whole = client.does("run_prompt", asked.clone());
    assert_eq!(whole["text"], PARIS);
    let name = whole["model"].clone();
    assert_ne!(name, "nano");
    // What holds where a call does not say is the model's own: the built-in one is not asked to think.
    let sum = json!({"prompt": "What is 12 + 30?"});
    assert!(client.does("run_prompt", sum.clone())["thinking"].is_string());
    for (bad, want) in [
        (path(&dir.path().join("torn.gguf")), "torn.gguf"),
        (path(&dir.path().join("gone.gguf")), "gone.gguf"),
        // What is wrong with this one is its tokenizer.
        (path(&tiny()), "tokenizer.ggml.merges"),
    ] {
        let said = client.refused("load_model", json!({"model": bad}));
        assert!(said.contains(want) && said.contains("answers as before") && said.lines().count() == 1, "{said}");
        assert_eq!(client.does("run_prompt", asked.clone())["model"], name);
    }
    assert!(client.refused("load_model", json!({"model": ""})).contains("model is empty"));
    let loaded = client.does("load_model", json!({"model": "nano"}));
    assert_eq!(loaded["model"], "nano");
    assert!(client.does("run_prompt", sum)["thinking"].is_null());
    assert_eq!(client.does("run_prompt", asked)["text"], PARIS);
    assert_eq!(client.leave().0, Some(0));
}

fn get(url: &str, at: &str) -> String {
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(format!("GET {at} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

#[test]
fn the_model_is_served_over_http_and_no_longer() {
    let mut client = Client::start(&[]);
    assert_eq!(client.refused("stop_serving", json!({})), "nothing is served over HTTP");
    let said = client.refused("start_serving", json!({"host": "0.0.0.0", "port": 0}));
    assert!(said.contains("since no key is asked for"), "{said}");
    let serving = client.does("start_serving", json!({"port": 0}));
    let url = serving["url"].as_str().unwrap().to_owned();
    assert_eq!((&serving["already"], &serving["key_needed"]), (&json!(false), &json!(false)));
    assert_eq!(client.does("start_serving", json!({}))["already"], true);
    let said = client.refused("start_serving", json!({"model": "nano"}));
    assert!(said.contains("already") && said.contains("load_model"), "{said}");
    assert_eq!(client.does("status", json!({}))["serving"], url.as_str());
    // It is one model, whichever way it is asked.
    assert_eq!(client.does("run_prompt", json!({"prompt": "What is the capital of France?"}))["text"], PARIS);
    let status = get(&url, "/v1/status");
    assert!(status.contains("\"state\":\"ready\"") && status.contains("\"requests\":1"), "{status}");
    assert_eq!(client.does("stop_serving", json!({}))["ended"], true);
    assert!(TcpStream::connect(url.strip_prefix("http://").unwrap()).is_err());
    assert_eq!(client.does("status", json!({}))["serving"], Value::Null);
    // A client that leaves ends what it had served.
    let url = client.does("start_serving", json!({"port": 0, "model": "nano"}))["url"].as_str().unwrap().to_owned();
    assert!(get(&url, "/ready").starts_with("HTTP/1.1 200"));
    assert_eq!(client.leave().0, Some(0));
    assert!(TcpStream::connect(url.strip_prefix("http://").unwrap()).is_err());
}

/// A project with two experiments, and a program that says how it was started in the place of the laboratory's.
pub(crate) fn laboratory(dir: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    for name in ["001-good", "002-bad"] {
        std::fs::create_dir_all(dir.join("experiments").join(name)).unwrap();
        std::fs::write(dir.join("experiments").join(name).join("experiment.toml"), "").unwrap();
    }
    std::fs::create_dir_all(dir.join("results/001-good")).unwrap();
    let program = dir.join("bin/lab");
    std::fs::create_dir_all(dir.join("bin")).unwrap();
    std::fs::write(&program, "#!/bin/sh\necho \"started with: $*\"\necho done >&2\n[ \"$4\" != 002-bad ]\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program
}

#[test]
fn an_experiment_is_run_by_the_laboratory() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let lab = laboratory(&root);
    let mut command = strata(&["mcp", "--lab", lab.to_str().unwrap()]);
    command.current_dir(&root);
    let mut client = Client::spawn(command);
    let ended = client.does("run_experiment", json!({"name": "001"}));
    assert_eq!((&ended["name"], &ended["exit_status"]), (&json!("001-good"), &json!(0)));
    let said = ended["output_end"].as_str().unwrap();
    assert!(said.contains(&format!("started with: --root {} run 001-good", root.display())), "{said}");
    assert!(said.contains("done"), "{said}");
    assert_eq!(ended["result"], path(&root.join("results/001-good")));
    let dry = client.does("run_experiment", json!({"name": "001-good", "dry_run": true}));
    assert_eq!(dry["result"], Value::Null);
    assert!(dry["output_end"].as_str().unwrap().contains("run 001-good --dry-run"), "{dry}");
    let failed = client.refused("run_experiment", json!({"name": "002-bad"}));
    assert!(failed.contains("002-bad: exit status 1"), "{failed}");
    for name in ["003", "", "--help", "001-good; true", "../experiments/001-good"] {
        let said = client.refused("run_experiment", json!({"name": name}));
        assert!(said.ends_with("there are: 001-good, 002-bad"), "{said}");
    }
}

#[test]
fn a_client_that_leaves_ends_its_experiment() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let lab = laboratory(&root);
    std::fs::write(&lab, "#!/bin/sh\necho $$ > pid.part\nmv pid.part pid\nexec sleep 600\n").unwrap();
    let mut command = strata(&["mcp", "--lab", lab.to_str().unwrap()]);
    command.current_dir(&root);
    let mut client = Client::spawn(command);
    client.begin("tools/call", json!({"name": "run_experiment", "arguments": {"name": "001"}}));
    let since = Instant::now();
    let pid = loop {
        if let Ok(pid) = std::fs::read_to_string(root.join("pid")) {
            break pid;
        }
        assert!(since.elapsed() < LONG, "it is not started");
        std::thread::sleep(Duration::from_millis(20));
    };
    let said = client.refused("run_experiment", json!({"name": "002"}));
    assert!(said.starts_with("an experiment runs already"), "{said}");
    assert_eq!(client.leave().0, Some(0));
    // One that nobody has buried yet is dead as well.
    let stat = Command::new("ps").args(["-o", "stat=", "-p", pid.trim()]).output().unwrap();
    let stat = String::from_utf8(stat.stdout).unwrap();
    assert!(stat.trim().is_empty() || stat.starts_with('Z'), "{pid} runs on: {stat}");
}

#[test]
fn a_laboratory_that_is_not_there_is_said() {
    let mut client = Client::start(&["--lab", "/nonexistent/lab"]);
    let said = client.refused("run_experiment", json!({"name": "001"}));
    assert_eq!(said, "--lab names /nonexistent/lab, and there is no such program");
}

#[test]
fn a_model_that_is_none_is_said_when_it_is_asked() {
    let mut client = Client::start(&["--model", "/nonexistent.gguf"]);
    assert_eq!(client.does("status", json!({}))["state"], "empty");
    for _ in 0..2 {
        let said = client.refused("run_prompt", json!({"prompt": "Hello"}));
        assert!(said.contains("/nonexistent.gguf"), "{said}");
    }
    client.does("load_model", json!({"model": "nano"}));
    client.does("run_prompt", json!({"prompt": "Hello"}));
}

#[test]
fn it_ends_when_it_is_told_to() {
    let mut client = Client::start(&[]);
    client.does("run_prompt", json!({"prompt": "Hello"}));
    assert!(Command::new("kill").args(["-TERM", &client.child.id().to_string()]).status().unwrap().success());
    let (code, err) = client.ended();
    assert_eq!(code, Some(0), "{err}");
}

#[test]
fn what_is_wrong_at_the_start_is_said_at_once() {
    let shown = crate::common::run(&["mcp", "--ctx", "many"]);
    assert_eq!((shown.code, shown.out.as_str()), (Some(2), ""));
    assert!(shown.err.contains("--ctx is \"many\""), "{}", shown.err);
    let mut command = strata(&["mcp"]);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let odd = b"{\"jsonrpc\": \"2.0\", \"method\": \"notifications/initialized\"}\n";
    child.stdin.take().unwrap().write_all(odd).unwrap();
    let shown = crate::common::finish(child.wait_with_output().unwrap());
    assert_eq!((shown.code, shown.out.as_str()), (Some(1), ""));
    assert!(shown.err.contains("does not begin as the Model Context Protocol does"), "{}", shown.err);
    // A client that leaves at once has nothing to complain about.
    let shown = crate::common::run(&["mcp"]);
    assert_eq!((shown.code, shown.out.as_str()), (Some(0), ""), "{}", shown.err);
}
