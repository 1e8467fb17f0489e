//! An answer's pieces, alike for all interfaces.

use crate::backend::{Event, Outcome, Refusal, RefusalKind};
use crate::tools::parser::{Parser, Piece};
use std::time::Duration;
use strata_runtime::{Finish, TokenLogprob};
use tokio::sync::mpsc::UnboundedReceiver;

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Part {
    /// So many tokens of the prompt are read.
    Progress { read: usize, of: usize },
    /// Thinking.
    Thinking(String),
    /// Text, with what is known of its tokens.
    Text(String, Vec<TokenLogprob>),
    /// A call begins.
    Call { id: String, name: String },
    /// A piece of its arguments.
    Arguments(String),
    /// It ends.
    CallEnd,
    /// The answer is whole.
    Done(Box<Ending>),
    /// It broke off.
    Failed(Refusal),
}

/// How an answer ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ending {
    pub(crate) reason: Reason,
    pub(crate) outcome: Outcome,
    /// How long it waited in the queue.
    pub(crate) waited: Duration,
    /// What is known of tokens whose text was no part of a text piece.
    pub(crate) logprobs: Vec<TokenLogprob>,
}

/// Why an answer ended, as interfaces tell it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The model ended it.
    Stop,
    /// A stop text came.
    StopText(String),
    /// The limit of tokens came, or the model left a call unfinished.
    Length,
    /// The context is full.
    Context,
    /// Tools are to be called.
    Calls,
}

/// Makes pieces of a backend's events.
pub(crate) struct Assembler {
    parser: Option<Parser>,
    waited: Duration,
    logprobs: Vec<TokenLogprob>,
    /// The thinking so far, in case the model answers in it.
    thinking: String,
    /// White space of the thinking that is shown if more comes.
    space: String,
    /// Whether any text or call came.
    said: bool,
}

impl Assembler {
    /// One that looks for calls if it has a parser.
    pub(crate) fn new(parser: Option<Parser>) -> Assembler {
        Assembler {
            parser,
            waited: Duration::ZERO,
            logprobs: Vec::new(),
            thinking: String::new(),
            space: String::new(),
            said: false,
        }
    }

    /// Takes an event.
    pub(crate) fn push(&mut self, event: Event) -> Vec<Part> {
        match event {
            Event::Started { waited } => {
                self.waited = waited;
                Vec::new()
            }
            Event::Prompt { read, of } => vec![Part::Progress { read, of }],
            Event::Thinking(text) => self.think(&text),
            Event::Text(text) => self.say(&text, false),
            Event::Mark(mark) => self.say(&mark, true),
            Event::Logprob(logprob) => {
                self.logprobs.push(logprob);
                Vec::new()
            }
            Event::Done(outcome) => self.done(outcome),
            Event::Failed(refusal) => vec![Part::Failed(refusal)],
        }
    }

    /// Thinking without the blank lines around it.
    fn think(&mut self, text: &str) -> Vec<Part> {
        let first = self.thinking.trim().is_empty();
        self.thinking.push_str(text);
        let visible = text.trim_end();
        let mut parts = Vec::new();
        if !visible.is_empty() {
            let shown = std::mem::take(&mut self.space) + visible;
            parts.push(Part::Thinking(if first { shown.trim_start().to_owned() } else { shown }));
        }
        self.space.push_str(&text[visible.len()..]);
        parts
    }

    fn say(&mut self, text: &str, mark: bool) -> Vec<Part> {
        let Some(parser) = &mut self.parser else {
            self.said = true;
            return vec![Part::Text(text.to_owned(), std::mem::take(&mut self.logprobs))];
        };
        let inside = parser.inside();
        let mut pieces = Vec::new();
        if mark {
            parser.mark(text, &mut pieces)
        } else {
            parser.text(text, &mut pieces)
        }
        let of_call = inside || parser.inside();
        let parts = self.parts(pieces);
        if of_call {
            // What is left is of a call, which is no text.
            self.logprobs.clear();
        }
        parts
    }

    fn parts(&mut self, pieces: Vec<Piece>) -> Vec<Part> {
        let mut parts = Vec::with_capacity(pieces.len());
        for piece in pieces {
            self.said = true;
            parts.push(match piece {
                Piece::Text(text) => Part::Text(text, std::mem::take(&mut self.logprobs)),
                Piece::Call { id, name } => Part::Call { id, name },
                Piece::Arguments(json) => Part::Arguments(json),
                Piece::End => Part::CallEnd,
            });
        }
        parts
    }

    fn done(&mut self, outcome: Outcome) -> Vec<Part> {
        if outcome.finish == Finish::Cancelled {
            let message = "the answer was cancelled because the server is stopping";
            return vec![Part::Failed(Refusal::new(RefusalKind::Cancelled, message))];
        }
        let cut = matches!(outcome.finish, Finish::Length | Finish::Context);
        let mut pieces = Vec::new();
        if let Some(parser) = &mut self.parser {
            parser.finish(cut, &mut pieces);
        }
        let mut parts = self.parts(pieces);
        if !self.said && !cut && !self.thinking.trim().is_empty() {
            parts.extend(self.answer_in_thinking());
        }
        let (calls, broken) = self.parser.as_ref().map_or((0, false), |p| (p.calls(), p.broken()));
        let reason = match outcome.finish {
            Finish::Length => Reason::Length,
            Finish::Context => Reason::Context,
            _ if broken => Reason::Length,
            _ if calls > 0 => Reason::Calls,
            Finish::StopText => Reason::StopText(outcome.stop_text.clone().unwrap_or_default()),
            Finish::Stop | Finish::Cancelled => Reason::Stop,
        };
        let logprobs = std::mem::take(&mut self.logprobs);
        parts.push(Part::Done(Box::new(Ending { reason, outcome, waited: self.waited, logprobs })));
        parts
    }

    /// The model ended its answer without ending its thinking: what it thought is all there is, calls in it included.
    fn answer_in_thinking(&mut self) -> Vec<Part> {
        let thinking = std::mem::take(&mut self.thinking);
        let Some(parser) = &mut self.parser else {
            return vec![Part::Text(thinking.trim().to_owned(), Vec::new())];
        };
        parser.look_for_literals();
        let mut pieces = Vec::new();
        parser.text(thinking.trim(), &mut pieces);
        parser.finish(false, &mut pieces);
        if parser.calls() > 0 {
            // The thinking itself was shown as such.
            pieces.retain(|piece| !matches!(piece, Piece::Text(_)));
        }
        self.parts(pieces)
    }
}

/// An answer that is whole.
pub(crate) struct Whole {
    pub(crate) thinking: String,
    pub(crate) items: Vec<Item>,
    pub(crate) logprobs: Vec<TokenLogprob>,
    pub(crate) ending: Ending,
}

/// A piece of an answer that is whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    /// Text.
    Text(String),
    /// A call.
    Call { id: String, name: String, arguments: String },
}

/// Waits for an answer.
///
/// # Errors
/// It broke off.
pub(crate) async fn collect(mut events: UnboundedReceiver<Event>, mut assembler: Assembler) -> Result<Whole, Refusal> {
    let (mut thinking, mut items, mut logprobs) = (String::new(), Vec::<Item>::new(), Vec::new());
    while let Some(event) = events.recv().await {
        for part in assembler.push(event) {
            match part {
                Part::Progress { .. } | Part::CallEnd => {}
                Part::Thinking(text) => thinking.push_str(&text),
                Part::Text(text, of_text) => {
                    logprobs.extend(of_text);
                    match items.last_mut() {
                        Some(Item::Text(before)) => before.push_str(&text),
                        _ => items.push(Item::Text(text)),
                    }
                }
                Part::Call { id, name } => items.push(Item::Call { id, name, arguments: String::new() }),
                Part::Arguments(json) => {
                    if let Some(Item::Call { arguments, .. }) = items.last_mut() {
                        arguments.push_str(&json);
                    }
                }
                Part::Done(mut ending) => {
                    logprobs.append(&mut ending.logprobs);
                    return Ok(Whole { thinking, items, logprobs, ending: *ending });
                }
                Part::Failed(refusal) => return Err(refusal),
            }
        }
    }
    Err(vanished())
}

/// What is said of an answer that ends without a last event.
pub(crate) fn vanished() -> Refusal {
    Refusal::new(RefusalKind::Engine, "the engine ended without finishing the answer")
}
