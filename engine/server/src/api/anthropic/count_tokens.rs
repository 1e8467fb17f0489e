//! `POST /v1/messages/count_tokens`.

use super::request;
use crate::App;
use crate::api::ask::{model, render};
use crate::api::fields::Fields;
use crate::blocking::blocking;
use crate::http::body::Body;
use crate::http::errors::ApiError;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

/// Counts the tokens that the prompt of the same request would have. It waits for no answer.
pub(crate) async fn handle(State(app): State<App>, Body(body): Body) -> Result<Json<Value>, ApiError> {
    let model = model(&app)?;
    let mut ask = request::read(&Fields::root(&body), &app, &model, true)?;
    let prompt = blocking(move || render(&app, &model, &mut ask, None)).await?;
    Ok(Json(json!({"input_tokens": prompt.tokens.len()})))
}
