//! `strata serve`: where it listens, what it says, and how it ends. The interfaces have tests of their own in strata-server.

use crate::common::{run, strata};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A server that is ended with the test.
pub(crate) struct Server {
    child: Child,
    /// Reads what it says, so that it need not wait for that.
    said: Option<JoinHandle<String>>,
    pub(crate) address: String,
    greeting: String,
}

impl Server {
    pub(crate) fn start(args: &[&str]) -> Server {
        let server = Server::spawn(args);
        server.becomes(200);
        server
    }

    /// Starts one, and does not wait until it is ready.
    pub(crate) fn spawn(args: &[&str]) -> Server {
        let mut command = strata(&[&["serve", "--port", "0"], args].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut greeting = String::new();
        for _ in 0..4 {
            out.read_line(&mut greeting).unwrap();
        }
        let start = greeting.find("http://").unwrap() + "http://".len();
        let address: String = greeting[start..].split_whitespace().next().unwrap().to_owned();
        let mut err = child.stderr.take().unwrap();
        let said = std::thread::spawn(move || {
            let mut text = String::new();
            err.read_to_string(&mut text).unwrap();
            text
        });
        Server { child, said: Some(said), address, greeting }
    }

    /// Waits until `/ready` has this status.
    pub(crate) fn becomes(&self, status: u16) {
        let since = Instant::now();
        while !self.get("/ready").starts_with(&format!("HTTP/1.1 {status}")) {
            assert!(since.elapsed() < Duration::from_secs(60), "it does not become {status}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn send(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The number of its process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn get(&self, path: &str) -> String {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.address))
    }

    pub(crate) fn ask(&self, text: &str) -> String {
        self.post(&serde_json::json!({"temperature": 0, "messages": [{"role": "user", "content": text}]}))
    }

    /// Sends a chat request.
    pub(crate) fn post(&self, body: &serde_json::Value) -> String {
        self.post_to("/v1/chat/completions", body)
    }

    pub(crate) fn post_to(&self, path: &str, body: &serde_json::Value) -> String {
        let body = body.to_string();
        let head = format!("host: {}\r\nconnection: close\r\ncontent-length: {}\r\n", self.address, body.len());
        self.send(&format!("POST {path} HTTP/1.1\r\n{head}\r\n{body}"))
    }

    /// Tells it to end; returns its exit code and what it said.
    pub(crate) fn end(self) -> (Option<i32>, String) {
        assert!(Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap().success());
        self.wait()
    }

    /// Waits for its end; returns its exit code and what it said.
    pub(crate) fn wait(mut self) -> (Option<i32>, String) {
        let since = Instant::now();
        let code = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.code();
            }
            assert!(since.elapsed() < Duration::from_secs(40), "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        };
        let err = self.said.take().unwrap().join().unwrap();
        assert!(!err.contains("panicked"), "{err}");
        (code, err)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn it_says_where_it_is_answers_and_ends_when_told() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("traces");
    let server = Server::start(&["--trace", folder.to_str().unwrap(), "--policy", "lru", "--slots", "64"]);
    assert!(server.greeting.starts_with("nano at http://127.0.0.1:"), "{}", server.greeting);
    assert!(server.greeting.contains("for this machine alone, no key is asked for"), "{}", server.greeting);
    assert!(server.ask("What is the capital of France?").contains("The capital of France is Paris."));
    // The cache on paper is seen while it is recorded.
    let since = Instant::now();
    let layers = loop {
        let status: serde_json::Value =
            serde_json::from_str(server.get("/v1/status").split("\r\n\r\n").nth(1).unwrap()).unwrap();
        assert_eq!(status["expert_cache_on_paper"], true);
        let layers = status["expert_cache"].as_array().unwrap().clone();
        if layers.iter().any(|l| l["hits"].as_u64() > Some(0)) {
            break layers;
        }
        assert!(since.elapsed() < Duration::from_secs(20), "{layers:?}");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(layers.len(), 8);
    assert!(layers.iter().enumerate().all(|(i, l)| l["layer"] == i && l["lookups"].as_u64() > l["hits"].as_u64()));
    assert!(server.get("/metrics").contains("strata_expert_cache_lookups_total{layer=\"0\"}"));
    assert!(server.get("/web/").contains("<!doctype html>"));
    let (code, err) = server.end();
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("ending: ") && err.contains("\nended\n"), "{err}");
    let traces: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    let [trace] = traces.as_slice() else { panic!("{traces:?}") };
    let info = run(&["trace", "info", trace.to_str().unwrap()]);
    assert_eq!(info.code, Some(0), "{}", info.err);
    assert!(info.out.contains("cache hits"), "{}", info.out);
}

#[test]
fn a_monitor_that_is_open_does_not_keep_it_from_ending() {
    let server = Server::start(&[]);
    let mut monitor = TcpStream::connect(&server.address).unwrap();
    monitor.write_all(format!("GET /v1/events HTTP/1.1\r\nhost: {}\r\n\r\n", server.address).as_bytes()).unwrap();
    let mut seen = [0; 4096];
    monitor.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut text = String::new();
    while !text.contains("event: status") {
        let read = monitor.read(&mut seen).unwrap();
        text.push_str(&String::from_utf8_lossy(&seen[..read]));
    }
    let since = Instant::now();
    assert_eq!(server.end().0, Some(0));
    assert!(since.elapsed() < Duration::from_secs(20), "it waited for the monitor");
}

#[test]
fn what_cannot_be_is_said_before_a_model_is_read() {
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = busy.local_addr().unwrap().port().to_string();
    for (args, code, want) in [
        (&["--host", "0.0.0.0"][..], 2, "since no key is asked for"),
        (&["--host", "nowhere"], 2, "an address of this machine"),
        (&["--api-key", "k,é"], 2, "--api-key is \"(not shown)\", expected visible ASCII characters"),
        (&["--port", "65536"], 2, "--port is \"65536\", expected a whole number from 0 to 65535"),
        (&["--port", &port], 1, "cannot listen on 127.0.0.1:"),
        (&["--model", "/nonexistent.gguf"], 1, "/nonexistent.gguf"),
        (&["--policy", "belady", "--slots", "9"], 1, "expected a policy that does not know the future"),
        (&["--trace", "/dev/null"], 1, "/dev/null"),
    ] {
        let shown = run(&[&["serve"], args].concat());
        assert_eq!(shown.code, Some(code), "{args:?}: {}", shown.err);
        assert!(shown.err.contains(want) && shown.err.lines().count() == 1, "{args:?}: {}", shown.err);
        assert_eq!(shown.out, "", "{args:?}");
    }
}

#[test]
fn a_key_is_asked_for_and_never_shown() {
    let server = Server::start(&["--api-key", "open sesame"]);
    assert!(server.ask("Hello").starts_with("HTTP/1.1 401"));
    assert!(server.greeting.contains("with a key") && !server.greeting.contains("sesame"));
    let shown =
        crate::common::finish(strata(&["config", "show"]).env("STRATA_API_KEY", "open sesame").output().unwrap());
    assert!(!shown.out.contains("sesame"), "{}", shown.out);
    assert!(shown.out.contains("# api_key = (not shown)"), "{}", shown.out);
}
