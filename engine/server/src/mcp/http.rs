//! `/mcp`: the protocol's streamable HTTP.
//!
//! Requests come here after the checks that all go through: keys, names of the server and origins are not looked at again.
//! Clients of protocol versions before 2026-07-28 have a session, by which they cancel a call; going away does not, since
//! they may come back for what was answered. Later ones have none, and cancel by going away.

use super::Mcp;
use super::desk::{Desk, Via};
use crate::Root;
use crate::http::errors::ApiError;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use std::sync::Arc;
use std::time::Duration;

/// Time without a message after which a session ends. A call may be silent for long: an experiment runs for hours.
const IDLE: Duration = Duration::from_secs(4 * 60 * 60);
/// Sessions at most, so that clients that never end theirs do not fill the memory.
const SESSIONS: usize = 1000;

/// The path, if there is one.
pub(crate) fn router(root: &Root) -> Router {
    let Some(Mcp { control, rights }) = root.options.mcp.clone() else { return Router::new() };
    let desk = Desk::new(root.clone(), control, rights, Via::Http);
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = Some(IDLE);
    let sessions = Arc::new(sessions);
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_json_response(true)
        .with_max_request_body_bytes(root.options.body_limit)
        .with_sse_keep_alive(Some(root.options.heartbeat))
        .with_cancellation_token(root.ended.clone());
    let service = StreamableHttpService::new(move || Ok(desk.clone()), Arc::clone(&sessions), config);
    Router::new().route_service("/mcp", service).layer(from_fn_with_state(sessions, bounded))
}

/// Lets no more sessions begin than there may be.
async fn bounded(State(sessions): State<Arc<LocalSessionManager>>, request: Request, next: Next) -> Response {
    let begins = !request.headers().contains_key("mcp-session-id");
    if begins && sessions.sessions.read().await.len() >= SESSIONS {
        let message = format!("{SESSIONS} sessions are open, and no more may; clients should end theirs");
        return ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).with_code("too_many_sessions").into_response();
    }
    next.run(request).await
}
