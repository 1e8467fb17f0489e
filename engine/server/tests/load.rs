//! Many clients, clients that go away, and clients that do not read.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Reply, Server};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::time::{Duration, Instant};
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

/// Seconds that 32 clients are answered: half a one, or as many as STRATA_LOAD_SECONDS says.
fn tokens() -> usize {
    let seconds = std::env::var("STRATA_LOAD_SECONDS").ok().and_then(|s| s.parse::<usize>().ok());
    seconds.map_or(200, |s| s * 400)
}

/// Answers of tokens that name the asker, one every 2 ms or a little more.
fn canaries() -> Scripted {
    Scripted::new(|request| {
        let prompt: String = request.prompt.tokens.iter().filter_map(|&t| char::from_u32(t)).collect();
        let name: String = prompt.split("canary ").nth(1).unwrap().chars().take_while(char::is_ascii_digit).collect();
        let steps =
            (0..tokens()).flat_map(|i| [Step::Text(format!("{name}-{i} ")), Step::Wait(Duration::from_millis(2))]);
        Ok(Script::new(steps))
    })
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
    let server = Server::start(canaries(), |_| ());
    let mut stuck: Vec<_> = (0..50).map(|_| server.connect()).collect();
    for connection in &mut stuck {
        connection
            .write_all(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
            .unwrap();
    }
    assert_eq!(server.post(CHAT, &ask("canary 1", false)).status, 200);
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

#[test]
fn thirty_two_clients_get_their_own_tokens() {
    let server = Server::start(canaries(), |_| ());
    let clients: Vec<_> = (0..32)
        .map(|i| {
            let mut connection = server.open(CHAT, &ask(&format!("canary {i}."), true));
            std::thread::spawn(move || {
                let (mut bytes, mut gaps, mut last) = (Vec::new(), Vec::new(), Instant::now());
                let mut piece = [0; 4096];
                loop {
                    match connection.read(&mut piece).unwrap() {
                        0 => break,
                        n => bytes.extend_from_slice(&piece[..n]),
                    }
                    gaps.push(last.elapsed());
                    last = Instant::now();
                }
                let head = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
                let body = String::from_utf8(common::dechunk(&bytes[head..])).unwrap();
                let events = common::events(&body);
                let text: String = events
                    .iter()
                    .filter_map(|(_, data)| serde_json::from_str::<Value>(data).ok())
                    .filter_map(|c| c["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
                    .collect();
                let expected: String = (0..tokens()).map(|n| format!("{i}-{n} ")).collect();
                assert_eq!(text, expected);
                gaps
            })
        })
        .collect();
    let mut gaps: Vec<Duration> = clients.into_iter().flat_map(|c| c.join().unwrap()).collect();
    gaps.sort_unstable();
    println!("32 clients, a token every 2 ms: p99 between pieces {:?}", gaps[gaps.len() * 99 / 100]);
    assert!(server.becomes_idle());
}
