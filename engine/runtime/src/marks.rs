//! Where checkpoints belong in a rendered conversation.

use crate::checkpoints::Prompt;
use crate::engine::Engine;
use crate::error::{Error, Result};
use serde_json::{Value, json};
use strata_gguf::RenderOptions;
use strata_model::Ops;

/// Finds, for any chat template, what prompts of one conversation will share.
///
/// Nothing is known about the template. Conversations that differ in one place are rendered, and how far their tokens
/// agree tells where that place is. A template that answers such a rendering with an error gets no mark there.
#[derive(Debug, Clone, Default)]
pub struct ChatMarks {
    /// The system message that `shared` is for, and its length.
    shared: Option<(Value, usize)>,
    /// Tokens at the end of a prompt that are not there any more once the answer is part of the history; for the switch
    /// of thinking that it was found with.
    tail: Option<(Option<bool>, usize)>,
}

impl ChatMarks {
    /// Nothing known yet.
    pub fn new() -> ChatMarks {
        ChatMarks::default()
    }

    /// Renders a conversation whose last message is a question, and finds its marks. A text of so many bytes that it must
    /// be `most` tokens or more is refused at once, since splitting it takes a while.
    ///
    /// # Errors
    /// There is no template, it refuses the messages, it makes nothing of them, or too much.
    pub fn prompt<O: Ops>(
        &mut self,
        engine: &Engine<O>,
        messages: &[Value],
        options: &RenderOptions,
        most: Option<usize>,
    ) -> Result<Prompt> {
        let template = engine.template().ok_or_else(|| Error::NoTemplate { file: engine.name().to_owned() })?;
        let prompt = template.render(engine.tokenizer().literals(), messages, options)?;
        if let Some(context) = most {
            let bytes = prompt.text().len();
            let least = bytes / engine.tokenizer().longest_token().max(1);
            if least >= context {
                return Err(Error::TextTooLong { bytes, least, context });
            }
        }
        let tokens = engine.tokenizer().encode_prompt(&prompt);
        if tokens.is_empty() {
            return Err(Error::EmptyRendering);
        }
        let render = |messages: &[Value], options: &RenderOptions| {
            let prompt = template.render(engine.tokenizer().literals(), messages, options).ok()?;
            Some(engine.tokenizer().encode_prompt(&prompt))
        };
        let of = tokens.len();
        let system = messages.first().filter(|m| role(m) == "system");
        let shared = system.map_or(0, |system| match &self.shared {
            Some((known, shared)) if known == system => *shared,
            _ => {
                let ask = |text: &str| render(&[system.clone(), user(text)], options);
                let shared = ask("x").zip(ask("y")).map_or(0, |(x, y)| common(&x, &y));
                self.shared = Some((system.clone(), shared));
                shared
            }
        });
        let tail = match self.tail {
            Some((think, tail)) if think == options.enable_thinking => tail,
            _ => {
                let tail = tail(system, options, render);
                self.tail = Some((options.enable_thinking, tail));
                tail
            }
        };
        let (mut marks, mut last) = (Vec::new(), None);
        if let Some((question, before)) = messages.split_last()
            && role(question) == "user"
        {
            if before.iter().any(|m| role(m) == "user") {
                // Where the last question starts: up to there the conversation stays when it is taken back or asked
                // differently. It is where another begins that starts differently.
                let content = question.get("content").and_then(Value::as_str).unwrap_or_default();
                let other = if content.trim_start().starts_with('x') { "y" } else { "x" };
                let other = [before, &[user(other)]].concat();
                last = render(&other, options).map(|other| common(&tokens, &other));
                marks.extend(last);
            } else {
                last = Some(shared);
            }
        }
        if tail > 0 {
            marks.push(of.saturating_sub(tail));
        }
        marks.retain(|&m| m > 0 && m < of);
        // What was found with other messages is checked against these.
        let shared = if shared < of { shared } else { 0 };
        Ok(Prompt { tokens, shared, marks, chat: true, last })
    }
}

/// Tokens at the end of a prompt that a later prompt of the same conversation does not have at that place.
fn tail(
    system: Option<&Value>,
    options: &RenderOptions,
    render: impl Fn(&[Value], &RenderOptions) -> Option<Vec<u32>>,
) -> usize {
    let start: Vec<Value> = system.cloned().into_iter().chain([user("x")]).collect();
    let Some(asked) = render(&start, options) else { return 0 };
    let plain = json!({"role": "assistant", "content": "x"});
    let thought = json!({"role": "assistant", "content": "x", "reasoning_content": "x"});
    let answers = if options.enable_thinking == Some(false) { vec![plain] } else { vec![plain, thought] };
    let lost = answers.into_iter().filter_map(|answer| {
        let later = render(&[&start[..], &[answer, user("x")]].concat(), options)?;
        Some(asked.len() - common(&asked, &later))
    });
    lost.max().unwrap_or(0)
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn role(message: &Value) -> &str {
    message.get("role").and_then(Value::as_str).unwrap_or_default()
}

/// How many first tokens agree.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
