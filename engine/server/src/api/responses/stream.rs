//! A response, piece by piece.

use crate::App;
use crate::api::answer::{Ending, Part, Reason};
use crate::api::openai::logprobs;
use crate::api::usage;
use crate::backend::Refusal;
use crate::http::errors::{ApiError, Dialect};
use crate::http::security::Caller;
use crate::ids::id;
use crate::sse::{Encoder, Out};
use serde_json::{Value, json};
use strata_runtime::TokenLogprob;

/// What the item that is open is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Message,
    Call,
}

/// The item that is open.
struct Item {
    kind: Kind,
    id: String,
    /// Its text, or the arguments of a call.
    text: String,
    logprobs: Vec<TokenLogprob>,
    /// The tool that is called, and the call's own name.
    call: (String, String),
}

impl Item {
    fn json(&self, status: &str) -> Value {
        let (id, text) = (&self.id, &self.text);
        match self.kind {
            Kind::Reasoning => {
                let content =
                    if text.is_empty() { json!([]) } else { json!([{"type": "reasoning_text", "text": text}]) };
                json!({"id": id, "type": "reasoning", "status": status, "summary": [], "content": content})
            }
            Kind::Message => {
                let content = if status == "in_progress" { json!([]) } else { json!([self.part()]) };
                json!({"id": id, "type": "message", "status": status, "role": "assistant", "content": content})
            }
            Kind::Call => {
                let (name, call) = &self.call;
                json!({
                    "id": id, "type": "function_call", "status": status, "call_id": call, "name": name, "arguments": text,
                })
            }
        }
    }

    /// The one part of a message.
    fn part(&self) -> Value {
        json!({"type": "output_text", "text": self.text, "annotations": [], "logprobs": logprobs::chat(&self.logprobs)})
    }
}

/// Gives pieces the form of OpenAI's response events, and keeps the response that they add up to.
pub(crate) struct ResponseStream {
    app: App,
    caller: Caller,
    response: Value,
    sequence: u64,
    output: Vec<Value>,
    open: Option<Item>,
    said: bool,
    finished: bool,
}

impl ResponseStream {
    /// One for a response that is not begun yet.
    pub(crate) fn new(app: App, caller: Caller, response: Value) -> ResponseStream {
        ResponseStream {
            app,
            caller,
            response,
            sequence: 0,
            output: Vec::new(),
            open: None,
            said: false,
            finished: false,
        }
    }

    /// The response, once it is whole.
    pub(crate) fn finished(&self) -> Option<Value> {
        self.finished.then(|| self.response.clone())
    }

    fn event(&mut self, kind: &str, more: Value, out: &mut Out) {
        let event = json!({"type": kind, "sequence_number": self.sequence});
        let more = more.as_object().cloned().unwrap_or_default();
        self.sequence += 1;
        out.event(kind, &usage::with(event, more));
    }

    /// An event about the item that is open.
    fn of_item(&mut self, kind: &str, more: Value, out: &mut Out) {
        let id = self.open.as_ref().map(|item| item.id.clone()).unwrap_or_default();
        let at = json!({"item_id": id, "output_index": self.output.len()});
        let more = more.as_object().cloned().unwrap_or_default();
        self.event(kind, usage::with(at, more), out);
    }

    fn life(&mut self, kind: &str, out: &mut Out) {
        let response = self.response.clone();
        self.event(kind, json!({"response": response}), out);
    }

    fn open(&mut self, kind: Kind, call: (String, String), out: &mut Out) {
        if kind != Kind::Call && self.open.as_ref().is_some_and(|item| item.kind == kind) {
            return;
        }
        self.close("completed", out);
        let prefix = match kind {
            Kind::Reasoning => "rs_",
            Kind::Message => "msg_",
            Kind::Call => "fc_",
        };
        let item = Item { kind, id: id(prefix), text: String::new(), logprobs: Vec::new(), call };
        let (json, part) = (item.json("in_progress"), item.part());
        self.open = Some(item);
        self.event("response.output_item.added", json!({"output_index": self.output.len(), "item": json}), out);
        if kind == Kind::Message {
            self.of_item("response.content_part.added", json!({"content_index": 0, "part": part}), out);
        }
    }

    fn add(&mut self, text: &str, tokens: Vec<TokenLogprob>, out: &mut Out) {
        let Some(item) = &mut self.open else { return };
        item.text.push_str(text);
        let kind = item.kind;
        let probabilities = logprobs::chat(&tokens);
        item.logprobs.extend(tokens);
        match kind {
            Kind::Reasoning => {
                self.of_item("response.reasoning_text.delta", json!({"content_index": 0, "delta": text}), out);
            }
            Kind::Message => {
                let delta = json!({"content_index": 0, "delta": text, "logprobs": probabilities});
                self.of_item("response.output_text.delta", delta, out);
            }
            Kind::Call => self.of_item("response.function_call_arguments.delta", json!({"delta": text}), out),
        }
    }

    fn close(&mut self, status: &str, out: &mut Out) {
        let Some(item) = &self.open else { return };
        let (json, part, text) = (item.json(status), item.part(), item.text.clone());
        match item.kind {
            Kind::Reasoning => {
                self.of_item("response.reasoning_text.done", json!({"content_index": 0, "text": text}), out);
            }
            Kind::Message => {
                let done = json!({"content_index": 0, "text": text, "logprobs": part["logprobs"]});
                self.of_item("response.output_text.done", done, out);
                self.of_item("response.content_part.done", json!({"content_index": 0, "part": part}), out);
            }
            Kind::Call => {
                let done = json!({"arguments": text, "name": item.call.0});
                self.of_item("response.function_call_arguments.done", done, out);
            }
        }
        self.event("response.output_item.done", json!({"output_index": self.output.len(), "item": json}), out);
        self.output.push(json);
        self.open = None;
    }

    fn done(&mut self, ending: Ending, out: &mut Out) {
        usage::log(&self.app, &self.caller, &ending, !self.said);
        let cut = matches!(ending.reason, Reason::Length | Reason::Context);
        let status = if cut { "incomplete" } else { "completed" };
        if let Some(item) = self.open.as_mut().filter(|item| item.kind == Kind::Message) {
            item.logprobs.extend(ending.logprobs.iter().cloned());
        }
        self.close(status, out);
        self.response["status"] = json!(status);
        if cut {
            self.response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        self.response["output"] = self.output.clone().into();
        self.response["usage"] = usage::responses(&ending);
        self.response["timings"] = usage::timings(&ending);
        self.finished = true;
        self.life(if cut { "response.incomplete" } else { "response.completed" }, out);
    }
}

fn is_object(text: &str) -> bool {
    matches!(serde_json::from_str(text), Ok(Value::Object(_)))
}

impl Encoder for ResponseStream {
    fn start(&mut self, out: &mut Out) {
        self.life("response.created", out);
        self.life("response.in_progress", out);
    }

    fn part(&mut self, part: Part, out: &mut Out) {
        self.said |= matches!(part, Part::Text(..) | Part::Call { .. });
        match part {
            Part::Thinking(text) => {
                self.open(Kind::Reasoning, Default::default(), out);
                self.add(&text, Vec::new(), out);
            }
            Part::Text(text, tokens) => {
                self.open(Kind::Message, Default::default(), out);
                self.add(&text, tokens, out);
            }
            Part::Call { id, name } => self.open(Kind::Call, (name, format!("call_{id}")), out),
            Part::Arguments(json) => self.add(&json, Vec::new(), out),
            Part::CallEnd => {
                let whole = self.open.as_ref().is_some_and(|item| is_object(&item.text));
                self.close(if whole { "completed" } else { "incomplete" }, out);
            }
            Part::Done(ending) => self.done(*ending, out),
            Part::Progress { .. } | Part::Failed(_) => {}
        }
    }

    fn failed(&mut self, refusal: &Refusal, out: &mut Out) {
        self.app.options.log.line(&format!("{}: {}", self.caller.request, refusal.message));
        let body = ApiError::from(refusal.clone()).body(Dialect::OpenAi, "");
        let code = body["error"]["code"].as_str().unwrap_or("server_error").to_owned();
        self.event("error", json!({"code": code, "message": refusal.message, "param": refusal.param}), out);
        self.response["status"] = json!("failed");
        self.response["error"] = json!({"code": code, "message": refusal.message});
        self.life("response.failed", out);
    }
}
