//! `POST /v1/chat/completions`.

use super::chat_request::{ChatRequest, read};
use super::chat_stream::ChatStream;
use super::{finish_reason, logprobs};
use crate::api::answer::{Item, Whole};
use crate::api::asked::Asked;
use crate::api::usage;
use crate::http::errors::ApiError;
use crate::ids::{id, now};
use axum::Json;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Answers a chat, at once or as a stream.
pub(crate) async fn handle(asked: Asked) -> Result<Response, ApiError> {
    let (ChatRequest { ask, include_usage, logprobs }, stream) = asked.read(read)?;
    let running = asked.chat(ask).await?;
    let (id, created, model) = (id("chatcmpl-"), now(), running.model.id.clone());
    if stream {
        let (app, caller) = (running.app.clone(), running.caller.clone());
        let encoder = ChatStream { app, caller, id, created, model, include_usage, logprobs, calls: 0, said: false };
        return Ok(running.stream(encoder));
    }
    let whole = running.whole().await?;
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
