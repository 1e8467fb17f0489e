//! Prompt lookup: drafts copied from an earlier place of the text that reads like its end.
//!
//! Code that is edited, quotations and tool results repeat what stands in the context. The last [`GRAM`] tokens are
//! looked up in an index of all earlier trigrams; of their most recent occurrences the one whose preceding tokens agree
//! longest with the end of the text wins, the more recent one where two agree equally long, and what followed it is
//! proposed. Proposing costs no forward pass, and whether a proposal is worth a wider window is for
//! [`window`](crate::window) to say.
//!
//! The index maps a trigram to the position where it ended last; each position links to the one before with the same
//! trigram. A link never depends on what came later, so a text that goes back to an earlier length unlinks its last
//! positions one by one, and what remains is what reading the shorter text would have built.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// Tokens that an occurrence must share with the end of the text: the key of the index and the shortest match.
pub const GRAM: usize = 3;

/// How far a search goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Most recent occurrences of the last trigram that are compared. The original engine compares 16.
    pub occurrences: usize,
    /// Longest match that is told apart, in tokens, the trigram included; at least [`GRAM`]. The original engine goes
    /// back 64 tokens.
    pub match_length: usize,
    /// Longest text that is indexed, in tokens. Beyond it nothing is stored and nothing proposed, which bounds the
    /// memory: about 50 bytes a token.
    pub text: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { occurrences: 16, match_length: 64, text: 1 << 20 }
    }
}

/// No earlier position: texts are shorter than this.
const NONE: u32 = u32::MAX;

/// The text so far and where its trigrams occurred.
#[derive(Debug, Clone, Default)]
pub struct Lookup {
    limits: Limits,
    /// The text, up to `limits.text` tokens of it.
    tokens: Vec<u32>,
    /// For each position: the position before it where the same trigram ended.
    earlier: Vec<u32>,
    /// Where each trigram ended last.
    last: HashMap<[u32; GRAM], u32>,
    /// Length of the text, with what is not stored.
    len: usize,
}

impl Lookup {
    /// An empty text with the default [`Limits`].
    pub fn new() -> Lookup {
        Lookup::default()
    }

    /// An empty text.
    pub fn with_limits(limits: Limits) -> Lookup {
        Lookup { limits, ..Lookup::default() }
    }

    /// Length of the text in tokens.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the text holds no token.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a token; constant time but for the growth of the tables.
    pub fn push(&mut self, token: u32) {
        self.len = self.len.saturating_add(1);
        // Positions are 32 bits wide, and one value of them says that there is none.
        if self.len > self.limits.text.min(NONE as usize) {
            return;
        }
        let position = self.tokens.len() as u32;
        self.tokens.push(token);
        let earlier = self.gram(self.tokens.len()).and_then(|gram| self.last.insert(gram, position));
        self.earlier.push(earlier.unwrap_or(NONE));
    }

    /// Cuts the text to its first `len` tokens; a text that is not longer stays as it is. Takes time in proportion to
    /// what is cut.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        while self.tokens.len() > len {
            let gram = self.gram(self.tokens.len());
            self.tokens.pop();
            let earlier = self.earlier.pop();
            if let Some(gram) = gram {
                match earlier {
                    Some(position) if position != NONE => self.last.insert(gram, position),
                    _ => self.last.remove(&gram),
                };
            }
        }
    }

    /// Forgets the text.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Writes up to `max` drafts into `out` (which is emptied first) and returns the length of the match that they
    /// follow, from [`GRAM`] to [`Limits::match_length`] tokens.
    ///
    /// Where the matched place is so near that what followed it reaches the end of the text, the drafts go on with
    /// themselves: text of period 2 is continued with that period, however many drafts are asked for.
    pub fn propose(&self, max: usize, out: &mut Vec<u32>) -> Option<usize> {
        out.clear();
        // A text that is not stored to its end has no suffix to look for.
        if max == 0 || self.tokens.len() < self.len {
            return None;
        }
        let end = self.tokens.len();
        let mut candidate = *self.earlier.last()?;
        let mut best = None;
        for _ in 0..self.limits.occurrences {
            if candidate == NONE {
                break;
            }
            let after = candidate as usize + 1;
            let length = self.common_suffix(after, end);
            if best.is_none_or(|(longest, _)| length > longest) {
                best = Some((length, after));
            }
            if length >= self.limits.match_length {
                break;
            }
            candidate = *self.earlier.get(candidate as usize)?;
        }
        let (length, after) = best?;
        for i in 0..max {
            let next = self.tokens.get(after + i).or_else(|| out.get(after + i - end)).copied();
            out.extend(next);
        }
        Some(length)
    }

    /// The trigram that ends before position `end`.
    fn gram(&self, end: usize) -> Option<[u32; GRAM]> {
        self.tokens.get(end.checked_sub(GRAM)?..end)?.try_into().ok()
    }

    /// How many tokens before `a` and before `b` are the same, given that the last trigrams are.
    fn common_suffix(&self, a: usize, b: usize) -> usize {
        let (Some(left), Some(right)) = (self.tokens.get(..a), self.tokens.get(..b)) else { return 0 };
        let pairs = left.iter().rev().zip(right.iter().rev());
        pairs.take(self.limits.match_length.max(GRAM)).take_while(|(l, r)| l == r).count()
    }
}
