//! OpenAI's responses: `POST /v1/responses`.
//!
//! None is kept, so a request has to bring its whole conversation.

pub(crate) mod input;
pub(crate) mod request;
pub(crate) mod stream;

use super::answer::{Part, vanished};
use super::ask::{Running, model, render, start};
use super::fields::Fields;
use crate::App;
use crate::backend::{Refusal, RefusalKind};
use crate::blocking::blocking;
use crate::http::body::Body;
use crate::http::errors::ApiError;
use crate::http::security::Caller;
use crate::sse::{self, Encoder, Out};
use axum::Json;
use axum::extract::{Extension, Path, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use stream::ResponseStream;

/// Answers, at once or as a stream.
pub(crate) async fn handle(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Body(body): Body,
) -> Result<Response, ApiError> {
    let known = model(&app)?;
    let fields = Fields::root(&body);
    let stream = fields.flag("stream")?.unwrap_or(false);
    let ask = request::read(&fields, &app, &known)?;
    let form = request::form(&fields, &known, &ask);
    let pace = sse::Pace::of(&app.options);
    let running = start(&app, &caller, known, ask).await?;
    let encoder = ResponseStream::new(app, caller, form);
    if stream {
        return Ok(sse::stream(running.events, running.assembler, encoder, pace));
    }
    Ok(Json(whole(running, encoder).await?).into_response())
}

/// The response that a stream would end with.
async fn whole(mut running: Running, mut encoder: ResponseStream) -> Result<Value, Refusal> {
    while let Some(event) = running.events.recv().await {
        for part in running.assembler.push(event) {
            match part {
                Part::Progress { .. } => {}
                Part::Failed(refusal) => return Err(refusal),
                part => encoder.part(part, &mut Out::default()),
            }
        }
        if let Some(response) = encoder.finished() {
            return Ok(response);
        }
    }
    Err(vanished())
}

/// Counts the tokens that the prompt of the same request would have.
pub(crate) async fn input_tokens(State(app): State<App>, Body(body): Body) -> Result<Json<Value>, ApiError> {
    let model = model(&app)?;
    let mut ask = request::read(&Fields::root(&body), &app, &model)?;
    let prompt = blocking(move || render(&app, &model, &mut ask)).await?;
    Ok(Json(json!({"object": "response.input_tokens", "input_tokens": prompt.tokens.len()})))
}

/// Tells that responses are not kept.
pub(crate) async fn not_kept(Path(id): Path<String>) -> ApiError {
    let message = format!("there is no response {id:?}: this server keeps none");
    Refusal { param: Some("id".to_owned()), ..Refusal::new(RefusalKind::NotFound, message) }.into()
}
