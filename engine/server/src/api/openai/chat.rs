//! `POST /v1/chat/completions`.

use super::chat_request::{ChatRequest, read};
use super::chat_stream::ChatStream;
use super::{finish_reason, logprobs};
use crate::App;
use crate::api::answer::{Item, Whole, collect};
use crate::api::ask::{model, start};
use crate::api::fields::Fields;
use crate::api::usage;
use crate::http::body::Body;
use crate::http::errors::ApiError;
use crate::http::security::Caller;
use crate::ids::{id, now};
use crate::sse;
use axum::Json;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Answers a chat, at once or as a stream.
pub(crate) async fn handle(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Body(body): Body,
) -> Result<Response, ApiError> {
    let known = model(&app)?;
    let ChatRequest { ask, stream, include_usage, logprobs } = read(&Fields::root(&body), &app, &known)?;
    let running = start(&app, &caller, known, ask).await?;
    let (id, created, model) = (id("chatcmpl-"), now(), running.model.id.clone());
    if stream {
        let pace = sse::Pace::of(&app.options);
        let encoder = ChatStream { app, caller, id, created, model, include_usage, logprobs, calls: 0, said: false };
        return Ok(sse::stream(running.events, running.assembler, encoder, pace));
    }
    let whole = collect(running.events, running.assembler).await?;
    usage::log(&app, &caller, &whole.ending, whole.items.is_empty());
    let logprobs = match logprobs {
        true => json!({"content": logprobs::chat(&whole.logprobs), "refusal": null}),
        false => Value::Null,
    };
    let reason = finish_reason(&whole.ending.reason);
    let choice = json!({"index": 0, "message": message(&whole), "logprobs": logprobs, "finish_reason": reason});
    let response = json!({
        "id": id, "object": "chat.completion", "created": created, "model": model, "system_fingerprint": null,
        "choices": [choice], "usage": usage::chat(&whole.ending), "timings": usage::timings(&whole.ending),
    });
    Ok(Json(response).into_response())
}

fn message(whole: &Whole) -> Value {
    let (mut text, mut calls) = (String::new(), Vec::new());
    for item in &whole.items {
        match item {
            Item::Text(piece) => text.push_str(piece),
            Item::Call { id, name, arguments } => calls.push(json!({
                "id": format!("call_{id}"), "type": "function", "function": {"name": name, "arguments": arguments},
            })),
        }
    }
    let content = if text.is_empty() && !calls.is_empty() { Value::Null } else { text.into() };
    let mut message = json!({"role": "assistant", "content": content, "refusal": null});
    if !whole.thinking.is_empty() {
        message["reasoning_content"] = json!(whole.thinking);
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
}
