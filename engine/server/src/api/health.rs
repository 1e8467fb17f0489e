//! `GET /health`: is the server alive? `GET /ready`: does it answer?

use super::ask::model;
use crate::App;
use crate::backend::State as Backend;
use crate::http::errors::ApiError;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

/// 200 as long as the process serves at all; `status` says how the model is.
pub(crate) async fn health(State(app): State<App>) -> Json<Value> {
    Json(match app.backend.state() {
        Backend::Ready => json!({"status": "ok"}),
        Backend::Empty => json!({"status": "empty"}),
        Backend::Loading { share } => json!({"status": "loading", "share": share}),
        Backend::Failed(why) => json!({"status": "failed", "reason": why}),
        Backend::Stopping => json!({"status": "stopping"}),
    })
}

/// 200 once requests are answered; 503 while the model is loaded or the server stops, 500 if it failed.
pub(crate) async fn ready(State(app): State<App>) -> Result<Json<Value>, ApiError> {
    let model = model(&app)?;
    Ok(Json(json!({"status": "ready", "model": model.id})))
}
