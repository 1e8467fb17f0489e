//! What every request goes through, whichever interface it is for.

pub(crate) mod body;
pub(crate) mod connections;
pub(crate) mod errors;
pub(crate) mod origin;
pub(crate) mod security;
mod wire;

use crate::Root;
use crate::api;
use crate::backend::{Refusal, RefusalKind};
use crate::{mcp, web};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use errors::ApiError;

/// Every path, behind the checks of [`security`].
pub(crate) fn router(root: Root, routes: Router) -> Router {
    let limit = root.options.body_limit;
    Router::new()
        .route("/v1/chat/completions", post(api::openai::chat::handle))
        .route("/v1/completions", post(api::openai::completions::handle))
        .route("/v1/responses", post(api::responses::handle))
        .route("/v1/responses/input_tokens", post(api::responses::input_tokens))
        // Not the name of a response, though it looks like one.
        .route("/v1/responses/compact", post(not_found))
        .route("/v1/responses/{id}", get(api::responses::not_kept).delete(api::responses::not_kept))
        .route("/v1/responses/{id}/cancel", post(api::responses::not_kept))
        .route("/v1/responses/{id}/input_items", get(api::responses::not_kept))
        .route("/v1/messages", post(api::anthropic::messages::handle))
        .route("/v1/messages/count_tokens", post(api::anthropic::count_tokens::handle))
        .route("/v1/models", get(api::models::list))
        .route("/v1/models/{*id}", get(api::models::one))
        .route("/v1/status", get(api::status::handle))
        .route("/v1/events", get(api::events::handle))
        .route("/tokenize", post(api::tokens::tokenize))
        .route("/detokenize", post(api::tokens::detokenize))
        .route("/health", get(api::health::health))
        .route("/ready", get(api::health::ready))
        .route("/metrics", get(api::metrics::handle))
        .merge(web::router())
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .with_state(root.clone())
        .merge(mcp::http::router(&root))
        .merge(routes)
        .layer(DefaultBodyLimit::max(limit))
        .layer(from_fn_with_state(root.app(), security::check))
}

/// Interfaces whose clients are often given an address with `/v1` at its end where it must not be, or without.
const OFTEN_MISSED: [&str; 6] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages/count_tokens",
    "/v1/messages",
    "/v1/models",
];

async fn not_found(uri: Uri) -> ApiError {
    let path = uri.path();
    let meant = OFTEN_MISSED.iter().find(|meant| path.ends_with(meant.trim_start_matches("/v1")) && path != **meant);
    let hint = match meant {
        Some(meant) => {
            format!("what was meant may be {meant}: see whether the client's address has /v1 too often or not at all")
        }
        None => "the server's documentation lists its paths".to_owned(),
    };
    Refusal::new(RefusalKind::NotFound, format!("there is nothing at {path}; {hint}")).into()
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, format!("{} does not take {method}", uri.path()))
}
