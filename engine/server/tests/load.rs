//! Many clients, clients that go away, and clients that do not read.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::crowd::{self, Question};
use common::{Reply, Server};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;
use strata_server::scripted::{Script, Scripted, Step};

const CHAT: &str = "/v1/chat/completions";

fn ask(text: &str, stream: bool) -> Value {
    json!({"messages": [{"role": "user", "content": text}], "stream": stream})
}

/// Answers that take a minute, with a token every 10 ms.
fn endless() -> Scripted {
    let mut steps = vec![Step::Prompt(1)];
    for _ in 0..6000 {
        steps.extend([Step::Text("word ".to_owned()), Step::Wait(Duration::from_millis(10))]);
    }
    Scripted::always(Script::new(steps))
}

#[test]
fn a_client_that_goes_away_cancels_its_answer() {
    let server = Server::start(endless(), |_| ());
    // Before anything was sent back, and after some of it; as a stream and not.
    for stream in [true, false] {
        for read in [false, true] {
            let before = server.backend.cancelled();
            let mut connection = server.open(CHAT, &ask("Hello", stream));
            if read && stream {
                let mut some = [0; 600];
                connection.read_exact(&mut some).unwrap();
            }
            while server.backend.running() == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
            drop(connection);
            assert!(server.becomes_idle(), "stream {stream}, read {read}");
            assert_eq!(server.backend.cancelled(), before + 1);
        }
    }
}

#[test]
fn a_thousand_abrupt_disconnects_leave_nothing_running() {
    let server = Server::start(endless(), |_| ());
    let bodies = [
        (CHAT, ask("Hello", true)),
        (CHAT, ask("Hello", false)),
        ("/v1/messages", json!({"max_tokens": 5, "stream": true, "messages": [{"role": "user", "content": "a"}]})),
        ("/v1/responses", json!({"input": "a", "stream": true})),
    ];
    for i in 0..1000 {
        let (path, body) = &bodies[i % bodies.len()];
        let mut connection = server.open(path, body);
        if i % 3 == 0 {
            let mut some = [0; 1];
            let _ = connection.set_read_timeout(Some(Duration::from_millis(20)));
            let _ = connection.read(&mut some);
        }
        drop(connection);
    }
    assert!(server.becomes_idle(), "{} answers still run", server.backend.running());
    let reply = server.post("/v1/messages/count_tokens", &ask("Hello", false));
    assert_eq!(reply.status, 200);
}

#[test]
fn half_a_request_holds_nobody_up() {
    let server = Server::text(["Hi"]);
    let mut stuck: Vec<_> = (0..50).map(|_| server.connect()).collect();
    for connection in &mut stuck {
        connection
            .write_all(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
            .unwrap();
    }
    assert_eq!(server.post(CHAT, &ask("Hello", false)).status, 200);
}

#[test]
fn a_client_that_does_not_read_holds_nobody_up() {
    // More text than the buffers of the system hold.
    let steps = (0..400).map(|_| Step::Text("x".repeat(64 << 10)));
    let server = Server::start(Scripted::always(Script::new(steps)), |_| ());
    let mut lazy: Vec<_> = (0..4).map(|_| server.open(CHAT, &ask("Hello", true))).collect();
    assert!(server.becomes_idle(), "the engine is done, whether or not anyone reads");
    assert_eq!(server.post("/v1/messages/count_tokens", &ask("Hello", false)).status, 200);
    // Who reads at last gets everything.
    let reply = Reply::read(&mut lazy[0]);
    let bytes: usize =
        reply.data().iter().filter_map(|c| c["choices"][0]["delta"]["content"].as_str()).map(str::len).sum();
    assert_eq!(bytes, 400 * (64 << 10));
}

/// The server has a process of its own, so that its memory can be told. It is the example that tests of clients use, which
/// is built with them; STRATA_LOAD_SECONDS has them go on for longer.
#[test]
fn thirty_two_clients_get_their_own_tokens() {
    let examples = std::env::current_exe().unwrap().parent().unwrap().join("../examples");
    let mut server = Command::new(examples.join("scripted")).stdout(Stdio::piped()).spawn().unwrap();
    let mut address = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let address = address.trim().strip_prefix("http://").unwrap();
    // Every answer names who asked, and what for.
    let tally = std::panic::catch_unwind(|| {
        crowd::run(address, server.id(), crowd::seconds(2.0), |client, round| Question {
            text: format!("canary {client}/{round}."),
            max_tokens: 1000,
            answer: (0..100).map(|i| format!("{client}/{round}-{i} ")).collect(),
        })
    });
    server.kill().unwrap();
    server.wait().unwrap();
    let tally = tally.unwrap();
    println!("scripted, a token every 2 ms or a little more: {}", tally.line());
    assert!(tally.requests >= crowd::CLIENTS);
    tally.must_be_bounded();
}
