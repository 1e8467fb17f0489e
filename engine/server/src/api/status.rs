//! `GET /v1/status`: how things stand, for people and for the monitor.

use crate::App;
use crate::backend::{State as Backend, Status};
use crate::http::connections::ConnectionCounts;
use axum::Json;
use axum::extract::State;
use serde::Serialize;

/// What is told: the backend's status, its state and its model.
#[derive(Serialize)]
pub(crate) struct Report {
    version: &'static str,
    state: &'static str,
    /// How much of the model is loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    share: Option<f32>,
    /// Why it cannot answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    info: Option<crate::backend::ModelInfo>,
    connections: ConnectionCounts,
    #[serde(flatten)]
    status: Status,
}

/// Tells how things stand.
pub(crate) async fn handle(State(app): State<App>) -> Json<Report> {
    Json(report(&app))
}

/// How things stand.
pub(crate) fn report(app: &App) -> Report {
    let (state, share, reason) = match app.backend.state() {
        Backend::Ready => ("ready", None, None),
        Backend::Empty => ("empty", None, None),
        Backend::Loading { share } => ("loading", Some(share), None),
        Backend::Failed(why) => ("failed", None, Some(why)),
        Backend::Stopping => ("stopping", None, None),
    };
    let version = env!("CARGO_PKG_VERSION");
    let (info, connections) = (app.backend.model(), app.connections.counts());
    Report { version, state, share, reason, info, connections, status: app.backend.status() }
}
