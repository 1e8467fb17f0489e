//! Pages for people.
//!
//! Everything a page consists of lies under `/web/`, which needs no key; the pages ask for one where it is needed.

use crate::App;
use axum::Router;
use axum::routing::get;

/// Paths of pages.
pub(crate) fn router() -> Router<App> {
    Router::new().route("/", get(index))
}

async fn index() -> &'static str {
    "Strata answers at /v1/chat/completions, /v1/completions, /v1/responses and /v1/messages.\n\
     GET /v1/models names the model, /v1/status and /metrics tell how it does.\n"
}
