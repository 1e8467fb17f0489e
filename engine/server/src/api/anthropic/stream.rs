//! A message, piece by piece.

use super::members::Members;
use super::{SIGNATURE, stop_reason};
use crate::App;
use crate::api::answer::{Ending, Part};
use crate::api::usage;
use crate::backend::Refusal;
use crate::http::errors::{ApiError, Dialect};
use crate::http::security::Caller;
use crate::sse::{Encoder, Out};
use serde_json::{Value, json};

/// What the open block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    Thinking,
    Text,
    Call,
}

/// Gives pieces the form of Anthropic's events.
pub(crate) struct MessageStream {
    app: App,
    caller: Caller,
    id: String,
    model: String,
    prompt_tokens: usize,
    open: Option<Block>,
    /// Blocks opened so far.
    blocks: usize,
    /// Arguments of the open call.
    members: Members,
    said: bool,
}

impl MessageStream {
    pub(crate) fn new(app: App, caller: Caller, id: String, model: String, prompt_tokens: usize) -> MessageStream {
        MessageStream {
            app,
            caller,
            id,
            model,
            prompt_tokens,
            open: None,
            blocks: 0,
            members: Members::default(),
            said: false,
        }
    }

    /// Opens a block, unless one of the kind is open and can go on.
    fn open(&mut self, block: Block, content: Value, out: &mut Out) {
        if self.open == Some(block) && block != Block::Call {
            return;
        }
        self.close(out);
        let start = json!({"type": "content_block_start", "index": self.blocks, "content_block": content});
        out.event("content_block_start", &start);
        self.blocks += 1;
        self.open = Some(block);
    }

    fn delta(&self, delta: Value, out: &mut Out) {
        let index = self.blocks.saturating_sub(1);
        out.event("content_block_delta", &json!({"type": "content_block_delta", "index": index, "delta": delta}));
    }

    fn arguments(&self, json: &str, out: &mut Out) {
        if !json.is_empty() {
            self.delta(json!({"type": "input_json_delta", "partial_json": json}), out);
        }
    }

    fn close(&mut self, out: &mut Out) {
        let Some(block) = self.open.take() else { return };
        if block == Block::Thinking {
            self.delta(json!({"type": "signature_delta", "signature": SIGNATURE}), out);
        }
        let index = self.blocks.saturating_sub(1);
        out.event("content_block_stop", &json!({"type": "content_block_stop", "index": index}));
    }

    fn done(&mut self, ending: &Ending, out: &mut Out) {
        usage::log(&self.app, &self.caller, ending, !self.said);
        self.close(out);
        let (reason, sequence) = stop_reason(&ending.reason);
        let delta = json!({
            "type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": sequence},
            "usage": usage::messages(ending), "timings": usage::timings(ending),
        });
        out.event("message_delta", &delta);
        out.event("message_stop", &json!({"type": "message_stop"}));
    }
}

impl Encoder for MessageStream {
    fn start(&mut self, out: &mut Out) {
        // How much of the prompt needs no reading is known later, and told in the end.
        let usage = json!({
            "input_tokens": self.prompt_tokens, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
            "output_tokens": 0,
        });
        let message = json!({
            "id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": [],
            "stop_reason": null, "stop_sequence": null, "usage": usage,
        });
        out.event("message_start", &json!({"type": "message_start", "message": message}));
        self.alive(out);
    }

    fn part(&mut self, part: Part, out: &mut Out) {
        self.said |= matches!(part, Part::Text(..) | Part::Call { .. });
        match part {
            Part::Thinking(text) => {
                self.open(Block::Thinking, json!({"type": "thinking", "thinking": "", "signature": ""}), out);
                self.delta(json!({"type": "thinking_delta", "thinking": text}), out);
            }
            Part::Text(text, _) => {
                self.open(Block::Text, json!({"type": "text", "text": ""}), out);
                self.delta(json!({"type": "text_delta", "text": text}), out);
            }
            Part::Call { id, name } => {
                let id = format!("toolu_{id}");
                self.open(Block::Call, json!({"type": "tool_use", "id": id, "name": name, "input": {}}), out);
            }
            Part::Arguments(json) => {
                let whole = self.members.push(&json);
                self.arguments(&whole, out);
            }
            Part::CallEnd => {
                let rest = std::mem::take(&mut self.members).end();
                self.arguments(rest, out);
                self.close(out);
            }
            Part::Done(ending) => self.done(&ending, out),
            Part::Progress { .. } | Part::Failed(_) => {}
        }
    }

    fn failed(&mut self, refusal: &Refusal, out: &mut Out) {
        self.app.options.log.line(&format!("{}: {}", self.caller.request, refusal.message));
        let error = ApiError::from(refusal.clone()).body(Dialect::Anthropic, &self.caller.request);
        out.event("error", &error);
    }

    fn alive(&mut self, out: &mut Out) {
        out.event("ping", &json!({"type": "ping"}));
    }
}
