//! `/mcp`: the protocol's streamable HTTP.
//!
//! Requests come here after the checks that all go through: keys, names of the server and origins are not looked at again.
//! Clients of protocol versions before 2026-07-28 have a session; cancelling a call needs one. Later ones have none, and
//! cancel by going away.

use super::Mcp;
use super::desk::{Desk, Via};
use crate::Root;
use axum::Router;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use std::sync::Arc;
use std::time::Duration;

/// Time without a message after which a session ends. A call may be silent for long: an experiment runs for hours.
const IDLE: Duration = Duration::from_secs(24 * 60 * 60);

/// The path, if there is one.
pub(crate) fn router(root: &Root) -> Router {
    let Some(Mcp { control, rights }) = root.options.mcp.clone() else { return Router::new() };
    let desk = Desk::new(root.clone(), control, rights, Via::Http);
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = Some(IDLE);
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_json_response(true)
        .with_max_request_body_bytes(root.options.body_limit)
        .with_sse_keep_alive(Some(root.options.heartbeat))
        .with_cancellation_token(root.ended.clone());
    let service = StreamableHttpService::new(move || Ok(desk.clone()), Arc::new(sessions), config);
    Router::new().route_service("/mcp", service)
}
