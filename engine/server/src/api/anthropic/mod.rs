//! Anthropic's messages.

pub(crate) mod count_tokens;
pub(crate) mod input;
mod members;
pub(crate) mod messages;
pub(crate) mod request;
pub(crate) mod stream;

use super::answer::Reason;
use serde_json::{Value, json};

/// What thinking is signed with. Clients send it back, and nothing is made of it.
pub(crate) const SIGNATURE: &str = "strata";

/// Why an answer ended, in Anthropic's words, with the stop text.
pub(crate) fn stop_reason(reason: &Reason) -> (&'static str, Value) {
    match reason {
        Reason::Stop => ("end_turn", Value::Null),
        Reason::StopText(text) => ("stop_sequence", json!(text)),
        Reason::Length => ("max_tokens", Value::Null),
        Reason::Context => ("model_context_window_exceeded", Value::Null),
        Reason::Calls => ("tool_use", Value::Null),
    }
}
