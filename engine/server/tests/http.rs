//! What every request goes through: keys, names, limits, errors, and the paths that are no interface.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Reply, Server};
use serde_json::{Value, json};
use std::io::Write;
use std::time::{Duration, Instant};
use strata_server::backend::{Refusal, RefusalKind, State};
use strata_server::scripted::{Script, Scripted, Step};

const CHAT: &str = "/v1/chat/completions";

fn hello() -> Value {
    json!({"messages": [{"role": "user", "content": "Hello"}]})
}

fn chat(server: &Server, headers: &[(&str, &str)]) -> Reply {
    server.send("POST", CHAT, headers, hello().to_string().as_bytes())
}

#[test]
fn keys_are_taken_from_both_headers() {
    let server =
        Server::start(Scripted::always(Script::text(["Hi"])), |o| o.keys = vec!["one".to_owned(), "two".to_owned()]);
    for header in [("Authorization", "Bearer one"), ("authorization", "bearer two"), ("x-api-key", "one")] {
        assert_eq!(chat(&server, &[header]).status, 200, "{header:?}");
    }
    for headers in [
        &[][..],
        &[("x-api-key", "on")],
        &[("x-api-key", "")],
        &[("Authorization", "Basic one")],
        &[("Authorization", "one")],
    ] {
        let reply = chat(&server, headers);
        assert_eq!((reply.status, reply.header("www-authenticate")), (401, Some("Bearer")));
        assert_eq!(reply.json()["error"]["code"], "invalid_api_key");
    }
    let anthropic = server.post("/v1/messages", &json!({}));
    assert_eq!((anthropic.status, &anthropic.json()["error"]["type"]), (401, &json!("authentication_error")));
    assert_eq!(server.get("/health").status, 200);
    for path in ["/metrics", "/v1/status", "/v1/models", "/nowhere"] {
        assert_eq!(server.get(path).status, 401, "{path}");
    }
    // Turns in the queue are by key.
    let clients: Vec<String> = server.backend.seen().into_iter().map(|(r, _)| r.client).collect();
    assert_eq!(clients, ["key 0", "key 1", "key 0"]);
}

#[test]
fn strange_names_and_pages_are_refused() {
    let server = Server::text(["Hi"]);
    assert_eq!(chat(&server, &[("Host", "localhost:1234")]).status, 200);
    assert_eq!(chat(&server, &[("Host", "evil.example")]).status, 403);
    assert_eq!(chat(&server, &[("Host", "127.0.0.1:80@evil.example")]).status, 403);
    let refused = chat(&server, &[("Host", "evil.example")]).json()["error"].clone();
    assert_eq!(refused["code"], "host_not_allowed");
    assert!(refused["message"].as_str().unwrap().contains("--allow-host"), "it says what to do: {refused}");
    for origin in ["https://evil.example", "null", "http://127.0.0.1.evil.example"] {
        let reply = chat(&server, &[("Origin", origin), ("Content-Type", "text/plain")]);
        assert_eq!((reply.status, reply.header("access-control-allow-origin")), (403, None), "{origin}");
    }
    let reply = chat(&server, &[("Origin", "http://localhost:3000")]);
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (200, Some("http://localhost:3000")));
    let preflight = [
        ("Origin", "http://localhost:3000"),
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "authorization,content-type"),
    ];
    let reply = server.send("OPTIONS", CHAT, &preflight, b"");
    assert_eq!((reply.status, reply.header("access-control-allow-headers")), (204, Some("authorization,content-type")));
    let reply = server.send(
        "OPTIONS",
        CHAT,
        &[("Origin", "https://evil.example"), ("Access-Control-Request-Method", "POST")],
        b"",
    );
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (403, None));
    let clients: Vec<String> = server.backend.seen().into_iter().map(|(r, _)| r.client).collect();
    assert_eq!(clients, ["127.0.0.1", "127.0.0.1"], "nothing that was refused reached the engine");
    let listed = Server::start(Scripted::always(Script::text(["Hi"])), |o| {
        o.origins = vec!["https://chat.example".to_owned()];
        o.hosts = vec!["box.lan".to_owned()];
    });
    assert_eq!(chat(&listed, &[("Origin", "https://chat.example"), ("Host", "box.lan:8080")]).status, 200);
    let keyed = Server::start(Scripted::always(Script::text(["Hi"])), |o| o.keys = vec!["k".to_owned()]);
    assert_eq!(chat(&keyed, &[("Host", "evil.example"), ("x-api-key", "k")]).status, 200, "who has a key is known");
    assert_eq!(chat(&keyed, &[("Host", "evil.example")]).status, 403);
}

#[test]
fn bad_bodies_are_refused_with_their_place_and_the_server_stays_up() {
    let server = Server::text(["Hi"]);
    let deep = [b"{\"messages\":".to_vec(), vec![b'['; 10_000], vec![b']'; 10_000], b"}".to_vec()].concat();
    for (body, says) in [
        (b"{\"messages\": [}".to_vec(), "line 1 column 15"),
        (b"{\"messages\": \"\xff\xfe\"}".to_vec(), "byte at 14"),
        (deep, "deeper than 128 levels"),
        (b"".to_vec(), "empty"),
        (b"[]".to_vec(), "no object"),
        (b"{\"messages\": []} x".to_vec(), "trailing"),
    ] {
        for path in [CHAT, "/v1/messages", "/v1/responses", "/v1/completions", "/tokenize"] {
            let reply = server.send("POST", path, &[], &body);
            let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
            assert_eq!(reply.status, 400, "{path}");
            assert!(message.contains(says), "{path}: {message}");
        }
    }
    let marked = [b"\xef\xbb\xbf", hello().to_string().as_bytes()].concat();
    assert_eq!(server.send("POST", CHAT, &[], &marked).status, 200, "a byte order mark is no mistake");
    let reply = chat(&server, &[("Content-Encoding", "gzip")]);
    assert_eq!(reply.status, 415);
    assert!(reply.json()["error"]["message"].as_str().unwrap().contains("encoded as \"gzip\""), "{}", reply.body);
    assert_eq!(chat(&server, &[("Content-Encoding", "identity")]).status, 200);
    assert_eq!(chat(&server, &[]).status, 200);
}

#[test]
fn large_bodies_are_taken_and_larger_ones_refused() {
    let server = Server::start(Scripted::always(Script::text(["Hi"])).with_model(|m| m.context = 1 << 24), |o| {
        o.body_limit = 3 << 20;
    });
    let body = |bytes: usize| json!({"messages": [{"role": "user", "content": "x".repeat(bytes)}]});
    assert_eq!(server.post(CHAT, &body(2 << 20)).status, 200);
    let reply = server.post("/v1/messages", &body(4 << 20));
    assert_eq!((reply.status, &reply.json()["error"]["type"]), (413, &json!("request_too_large")));
    assert_eq!(server.post(CHAT, &body(4 << 20)).status, 413);
    assert_eq!(chat(&server, &[]).status, 200);
}

#[test]
fn bodies_may_come_in_chunks() {
    let server = Server::text(["Hi"]);
    let body = hello().to_string();
    let (a, b) = body.split_at(10);
    let head =
        format!("POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut stream = server.connect();
    let chunks = format!("{head}{:x}\r\n{a}\r\n{:x}\r\n{b}\r\n0\r\n\r\n", a.len(), b.len());
    stream.write_all(chunks.as_bytes()).unwrap();
    assert_eq!(Reply::read(&mut stream).status, 200);
    let mut stream = server.connect();
    stream.write_all(format!("{head}zz\r\n{a}\r\n").as_bytes()).unwrap();
    assert_eq!(Reply::read(&mut stream).status, 400);
}

#[test]
fn unknown_paths_and_methods_have_error_objects() {
    let server = Server::text(["Hi"]);
    let reply = server.get("/v1/nothing");
    assert_eq!((reply.status, &reply.json()["error"]["type"]), (404, &json!("not_found_error")));
    for (path, meant) in [
        ("/chat/completions", Some("/v1/chat/completions")),
        ("/v1/v1/messages", Some("/v1/messages")),
        ("/completions", Some("/v1/completions")),
        ("/models", Some("/v1/models")),
        ("/v1/embeddings", None),
    ] {
        let reply = server.post(path, &json!({}));
        let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!(reply.status, 404, "{path}");
        assert_eq!(message.split("may be ").nth(1).and_then(|m| m.split(':').next()), meant, "{message}");
    }
    for path in ["/v1/models/%ff", "/v1/responses/%ff"] {
        let reply = server.get(path);
        assert_eq!((reply.status, &reply.json()["error"]["type"]), (404, &json!("not_found_error")), "{path}");
    }
    let reply = server.get("/v1/messages/nothing");
    assert_eq!((reply.status, &reply.json()["type"]), (404, &json!("error")));
    let reply = server.get(CHAT);
    assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")));
    assert_eq!(reply.json()["error"]["type"], "invalid_request_error");
    assert_eq!(server.get("/v1/messages").json()["type"], "error");
    assert!(reply.header("x-request-id").unwrap().starts_with("req_"));
}

#[test]
fn refusals_have_the_status_that_makes_clients_do_the_right_thing() {
    for (kind, after, status, header, retry) in [
        (RefusalKind::Busy, Some(1500), 429, Some("2"), None),
        (RefusalKind::Busy, None, 429, Some("2"), None),
        (RefusalKind::NotReady, Some(200), 503, Some("1"), None),
        (RefusalKind::Engine, None, 500, None, Some("false")),
        (RefusalKind::TooLong, None, 400, None, None),
        (RefusalKind::Invalid, None, 400, None, None),
    ] {
        let refusal = Refusal { retry_after: after.map(Duration::from_millis), ..Refusal::new(kind, "no") };
        let server = Server::start(Scripted::new(move |_| Err(refusal.clone())), |_| ());
        for path in [CHAT, "/v1/messages", "/v1/responses"] {
            let body =
                json!({"messages": [{"role": "user", "content": "a"}], "input": "a", "max_tokens": 5, "stream": true});
            let reply = server.post(path, &body);
            assert_eq!(reply.status, status, "{path} {kind:?}");
            assert_eq!(
                (reply.header("retry-after"), reply.header("x-should-retry")),
                (header, retry),
                "{path} {kind:?}"
            );
            if let Some(ms) = after {
                assert_eq!(reply.header("retry-after-ms"), Some(&ms.to_string()[..]));
            }
        }
    }
    let server = Server::text(["Hi"]);
    let long = server.post(CHAT, &json!({"messages": [{"role": "user", "content": "x".repeat(5000)}]}));
    let error = long.json()["error"].clone();
    assert_eq!((long.status, &error["code"]), (400, &json!("context_length_exceeded")));
    assert_eq!(error["type"], "exceed_context_size_error");
    assert!(error["message"].as_str().unwrap().contains("4096"), "{error}");
}

#[test]
fn while_it_loads_it_is_alive_and_not_ready() {
    let server = Server::start(Scripted::always(Script::text(["Hi"])), |o| o.name = "big".to_owned());
    server.backend.set_state(State::Loading { share: 0.5 });
    let health = server.get("/health");
    assert_eq!((health.status, health.json()), (200, json!({"status": "loading", "share": 0.5})));
    for reply in [server.get("/ready"), chat(&server, &[]), server.post("/v1/messages/count_tokens", &hello())] {
        assert_eq!(reply.status, 503);
        assert!(reply.header("retry-after").is_some());
    }
    let models = server.get("/v1/models").json();
    assert_eq!((&models["data"][0]["id"], &models["data"][0]["loaded"]), (&json!("big"), &json!(false)));
    assert!(server.get("/metrics").body.contains("strata_ready 0\n"));
    server.backend.set_state(State::Failed("the file was deleted".to_owned()));
    let reply = chat(&server, &[]);
    assert_eq!((reply.status, reply.header("x-should-retry")), (500, Some("false")));
    assert!(reply.body.contains("the file was deleted"));
    assert_eq!(server.get("/health").json()["status"], "failed");
    server.backend.set_state(State::Ready);
    assert_eq!((server.get("/ready").status, chat(&server, &[]).status), (200, 200));
}

#[test]
fn models_can_be_read_by_all_clients() {
    let server = Server::text(["Hi"]);
    let list = server.get("/v1/models").json();
    let model = &list["data"][0];
    assert_eq!(
        (&list["object"], &list["has_more"], &list["first_id"]),
        (&json!("list"), &json!(false), &json!("scripted"))
    );
    for (key, value) in [
        ("id", json!("scripted")),
        ("object", json!("model")),
        ("owned_by", json!("strata")),
        ("type", json!("model")),
        ("display_name", json!("scripted")),
        ("created_at", json!("2023-11-14T22:13:20Z")),
        ("context_length", json!(4096)),
    ] {
        assert_eq!(model[key], value, "{key}");
    }
    assert!(list["models"].is_array());
    assert_eq!(server.get("/v1/models/scripted").json(), *model);
    assert_eq!(server.get("/v1/models/a/b").status, 404);
}

#[test]
fn tokens_go_there_and_back() {
    let server = Server::text(["Hi"]);
    let text = "<tool_call> 🙂";
    let plain = server.post("/tokenize", &json!({"content": text})).json()["tokens"].clone();
    assert_eq!(plain.as_array().unwrap().len(), 13);
    let special = server.post("/tokenize", &json!({"content": text, "parse_special": true})).json()["tokens"].clone();
    assert_eq!(special.as_array().unwrap().len(), 3);
    for tokens in [&plain, &special] {
        assert_eq!(server.post("/detokenize", &json!({"tokens": tokens})).json(), json!({"content": text}));
    }
    let pieces = server.post("/tokenize", &json!({"content": "ab", "with_pieces": true})).json();
    assert_eq!(pieces, json!({"tokens": [{"id": 97, "piece": "a"}, {"id": 98, "piece": "b"}]}));
    for tokens in [json!([-1]), json!([99_999_999]), json!(["a"]), json!("a"), Value::Null] {
        assert_eq!(server.post("/detokenize", &json!({"tokens": tokens})).status, 400, "{tokens}");
    }
}

#[test]
fn raw_text_goes_on() {
    let server = Server::text([" there", "<tool_call>", "."]);
    let body = json!({"prompt": "<tool_call>Hello", "max_tokens": 3, "stop": "X"});
    let answer = server.post("/v1/completions", &body).json();
    assert_eq!(
        (&answer["object"], &answer["choices"][0]["text"]),
        (&json!("text_completion"), &json!(" there<tool_call>."))
    );
    assert_eq!(answer["usage"]["prompt_tokens"], 6, "literals of special tokens are those tokens");
    let mut streamed = body;
    streamed["stream"] = json!(true);
    streamed["stream_options"] = json!({"include_usage": true});
    let reply = server.post("/v1/completions", &streamed);
    let chunks = reply.data();
    let text: String = chunks.iter().filter_map(|c| c["choices"][0]["text"].as_str()).collect();
    assert_eq!(text, " there<tool_call>.");
    assert_eq!(chunks.last().unwrap()["choices"], json!([]));
    assert_eq!(reply.events().last().unwrap().1, "[DONE]");
    assert_eq!(server.post("/v1/completions", &json!({"prompt": [72, 105]})).json()["usage"]["prompt_tokens"], 2);
    assert_eq!(server.post("/v1/completions", &json!({"prompt": ["Hello"]})).status, 200);
    for (prompt, at) in [
        (json!([72, -1]), "prompt[1] is -1; expected a token, which is a number from 0 to "),
        (json!([[72, 1_000_000_000]]), "prompt[0][1] is 1000000000; expected a token"),
        (json!([{}]), "prompt[0] is an object; expected a string or a list of tokens"),
        (json!([[1], [2]]), "prompt is a list of 2; one at a time is continued"),
    ] {
        let reply = server.post("/v1/completions", &json!({"prompt": prompt}));
        let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(reply.status == 400 && message.starts_with(at), "{}: {message}", reply.status);
    }
    for (key, value) in [
        ("prompt", json!(["a", "b"])),
        ("prompt", json!("")),
        ("prompt", Value::Null),
        ("echo", json!(true)),
        ("suffix", json!("x")),
        ("best_of", json!(2)),
        ("n", json!(3)),
        ("logprobs", json!(21)),
    ] {
        let mut body = json!({"prompt": "a"});
        body[key] = value;
        let reply = server.post("/v1/completions", &body);
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(key)), "{}", reply.body);
    }
    let reply = server.post("/v1/completions", &json!({"prompt": [1, -1]}));
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("prompt[1]")), "{}", reply.body);
}

#[test]
fn further_paths_get_the_same_checks() {
    let server = Server::start(Scripted::always(Script::text(["Hi"])), |o| {
        o.keys = vec!["k".to_owned()];
        o.routes = axum::Router::new().route("/more", axum::routing::get(async || "more"));
    });
    assert_eq!(server.get("/more").status, 401);
    let reply = server.send("GET", "/more", &[("x-api-key", "k")], b"");
    assert_eq!((reply.status, &reply.body[..]), (200, "more"));
    assert_eq!(server.send("GET", "/elsewhere", &[("x-api-key", "k")], b"").json()["error"]["type"], "not_found_error");
}

#[test]
fn status_and_metrics_count() {
    let server = Server::text(["Hi"]);
    chat(&server, &[]);
    let status = server.get("/v1/status").json();
    assert_eq!(
        (&status["state"], &status["counters"]["requests"], &status["info"]["context"]),
        (&json!("ready"), &json!(1), &json!(4096))
    );
    let metrics = server.get("/metrics");
    assert!(metrics.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    assert!(metrics.body.contains("strata_requests_total 1\n") && metrics.body.contains("strata_ready 1\n"));
    assert_eq!(server.get("/").status, 307);
    assert_eq!(server.get("/web/").status, 200);
    // Whatever refuses a request is counted once, be it its shape or what it asks for.
    let question = json!([{"role": "user", "content": "x"}]);
    let long = json!([{"role": "user", "content": "x".repeat(5000)}]);
    for (path, body) in [
        ("/v1/chat/completions", json!({"messages": 5})),
        ("/v1/chat/completions", json!({"messages": question, "temperature": "hot"})),
        ("/v1/chat/completions", json!({"messages": question, "tool_choice": "required"})),
        ("/v1/completions", json!({})),
        ("/v1/responses", json!({"input": 5})),
        ("/v1/messages", json!({"messages": question})),
        ("/v1/messages", json!({"messages": long, "max_tokens": 5})),
        ("/v1/completions", json!({"prompt": "x".repeat(5000)})),
    ] {
        assert_eq!(server.post(path, &body).status, 400, "{path} {body}");
    }
    assert_eq!(server.send("POST", "/v1/messages", &[], b"{").status, 400);
    let counters = server.get("/v1/status").json()["counters"].clone();
    assert_eq!((&counters["refused"], &counters["requests"]), (&json!({"invalid": 7, "too_long": 2}), &json!(1)));
    let metrics = server.get("/metrics").body;
    assert!(metrics.contains("strata_refused_total{kind=\"invalid\"} 7\n"), "{metrics}");
}

#[test]
fn stopping_lets_answers_end_and_waits_no_longer_than_told() {
    let slow = |ms| {
        Script::new([Step::Text("Hi".to_owned()), Step::Wait(Duration::from_millis(ms)), Step::Text(" you".to_owned())])
    };
    let mut server = Server::start(Scripted::always(slow(400)), |o| o.grace = Duration::from_secs(10));
    let mut stream = server.open(CHAT, &hello());
    while server.backend.running() == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    server.ask_to_stop();
    assert_eq!(Reply::read(&mut stream).json()["choices"][0]["message"]["content"], "Hi you");
    server.wait();
    let mut server = Server::start(Scripted::always(slow(60_000)), |o| o.grace = Duration::from_millis(200));
    let _stream = server.open(CHAT, &hello());
    while server.backend.running() == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let start = Instant::now();
    server.ask_to_stop();
    server.wait();
    assert!(start.elapsed() < Duration::from_secs(5), "it took {:?}", start.elapsed());
    // A request that is half there is not waited for.
    let mut server = Server::start(Scripted::always(slow(1)), |o| o.grace = Duration::from_secs(60));
    let mut half = server.connect();
    half.write_all(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n{").unwrap();
    server.get("/health");
    let start = Instant::now();
    server.ask_to_stop();
    server.wait();
    assert!(start.elapsed() < Duration::from_secs(20), "it took {:?}", start.elapsed());
}
