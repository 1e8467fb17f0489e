//! Who may ask, and the headers that every answer has.

use super::connections::OneTooMany;
use super::errors::{ApiError, Dialect};
use super::origin::{host_allowed, origin_allowed};
use crate::App;
use crate::ids::id;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, ORIGIN, VARY,
    WWW_AUTHENTICATE,
};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::SocketAddr;
use subtle::{Choice, ConstantTimeEq};

/// Who asks.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// For turns in the queue: the key's number, or the address.
    pub(crate) client: String,
    /// The request's own name.
    pub(crate) request: String,
}

/// Paths that tell nothing and need no key.
const OPEN: [&str; 4] = ["/", "/health", "/ready", "/favicon.ico"];
/// Where pages and what they consist of lie; they need no key either, since nobody could be asked for one without them.
const PAGES: &str = "/web/";

/// Names the request, lets it through or not, and gives errors their body.
pub(crate) async fn check(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let name = id("req_");
    let path = request.uri().path().to_owned();
    let origin = header(request.headers(), &ORIGIN).map(str::to_owned);
    let host = host(&request);
    let welcome = origin.as_deref().is_some_and(|o| origin_allowed(o, host.as_deref(), &app.options.origins));
    let response = match admit(&app, &request, origin.as_deref(), host.as_deref(), welcome) {
        Ok(_) if welcome && is_preflight(&request) => preflight(request.headers()),
        Ok(client) => {
            request.extensions_mut().insert(Caller { client, request: name.clone() });
            next.run(request).await
        }
        Err(error) => error.into_response(),
    };
    let mut response = with_body(response, Dialect::of(&path), &name);
    let headers = response.headers_mut();
    if let Ok(name) = HeaderValue::from_str(&name) {
        headers.insert(HeaderName::from_static("x-request-id"), name.clone());
        headers.insert(HeaderName::from_static("request-id"), name);
    }
    headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    if let Some(Ok(origin)) = origin.filter(|_| welcome).map(|o| HeaderValue::from_str(&o)) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        let shown = HeaderValue::from_static("x-request-id, request-id, retry-after, mcp-session-id");
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, shown);
        headers.append(VARY, HeaderValue::from_static("origin"));
    }
    response
}

/// Who asks, if they may.
fn admit(
    app: &App,
    request: &Request,
    origin: Option<&str>,
    host: Option<&str>,
    welcome: bool,
) -> Result<String, ApiError> {
    let options = &app.options;
    // Whoever looks whether the process lives is told so in any case, and not that it should be started anew.
    if request.extensions().get::<OneTooMany>().is_some() && request.uri().path() != "/health" {
        return Err(OneTooMany::error());
    }
    let key = key_of(request.headers(), &options.keys);
    if let Some(number) = key {
        // Who has a key is no page that strayed here.
        return Ok(format!("key {number}"));
    }
    if let Some(host) = host.filter(|h| !host_allowed(h, &options.hosts)) {
        let message = format!(
            "this server does not go by the name {host:?}; --allow-host tells it, when it is started, which it has"
        );
        return Err(ApiError::new(StatusCode::FORBIDDEN, message).with_code("host_not_allowed"));
    }
    if let Some(origin) = origin.filter(|_| !welcome) {
        let message = format!(
            "pages of {origin:?} may not use this server; --allow-origin tells it, when it is started, which may"
        );
        return Err(ApiError::new(StatusCode::FORBIDDEN, message).with_code("origin_not_allowed"));
    }
    let path = request.uri().path();
    let open = OPEN.contains(&path) || path.starts_with(PAGES) || is_preflight(request);
    if !options.keys.is_empty() && !open {
        let message = "a key is needed, and the one that was sent, if any, is none of this server's; send it as \
                       `Authorization: Bearer KEY` or `x-api-key: KEY`";
        return Err(ApiError::new(StatusCode::UNAUTHORIZED, message).with_code("invalid_api_key"));
    }
    let address = request.extensions().get::<ConnectInfo<SocketAddr>>();
    Ok(address.map_or_else(|| "unknown".to_owned(), |ConnectInfo(a)| a.ip().to_string()))
}

/// Which key a request brings. Every key is compared whole, so that the time tells nothing about them.
fn key_of(headers: &HeaderMap, keys: &[String]) -> Option<usize> {
    let bearer = header(headers, &AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
    });
    let plain = header(headers, &HeaderName::from_static("x-api-key"));
    let mut found = None;
    for sent in [bearer, plain].into_iter().flatten() {
        for (number, key) in keys.iter().enumerate().filter(|(_, key)| !key.is_empty()) {
            let same: Choice = sent.as_bytes().ct_eq(key.as_bytes());
            if bool::from(same) {
                found = Some(number);
            }
        }
    }
    found
}

fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("\u{fffd}"))
}

fn host(request: &Request) -> Option<String> {
    let sent = header(request.headers(), &HOST).map(str::to_owned);
    sent.or_else(|| request.uri().authority().map(|a| a.as_str().to_owned()))
}

fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

fn preflight(asked: &HeaderMap) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE, OPTIONS"));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    if let Some(names) = asked.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    response
}

/// Gives an error the body that its path's interface has.
fn with_body(response: Response, dialect: Dialect, request: &str) -> Response {
    let Some(error) = response.extensions().get::<ApiError>().cloned() else { return response };
    let (mut parts, _) = response.into_parts();
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    parts.headers.remove(axum::http::header::CONTENT_LENGTH);
    if parts.status == StatusCode::UNAUTHORIZED {
        parts.headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    Response::from_parts(parts, Body::from(error.body(dialect, request).to_string()))
}
