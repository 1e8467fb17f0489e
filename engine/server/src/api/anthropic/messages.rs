//! `POST /v1/messages`.

use super::members::whole_members;
use super::stream::MessageStream;
use super::{SIGNATURE, request, stop_reason};
use crate::api::answer::{Item, Whole};
use crate::api::asked::Asked;
use crate::api::usage;
use crate::http::errors::ApiError;
use crate::ids::id;
use axum::Json;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Answers a conversation, at once or as a stream.
pub(crate) async fn handle(asked: Asked) -> Result<Response, ApiError> {
    let (ask, stream) = asked.read(|fields, app, model| request::read(fields, app, model, false))?;
    let running = asked.chat(ask).await?;
    let (id, model) = (id("msg_"), running.model.id.clone());
    if stream {
        let encoder = MessageStream::new(running.app.clone(), running.caller.clone(), id, model, running.prompt_tokens);
        return Ok(running.stream(encoder));
    }
    let whole = running.whole().await?;
    let (reason, sequence) = stop_reason(&whole.ending.reason);
    let response = json!({
        "id": id, "type": "message", "role": "assistant", "model": model, "content": content(&whole),
        "stop_reason": reason, "stop_sequence": sequence, "usage": usage::messages(&whole.ending),
        "timings": usage::timings(&whole.ending),
    });
    Ok(Json(response).into_response())
}

fn content(whole: &Whole) -> Vec<Value> {
    let mut blocks = Vec::new();
    if !whole.thinking.is_empty() {
        blocks.push(json!({"type": "thinking", "thinking": whole.thinking, "signature": SIGNATURE}));
    }
    for item in &whole.items {
        blocks.push(match item {
            Item::Text(text) => json!({"type": "text", "text": text}),
            Item::Call { id, name, arguments } => {
                let input: Value = serde_json::from_str(&whole_members(arguments)).unwrap_or_else(|_| json!({}));
                json!({"type": "tool_use", "id": format!("toolu_{id}"), "name": name, "input": input})
            }
        });
    }
    blocks
}
