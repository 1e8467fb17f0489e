//! Pages for people, which are part of the program.
//!
//! Everything a page consists of lies under `/web/`, which needs no key; the pages ask for one where it is needed. They
//! load nothing from elsewhere, and a browser is told to see to that.

use axum::Router;
use axum::extract::Path;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH, REFERRER_POLICY,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use rust_embed::{EmbeddedFile, RustEmbed};

/// The files of the folder `web`.
#[derive(RustEmbed)]
#[folder = "web/"]
struct Files;

/// The page that is shown first.
const INDEX: &str = "index.html";

/// What a page may do: run its own scripts and styles, and ask this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Paths of pages.
pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/", get(Redirect::temporary("/web/")))
        .route("/web", get(Redirect::temporary("/web/")))
        .route("/favicon.ico", get(Redirect::temporary("/web/icon.svg")))
        .route("/web/", get(index))
        .route("/web/{*path}", get(file))
}

async fn index(headers: HeaderMap) -> Response {
    answer(INDEX, &headers)
}

async fn file(Path(path): Path<String>, headers: HeaderMap) -> Response {
    answer(&path, &headers)
}

/// A file, unless the browser has it already.
fn answer(path: &str, asked: &HeaderMap) -> Response {
    let Some(EmbeddedFile { data, metadata }) = Files::get(path) else {
        return (StatusCode::NOT_FOUND, "there is no such page\n").into_response();
    };
    let tag: String = metadata.sha256_hash().iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    let tag = format!("\"{tag}\"");
    let known = asked.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut answer = if known { StatusCode::NOT_MODIFIED.into_response() } else { data.into_owned().into_response() };
    let headers = answer.headers_mut();
    // A new version of the program has new pages, so browsers ask each time.
    let fixed = [
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_TYPE, kind(path)),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    answer
}

/// The media type of a file, by its ending.
fn kind(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_pages_has_a_type() {
        let files: Vec<_> = Files::iter().collect();
        assert!(files.iter().any(|f| f == INDEX) && files.len() > 5);
        for file in files {
            assert_ne!(kind(&file), "application/octet-stream", "{file}");
        }
    }
}
