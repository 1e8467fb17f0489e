//! OpenAI's responses: `POST /v1/responses`.
//!
//! None is kept, so a request has to bring its whole conversation.

pub(crate) mod input;
pub(crate) mod request;
pub(crate) mod stream;

use super::answer::{Part, vanished};
use super::ask::{model, render};
use super::asked::{Asked, Running};
use super::fields::Fields;
use super::models::readable;
use crate::App;
use crate::backend::{Refusal, RefusalKind};
use crate::blocking::blocking;
use crate::http::body::Body;
use crate::http::errors::ApiError;
use crate::sse::{Encoder, Out};
use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use stream::ResponseStream;

/// Answers, at once or as a stream.
pub(crate) async fn handle(asked: Asked) -> Result<Response, ApiError> {
    let (ask, stream) = asked.read(request::read)?;
    let form = request::form(&asked.fields(), &asked.model, &ask);
    let running = asked.chat(ask).await?;
    let encoder = ResponseStream::new(running.app.clone(), running.caller.clone(), form);
    if stream {
        return Ok(running.stream(encoder));
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
    let prompt = blocking(move || render(&app, &model, &mut ask, None)).await?;
    Ok(Json(json!({"object": "response.input_tokens", "input_tokens": prompt.tokens.len()})))
}

/// Tells that responses are not kept.
pub(crate) async fn not_kept(id: Result<Path<String>, PathRejection>) -> ApiError {
    let id = readable(id);
    let message = format!("there is no response {id:?}: this server keeps none");
    Refusal { param: Some("id".to_owned()), ..Refusal::new(RefusalKind::NotFound, message) }.into()
}
