//! Literals that stand for one token, and text in which they must not.

use regex::bytes::Regex;
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

/// The literals of a vocabulary's added tokens, such as `<|im_end|>` or `</think>`, ready to be searched for.
#[derive(Debug, Clone, Default)]
pub struct SpecialLiterals {
    /// The literals as alternatives, longest first: the leftmost match is then also the longest at its place.
    pattern: Option<Regex>,
    ids: HashMap<String, u32>,
}

impl SpecialLiterals {
    /// A set of literals with their ids. Empty literals are left out; of equal ones the first counts.
    ///
    /// # Errors
    ///
    /// When the literals together are too large to be searched for.
    pub fn new<'a>(literals: impl IntoIterator<Item = (&'a str, u32)>) -> Result<Self, String> {
        let mut ids = HashMap::new();
        for (literal, id) in literals {
            if !literal.is_empty() {
                ids.entry(literal.to_owned()).or_insert(id);
            }
        }
        if ids.is_empty() {
            return Ok(SpecialLiterals::default());
        }
        let mut longest_first: Vec<&str> = ids.keys().map(String::as_str).collect();
        longest_first.sort_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
        let alternatives: Vec<String> = longest_first.into_iter().map(regex::escape).collect();
        let pattern = Regex::new(&alternatives.join("|"))
            .map_err(|_| format!("the {} added tokens are too large to be searched for together", ids.len()))?;
        Ok(SpecialLiterals { pattern: Some(pattern), ids })
    }

    /// The id of a literal.
    pub fn id_of(&self, literal: &str) -> Option<u32> {
        self.ids.get(literal).copied()
    }

    /// All literals, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.ids.keys().map(String::as_str)
    }

    /// Whether some literal occurs in the text.
    pub fn occur_in(&self, text: &str) -> bool {
        self.pattern.as_ref().is_some_and(|p| p.is_match(text.as_bytes()))
    }

    /// The first literal at or after a byte offset: where it is and its id.
    pub(super) fn next(&self, text: &[u8], from: usize) -> Option<(Range<usize>, u32)> {
        let found = self.pattern.as_ref()?.find_at(text, from)?;
        let literal = std::str::from_utf8(found.as_bytes()).ok()?;
        Some((found.range(), self.id_of(literal)?))
    }

    /// Puts the marker behind the first character of every occurrence of a literal, overlapping ones included, so
    /// that none can be found any more. A literal of one character is recognised by the marker that follows it.
    pub(crate) fn break_up<'a>(&self, text: &'a str, marker: char) -> Cow<'a, str> {
        let Some(pattern) = &self.pattern else {
            return Cow::Borrowed(text);
        };
        let mut out = String::new();
        let mut done = 0;
        while let Some(found) = pattern.find_at(text.as_bytes(), done) {
            let first = text[found.start()..].chars().next().map_or(1, char::len_utf8);
            let cut = found.start() + first;
            out.push_str(&text[done..cut]);
            out.push(marker);
            done = cut;
        }
        if done == 0 {
            return Cow::Borrowed(text);
        }
        out.push_str(&text[done..]);
        Cow::Owned(out)
    }
}

/// A prompt in which some special literals are ordinary text: those that came from users.
///
/// Made by [`ChatTemplate::render`](crate::ChatTemplate::render) and read by
/// [`Tokenizer::encode_prompt`](super::Tokenizer::encode_prompt).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// The text, with the marker inside each literal that is ordinary text.
    marked: String,
    marker: Option<char>,
}

impl Prompt {
    /// A prompt in which every special literal stands for its token.
    pub fn trusted(text: impl Into<String>) -> Self {
        Prompt { marked: text.into(), marker: None }
    }

    /// A prompt in which the marker keeps literals from being read as tokens.
    pub(crate) fn marked(marked: String, marker: Option<char>) -> Self {
        Prompt { marked, marker }
    }

    /// The text without markers.
    pub fn text(&self) -> Cow<'_, str> {
        unmark(&self.marked, self.marker)
    }

    pub(super) fn parts(&self) -> (&str, Option<char>) {
        (&self.marked, self.marker)
    }
}

/// The text without a marker.
pub(super) fn unmark(text: &str, marker: Option<char>) -> Cow<'_, str> {
    match marker {
        Some(marker) if text.contains(marker) => Cow::Owned(text.split(marker).collect()),
        _ => Cow::Borrowed(text),
    }
}
