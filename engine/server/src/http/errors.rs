//! Errors, in the form of the interface that was asked.

use crate::backend::{Refusal, RefusalKind};
use axum::http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::time::Duration;

/// Whose form of errors a path has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `{"error": {message, type, param, code}}`.
    OpenAi,
    /// `{"type": "error", "error": {type, message}, "request_id"}`.
    Anthropic,
}

impl Dialect {
    /// The form that a path has.
    pub(crate) fn of(path: &str) -> Dialect {
        match path.strip_prefix("/v1/messages") {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => Dialect::Anthropic,
            _ => Dialect::OpenAi,
        }
    }
}

/// An error that a handler answers with. The outermost layer gives it its body, since that depends on the path.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    status: StatusCode,
    message: String,
    param: Option<String>,
    code: Option<&'static str>,
    retry_after: Option<Duration>,
    final_: bool,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> ApiError {
        ApiError { status, message: message.into(), param: None, code: None, retry_after: None, final_: false }
    }

    /// The same error with a code that programs can tell it by.
    pub(crate) fn with_code(mut self, code: &'static str) -> ApiError {
        self.code = Some(code);
        self
    }

    /// The same error with a time after which another try is worth it.
    pub(crate) fn with_retry(mut self, after: Duration) -> ApiError {
        self.retry_after = Some(after);
        self
    }

    /// Whether the request is to blame.
    pub(crate) fn is_clients(&self) -> bool {
        self.status.is_client_error()
    }

    /// Its type in a form of errors.
    fn kind(&self, dialect: Dialect) -> &'static str {
        match (self.status.as_u16(), dialect) {
            (400, Dialect::OpenAi) if self.code == Some(TOO_LONG) => "exceed_context_size_error",
            (401, _) => "authentication_error",
            (403, _) => "permission_error",
            (404, _) => "not_found_error",
            (413, Dialect::Anthropic) => "request_too_large",
            (429, _) => "rate_limit_error",
            (500.., Dialect::OpenAi) => "server_error",
            (500.., Dialect::Anthropic) => "api_error",
            _ => "invalid_request_error",
        }
    }

    /// Its JSON.
    pub(crate) fn body(&self, dialect: Dialect, request: &str) -> Value {
        let kind = self.kind(dialect);
        match dialect {
            Dialect::OpenAi => json!({
                "error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}
            }),
            Dialect::Anthropic => {
                let message = match &self.param {
                    Some(param) if !self.message.starts_with(param.as_str()) => format!("{param}: {}", self.message),
                    _ => self.message.clone(),
                };
                json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": request})
            }
        }
    }

    /// Headers that tell clients whether and when to try again.
    pub(crate) fn headers(&self, headers: &mut HeaderMap) {
        if let Some(after) = self.retry_after {
            let ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX).max(1);
            headers.insert(RETRY_AFTER, HeaderValue::from(ms.div_ceil(1000)));
            headers.insert(HeaderName::from_static("retry-after-ms"), HeaderValue::from(ms));
        }
        if self.final_ {
            headers.insert(HeaderName::from_static("x-should-retry"), HeaderValue::from_static("false"));
        }
    }
}

/// How programs tell that a prompt does not fit.
const TOO_LONG: &str = "context_length_exceeded";

/// When to come back if nobody knows better.
const SOON: Duration = Duration::from_secs(2);

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> ApiError {
        let (status, code) = match refusal.kind {
            RefusalKind::Invalid => (StatusCode::BAD_REQUEST, None),
            RefusalKind::TooLong => (StatusCode::BAD_REQUEST, Some(TOO_LONG)),
            RefusalKind::Busy => (StatusCode::TOO_MANY_REQUESTS, Some("queue_full")),
            RefusalKind::NotReady => (StatusCode::SERVICE_UNAVAILABLE, Some("not_ready")),
            RefusalKind::NotFound => (StatusCode::NOT_FOUND, Some("not_found")),
            RefusalKind::Engine => (StatusCode::INTERNAL_SERVER_ERROR, Some("engine_failed")),
            // By the server: who cancelled on purpose is not there to read this.
            RefusalKind::Cancelled => (StatusCode::SERVICE_UNAVAILABLE, Some("cancelled")),
        };
        let again = matches!(refusal.kind, RefusalKind::Busy | RefusalKind::NotReady | RefusalKind::Cancelled);
        ApiError {
            status,
            code,
            message: refusal.message,
            param: refusal.param,
            retry_after: if again { refusal.retry_after.or(Some(SOON)) } else { refusal.retry_after },
            final_: refusal.kind == RefusalKind::Engine,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        self.headers(response.headers_mut());
        response.extensions_mut().insert(self);
        response
    }
}
