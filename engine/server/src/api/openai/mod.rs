//! OpenAI's chat and text completions.

pub(crate) mod chat;
pub(crate) mod chat_request;
pub(crate) mod chat_stream;
pub(crate) mod completions;
pub(crate) mod format;
pub(crate) mod logprobs;
pub(crate) mod messages;
pub(crate) mod tools;

use super::answer::Reason;
use crate::backend::Refusal;
use crate::http::errors::{ApiError, Dialect};
use serde_json::Value;

/// Why an answer ended, in OpenAI's words.
pub(crate) fn finish_reason(reason: &Reason) -> &'static str {
    match reason {
        Reason::Stop | Reason::StopText(_) => "stop",
        Reason::Length | Reason::Context => "length",
        Reason::Calls => "tool_calls",
    }
}

/// An error within a stream.
pub(crate) fn error(refusal: &Refusal) -> Value {
    ApiError::from(refusal.clone()).body(Dialect::OpenAi, "")
}
