//! Clients that send or read too slowly, or are too many.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Reply, Server};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use strata_server::scripted::{Script, Scripted, Step};
use strata_server::{Limits, Log};

const CHAT: &str = "/v1/chat/completions";
const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(60);

fn hi(change: impl FnOnce(&mut Limits)) -> Server {
    Server::start(Scripted::always(Script::text(["Hi"])), |o| change(&mut o.limits))
}

fn hello() -> Value {
    json!({"max_tokens": 5, "messages": [{"role": "user", "content": "Hello"}]})
}

/// Sends bytes one by one until the other side has had enough.
fn drip(stream: &TcpStream, every: Duration) -> std::thread::JoinHandle<()> {
    let mut stream = stream.try_clone().unwrap();
    std::thread::spawn(move || {
        while stream.write_all(b"x").is_ok() {
            std::thread::sleep(every);
        }
    })
}

/// What comes until the other side ends the connection, which must end in order.
fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("the connection ends in order");
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_head_that_comes_too_slowly_is_answered_with_408() {
    let server = hi(|limits| limits.head = SHORT);
    let mut stream = server.connect();
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nx-name: ").unwrap();
    let dripping = drip(&stream, Duration::from_millis(20));
    let reply = Reply::read(&mut stream);
    assert_eq!((reply.status, reply.header("connection")), (408, Some("close")));
    assert_eq!(reply.json()["error"]["code"], "request_timeout");
    drop(stream);
    dripping.join().unwrap();
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn an_idle_connection_ends_without_a_word() {
    let server = hi(|limits| limits.head = SHORT);
    assert_eq!(rest(&mut server.connect()), "");
    let mut used = server.connect();
    let mut both = String::new();
    for _ in 0..2 {
        used.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut some = [0; 4096];
        let read = used.read(&mut some).unwrap();
        both.push_str(std::str::from_utf8(&some[..read]).unwrap());
    }
    assert_eq!(both.matches("HTTP/1.1 200 OK").count(), 2, "{both}");
    assert_eq!(rest(&mut used), "");
}

#[test]
fn a_body_that_comes_too_slowly_is_answered_with_408() {
    let server = hi(|limits| limits.body = SHORT);
    for (path, kind) in [(CHAT, "error"), ("/v1/messages", "type"), ("/v1/responses", "error")] {
        for pieces in ["content-length: 1000", "transfer-encoding: chunked"] {
            let mut stream = server.connect();
            let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n{pieces}\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            if pieces.starts_with("content") {
                drop(drip(&stream, Duration::from_millis(20)));
            } else {
                stream.write_all(b"1\r\n{\r\n").unwrap();
            }
            let reply = Reply::read(&mut stream);
            assert_eq!(reply.status, 408, "{path} {pieces}");
            let error = reply.json();
            assert!(!error[kind].is_null() && error["error"]["message"].is_string(), "{path}: {error}");
            stream.shutdown(std::net::Shutdown::Both).unwrap();
        }
    }
    assert!(server.backend.seen().is_empty());
}

#[test]
fn a_long_body_may_take_its_time() {
    let server = Server::start(Scripted::always(Script::text(["Hi"])).with_model(|m| m.context = 1 << 20), |o| {
        o.limits.body = SHORT;
    });
    let body = json!({"messages": [{"role": "user", "content": "x".repeat(64 << 10)}]}).to_string();
    let mut stream = server.connect();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    for piece in body.as_bytes().chunks(4 << 10) {
        stream.write_all(piece).unwrap();
        std::thread::sleep(SHORT / 8);
    }
    assert_eq!(Reply::read(&mut stream).status, 200);
}

#[test]
fn who_waits_to_be_told_to_send_a_body_is_told() {
    let server = Server::start(Scripted::always(Script::text(["Hi"])), |o| o.body_limit = 1 << 20);
    let body = hello().to_string();
    let head = |length: usize| {
        let expects = "host: localhost\r\nconnection: close\r\nexpect: 100-continue";
        format!("POST {CHAT} HTTP/1.1\r\n{expects}\r\ncontent-length: {length}\r\n\r\n").into_bytes()
    };
    let mut stream = server.connect();
    stream.write_all(&head(body.len())).unwrap();
    let mut told = [0; 25];
    stream.read_exact(&mut told).unwrap();
    assert_eq!(&told, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(body.as_bytes()).unwrap();
    assert_eq!(Reply::read(&mut stream).json()["choices"][0]["message"]["content"], "Hi");
    // A body that is not wanted is not asked for.
    let mut stream = server.connect();
    stream.write_all(&head(2 << 20)).unwrap();
    assert_eq!(Reply::read(&mut stream).status, 413);
}

#[test]
fn who_sends_too_much_can_read_so() {
    let server = Server::start(Scripted::always(Script::text(["Hi"])), |o| o.body_limit = 1 << 20);
    let mut stream = server.connect();
    stream.write_all(b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 8388608\r\n\r\n").unwrap();
    // All of it, before anything is read.
    stream.write_all(&vec![b' '; 8 << 20]).expect("what is still sent is taken");
    let reply = rest(&mut stream);
    assert!(reply.starts_with("HTTP/1.1 413 ") && reply.contains("request_too_large"), "{reply}");
}

#[test]
fn one_connection_too_many_is_told_so() {
    let server = hi(|limits| limits.connections = 3);
    // Two of them are in use, the third asks.
    let mut held: Vec<TcpStream> = (0..2).map(|_| server.connect()).collect();
    for stream in &mut held {
        stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut some = [0; 4096];
        assert!(stream.read(&mut some).unwrap() > 0);
    }
    assert_eq!(server.post(CHAT, &hello()).status, 200);
    // Its place is free again as soon as it is noticed that it went.
    let last = (0..200).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        let mut last = server.connect();
        last.write_all(b"GET /v1/status HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut start = [0; 12];
        last.read_exact(&mut start).unwrap();
        (&start == b"HTTP/1.1 200").then_some(last)
    });
    held.push(last.expect("there is a third place"));
    let reply = server.post(CHAT, &hello());
    assert_eq!(
        (reply.status, reply.header("retry-after"), reply.header("connection")),
        (503, Some("1"), Some("close"))
    );
    assert_eq!(reply.json()["error"]["code"], "too_many_connections");
    assert_eq!(server.post("/v1/messages", &hello()).json()["error"]["type"], "api_error");
    assert_eq!(server.get("/health").status, 200, "who looks whether it lives must not end it");
    held.clear();
    // It is noticed soon that they are gone.
    let status = (0..200).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        let reply = server.get("/v1/status");
        (reply.status == 200).then(|| reply.json())
    });
    let connections = status.expect("there is room again")["connections"].clone();
    assert_eq!(connections["limit"], 3);
    assert!(connections["refused"].as_u64().unwrap() >= 3, "{connections}");
    assert!(server.get("/metrics").body.contains("strata_connections_limit 3\n"));
}

/// Answers with more text than the buffers of the system hold, and then a little at a time without an end.
fn endless() -> Scripted {
    let fill = std::iter::repeat_n(Step::Text("x".repeat(64 << 10)), 400);
    let more = std::iter::repeat_n([Step::Text("more ".to_owned()), Step::Wait(Duration::from_millis(1))], 100_000);
    Scripted::always(Script::new(fill.chain(more.flatten())))
}

#[test]
fn who_takes_nothing_for_long_is_let_go() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&lines);
    let server = Server::start(endless(), |o| {
        o.limits.unread = SHORT;
        o.log = Log::new(move |line| log.lock().unwrap().push(line.to_owned()));
    });
    let lazy = server.open(CHAT, &json!({"messages": [{"role": "user", "content": "a"}], "stream": true}));
    while server.backend.running() == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(server.becomes_idle(), "an answer that nobody takes goes on");
    assert_eq!(server.backend.cancelled(), 1);
    let said = lines.lock().unwrap().join("\n");
    assert!(said.contains("took nothing of an answer for 0.3 s and was let go"), "{said}");
    drop(lazy);
}

#[test]
fn who_reads_too_slowly_is_told_at_the_end_of_what_waited() {
    let server = Server::start(endless(), |o| {
        o.limits.unread = LONG;
        o.limits.waiting = 1000;
    });
    let messages = json!([{"role": "user", "content": "a"}]);
    for (path, body) in [
        (CHAT, json!({"messages": messages, "stream": true})),
        ("/v1/messages", json!({"messages": messages, "stream": true, "max_tokens": 9})),
        ("/v1/responses", json!({"input": "a", "stream": true})),
    ] {
        let before = server.backend.cancelled();
        let mut lazy = server.open(path, &body);
        while server.backend.running() == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(server.becomes_idle(), "{path}: nothing bounds what waits");
        assert_eq!(server.backend.cancelled(), before + 1);
        let reply = Reply::read(&mut lazy);
        let events = reply.events();
        let (name, data) = events.last().unwrap();
        assert!(data.contains("waited to be read"), "{path}: {data}");
        match path {
            CHAT => assert!(name.is_none() && data.starts_with("{\"error\":"), "{data}"),
            "/v1/messages" => assert_eq!(name.as_deref(), Some("error")),
            _ => assert_eq!(name.as_deref(), Some("response.failed")),
        }
        assert!(!reply.body.contains("[DONE]") && !reply.body.contains("message_stop"));
    }
}
