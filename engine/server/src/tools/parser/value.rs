//! Values of parameters.

use super::super::CALL;
use super::super::typing::{Kinds, escaped, json, kinds, quoted};
use super::{FUNCTION, PARAMETER, Parser, Piece, State, Step};

impl Parser {
    pub(super) fn begin_value(&mut self, key: &str, out: &mut Vec<Piece>) {
        let tool = self.tools.iter().find(|t| t.name == self.function);
        let kinds =
            tool.map_or(Kinds::ANY, |t| t.parameter(key).map_or(Kinds::ANY, |schema| kinds(schema, &t.parameters)));
        let comma = if self.parameters > 0 { "," } else { "" };
        let quote = if kinds.only_string() { "\"" } else { "" };
        self.show(Piece::Arguments(format!("{comma}{}:{quote}", quoted(key))), out);
        self.parameters += 1;
        self.value.clear();
        self.leading = true;
        self.state = State::Value(kinds);
    }

    pub(super) fn in_value(&mut self, kinds: Kinds, out: &mut Vec<Piece>) -> Step {
        if self.leading {
            if self.buffer.is_empty() || self.buffer == "\r" {
                return Step::Wait;
            }
            let len = if self.buffer.starts_with("\r\n") { 2 } else { usize::from(self.buffer.starts_with('\n')) };
            self.buffer.drain(..len);
            self.leading = false;
        }
        while let Some((end, behind)) = self.value_end() {
            let next = self.buffer[behind..].trim_start();
            let after = [PARAMETER.0, FUNCTION.1, CALL.1];
            if after.iter().any(|t| next.starts_with(t)) {
                self.end_value(kinds, end, behind, out);
                return Step::On;
            }
            if after.iter().any(|t| t.starts_with(next)) {
                self.content(kinds, end, out);
                return Step::Wait;
            }
            // It only looked like the end.
            self.content(kinds, behind, out);
        }
        // The beginning of a closing tag is held back, with the line break before it.
        let closing = format!("\r\n{}", PARAMETER.1);
        let tails = [&closing[..], &closing[1..], &closing[2..]];
        let kept = self.buffer.char_indices().map(|(at, _)| at).find(|&at| {
            self.buffer.len() - at < closing.len() && tails.iter().any(|t| t.starts_with(&self.buffer[at..]))
        });
        self.content(kinds, kept.unwrap_or(self.buffer.len()), out);
        Step::Wait
    }

    /// Where the value ends if the first closing tag is its end, and what lies behind that tag.
    pub(super) fn value_end(&self) -> Option<(usize, usize)> {
        let at = self.buffer.find(PARAMETER.1)?;
        let value = &self.buffer[..at];
        let value = value.strip_suffix('\n').map_or(value, |v| v.strip_suffix('\r').unwrap_or(v));
        Some((value.len(), at + PARAMETER.1.len()))
    }

    /// Takes so many bytes of the buffer into the value.
    pub(super) fn content(&mut self, kinds: Kinds, len: usize, out: &mut Vec<Piece>) {
        let piece: String = self.buffer.drain(..len).collect();
        if kinds.only_string() {
            self.show(Piece::Arguments(escaped(&piece)), out);
        } else {
            self.value.push_str(&piece);
        }
    }

    pub(super) fn end_value(&mut self, kinds: Kinds, end: usize, behind: usize, out: &mut Vec<Piece>) {
        let tag = behind - end;
        self.content(kinds, end, out);
        self.buffer.drain(..tag);
        let rest = if kinds.only_string() { "\"".to_owned() } else { json(&self.value, kinds) };
        self.show(Piece::Arguments(rest), out);
        self.state = State::Between;
    }
}
