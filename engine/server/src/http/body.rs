//! Reading a request's JSON.

use super::errors::ApiError;
use crate::App;
use crate::backend::{Refusal, RefusalKind};
use crate::blocking::blocking;
use axum::extract::{FromRef, FromRequest, Request};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use serde_json::{Map, Value};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tokio_stream::StreamExt;

/// Levels of lists and objects inside one another at most; serde_json keeps to it.
const NESTING: usize = 128;
/// Bytes a second that a body has to come with once [`Limits::body`](crate::Limits::body) is over.
const SLOWEST: u64 = 1 << 10;
/// Bytes for which there is room before any came.
const AT_FIRST: usize = 1 << 20;
/// Bytes from which on reading a body takes longer than a connection's turn.
const LARGE: usize = 256 << 10;

/// The JSON object that is a request's body. Its content type does not matter: several clients do not set it.
pub(crate) struct Body(pub(crate) Map<String, Value>);

impl<S: Send + Sync> FromRequest<S> for Body
where
    App: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let app = App::from_ref(state);
        let too_large = || {
            let limit = app.options.body_limit;
            let message = format!("the body is larger than {limit} bytes, which is all that the server takes");
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
        };
        if let Some(coding) =
            request.headers().get(CONTENT_ENCODING).filter(|c| !c.as_bytes().eq_ignore_ascii_case(b"identity"))
        {
            let message =
                format!("the body is encoded as {coding:?}; it is taken only as it is, without content-encoding");
            return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        // Said before anything is read; a body that does not say its length is measured as it comes.
        let said =
            request.headers().get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse::<u64>().ok());
        if said.is_some_and(|said| said > app.options.body_limit as u64) {
            return Err(too_large());
        }
        let bytes = read(request, said, app.options.body_limit, app.options.limits.body).await?;
        let bytes = bytes.ok_or_else(too_large)?;
        if bytes.len() < LARGE {
            return Ok(Body(object(&bytes)?));
        }
        Ok(Body(blocking(move || object(&bytes)).await?))
    }
}

/// The whole body; `None` if it is larger than `limit`.
///
/// # Errors
/// It breaks off, or comes more slowly than [`SLOWEST`] once the time that each has is over.
async fn read(
    request: Request,
    said: Option<u64>,
    limit: usize,
    within: Duration,
) -> Result<Option<Vec<u8>>, ApiError> {
    let mut pieces = request.into_body().into_data_stream();
    let room = said.and_then(|said| usize::try_from(said).ok()).map_or(0, |said| said.min(AT_FIRST));
    let (mut bytes, since) = (Vec::with_capacity(room), Instant::now());
    loop {
        let time = within + Duration::from_secs(bytes.len() as u64 / SLOWEST);
        match timeout_at(since + time, pieces.next()).await {
            Ok(None) => return Ok(Some(bytes)),
            Ok(Some(Ok(piece))) if piece.len() > limit - bytes.len() => return Ok(None),
            Ok(Some(Ok(piece))) => bytes.extend_from_slice(&piece),
            Ok(Some(Err(_))) => {
                return Err(ApiError::new(StatusCode::BAD_REQUEST, "the body broke off or was sent in bad chunks"));
            }
            Err(_) => {
                let (seconds, came) = (time.as_secs_f64(), bytes.len());
                let message = format!("{came} bytes of the body came in {seconds} s, and then it was not waited for");
                return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, message).with_code("request_timeout"));
            }
        }
    }
}

/// The object that a text of JSON is.
pub(crate) fn object(bytes: &[u8]) -> Result<Map<String, Value>, Refusal> {
    let wrong = |message: String| Refusal::new(RefusalKind::Invalid, message);
    let text = std::str::from_utf8(bytes).map_err(|e| {
        wrong(format!("the body is not UTF-8: the byte at {} is no part of a character", e.valid_up_to()))
    })?;
    // Editors of Windows put a mark before what they save.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Err(wrong("the body is empty; a JSON object was expected".to_owned()));
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(wrong("the body is JSON but no object".to_owned())),
        Err(e) if e.to_string().starts_with("recursion limit") => Err(wrong(format!(
            "the body is nested deeper than {NESTING} levels, at line {} column {}",
            e.line(),
            e.column()
        ))),
        Err(e) => Err(wrong(format!("the body is not JSON: {e}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(bytes: &[u8]) -> String {
        object(bytes).expect_err("it is refused").message
    }

    #[test]
    fn says_where_a_body_is_wrong() {
        assert!(refused(b"").contains("empty"));
        assert!(refused(b"[1]").contains("no object"));
        assert!(refused(b"{\"a\": 1,}").contains("line 1 column"), "{}", refused(b"{\"a\": 1,}"));
        assert!(refused(b"{\"a\": \"\xff\"}").contains("byte at 7"));
        assert!(refused(b"{} {}").contains("trailing"));
        let deep = [b"{\"a\":".to_vec(), vec![b'['; 10_000], vec![b']'; 10_000], b"}".to_vec()].concat();
        assert!(refused(&deep).contains("deeper than 128 levels"), "{}", refused(&deep));
        assert!(object(b"{\"a\": 1}").is_ok());
        assert!(object(b"\xef\xbb\xbf{\"a\": 1}").is_ok());
        assert!(refused(b"\xef\xbb\xbf").contains("empty"));
    }
}
