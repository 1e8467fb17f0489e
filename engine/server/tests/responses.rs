//! `POST /v1/responses`, event by event.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Reply, Server};
use serde_json::{Value, json};
use strata_runtime::{Constraint, Finish};
use strata_server::backend::{Refusal, RefusalKind};
use strata_server::scripted::{Script, Step};

const PATH: &str = "/v1/responses";

fn tool() -> Value {
    json!({"type": "function", "name": "get_weather", "description": null, "strict": false, "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}})
}

const CALL: [&str; 4] = [
    "<tool_call>",
    "\n<function=get_weather>\n<parameter=city>\nPa",
    "ris\n</parameter>\n</function>\n",
    "</tool_call>",
];

fn answer() -> Script {
    let calls = CALL.iter().chain(&CALL).map(|piece| match *piece {
        "<tool_call>" | "</tool_call>" => Step::Mark((*piece).to_owned()),
        text => Step::Text(text.to_owned()),
    });
    let before = [Step::Think("Hm".to_owned()), Step::Text("I ".to_owned()), Step::Text("look.\n".to_owned())];
    Script { cached: 3, ..Script::new(before.into_iter().chain(calls)) }
}

/// Events with their names checked against their types, and numbered.
fn events(reply: &Reply) -> Vec<Value> {
    let mut all = Vec::new();
    for (i, (name, data)) in reply.events().into_iter().enumerate() {
        let event: Value = serde_json::from_str(&data).unwrap();
        assert_eq!(name.as_deref(), event["type"].as_str());
        assert_eq!(event["sequence_number"], i);
        all.push(event);
    }
    all
}

/// A response without what differs from request to request.
fn stripped(mut response: Value) -> Value {
    for key in ["id", "created_at", "timings"] {
        response.as_object_mut().unwrap().remove(key);
    }
    for item in response["output"].as_array_mut().unwrap() {
        for key in ["id", "call_id"] {
            item.as_object_mut().unwrap().remove(key);
        }
    }
    response
}

#[test]
fn a_stream_has_every_event_in_order() {
    let server = Server::always(answer());
    let body =
        json!({"model": "m", "input": "Weather?", "tools": [tool()], "stream": true, "instructions": "Be brief."});
    let reply = server.post(PATH, &body);
    assert_eq!(reply.status, 200, "{}", reply.body);
    let events = events(&reply);
    let types: Vec<&str> = events.iter().map(|e| e["type"].as_str().unwrap().trim_start_matches("response.")).collect();
    let call = |deltas: usize| {
        let mut call = vec!["output_item.added"];
        call.extend(vec!["function_call_arguments.delta"; deltas]);
        call.extend(["function_call_arguments.done", "output_item.done"]);
        call
    };
    let deltas = (types.iter().filter(|t| **t == "function_call_arguments.delta").count()) / 2;
    assert!(deltas >= 4);
    let expected = [
        vec!["created", "in_progress"],
        vec!["output_item.added", "reasoning_text.delta", "reasoning_text.done", "output_item.done"],
        vec!["output_item.added", "content_part.added", "output_text.delta", "output_text.delta", "output_text.done"],
        vec!["content_part.done", "output_item.done"],
        call(deltas),
        call(deltas),
        vec!["completed"],
    ]
    .concat();
    assert_eq!(types, expected);
    let mut open = Value::Null;
    for event in &events {
        match event["type"].as_str().unwrap() {
            "response.created" | "response.in_progress" => assert_eq!(event["response"]["status"], "in_progress"),
            "response.output_item.added" => open = event.clone(),
            "response.output_item.done" => {
                assert_eq!(event["item"]["id"], open["item"]["id"]);
                assert_eq!(event["item"]["status"], "completed");
                assert_eq!(event["output_index"], open["output_index"]);
            }
            "response.completed" => {}
            kind => {
                assert_eq!((&event["item_id"], &event["output_index"]), (&open["item"]["id"], &open["output_index"]));
                let content = kind.contains("content_part") || kind.contains("text");
                assert_eq!(event["content_index"].is_u64(), content, "{kind}");
            }
        }
    }
    let mut plain = body;
    plain["stream"] = json!(false);
    let whole = server.post(PATH, &plain).json();
    assert_eq!(stripped(events.last().unwrap()["response"].clone()), stripped(whole));
}

#[test]
fn a_response_has_every_field() {
    let server = Server::always(answer());
    let body =
        json!({"model": "m", "input": "Weather?", "tools": [tool()], "metadata": {"a": "b"}, "temperature": 0.7});
    let response = server.post(PATH, &body).json();
    for key in [
        "id",
        "created_at",
        "error",
        "incomplete_details",
        "instructions",
        "max_output_tokens",
        "previous_response_id",
        "text",
    ] {
        assert!(response.get(key).is_some(), "{key}");
    }
    assert_eq!((&response["object"], &response["status"]), (&json!("response"), &json!("completed")));
    assert_eq!((&response["tools"], &response["tool_choice"]), (&json!([tool()]), &json!("auto")));
    assert_eq!((&response["metadata"], &response["temperature"]), (&json!({"a": "b"}), &json!(0.7)));
    let prompt = server.backend.seen()[0].0.prompt.tokens.len();
    let usage = json!({
        "input_tokens": prompt, "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        "output_tokens": 12, "output_tokens_details": {"reasoning_tokens": 1}, "total_tokens": prompt + 12,
    });
    assert_eq!(response["usage"], usage);
    let call = json!({"type": "function_call", "status": "completed", "name": "get_weather", "arguments": "{\"city\":\"Paris\"}"});
    let output = json!([
        {"type": "reasoning", "status": "completed", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm"}]},
        {"type": "message", "status": "completed", "role": "assistant",
         "content": [{"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []}]},
        call, call,
    ]);
    assert_eq!(stripped(response)["output"], output);
}

#[test]
fn its_own_output_can_be_sent_back() {
    let server = Server::always(answer());
    let first = server.post(PATH, &json!({"input": "Weather?", "tools": [tool()]})).json();
    let output = first["output"].as_array().unwrap().clone();
    let mut input =
        vec![json!({"role": "developer", "content": "Be brief."}), json!({"role": "user", "content": "Weather?"})];
    input.extend(output.clone());
    input.push(json!({"type": "function_call_output", "call_id": output[3]["call_id"], "output": [{"type": "input_text", "text": "2"}]}));
    input.push(json!({"type": "function_call_output", "call_id": output[2]["call_id"], "output": "1"}));
    let reply = server.post(PATH, &json!({"instructions": "I.", "input": input, "tools": [tool()]}));
    assert_eq!(reply.status, 200, "{}", reply.body);
    let messages = server.backend.rendered().unwrap().messages;
    let roles: Vec<&str> = messages.iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool"]);
    assert_eq!(messages[0]["content"], "I.\n\nBe brief.");
    assert_eq!((&messages[2]["content"], &messages[2]["reasoning_content"]), (&json!("I look."), &json!("Hm")));
    assert_eq!(messages[2]["tool_calls"].as_array().unwrap().len(), 2);
    assert_eq!((&messages[3]["content"], &messages[4]["content"]), (&json!("1"), &json!("2")));
}

#[test]
fn agents_payloads_are_taken() {
    let server = Server::text(["Hi"]);
    // A probe with nothing to answer, and tools of kinds that run elsewhere.
    let body = json!({
        "model": "m", "input": [], "max_output_tokens": 1, "store": false, "stream": true, "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "k", "parallel_tool_calls": true, "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"verbosity": "low"}, "client_metadata": {"x": 1},
        "tools": [tool(), {"type": "web_search"}, {"type": "custom", "name": "c"}, {"type": "namespace", "name": "n", "tools": []},
                  {"type": "local_shell"}],
    });
    let reply = server.post(PATH, &body);
    assert_eq!(reply.status, 200, "{}", reply.body);
    let (request, chat) = server.backend.seen().pop().unwrap();
    assert_eq!((request.params.max_tokens, request.params.think_budget), (1, Some(2048)));
    let chat = chat.unwrap();
    assert_eq!((chat.tools.len(), chat.think), (1, Some(true)));
    let count = server.post("/v1/responses/input_tokens", &json!({"input": "Hello"})).json();
    assert_eq!(server.post(PATH, &json!({"input": "Hello"})).json()["usage"]["input_tokens"], count["input_tokens"]);
}

#[test]
fn what_was_cut_is_incomplete() {
    let server = Server::always(Script::text(["Hi"]).ending(Finish::Length));
    let response = server.post(PATH, &json!({"input": "Hello", "max_output_tokens": 1})).json();
    assert_eq!(response["status"], "incomplete");
    assert_eq!(response["incomplete_details"], json!({"reason": "max_output_tokens"}));
    assert_eq!(response["output"][0]["status"], "incomplete");
    let server = Server::always(Script::text(CALL[..2].iter().copied()).ending(Finish::Length));
    let reply = server.post(PATH, &json!({"input": "Hello", "tools": [tool()], "stream": true}));
    let last = events(&reply).pop().unwrap();
    assert_eq!(last["type"], "response.incomplete");
    let call = &last["response"]["output"][0];
    assert_eq!((&call["arguments"], &call["status"]), (&json!("{\"city\":\"Pa"), &json!("incomplete")));
}

#[test]
fn errors_are_events_once_it_began() {
    let fail = Step::Fail(Refusal::new(RefusalKind::Engine, "broken"));
    let server = Server::always(Script::new([Step::Text("Hi".to_owned()), fail]));
    let events = events(&server.post(PATH, &json!({"input": "Hello", "stream": true})));
    let [.., error, failed] = &events[..] else { panic!("{events:?}") };
    assert_eq!((&error["type"], &error["message"]), (&json!("error"), &json!("broken")));
    assert_eq!(
        (&failed["type"], &failed["response"]["error"]["message"]),
        (&json!("response.failed"), &json!("broken"))
    );
    assert_eq!(server.post(PATH, &json!({"input": "Hello"})).status, 500);
}

#[test]
fn what_cannot_be_done_is_refused_by_name() {
    let server = Server::text(["Hi"]);
    for (body, param) in [
        (json!({"input": "a", "previous_response_id": "resp_1"}), "previous_response_id"),
        (json!({"input": "a", "conversation": "c"}), "conversation"),
        (json!({"input": "a", "background": true}), "background"),
        (json!({"input": [{"type": "item_reference", "id": "x"}]}), "input[0].type"),
        (json!({"input": [{"type": "computer_call"}]}), "input[0].type"),
        (json!({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}), "input[0].content[0].type"),
        (json!({"input": [{"type": "function_call_output", "output": "x"}]}), "input[0].call_id"),
        (json!({"input": 5}), "input"),
        (json!({"input": "a", "reasoning": {"effort": "vast"}}), "reasoning.effort"),
        (json!({"input": "a", "text": {"format": {"type": "json_schema", "name": "n"}}}), "text.format.schema"),
        (json!({"input": "a", "top_logprobs": 3}), "top_logprobs"),
        (json!({"input": "a", "tool_choice": {"type": "web_search"}}), "tool_choice.type"),
    ] {
        let reply = server.post(PATH, &body);
        assert_eq!((reply.status, reply.json()["error"]["param"].as_str()), (400, Some(param)), "{}", reply.body);
    }
    for (method, path) in [
        ("GET", "/v1/responses/resp_1"),
        ("DELETE", "/v1/responses/resp_1"),
        ("POST", "/v1/responses/resp_1/cancel"),
        ("GET", "/v1/responses/resp_1/input_items"),
        ("POST", "/v1/responses/compact"),
    ] {
        let reply = server.send(method, path, &[], b"");
        assert_eq!(reply.status, 404, "{path}");
        assert!(reply.json()["error"]["message"].is_string());
    }
}

#[test]
fn formats_and_choices_constrain() {
    let server = Server::text(["{}"]);
    let schema = json!({"type": "object"});
    let format = json!({"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": true}});
    assert_eq!(server.post(PATH, &json!({"input": "a", "text": format})).status, 200);
    assert_eq!(server.backend.seen().pop().unwrap().0.params.constraint, Some(Constraint::Json(schema)));
    let endless = json!({"format": {"type": "json_schema", "name": "n", "schema": {"$ref": "#"}}});
    let reply = server.post(PATH, &json!({"input": "a", "text": endless}));
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("text.format")), "{}", reply.body);
    for choice in [
        json!("required"),
        json!({"type": "function", "name": "get_weather"}),
        json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_weather"}]}),
    ] {
        let reply = server.post(PATH, &json!({"input": "a", "tools": [tool()], "tool_choice": choice}));
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert!(matches!(server.backend.seen().pop().unwrap().0.params.constraint, Some(Constraint::Lark(_))));
    }
}
