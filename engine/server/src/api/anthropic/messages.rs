//! `POST /v1/messages`.

use super::stream::MessageStream;
use super::{SIGNATURE, request, stop_reason};
use crate::App;
use crate::api::answer::{Item, Whole, collect};
use crate::api::ask::{model, start};
use crate::api::fields::Fields;
use crate::api::usage;
use crate::http::body::Body;
use crate::http::errors::ApiError;
use crate::http::security::Caller;
use crate::ids::id;
use crate::sse;
use axum::Json;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Answers a conversation, at once or as a stream.
pub(crate) async fn handle(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Body(body): Body,
) -> Result<Response, ApiError> {
    let known = model(&app)?;
    let fields = Fields::root(&body);
    let stream = fields.flag("stream")?.unwrap_or(false);
    let ask = request::read(&fields, &app, &known, false)?;
    let running = start(&app, &caller, known, ask).await?;
    let (id, model) = (id("msg_"), running.model.id.clone());
    if stream {
        let pace = sse::Pace::of(&app.options);
        let encoder = MessageStream::new(app, caller, id, model, running.prompt_tokens);
        return Ok(sse::stream(running.events, running.assembler, encoder, pace));
    }
    let whole = collect(running.events, running.assembler).await?;
    usage::log(&app, &caller, &whole.ending, whole.items.is_empty());
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
                // Arguments that were cut are no object, and one has to be given.
                let input: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({"partial": arguments}));
                json!({"type": "tool_use", "id": format!("toolu_{id}"), "name": name, "input": input})
            }
        });
    }
    blocks
}
