//! What an answer cost, in each interface's words.

use super::answer::{Ending, Reason};
use crate::App;
use crate::http::security::Caller;
use serde_json::{Map, Value, json};

/// OpenAI's chat and completions.
pub(crate) fn chat(ending: &Ending) -> Value {
    let (o, t) = (&ending.outcome, &ending.outcome.timings);
    let mut usage = json!({
        "prompt_tokens": t.prompt_tokens,
        "completion_tokens": t.output_tokens,
        "total_tokens": t.prompt_tokens + t.output_tokens,
        "prompt_tokens_details": {"cached_tokens": t.cached_tokens},
        "completion_tokens_details": {
            "reasoning_tokens": o.thinking_tokens,
            "accepted_prediction_tokens": o.drafts.accepted,
            "rejected_prediction_tokens": o.drafts.proposed.saturating_sub(o.drafts.accepted),
        },
    });
    if let Some(miss) = &o.miss {
        usage["prompt_tokens_details"]["cache_miss_reason"] = json!(miss);
    }
    usage
}

/// OpenAI's responses.
pub(crate) fn responses(ending: &Ending) -> Value {
    let (o, t) = (&ending.outcome, &ending.outcome.timings);
    let mut usage = json!({
        "input_tokens": t.prompt_tokens,
        "input_tokens_details": {"cached_tokens": t.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": t.output_tokens,
        "output_tokens_details": {"reasoning_tokens": o.thinking_tokens},
        "total_tokens": t.prompt_tokens + t.output_tokens,
    });
    if let Some(miss) = &o.miss {
        usage["input_tokens_details"]["cache_miss_reason"] = json!(miss);
    }
    usage
}

/// Anthropic's messages, whose input does not count what needed no reading.
pub(crate) fn messages(ending: &Ending) -> Value {
    let (o, t) = (&ending.outcome, &ending.outcome.timings);
    let mut usage = json!({
        "input_tokens": t.prompt_tokens.saturating_sub(t.cached_tokens),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": t.cached_tokens,
        "output_tokens": t.output_tokens,
    });
    if let Some(miss) = &o.miss {
        usage["cache_miss_reason"] = json!(miss);
    }
    usage
}

/// How long everything took: an extension of all interfaces, with the names that llama.cpp's server has for it.
pub(crate) fn timings(ending: &Ending) -> Value {
    let (t, drafts) = (&ending.outcome.timings, &ending.outcome.drafts);
    json!({
        "queue_ms": ms(ending.waited.as_secs_f64()),
        "cache_n": t.cached_tokens,
        "prompt_n": t.prompt_tokens.saturating_sub(t.cached_tokens),
        "prompt_ms": ms(t.prompt_seconds),
        "prompt_per_second": rate(t.prompt_tokens.saturating_sub(t.cached_tokens), t.prompt_seconds),
        "predicted_n": t.output_tokens,
        "predicted_ms": ms(t.output_seconds),
        // The first token comes with the prompt.
        "predicted_per_second": rate(t.output_tokens.saturating_sub(1), t.output_seconds),
        "draft_n": drafts.proposed,
        "draft_n_accepted": drafts.accepted,
    })
}

fn ms(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e3
}

fn rate(tokens: usize, seconds: f64) -> f64 {
    if seconds > 0.0 { (tokens as f64 / seconds * 1e3).round() / 1e3 } else { 0.0 }
}

/// Tells the log what a user of an interface may not see.
pub(crate) fn log(app: &App, caller: &Caller, ending: &Ending, empty: bool) {
    let id = &caller.request;
    if let Some(miss) = &ending.outcome.miss {
        app.options.log.line(&format!("{id}: {miss}"));
    }
    if empty && ending.reason == Reason::Length {
        let thought = ending.outcome.thinking_tokens;
        let line = format!("{id}: the limit of tokens came before any answer; {thought} tokens were thinking");
        app.options.log.line(&line);
    }
}

/// Adds entries to an object.
pub(crate) fn with(mut object: Value, more: Map<String, Value>) -> Value {
    if let Value::Object(map) = &mut object {
        map.extend(more);
    }
    object
}
