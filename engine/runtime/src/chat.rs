//! A conversation: messages in, answers out.

use crate::error::{Error, Result};
use crate::session::{Answer, Event, GenerateParams, Session};
use serde_json::{Value, json};
use std::sync::atomic::AtomicBool;
use strata_gguf::RenderOptions;
use strata_model::Ops;

/// What the template is told besides the messages.
#[derive(Debug, Clone, Default)]
pub struct ChatOptions {
    /// The first message, from the system.
    pub system: Option<String>,
    /// Whether the model thinks before it answers; `None` leaves it to the template.
    pub think: Option<bool>,
}

/// A conversation on a session.
pub struct Chat<'e, O: Ops> {
    session: Session<'e, O>,
    options: ChatOptions,
    messages: Vec<Value>,
}

impl<'e, O: Ops> Chat<'e, O> {
    /// An empty conversation.
    pub fn new(session: Session<'e, O>, options: ChatOptions) -> Chat<'e, O> {
        let mut chat = Chat { session, options, messages: Vec::new() };
        chat.clear();
        chat
    }

    /// The messages so far, as the template sees them.
    pub fn messages(&self) -> &[Value] {
        &self.messages
    }

    /// The session beneath.
    pub fn session(&self) -> &Session<'e, O> {
        &self.session
    }

    /// Starts the conversation anew, keeping the system message.
    pub fn clear(&mut self) {
        let system = self.options.system.iter().map(|text| json!({"role": "system", "content": text}));
        self.messages = system.collect();
    }

    /// Takes back the last question and its answer; `false` when there is none.
    pub fn undo(&mut self) -> bool {
        let last = self.messages.iter().rposition(|m| m.get("role").and_then(Value::as_str) == Some("user"));
        last.map(|at| self.messages.truncate(at)).is_some()
    }

    /// Asks, and adds question and answer to the conversation. An answer that was cancelled is kept as far as it came;
    /// after an error the conversation is as before.
    ///
    /// # Errors
    /// There is no template or it refuses the messages, the conversation does not fit the context, or the model fails.
    pub fn ask(
        &mut self,
        question: &str,
        params: &GenerateParams,
        cancel: &AtomicBool,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Answer> {
        let engine = self.session.engine();
        let template = engine.template().ok_or_else(|| Error::NoTemplate { file: engine.name().to_owned() })?;
        let before = self.messages.len();
        self.messages.push(json!({"role": "user", "content": question}));
        let options = RenderOptions { enable_thinking: self.options.think, ..RenderOptions::default() };
        let answer = template
            .render(engine.tokenizer().literals(), &self.messages, &options)
            .map_err(Error::from)
            .map(|prompt| engine.tokenizer().encode_prompt(&prompt))
            .and_then(|tokens| match tokens[..] {
                [] => Err(Error::EmptyRendering),
                _ => self.session.generate(&tokens, params, cancel, on_event),
            });
        match &answer {
            Ok(answer) => {
                let mut message = json!({"role": "assistant", "content": answer.text});
                if !answer.thinking.is_empty() {
                    message["reasoning_content"] = answer.thinking.clone().into();
                }
                self.messages.push(message);
            }
            Err(_) => self.messages.truncate(before),
        }
        answer
    }
}
