//! `POST /v1/chat/completions`, event by event.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Reply, Server};
use serde_json::{Value, json};
use std::time::Duration;
use strata_runtime::{Constraint, Finish, TokenLogprob};
use strata_server::backend::{Refusal, RefusalKind};
use strata_server::scripted::{Script, Scripted, Step};

const PATH: &str = "/v1/chat/completions";

fn ask(more: Value) -> Value {
    let mut body = json!({"model": "any", "messages": [{"role": "user", "content": "Hello"}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn weather() -> Value {
    json!([{"type": "function", "function": {"name": "get_weather", "description": "d", "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "where": {"type": "object"}},
        "required": ["city"],
    }}}])
}

const CALL: [&str; 9] = [
    "<tool_call>",
    "\n<function=get_",
    "weather>\n<parameter=city>\nPa",
    "ris\n</para",
    "meter>\n<parameter=days>\n3\n",
    "</parameter>\n<parameter=where>\n{\"a\": [1, \"x\"]}\n</parameter>\n</func",
    "tion>\n",
    "</tool_call>",
    "\n",
];

/// What the official clients make of a stream: they add up every string of the deltas.
fn accumulate(reply: &Reply) -> (Value, Option<String>) {
    fn add(total: &mut Value, delta: &Value) {
        match (total, delta) {
            (Value::Object(total), Value::Object(delta)) => {
                for (key, value) in delta {
                    match total.get_mut(key) {
                        Some(Value::Null) | None => {
                            total.insert(key.clone(), value.clone());
                        }
                        Some(_) if key == "index" || key == "type" => {}
                        Some(old) => add(old, value),
                    }
                }
            }
            (Value::String(total), Value::String(delta)) => total.push_str(delta),
            (Value::Array(total), Value::Array(delta)) => {
                for item in delta {
                    let index = item["index"].as_u64().expect("an index") as usize;
                    assert!(index <= total.len(), "indices are contiguous");
                    match total.get_mut(index) {
                        Some(old) => add(old, item),
                        None => total.push(item.clone()),
                    }
                }
            }
            (total, delta) => *total = delta.clone(),
        }
    }
    let mut message = json!({});
    let mut finish = None;
    for chunk in reply.data() {
        let Some(choice) = chunk["choices"].as_array().expect("choices in every chunk").first() else { continue };
        let delta = &choice["delta"];
        // The first fragment of a call carries a list; make room for it.
        if delta.get("tool_calls").is_some() && message.get("tool_calls").is_none() {
            message["tool_calls"] = json!([]);
        }
        add(&mut message, delta);
        if let Some(reason) = choice["finish_reason"].as_str() {
            assert_eq!(finish, None, "one chunk with a reason");
            finish = Some(reason.to_owned());
        }
    }
    (message, finish)
}

#[test]
fn an_answer_has_every_field() {
    let server = Server::always(Script {
        cached: 5,
        miss: Some("the prompt differs at token 5".to_owned()),
        ..Script::new([Step::Think("Hm.\n".to_owned()), Step::Text("Hi".to_owned()), Step::Text(" 🙂你".to_owned())])
    });
    let reply = server.post(PATH, &ask(json!({})));
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    assert_eq!(reply.header("x-request-id"), reply.header("request-id"));
    let answer = reply.json();
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!((&answer["object"], &answer["model"]), (&json!("chat.completion"), &json!("scripted")));
    assert!(answer["created"].as_u64().unwrap() > 1_700_000_000);
    let choice = &answer["choices"][0];
    assert_eq!(
        (&choice["index"], &choice["finish_reason"], &choice["logprobs"]),
        (&json!(0), &json!("stop"), &Value::Null)
    );
    let message = json!({"role": "assistant", "content": "Hi 🙂你", "refusal": null, "reasoning_content": "Hm."});
    assert_eq!(choice["message"], message);
    let prompt = server.backend.seen()[0].0.prompt.tokens.len();
    let usage = json!({
        "prompt_tokens": prompt, "completion_tokens": 4, "total_tokens": prompt + 4,
        "prompt_tokens_details": {"cached_tokens": 5, "cache_miss_reason": "the prompt differs at token 5"},
        "completion_tokens_details": {"reasoning_tokens": 1, "accepted_prediction_tokens": 3, "rejected_prediction_tokens": 1},
    });
    assert_eq!(answer["usage"], usage);
    assert_eq!(answer["timings"]["cache_n"], 5);
    assert_eq!(answer["timings"]["draft_n_accepted"], 3);
}

#[test]
fn a_stream_is_what_the_clients_accumulate() {
    let server = Server::always(Script::new([
        Step::Prompt(3),
        Step::Think("Hm".to_owned()),
        Step::Text("Hi".to_owned()),
        Step::Text(" there".to_owned()),
    ]));
    let reply = server.post(PATH, &ask(json!({"stream": true, "stop": null, "max_tokens": null})));
    assert_eq!(reply.status, 200);
    assert!(reply.header("content-type").unwrap().starts_with("text/event-stream"));
    let events = reply.events();
    assert!(events.iter().all(|(name, _)| name.is_none()));
    assert_eq!(events.last().unwrap().1, "[DONE]");
    let chunks = reply.data();
    for chunk in &chunks {
        assert_eq!(chunk["object"], "chat.completion.chunk");
        for same in ["id", "created", "model"] {
            assert_eq!(chunk[same], chunks[0][same]);
        }
        assert!(chunk.get("usage").is_none_or(Value::is_null), "usage was not asked for");
        assert_eq!(chunk["choices"].as_array().unwrap().len(), 1);
    }
    assert_eq!(chunks[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    assert!(chunks[1..].iter().all(|c| c["choices"][0]["delta"].get("role").is_none()), "the role comes once");
    assert!(chunks.last().unwrap()["timings"].is_object());
    let (message, finish) = accumulate(&reply);
    assert_eq!(message, json!({"role": "assistant", "content": "Hi there", "reasoning_content": "Hm"}));
    assert_eq!(finish.as_deref(), Some("stop"));
    assert_eq!(reply.comments().iter().filter(|c| c.starts_with("prompt 3/")).count(), 1);
}

#[test]
fn usage_comes_in_a_chunk_of_its_own_when_asked_for() {
    let server = Server::text(["Hi"]);
    let reply = server.post(PATH, &ask(json!({"stream": true, "stream_options": {"include_usage": true}})));
    let chunks = reply.data();
    let (last, others) = chunks.split_last().unwrap();
    assert_eq!((&last["choices"], &last["usage"]["completion_tokens"]), (&json!([]), &json!(2)));
    assert!(others.iter().all(|c| c["usage"].is_null() && c["choices"].as_array().unwrap().len() == 1));
    assert_eq!(reply.events().last().unwrap().1, "[DONE]");
}

#[test]
fn calls_are_the_same_in_a_stream_and_not() {
    let server = Server::text(["I look.\n", "\n"].into_iter().chain(CALL).chain(CALL));
    let body = ask(json!({"tools": weather()}));
    let whole = server.post(PATH, &body).json();
    assert_eq!(whole["choices"][0]["finish_reason"], "tool_calls");
    let message = &whole["choices"][0]["message"];
    assert_eq!(message["content"], "I look.");
    let calls = message["tool_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 2);
    for call in calls {
        assert_eq!((&call["type"], &call["function"]["name"]), (&json!("function"), &json!("get_weather")));
        let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
        assert_eq!(arguments, json!({"city": "Paris", "days": 3, "where": {"a": [1, "x"]}}));
    }
    assert_ne!(calls[0]["id"], calls[1]["id"]);
    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    let reply = server.post(PATH, &streamed);
    let fragments = reply.data().into_iter().filter(|c| c["choices"][0]["delta"]["tool_calls"].is_array()).count();
    assert!(fragments > 6, "arguments come piece by piece");
    let (message, finish) = accumulate(&reply);
    assert_eq!(finish.as_deref(), Some("tool_calls"));
    assert_eq!(message["content"], "I look.");
    for (streamed, whole) in message["tool_calls"].as_array().unwrap().iter().zip(calls) {
        assert_eq!(streamed["function"], whole["function"]);
        assert!(streamed["id"].as_str().unwrap().starts_with("call_"));
    }
}

#[test]
fn one_call_is_given_when_only_one_is_wanted() {
    let server = Server::text(CALL.into_iter().chain(CALL));
    let body = ask(json!({"tools": weather(), "parallel_tool_calls": false}));
    let message = server.post(PATH, &body).json()["choices"][0]["message"].clone();
    assert_eq!((message["tool_calls"].as_array().unwrap().len(), &message["content"]), (1, &Value::Null));
}

#[test]
fn limits_and_unfinished_calls_are_told() {
    for (finish, pieces) in [(Finish::Length, vec!["Hi"]), (Finish::Context, vec!["Hi"])] {
        let server = Server::always(Script::text(pieces).ending(finish));
        assert_eq!(server.post(PATH, &ask(json!({}))).json()["choices"][0]["finish_reason"], "length");
    }
    // The model stops within a value: what came is given, and not called whole.
    for finish in [Finish::Length, Finish::Stop] {
        let server = Server::always(Script::text(CALL[..3].iter().copied()).ending(finish));
        let choice = server.post(PATH, &ask(json!({"tools": weather()}))).json()["choices"][0].clone();
        assert_eq!(choice["finish_reason"], "length");
        assert_eq!(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"city\":\"Pa");
    }
    // Before the first parameter it is text.
    let server = Server::always(Script::text(CALL[..2].iter().copied()));
    let choice = server.post(PATH, &ask(json!({"tools": weather()}))).json()["choices"][0].clone();
    assert_eq!(choice["message"]["content"], "<tool_call>\n<function=get_");
}

#[test]
fn an_answer_that_is_all_thinking_is_not_empty() {
    let server = Server::always(Script::new([Step::Think("It is 4.".to_owned())]));
    let message = server.post(PATH, &ask(json!({}))).json()["choices"][0]["message"].clone();
    assert_eq!((&message["content"], &message["reasoning_content"]), (&json!("It is 4."), &json!("It is 4.")));
    let call = "Look it up.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>";
    let server = Server::always(Script::new([Step::Think(call.to_owned())]));
    let choice = server.post(PATH, &ask(json!({"tools": weather()}))).json()["choices"][0].clone();
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"city\":\"Rome\"}");
}

#[test]
fn errors_have_a_status_and_after_the_start_an_event() {
    let fail = || Step::Fail(Refusal::new(RefusalKind::Engine, "the model's logits are not finite at position 7"));
    let server = Server::always(Script::new([Step::Text("Hi".to_owned()), fail()]));
    let reply = server.post(PATH, &ask(json!({})));
    assert_eq!((reply.status, reply.header("x-should-retry")), (500, Some("false")));
    let error = reply.json()["error"].clone();
    assert_eq!((&error["type"], &error["code"]), (&json!("server_error"), &json!("engine_failed")));
    let streamed = server.post(PATH, &ask(json!({"stream": true})));
    assert_eq!(streamed.status, 200);
    let last = streamed.data().pop().unwrap();
    assert_eq!(last["error"]["message"], "the model's logits are not finite at position 7");
    assert!(!streamed.body.contains("[DONE]"));
    let server = Server::always(Script::new([Step::Vanish]));
    assert_eq!(server.post(PATH, &ask(json!({}))).status, 500);
    assert!(server.post(PATH, &ask(json!({"stream": true}))).data().pop().unwrap()["error"].is_object());
}

#[test]
fn what_cannot_be_done_is_refused_by_name() {
    let server = Server::text(["Hi"]);
    for (field, value) in [
        ("n", json!(2)),
        ("temperature", json!(3)),
        ("temperature", json!("hot")),
        ("top_p", json!(1.5)),
        ("max_tokens", json!(0)),
        ("max_tokens", json!(-2)),
        ("max_tokens", json!("5")),
        ("max_completion_tokens", json!(0.5)),
        ("stop", json!(["a", "b", "c", "d", "e"])),
        ("stop", json!("")),
        ("stop[1]", json!(null)),
        ("top_logprobs", json!(21)),
        ("top_logprobs", json!(2)),
        ("logit_bias.x", json!(null)),
        ("reasoning_effort", json!("vast")),
        ("tool_choice", json!("required")),
        ("tool_choice", json!({"type": "function", "function": {"name": "gone"}})),
        ("response_format.type", json!(null)),
        ("response_format.json_schema.schema", json!(null)),
        ("functions", json!([{"name": "f"}])),
        ("modalities", json!(["audio"])),
        ("tools[0].type", json!(null)),
        ("messages", json!([])),
        ("messages", json!("Hello")),
        ("messages[0].role", json!(null)),
        ("messages[0].content", json!(null)),
        ("messages[0].content[0].type", json!(null)),
    ] {
        let body = match field {
            "stop[1]" => ask(json!({"stop": ["a", 5]})),
            "logit_bias.x" => ask(json!({"logit_bias": {"x": 1}})),
            "response_format.type" => ask(json!({"response_format": {"type": "xml"}})),
            "response_format.json_schema.schema" => {
                ask(json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}))
            }
            "tools[0].type" => ask(json!({"tools": [{"type": "shell"}]})),
            "messages[0].role" => ask(json!({"messages": [{"role": "king", "content": ""}]})),
            "messages[0].content" => ask(json!({"messages": [{"role": "user", "content": null}]})),
            "messages[0].content[0].type" => ask(
                json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}),
            ),
            _ => ask(json!({field: value})),
        };
        let reply = server.post(PATH, &body);
        assert_eq!(reply.status, 400, "{field}: {}", reply.body);
        let error = reply.json()["error"].clone();
        assert_eq!((&error["param"], &error["type"]), (&json!(field), &json!("invalid_request_error")), "{error}");
        assert!(error["message"].as_str().unwrap().contains(field.split('[').next().unwrap()), "{error}");
    }
    assert_eq!(server.backend.seen().len(), 0, "nothing was asked of the engine");
}

#[test]
fn parameters_arrive() {
    let server = Server::text(["Hi"]);
    let body = ask(json!({
        "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "seed": 7, "presence_penalty": 1, "frequency_penalty": -1,
        "logit_bias": {"65": -100}, "stop": ["END", "\n\n"], "max_tokens": 5, "max_completion_tokens": 9, "logprobs": true,
        "top_logprobs": 2, "user": "u", "metadata": {"a": "b"}, "store": false, "unknown_field": [1], "verbosity": "low",
        "reasoning_effort": "low", "chat_template_kwargs": {"style": "x"}, "prediction": {"type": "content", "content": "x"},
    }));
    assert_eq!(server.post(PATH, &body).status, 200);
    let (request, chat) = server.backend.seen().pop().unwrap();
    let p = &request.params;
    let s = &p.sampling;
    assert_eq!((s.temp, s.top_p, s.top_k, s.min_p, s.seed), (0.5, 0.9, 40, 0.1, 7));
    assert_eq!((s.presence_penalty, s.frequency_penalty, &s.logit_bias[..]), (1.0, -1.0, &[(65, -100.0)][..]));
    assert_eq!((p.max_tokens, p.logprobs, p.think_budget), (9, Some(2), Some(2048)));
    assert_eq!(p.stop, ["END", "\n\n"]);
    let chat = chat.unwrap();
    assert_eq!(chat.think, Some(true));
    assert_eq!(Value::Object(chat.extra), json!({"style": "x", "reasoning_effort": "low"}));
    // Without a limit, and with the one that means none.
    for body in [json!({"max_tokens": null}), json!({"max_tokens": -1})] {
        assert_eq!(server.post(PATH, &ask(body)).status, 200);
        assert_eq!(server.backend.seen().pop().unwrap().0.params.max_tokens, 0);
    }
    // Two requests without a seed are drawn differently.
    let seeds: Vec<u64> = server.backend.seen()[1..].iter().map(|(r, _)| r.params.sampling.seed).collect();
    assert_ne!(seeds[0], seeds[1]);
}

#[test]
fn every_shape_of_message_is_taken() {
    let server = Server::text(["Hi"]);
    let body = json!({"messages": [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
        {"role": "assistant", "content": null, "reasoning_content": "Look.", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\": [1]}"}},
            {"id": "b", "type": "function", "function": {"name": "g", "arguments": ""}},
        ]},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "late"}]},
        {"role": "tool", "tool_call_id": "a", "content": "sunny"},
        {"role": "assistant"},
        {"role": "user", "content": []},
    ]});
    assert_eq!(server.post(PATH, &body).status, 200);
    let expected = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "", "reasoning_content": "Look.", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": [1]}}},
            {"id": "b", "type": "function", "function": {"name": "g", "arguments": {}}},
        ]},
        {"role": "tool", "content": "sunny", "tool_call_id": "a"},
        {"role": "tool", "content": "late", "tool_call_id": "b"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": ""},
    ]);
    assert_eq!(Value::from(server.backend.rendered().unwrap().messages), expected);
}

#[test]
fn constraints_are_made_of_formats_and_choices() {
    let server = Server::text(["{}"]);
    let constraint = |body: Value| {
        let reply = server.post(PATH, &ask(body));
        assert_eq!(reply.status, 200, "{}", reply.body);
        server.backend.seen().pop().unwrap().0.params.constraint
    };
    assert_eq!(constraint(json!({"response_format": {"type": "text"}})), None);
    let object = json!({"type": "object"});
    assert_eq!(constraint(json!({"response_format": {"type": "json_object"}})), Some(Constraint::Json(object)));
    let schema = json!({"type": "array", "items": {"type": "integer"}});
    let format = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": true}});
    assert_eq!(constraint(json!({"response_format": format})), Some(Constraint::Json(schema)));
    let refused = |schema: Value| {
        let format = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}});
        let reply = server.post(PATH, &ask(json!({"response_format": format})));
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("response_format")));
    };
    refused(json!({"$ref": "#"}));
    refused(json!({"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}));
    refused(json!({"type": "string", "pattern": "(?=a)"}));
    refused(json!({"type": "nothing"}));
    assert_eq!(constraint(json!({"tools": weather()})), None);
    for choice in [json!("required"), json!({"type": "function", "function": {"name": "get_weather"}})] {
        let Some(Constraint::Lark(grammar)) = constraint(json!({"tools": weather(), "tool_choice": choice})) else {
            panic!("a grammar was expected");
        };
        assert!(grammar.contains("<function=get_weather>"), "{grammar}");
    }
    // Calls that are forbidden are made impossible, and the tools stay in the prompt.
    assert_eq!(constraint(json!({"tools": weather(), "tool_choice": "none"})), None);
    let (request, chat) = server.backend.seen().pop().unwrap();
    assert_eq!(request.params.sampling.logit_bias, [(0x11_0000, -1.0e9)]);
    assert_eq!(chat.unwrap().tools.len(), 1);
}

#[test]
fn strict_tools_are_enforced_or_refused_and_others_are_left_free() {
    let lines = std::sync::Arc::new(std::sync::Mutex::new(Vec::<String>::new()));
    let log = std::sync::Arc::clone(&lines);
    let server = Server::start(Scripted::always(Script::text(["{}"])), move |options| {
        options.log = strata_server::Log::new(move |line| log.lock().unwrap().push(line.to_owned()));
    });
    let tool = |schema: Value, strict: bool| {
        let parameters = json!({"type": "object", "properties": {"city": schema}, "required": ["city"]});
        json!([{"type": "function", "function": {"name": "get_weather", "parameters": parameters, "strict": strict}}])
    };
    let look_ahead = json!({"type": "string", "pattern": "(?=a)b"});
    for choice in ["auto", "required"] {
        let reply = server.post(PATH, &ask(json!({"tools": tool(look_ahead.clone(), true), "tool_choice": choice})));
        let error = reply.json()["error"].clone();
        assert_eq!((reply.status, &error["param"]), (400, &json!("tools")), "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains("\"get_weather\"") && message.contains("\"city\"") && message.contains("(?=a)b"),
            "{message}"
        );
        assert!(!message.contains("start:") && !message.contains("WRITTEN"), "{message}");
    }
    assert!(lines.lock().unwrap().is_empty());
    let grammar = |tools: Value| {
        let reply = server.post(PATH, &ask(json!({"tools": tools, "tool_choice": "required"})));
        assert_eq!(reply.status, 200, "{}", reply.body);
        match server.backend.seen().pop().unwrap().0.params.constraint {
            Some(Constraint::Lark(grammar)) => grammar,
            other => panic!("{other:?}"),
        }
    };
    let free = grammar(tool(json!({"type": "string"}), false));
    assert_eq!(grammar(tool(look_ahead, false)), free);
    let line = lines.lock().unwrap().pop().unwrap();
    assert!(line.contains("\"get_weather\"") && line.contains("\"city\"") && line.contains("(?=a)b"), "{line}");
    assert_ne!(grammar(tool(json!({"type": "string", "pattern": "^[A-Z]"}), false)), free);
    assert!(lines.lock().unwrap().is_empty());
}

#[test]
fn text_that_speaks_of_calls_is_left_alone() {
    let text = ["Write\n<tool_call>\n<function=f>\n</function>\n</tool_call>", " to call."];
    let server = Server::text(text);
    let message = server.post(PATH, &ask(json!({"tools": weather()}))).json()["choices"][0]["message"].clone();
    assert_eq!((&message["content"], message.get("tool_calls")), (&json!(text.concat()), None));
    // A model without such tokens calls by the literal at a line's start.
    let unmarked = Scripted::always(Script::text(CALL)).with_model(|m| m.marks.clear());
    let server = Server::start(unmarked, |_| ());
    // Scripts write marks all the same; here they are text.
    let choice = server.post(PATH, &ask(json!({"tools": weather()}))).json()["choices"][0].clone();
    assert_eq!(choice["finish_reason"], "tool_calls", "{choice}");
}

#[test]
fn logprobs_come_with_their_text() {
    let token = |text: &str, logprob: f32| TokenLogprob {
        id: 1,
        bytes: text.as_bytes().to_vec(),
        logprob,
        top: vec![(1, text.as_bytes().to_vec(), logprob), (2, b"x".to_vec(), f32::NEG_INFINITY)],
    };
    let steps = [("Hi", -0.5), (" you", -0.25)]
        .map(|(text, p)| [Step::Logprob(token(text, p)), Step::Text(text.to_owned())])
        .concat();
    let server = Server::always(Script::new(steps));
    let body = ask(json!({"logprobs": true, "top_logprobs": 2}));
    let whole = server.post(PATH, &body).json()["choices"][0]["logprobs"]["content"].clone();
    let expected = json!([
        {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": [
            {"token": "Hi", "logprob": -0.5, "bytes": [72, 105]}, {"token": "x", "logprob": -9999.0, "bytes": [120]}]},
        {"token": " you", "logprob": -0.25, "bytes": [32, 121, 111, 117], "top_logprobs": [
            {"token": " you", "logprob": -0.25, "bytes": [32, 121, 111, 117]}, {"token": "x", "logprob": -9999.0, "bytes": [120]}]},
    ]);
    assert_eq!(whole, expected);
    let mut streamed = body;
    streamed["stream"] = json!(true);
    let chunks = server.post(PATH, &streamed).data();
    let entries: Vec<Value> =
        chunks.iter().filter_map(|c| c["choices"][0]["logprobs"]["content"].as_array().cloned()).flatten().collect();
    assert_eq!(Value::from(entries), expected);
}

#[test]
fn silence_is_broken_by_signs_of_life() {
    let wait = Step::Wait(Duration::from_millis(350));
    let script = Script::new([wait.clone(), Step::Text("Hi".to_owned()), wait]);
    let server = Server::start(Scripted::always(script), |o| o.heartbeat = Duration::from_millis(100));
    let reply = server.post(PATH, &ask(json!({"stream": true})));
    let alive = reply.comments().iter().filter(|c| **c == "alive").count();
    assert!(alive >= 3, "{alive} signs in 0.7 s of silence");
    assert_eq!(accumulate(&reply).0["content"], "Hi");
}
