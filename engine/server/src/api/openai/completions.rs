//! `POST /v1/completions`: text goes on, without a chat template.
//!
//! The prompt is taken as it is: literals of special tokens in it are those tokens, as whoever writes prompts by hand
//! needs them. Chats never do that with a message.

use super::{error, finish_reason, logprobs};
use crate::App;
use crate::api::answer::{Assembler, Ending, Item, Part};
use crate::api::ask::{Prepared, request};
use crate::api::asked::Asked;
use crate::api::fields::{Fields, wrong};
use crate::api::{sampling, usage};
use crate::backend::{ModelInfo, Refusal};
use crate::http::errors::ApiError;
use crate::http::security::Caller;
use crate::ids::{id, now};
use crate::sse::{Encoder, Out};
use axum::Json;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use strata_runtime::{GenerateParams, Prompt, TokenLogprob};

/// Tokens of an answer where a request does not say, as OpenAI has it.
const MAX_TOKENS: usize = 16;

/// What a request says besides the prompt.
struct Asks {
    params: GenerateParams,
    include_usage: bool,
    prompt: Value,
}

/// Continues a text.
pub(crate) async fn handle(asked: Asked) -> Result<Response, ApiError> {
    let (Asks { params, include_usage, prompt: text }, stream) = asked.read(read)?;
    let with_logprobs = params.logprobs.is_some();
    let running = asked.queue(move |app, caller, model| {
        let prompt = prompt(app, &text, model)?;
        let request = request(caller, model, prompt, params)?;
        Ok(Prepared { request, assembler: Assembler::new(None), constrained_by: None })
    });
    let running = running.await?;
    let form = Form { id: id("cmpl-"), created: now(), model: running.model.id.clone(), include_usage };
    if stream {
        let (app, caller) = (running.app.clone(), running.caller.clone());
        return Ok(running.stream(CompletionStream { app, caller, form, with_logprobs, chars: 0 }));
    }
    let whole = running.whole().await?;
    // Raw text knows no thinking; what was taken for it came first.
    let mut text = whole.thinking;
    for item in whole.items {
        if let Item::Text(piece) = item {
            text.push_str(&piece);
        }
    }
    let logprobs = if with_logprobs { logprobs::completions(&whole.logprobs, 0) } else { Value::Null };
    let mut response = form.response(&text, logprobs, Some(finish_reason(&whole.ending.reason)));
    response["usage"] = usage::chat(&whole.ending);
    response["timings"] = usage::timings(&whole.ending);
    Ok(Json(response).into_response())
}

fn read(fields: &Fields<'_>, app: &App, model: &ModelInfo) -> Result<Asks, Refusal> {
    for (name, value) in [("n", 1), ("best_of", 1)] {
        fields.only(name, &[json!(value)], "one answer at a time is given")?;
    }
    fields.only("echo", &[json!(false)], "the prompt is not repeated")?;
    fields.only("suffix", &[json!("")], "text cannot be put before a given end")?;
    let mut params = sampling::params(fields, &app.options, model)?;
    params.max_tokens = sampling::limit(fields, &["max_tokens"])?.unwrap_or(MAX_TOKENS);
    params.stop = sampling::stop(fields, "stop", Some(4))?;
    params.logprobs = fields.whole("logprobs", 0..=20)?.map(|n| n as usize);
    let include_usage = match fields.object("stream_options")? {
        Some(options) => options.flag("include_usage")?.unwrap_or(false),
        None => false,
    };
    Ok(Asks { params, include_usage, prompt: fields.need("prompt")?.clone() })
}

/// A text, tokens, or a list of one of these.
fn prompt(app: &App, value: &Value, model: &ModelInfo) -> Result<Prompt, Refusal> {
    let expected = "a string or a list of tokens";
    let (at, one) = match value {
        Value::Array(items) if items.first().is_some_and(|i| !i.is_number()) => match &items[..] {
            [one] => ("prompt[0]", one),
            _ => {
                let message = format!("prompt is a list of {}; one at a time is continued", items.len());
                return Err(Refusal::param("prompt", message));
            }
        },
        one => ("prompt", one),
    };
    let tokens = match one {
        Value::String(text) => {
            let least = text.len() / model.longest_token.max(1);
            if least >= model.context {
                return Err(Refusal::too_long(least, model.context));
            }
            app.backend.tokenize(text, true)?
        }
        Value::Array(items) => {
            let token = |(i, v): (usize, &Value)| {
                let token = v.as_u64().filter(|&t| t < model.vocab as u64).map(|t| t as u32);
                let expected = format!("a token, which is a number from 0 to {}", model.vocab.saturating_sub(1));
                token.ok_or_else(|| wrong(&format!("{at}[{i}]"), &expected, v))
            };
            items.iter().enumerate().map(token).collect::<Result<_, _>>()?
        }
        other => return Err(wrong(at, expected, other)),
    };
    if tokens.is_empty() {
        return Err(Refusal::param("prompt", "prompt is empty"));
    }
    Ok(tokens.into())
}

/// What is the same in all pieces of an answer.
struct Form {
    id: String,
    created: u64,
    model: String,
    include_usage: bool,
}

impl Form {
    fn response(&self, text: &str, logprobs: Value, finish: Option<&str>) -> Value {
        self.with(json!([{"index": 0, "text": text, "logprobs": logprobs, "finish_reason": finish}]))
    }

    fn with(&self, choices: Value) -> Value {
        json!({
            "id": self.id, "object": "text_completion", "created": self.created, "model": self.model,
            "system_fingerprint": null, "choices": choices,
        })
    }
}

struct CompletionStream {
    app: App,
    caller: Caller,
    form: Form,
    with_logprobs: bool,
    /// Characters sent so far.
    chars: usize,
}

impl CompletionStream {
    fn piece(&mut self, text: &str, tokens: &[TokenLogprob], finish: Option<&str>) -> Value {
        let known = self.with_logprobs && !tokens.is_empty();
        let logprobs = if known { logprobs::completions(tokens, self.chars) } else { Value::Null };
        self.chars += text.chars().count();
        let mut piece = self.form.response(text, logprobs, finish);
        if self.form.include_usage {
            piece["usage"] = Value::Null;
        }
        piece
    }

    fn done(&mut self, ending: &Ending, out: &mut Out) {
        usage::log(&self.app, &self.caller, ending, self.chars == 0);
        let mut last = self.piece("", &ending.logprobs, Some(finish_reason(&ending.reason)));
        last["timings"] = usage::timings(ending);
        out.data(&last);
        if self.form.include_usage {
            let mut chunk = self.form.with(json!([]));
            chunk["usage"] = usage::chat(ending);
            out.data(&chunk);
        }
        out.end();
    }
}

impl Encoder for CompletionStream {
    fn start(&mut self, out: &mut Out) {
        // A sign that the request was taken; a piece of text there is none yet.
        out.comment("queued");
    }

    fn part(&mut self, part: Part, out: &mut Out) {
        match part {
            Part::Thinking(text) => out.data(&self.piece(&text, &[], None)),
            Part::Text(text, tokens) => out.data(&self.piece(&text, &tokens, None)),
            Part::Done(ending) => self.done(&ending, out),
            _ => {}
        }
    }

    fn failed(&mut self, refusal: &Refusal, out: &mut Out) {
        self.app.options.log.line(&format!("{}: {}", self.caller.request, refusal.message));
        out.data(&error(refusal));
    }
}
