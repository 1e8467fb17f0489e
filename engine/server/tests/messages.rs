//! `POST /v1/messages`, event by event.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Reply, Server};
use serde_json::{Value, json};
use std::time::Duration;
use strata_runtime::{Constraint, Finish};
use strata_server::backend::{Refusal, RefusalKind};
use strata_server::scripted::{Script, Scripted, Step};

const PATH: &str = "/v1/messages";

fn ask(more: Value) -> Value {
    let mut body = json!({"model": "any", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn tools() -> Value {
    json!([
        {"name": "get_weather", "description": "d", "input_schema": {
            "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}},
        {"type": "web_search_20250305", "name": "web_search"},
    ])
}

const CALL: &str =
    "\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n";

/// What the official client makes of a stream, and whether it could.
fn accumulate(reply: &Reply) -> Value {
    let mut message = Value::Null;
    let mut partial: Vec<String> = Vec::new();
    for (name, data) in reply.events() {
        let event: Value = serde_json::from_str(&data).unwrap();
        assert_eq!(name.as_deref(), event["type"].as_str(), "the name is the type");
        let index = event["index"].as_u64().unwrap_or(0) as usize;
        match event["type"].as_str().unwrap() {
            "message_start" => {
                assert!(message.is_null(), "it comes first and once");
                message = event["message"].clone();
                assert_eq!(message["content"], json!([]));
                assert!(message["usage"]["input_tokens"].is_u64() && message["usage"]["output_tokens"].is_u64());
            }
            "content_block_start" => {
                let content = message["content"].as_array_mut().unwrap();
                assert_eq!(content.len(), index, "indices count up");
                content.push(event["content_block"].clone());
                partial.push(String::new());
            }
            "content_block_delta" => {
                let block = &mut message["content"][index];
                let delta = &event["delta"];
                let (field, kind) = match delta["type"].as_str().unwrap() {
                    "text_delta" => ("text", "text"),
                    "thinking_delta" => ("thinking", "thinking"),
                    "signature_delta" => ("signature", "thinking"),
                    "input_json_delta" => {
                        partial[index].push_str(delta["partial_json"].as_str().unwrap());
                        continue;
                    }
                    other => panic!("{other}"),
                };
                assert_eq!(block["type"], kind);
                let text = block[field].as_str().unwrap().to_owned() + delta[field].as_str().unwrap();
                block[field] = text.into();
            }
            "content_block_stop" => {
                if !partial[index].is_empty() {
                    message["content"][index]["input"] = serde_json::from_str(&partial[index]).unwrap();
                }
            }
            "message_delta" => {
                for (key, value) in event["delta"].as_object().unwrap() {
                    message[key] = value.clone();
                }
                for (key, value) in event["usage"].as_object().unwrap() {
                    message["usage"][key] = value.clone();
                }
            }
            "message_stop" | "ping" => {}
            other => panic!("{other}"),
        }
    }
    assert_eq!(reply.events().last().unwrap().0.as_deref(), Some("message_stop"));
    message
}

/// A message without what differs from request to request.
fn stripped(mut message: Value) -> Value {
    for block in message["content"].as_array_mut().unwrap() {
        block.as_object_mut().unwrap().remove("id");
    }
    for key in ["id", "timings"] {
        message.as_object_mut().unwrap().remove(key);
    }
    message
}

#[test]
fn a_stream_adds_up_to_the_message() {
    let script = Script::new([
        Step::Prompt(4),
        Step::Think("Hm.\n".to_owned()),
        Step::Text("I look.\n\n".to_owned()),
        Step::Mark("<tool_call>".to_owned()),
        Step::Text(CALL.to_owned()),
        Step::Mark("</tool_call>".to_owned()),
    ]);
    let server = Server::always(Script { cached: 7, ..script });
    let body = ask(json!({"tools": tools(), "thinking": {"type": "enabled", "budget_tokens": 2000}}));
    let whole = server.post(PATH, &body);
    assert_eq!(whole.status, 200, "{}", whole.body);
    let message = whole.json();
    assert!(message["id"].as_str().unwrap().starts_with("msg_"));
    let prompt = server.backend.seen()[0].0.prompt.tokens.len();
    let expected = json!({
        "type": "message", "role": "assistant", "model": "scripted", "stop_reason": "tool_use", "stop_sequence": null,
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "strata"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "name": "get_weather", "input": {"city": "Paris", "days": 3}},
        ],
        "usage": {"input_tokens": prompt - 7, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 7, "output_tokens": 6},
    });
    assert!(message["content"][2]["id"].as_str().unwrap().starts_with("toolu_"));
    assert_eq!(stripped(message), expected);
    let mut streamed = body;
    streamed["stream"] = json!(true);
    let reply = server.post(&format!("{PATH}?beta=true"), &streamed);
    assert_eq!(stripped(accumulate(&reply)), expected);
    assert!(reply.events().iter().any(|(name, _)| name.as_deref() == Some("ping")));
    assert!(!reply.body.contains("[DONE]"));
    assert_eq!(server.backend.seen()[0].0.params.think_budget, Some(2000));
    let tools = server.backend.rendered().unwrap().tools;
    assert_eq!(tools.len(), 1, "tools of other servers are left out");
    assert_eq!(tools[0]["function"]["name"], "get_weather");
}

#[test]
fn every_end_has_its_reason() {
    for (finish, stop_text, reason) in [
        (Finish::Stop, None, "end_turn"),
        (Finish::Length, None, "max_tokens"),
        (Finish::Context, None, "model_context_window_exceeded"),
        (Finish::StopText, Some("END"), "stop_sequence"),
    ] {
        let stop_text = stop_text.map(str::to_owned);
        let server = Server::always(Script { finish, stop_text: stop_text.clone(), ..Script::text(["Hi"]) });
        let message = server.post(PATH, &ask(json!({"stop_sequences": ["END"]}))).json();
        assert_eq!((&message["stop_reason"], &message["stop_sequence"]), (&json!(reason), &json!(stop_text)));
        let streamed = accumulate(&server.post(PATH, &ask(json!({"stream": true}))));
        assert_eq!(streamed["stop_reason"], reason);
    }
}

#[test]
fn a_call_that_is_cut_is_the_same_in_a_stream_and_not() {
    let named = CALL.find("<parameter=").unwrap() + "<parameter=city>".len();
    let mut inputs = Vec::new();
    for at in named..CALL.len() {
        for finish in [Finish::Length, Finish::Context, Finish::Stop] {
            let pieces = CALL[..at].split_inclusive(['a', '\n']).map(|piece| Step::Text(piece.to_owned()));
            let steps: Vec<Step> = std::iter::once(Step::Mark("<tool_call>".to_owned())).chain(pieces).collect();
            let server = Server::always(Script::new(steps).ending(finish));
            let message = server.post(PATH, &ask(json!({"tools": tools()}))).json();
            // What the client makes of the fragments is JSON, or it would fail here.
            let streamed = accumulate(&server.post(PATH, &ask(json!({"tools": tools(), "stream": true}))));
            assert_eq!(stripped(streamed), stripped(message.clone()), "{finish:?} at {at}");
            if finish == Finish::Length {
                assert_eq!(message["stop_reason"], "max_tokens");
                inputs.push(message["content"][0]["input"].clone());
            }
        }
    }
    // Whole arguments, and no half ones.
    inputs.dedup();
    assert_eq!(inputs, [json!({}), json!({"city": "Paris"}), json!({"city": "Paris", "days": 3})]);
}

#[test]
fn blocks_become_messages() {
    let server = Server::text(["Hi"]);
    let body = ask(json!({
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=12ab;\nYou code.", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "Be brief."},
        ],
        "messages": [
            {"role": "user", "content": "One"},
            {"role": "user", "content": [{"type": "text", "text": "Two", "cache_control": {"type": "ephemeral"}}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Hm", "signature": ""},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
                {"type": "tool_use", "id": "b", "name": "f", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "bad"}], "is_error": true},
                {"type": "tool_result", "tool_use_id": "a"},
                {"type": "text", "text": "Go on."},
            ]},
        ],
    }));
    let reply = server.post(PATH, &body);
    assert_eq!(reply.status, 200, "{}", reply.body);
    let call = |id: &str, arguments: Value| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}});
    let expected = json!([
        {"role": "system", "content": "You code.\nBe brief."},
        {"role": "user", "content": "One\nTwo"},
        {"role": "assistant", "content": "I look.", "reasoning_content": "Hm",
         "tool_calls": [call("a", json!({"x": 1})), call("b", json!({}))]},
        {"role": "tool", "content": "", "tool_call_id": "a"},
        {"role": "tool", "content": "Error: bad", "tool_call_id": "b"},
        {"role": "user", "content": "Go on."},
    ]);
    let chat = server.backend.rendered().unwrap();
    assert_eq!(Value::from(chat.messages), expected);
    assert_eq!(chat.think, Some(false), "without `thinking` there is none");
}

#[test]
fn a_volatile_first_line_does_not_change_the_prompt() {
    let server = Server::text(["Hi"]);
    let prompt = |system: Value| {
        assert_eq!(server.post(PATH, &ask(json!({"system": system}))).status, 200);
        server.backend.seen().pop().unwrap().0.prompt.tokens
    };
    let plain = prompt(json!("You code."));
    assert_eq!(prompt(json!("x-anthropic-billing-header: cch=1;\nYou code.")), plain);
    assert_eq!(
        prompt(
            json!([{"type": "text", "text": "x-anthropic-billing-header: cch=2;"}, {"type": "text", "text": "You code."}])
        ),
        plain
    );
    assert_ne!(prompt(json!("You code. x-anthropic-billing-header: cch=1;")), plain);
}

#[test]
fn counting_gives_what_the_answer_reports() {
    let server = Server::text(["Hi"]);
    let body = ask(json!({"system": "You code.", "tools": tools()}));
    let mut counted = body.clone();
    counted.as_object_mut().unwrap().remove("max_tokens");
    for path in ["/v1/messages/count_tokens", "/v1/messages/count_tokens?beta=true"] {
        let count = server.post(path, &counted).json();
        let usage = server.post(PATH, &body).json()["usage"].clone();
        assert_eq!(count, json!({"input_tokens": usage["input_tokens"]}));
    }
}

#[test]
fn choices_and_formats_constrain() {
    let server = Server::text(["{}"]);
    let constraint = |more: Value| {
        let reply = server.post(PATH, &ask(more));
        assert_eq!(reply.status, 200, "{}", reply.body);
        server.backend.seen().pop().unwrap().0.params.constraint
    };
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let format = json!({"output_config": {"format": {"type": "json_schema", "schema": schema}}});
    assert_eq!(constraint(format), Some(Constraint::Json(schema)));
    let endless = json!({"output_config": {"format": {"type": "json_schema", "schema": {"$ref": "#"}}}});
    let refused = server.post(PATH, &ask(endless));
    assert_eq!(refused.status, 400);
    let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("output_config.format: ") && message.contains("without end"), "{message}");
    for choice in [json!({"type": "any"}), json!({"type": "tool", "name": "get_weather"})] {
        let lark = constraint(json!({"tools": tools(), "tool_choice": choice}));
        assert!(matches!(lark, Some(Constraint::Lark(_))), "{lark:?}");
    }
    assert_eq!(constraint(json!({"tools": tools(), "tool_choice": {"type": "auto"}})), None);
}

#[test]
fn errors_have_the_form_of_this_interface() {
    let fail = Step::Fail(Refusal::new(RefusalKind::Engine, "broken"));
    let server = Server::always(Script::new([Step::Text("Hi".to_owned()), fail]));
    for (body, param) in [
        (json!({"messages": []}), "max_tokens"),
        (ask(json!({"messages": []})), "messages"),
        (ask(json!({"messages": [{"role": "user", "content": [{"type": "image"}]}]})), "messages[0].content[0].type"),
        (
            ask(json!({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "{"}]})),
            "messages",
        ),
        (ask(json!({"thinking": {"type": "often"}})), "thinking.type"),
        (ask(json!({"tool_choice": {"type": "any"}})), "tool_choice"),
    ] {
        let reply = server.post(PATH, &body);
        assert_eq!(reply.status, 400, "{}", reply.body);
        let error = reply.json();
        assert_eq!((&error["type"], &error["error"]["type"]), (&json!("error"), &json!("invalid_request_error")));
        assert_eq!(error["request_id"].as_str(), reply.header("request-id"));
        assert!(error["error"]["message"].as_str().unwrap().contains(param), "{error}");
    }
    let reply = server.post(PATH, &ask(json!({})));
    assert_eq!((reply.status, reply.json()["error"]["type"].clone()), (500, json!("api_error")));
    assert_eq!(reply.header("x-should-retry"), Some("false"));
    let events = server.post(PATH, &ask(json!({"stream": true}))).events();
    let (name, data) = events.last().unwrap();
    assert_eq!(name.as_deref(), Some("error"));
    let error: Value = serde_json::from_str(data).unwrap();
    assert_eq!((&error["type"], &error["error"]["message"]), (&json!("error"), &json!("broken")));
    let long = server.post(PATH, &ask(json!({"system": "x".repeat(5000)})));
    assert_eq!(long.status, 400);
    assert!(long.json()["error"]["message"].as_str().unwrap().starts_with("prompt is too long: "));
}

#[test]
fn silence_is_broken_by_pings() {
    let script = Script::new([Step::Wait(Duration::from_millis(350)), Step::Text("Hi".to_owned())]);
    let server = Server::start(Scripted::always(script), |o| o.heartbeat = Duration::from_millis(100));
    let reply = server.post(PATH, &ask(json!({"stream": true})));
    let pings = reply.events().iter().filter(|(name, _)| name.as_deref() == Some("ping")).count();
    assert!(pings >= 3, "{pings}: one at the start, and more in 0.35 s of silence");
}
