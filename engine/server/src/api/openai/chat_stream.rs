//! A chat's answer, piece by piece.

use super::{error, finish_reason, logprobs};
use crate::App;
use crate::api::answer::{Ending, Part};
use crate::api::usage;
use crate::backend::Refusal;
use crate::http::security::Caller;
use crate::sse::{Encoder, Out};
use serde_json::{Value, json};
use strata_runtime::TokenLogprob;

/// Gives pieces the form of `chat.completion.chunk`.
pub(crate) struct ChatStream {
    pub(crate) app: App,
    pub(crate) caller: Caller,
    pub(crate) id: String,
    pub(crate) created: u64,
    pub(crate) model: String,
    pub(crate) include_usage: bool,
    pub(crate) logprobs: bool,
    /// Calls begun so far.
    pub(crate) calls: usize,
    /// Whether any text or call came.
    pub(crate) said: bool,
}

impl ChatStream {
    fn chunk(&self, choices: Value) -> Value {
        let mut chunk = json!({
            "id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model,
            "system_fingerprint": null, "choices": choices,
        });
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    fn delta(&self, delta: Value, tokens: &[TokenLogprob], finish: Option<&str>) -> Value {
        let logprobs = match self.logprobs && !tokens.is_empty() {
            true => json!({"content": logprobs::chat(tokens), "refusal": null}),
            false => Value::Null,
        };
        self.chunk(json!([{"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}]))
    }

    fn call(&self, call: Value) -> Value {
        self.delta(json!({"tool_calls": [call]}), &[], None)
    }

    fn done(&self, ending: &Ending, out: &mut Out) {
        usage::log(&self.app, &self.caller, ending, !self.said);
        let mut last = self.delta(json!({}), &ending.logprobs, Some(finish_reason(&ending.reason)));
        last["timings"] = usage::timings(ending);
        out.data(&last);
        if self.include_usage {
            let mut chunk = self.chunk(json!([]));
            chunk["usage"] = usage::chat(ending);
            out.data(&chunk);
        }
        out.end();
    }
}

impl Encoder for ChatStream {
    fn start(&mut self, out: &mut Out) {
        out.data(&self.delta(json!({"role": "assistant", "content": ""}), &[], None));
    }

    fn part(&mut self, part: Part, out: &mut Out) {
        self.said |= matches!(part, Part::Text(..) | Part::Call { .. });
        match part {
            Part::Thinking(text) => out.data(&self.delta(json!({"reasoning_content": text}), &[], None)),
            Part::Text(text, tokens) => out.data(&self.delta(json!({"content": text}), &tokens, None)),
            Part::Call { id, name } => {
                self.calls += 1;
                let function = json!({"name": name, "arguments": ""});
                let (index, id) = (self.calls - 1, format!("call_{id}"));
                out.data(&self.call(json!({"index": index, "id": id, "type": "function", "function": function})));
            }
            Part::Arguments(json) => {
                let index = self.calls.saturating_sub(1);
                out.data(&self.call(json!({"index": index, "function": {"arguments": json}})));
            }
            Part::Done(ending) => self.done(&ending, out),
            Part::CallEnd | Part::Progress { .. } | Part::Failed(_) => {}
        }
    }

    fn failed(&mut self, refusal: &Refusal, out: &mut Out) {
        self.app.options.log.line(&format!("{}: {}", self.caller.request, refusal.message));
        out.data(&error(refusal));
    }
}
