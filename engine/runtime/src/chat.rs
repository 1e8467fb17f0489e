//! A conversation: messages in, answers out.

use crate::error::{Error, Result};
use crate::marks::ChatMarks;
use crate::params::GenerateParams;
use crate::parking::Parking;
use crate::session::{Answer, Event, Session};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use strata_gguf::{RenderOptions, show_path};
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
    marks: ChatMarks,
}

impl<'e, O: Ops> Chat<'e, O> {
    /// An empty conversation.
    pub fn new(session: Session<'e, O>, options: ChatOptions) -> Chat<'e, O> {
        let mut chat = Chat { session, options, messages: Vec::new(), marks: ChatMarks::new() };
        chat.clear();
        chat
    }

    /// The messages so far, as the template sees them.
    pub fn messages(&self) -> &[Value] {
        &self.messages
    }

    /// What there is to keep of the conversation besides its session: the messages, as JSON.
    pub fn note(&self) -> Vec<u8> {
        Value::from(self.messages.clone()).to_string().into_bytes()
    }

    /// Goes on in a conversation that was parked with its [note](Chat::note); its own system message holds from now on.
    ///
    /// # Errors
    /// The file cannot be resumed here (see [`Parking::restore`]); the conversation is as before then.
    pub fn resume(&mut self, parking: &Parking, path: &Path) -> Result<()> {
        let note = parking.restore(path, &mut self.session)?;
        let messages = match serde_json::from_slice(&note) {
            Ok(Value::Array(messages)) => messages,
            _ => {
                self.session.clear();
                let why = "its note is no list of messages".to_owned();
                return Err(Error::Parked { path: show_path(path), why });
            }
        };
        let system = messages.first().filter(|m| m.get("role").and_then(Value::as_str) == Some("system"));
        let text = system.and_then(|m| m.get("content")).and_then(Value::as_str);
        self.options.system = text.map(str::to_owned);
        self.messages = messages;
        Ok(())
    }

    /// Whether anything was asked that was not taken back.
    pub fn is_empty(&self) -> bool {
        !self.messages.iter().any(|m| m.get("role").and_then(Value::as_str) == Some("user"))
    }

    /// The system message.
    pub fn system(&self) -> Option<&str> {
        self.options.system.as_deref()
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
        let before = self.messages.len();
        self.messages.push(json!({"role": "user", "content": question}));
        let options = RenderOptions { enable_thinking: self.options.think, ..RenderOptions::default() };
        let answer = self
            .marks
            .prompt(engine, &self.messages, &options, Some(self.session.state().capacity()))
            .and_then(|prompt| self.session.generate_from(&prompt, params, cancel, on_event));
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
