//! Calls out of an answer, while it is written.
//!
//! The chat format writes a call as
//!
//! ```text
//! <tool_call>
//! <function=NAME>
//! <parameter=KEY>
//! VALUE
//! </parameter>
//! </function>
//! </tool_call>
//! ```
//!
//! or, in older models, as `{"name": ..., "arguments": {...}}` between the same tags. Where the opening tag is a token of
//! the vocabulary only that token opens a call, since text that merely speaks of calls is spelt with other tokens;
//! elsewhere the tag must begin a line.
//!
//! A value may hold anything, closing tags too: it ends at a closing tag behind which another parameter or the end of the
//! function follows. String values are passed on as they come, others when they are whole.
//!
//! Until the first parameter is opened, a call that turns out to be none is given back as the text that it was. Later it
//! can only be left unfinished: its arguments then are no whole JSON, and the answer counts as cut.

mod tag;
mod value;

use super::typing::Kinds;
use super::{CALL, Tool, Tools};
use crate::ids::id;
use serde_json::Value;
use tag::{Tag, tag};

/// A piece of an answer with calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Text beside calls.
    Text(String),
    /// A call begins.
    Call {
        /// Its own name, without the prefix that an interface gives it.
        id: String,
        /// The tool.
        name: String,
    },
    /// A piece of its arguments' JSON.
    Arguments(String),
    /// It ends.
    End,
}

const FUNCTION: (&str, &str) = ("<function=", "</function>");
const PARAMETER: (&str, &str) = ("<parameter=", "</parameter>");

enum State {
    /// In text.
    Outside,
    /// Behind an opening tag.
    Opened,
    /// In a function, between parameters.
    Between,
    /// In a parameter.
    Value(Kinds),
    /// Behind a function.
    After,
    /// In a call that is written as JSON.
    Json,
}

/// What a step came to.
enum Step {
    /// There may be more to do.
    On,
    /// More text is needed.
    Wait,
}

/// Takes an answer apart.
pub(crate) struct Parser {
    tools: Vec<Tool>,
    marked: bool,
    single: bool,
    state: State,
    /// Text that was not used yet.
    buffer: String,
    /// The call so far, while it may still be none.
    raw: String,
    /// Whether the buffer begins a line.
    line_start: bool,
    /// White space that is not shown if a call follows.
    space: String,
    /// Name of the function that is open, and how many parameters it has had.
    function: String,
    parameters: usize,
    /// Whether the call was announced.
    announced: bool,
    /// A value that is not a string, so far.
    value: String,
    /// Whether the line break at a value's beginning is still to come.
    leading: bool,
    calls: usize,
    broken: bool,
}

impl Parser {
    /// One for these tools. `marked` says that calls are opened by a token.
    pub(crate) fn new(tools: &Tools, marked: bool) -> Parser {
        Parser {
            tools: tools.list.clone(),
            marked,
            single: tools.single,
            state: State::Outside,
            buffer: String::new(),
            raw: String::new(),
            line_start: true,
            space: String::new(),
            function: String::new(),
            parameters: 0,
            announced: false,
            value: String::new(),
            leading: false,
            calls: 0,
            broken: false,
        }
    }

    /// Calls that were announced.
    pub(crate) fn calls(&self) -> usize {
        self.calls
    }

    /// Whether a call was left unfinished.
    pub(crate) fn broken(&self) -> bool {
        self.broken
    }

    /// Whether it is in a call.
    pub(crate) fn inside(&self) -> bool {
        !matches!(self.state, State::Outside)
    }

    /// Lets literals open calls from now on.
    pub(crate) fn look_for_literals(&mut self) {
        (self.marked, self.line_start) = (false, true);
    }

    /// Takes text.
    pub(crate) fn text(&mut self, text: &str, out: &mut Vec<Piece>) {
        self.take(text);
        self.run(out);
    }

    /// Takes a token of the chat format.
    pub(crate) fn mark(&mut self, mark: &str, out: &mut Vec<Piece>) {
        let closes = mark == CALL.1;
        if closes && self.inside() && !self.announced {
            self.raw.push_str(mark);
        }
        match self.state {
            State::Outside if mark == CALL.0 && self.marked => {
                self.flush(out);
                self.open();
            }
            State::After if mark == CALL.0 && self.marked => {
                // The last one was not closed; nothing is missing of it.
                self.leave(out);
                self.open();
            }
            State::After | State::Between | State::Value(_) | State::Json if closes => self.close(out),
            State::Opened if closes => self.give_up(out),
            _ => {
                self.take(mark);
                self.run(out);
            }
        }
    }

    /// Ends the answer. `cut` says that a limit ended it, not the model.
    pub(crate) fn finish(&mut self, cut: bool, out: &mut Vec<Piece>) {
        let whole = match self.state {
            State::Outside | State::After => true,
            State::Opened => false,
            State::Between => self.announced && self.buffer.trim().is_empty() && !cut,
            State::Value(_) => {
                !cut && self.value_end().is_some_and(|(_, behind)| self.buffer[behind..].trim().is_empty())
            }
            State::Json => true,
        };
        match self.state {
            State::Outside => self.leave(out),
            State::After => {
                // The beginning of a tag of the call.
                if [CALL.1, FUNCTION.0].iter().any(|t| t.starts_with(self.buffer.trim_start())) {
                    self.buffer.clear();
                }
                self.leave(out);
            }
            State::Json => self.close(out),
            _ if whole => self.close(out),
            // Of a call that a limit cut before its function was named there is nothing to tell.
            _ if cut && !self.announced => self.drop_raw(),
            _ => {
                if self.announced && matches!(self.state, State::Between) {
                    self.buffer.clear();
                }
                self.give_up(out);
            }
        }
        self.flush(out);
        let space = std::mem::take(&mut self.space);
        if self.calls == 0 && !space.is_empty() {
            out.push(Piece::Text(space));
        }
    }

    fn take(&mut self, text: &str) {
        self.buffer.push_str(text);
        if self.inside() && !self.announced {
            self.raw.push_str(text);
        }
    }

    fn run(&mut self, out: &mut Vec<Piece>) {
        loop {
            let step = match self.state {
                State::Outside => self.outside(out),
                State::Opened => self.opened(out),
                State::Between => self.between(out),
                State::Value(kinds) => self.in_value(kinds, out),
                State::After => self.after(out),
                State::Json => self.in_json(out),
            };
            if matches!(step, Step::Wait) {
                return;
            }
        }
    }

    /// Shows text up to where a call could begin.
    fn outside(&mut self, out: &mut Vec<Piece>) -> Step {
        let mut from = 0;
        let mut line_start = self.line_start;
        while !self.marked {
            let rest = &self.buffer[from..];
            if line_start && rest.starts_with(CALL.0) {
                let text: String = self.buffer.drain(..from).collect();
                self.say(&text, out);
                self.buffer.drain(..CALL.0.len());
                self.open();
                return Step::On;
            }
            if line_start && CALL.0.starts_with(rest) {
                let text: String = self.buffer.drain(..from).collect();
                self.say(&text, out);
                self.line_start = true;
                return Step::Wait;
            }
            match rest.find('\n') {
                Some(at) => (from, line_start) = (from + at + 1, true),
                None => break,
            }
        }
        self.flush(out);
        Step::Wait
    }

    /// Shows all text that is left.
    fn flush(&mut self, out: &mut Vec<Piece>) {
        let text = std::mem::take(&mut self.buffer);
        if !text.is_empty() {
            self.line_start = text.ends_with('\n');
        }
        self.say(&text, out);
    }

    /// Shows text, but for white space at its end.
    fn say(&mut self, text: &str, out: &mut Vec<Piece>) {
        if self.single && self.calls > 0 {
            return;
        }
        let visible = text.trim_end();
        if !visible.is_empty() {
            let shown = std::mem::take(&mut self.space) + visible;
            out.push(Piece::Text(shown));
        }
        self.space.push_str(&text[visible.len()..]);
    }

    fn open(&mut self) {
        self.state = State::Opened;
        self.raw = format!("{}{}", CALL.0, self.buffer);
        (self.announced, self.parameters) = (false, 0);
    }

    fn opened(&mut self, out: &mut Vec<Piece>) -> Step {
        self.skip_space();
        if self.buffer.starts_with('{') {
            self.state = State::Json;
            return Step::On;
        }
        match tag(&self.buffer, FUNCTION.0) {
            Tag::Named(name, len) => {
                self.buffer.drain(..len);
                self.function = name;
                self.state = State::Between;
                Step::On
            }
            Tag::Open => Step::Wait,
            Tag::No => {
                self.give_up(out);
                Step::On
            }
        }
    }

    fn between(&mut self, out: &mut Vec<Piece>) -> Step {
        self.skip_space();
        let closing = [FUNCTION.1, CALL.1];
        if self.buffer.starts_with(FUNCTION.1) {
            self.buffer.drain(..FUNCTION.1.len());
            self.end_function(out);
            return Step::On;
        }
        if self.announced && self.buffer.starts_with(CALL.1) {
            self.buffer.drain(..CALL.1.len());
            self.close_now(out);
            return Step::On;
        }
        match tag(&self.buffer, PARAMETER.0) {
            Tag::Named(key, len) => {
                self.buffer.drain(..len);
                self.announce(out);
                self.begin_value(&key, out);
                Step::On
            }
            Tag::Open => Step::Wait,
            Tag::No if closing.iter().any(|t| t.starts_with(&self.buffer)) => Step::Wait,
            Tag::No => {
                self.give_up(out);
                Step::On
            }
        }
    }

    /// Tells that the call is one.
    fn announce(&mut self, out: &mut Vec<Piece>) {
        if self.announced {
            return;
        }
        self.announced = true;
        self.calls += 1;
        self.raw.clear();
        self.space.clear();
        self.show(Piece::Call { id: id(""), name: self.function.clone() }, out);
        self.show(Piece::Arguments("{".to_owned()), out);
    }

    /// Adds a piece of a call, unless only the first call counts.
    fn show(&self, piece: Piece, out: &mut Vec<Piece>) {
        let empty = matches!(&piece, Piece::Arguments(text) if text.is_empty());
        let counts = !self.single || self.calls <= 1;
        if counts && !empty {
            out.push(piece);
        }
    }

    fn end_function(&mut self, out: &mut Vec<Piece>) {
        self.announce(out);
        self.show(Piece::Arguments("}".to_owned()), out);
        self.show(Piece::End, out);
        self.state = State::After;
    }

    fn after(&mut self, out: &mut Vec<Piece>) -> Step {
        let next = self.buffer.trim_start();
        if next.starts_with(CALL.1) {
            let len = self.buffer.len() - next.len() + CALL.1.len();
            self.buffer.drain(..len);
            self.state = State::Outside;
            self.line_start = false;
            return Step::On;
        }
        if next.starts_with(FUNCTION.0) {
            self.skip_space();
            self.open();
            return Step::On;
        }
        if [CALL.1, FUNCTION.0].iter().any(|t| t.starts_with(next)) {
            return Step::Wait;
        }
        self.leave(out);
        Step::On
    }

    /// Goes back to text.
    fn leave(&mut self, out: &mut Vec<Piece>) {
        self.state = State::Outside;
        self.flush(out);
    }

    /// A token closes the call, or the answer ends in a way that closes it.
    fn close(&mut self, out: &mut Vec<Piece>) {
        match self.state {
            State::Value(kinds) => {
                let (end, behind) = self.value_end().unwrap_or_else(|| {
                    let value = self.buffer.strip_suffix('\n').unwrap_or(&self.buffer);
                    (value.len(), self.buffer.len())
                });
                self.end_value(kinds, end, behind, out);
                self.close_now(out);
            }
            State::Between => self.close_now(out),
            State::Json => {
                let text = self.buffer.clone();
                if !self.json_call(&text, out) {
                    self.give_up(out);
                }
                self.buffer.clear();
            }
            _ => self.leave(out),
        }
    }

    fn close_now(&mut self, out: &mut Vec<Piece>) {
        if !self.announced {
            self.give_up(out);
            return;
        }
        self.end_function(out);
        self.state = State::Outside;
        self.line_start = false;
    }

    fn in_json(&mut self, out: &mut Vec<Piece>) -> Step {
        let mut from = 0;
        while let Some(at) = self.buffer[from..].find(CALL.1).map(|at| at + from) {
            let text = self.buffer[..at].to_owned();
            from = at + CALL.1.len();
            if self.json_call(&text, out) {
                self.buffer.drain(..from);
                return Step::On;
            }
        }
        Step::Wait
    }

    /// Takes a call that is written as JSON; `false` if it is none.
    fn json_call(&mut self, text: &str, out: &mut Vec<Piece>) -> bool {
        let Ok(Value::Object(call)) = serde_json::from_str(text) else { return false };
        let Some(name) = call.get("name").and_then(Value::as_str) else { return false };
        let arguments = match call.get("arguments").or_else(|| call.get("parameters")) {
            None | Some(Value::Null) => "{}".to_owned(),
            Some(object @ Value::Object(_)) => object.to_string(),
            Some(Value::String(text)) if matches!(serde_json::from_str(text), Ok(Value::Object(_))) => text.clone(),
            Some(_) => return false,
        };
        self.calls += 1;
        self.space.clear();
        self.show(Piece::Call { id: id(""), name: name.to_owned() }, out);
        self.show(Piece::Arguments(arguments), out);
        self.show(Piece::End, out);
        self.state = State::Outside;
        self.line_start = false;
        true
    }

    /// The call cannot go on: what was not announced was text, and what was is left as it is.
    fn give_up(&mut self, out: &mut Vec<Piece>) {
        let state = std::mem::replace(&mut self.state, State::Outside);
        if !self.announced {
            self.buffer.clear();
            let raw = std::mem::take(&mut self.raw);
            self.line_start = raw.ends_with('\n');
            self.say(&raw, out);
            return;
        }
        self.broken = true;
        if let State::Value(kinds) = state {
            // Behind what was held back there may be the beginning of a closing tag, which is no part of the value.
            let end = self.value_end().map_or(0, |(end, _)| end);
            self.content(kinds, end, out);
            self.buffer.clear();
        }
        self.show(Piece::End, out);
    }

    fn drop_raw(&mut self) {
        self.state = State::Outside;
        self.buffer.clear();
        self.raw.clear();
    }

    fn skip_space(&mut self) {
        let space = self.buffer.len() - self.buffer.trim_start().len();
        self.buffer.drain(..space);
    }
}

#[cfg(test)]
mod tests;
