//! What an answer must be: JSON of a schema, or a text of a grammar.
//!
//! `llguidance` keeps track of where a text is in its grammar and says which tokens can come next. Its trie of the
//! vocabulary is made once for an engine, when a constraint is first asked for or by [`Engine::prepare_constraints`]. In a
//! debug build that took 15 ms and 2 MB for the built-in model's 4,096 tokens, and 2.6 s and 198 MB for 248,320 made-up
//! ones (the ignored test below prints it).
//!
//! [`Engine::prepare_constraints`]: crate::Engine::prepare_constraints

mod compile;
mod endless;
mod levels;

use crate::error::{Error, Result};
use compile::{compile, factory};
use llguidance::toktrie::{SimpleVob, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::Value;
use std::sync::LazyLock;
use strata_gguf::{TokenKind, Tokenizer};

/// What an answer must be. It holds for the answer, not for the thinking before it.
#[derive(Debug, Clone, PartialEq)]
pub enum Constraint {
    /// A JSON text that this schema allows.
    Json(Value),
    /// A text of this grammar, in llguidance's Lark dialect.
    Lark(String),
}

impl Constraint {
    /// Whether it can be followed, whatever the vocabulary, and a first byte is allowed. A grammar must not name tokens.
    ///
    /// # Errors
    /// [`Error::BadConstraint`] says why not: the schema or grammar is wrong, too large or too complex, or nothing finite
    /// is of it.
    pub fn check(&self) -> Result<()> {
        static BYTES: LazyLock<Result<ParserFactory, String>> =
            LazyLock::new(|| factory(&(0..=255).map(|byte| vec![byte]).collect::<Vec<_>>(), &[]));
        let factory = BYTES.as_ref().map_err(|why| Error::Grammars(why.clone()))?;
        let refused = |e: &dyn std::fmt::Display| Error::BadConstraint(reason(&e.to_string()));
        let mut matcher = compile(factory, self).map_err(|why| refused(&why))?;
        let first = matcher.compute_mask().map_err(|e| refused(&e))?;
        // What allows the empty text allows no byte, perhaps.
        if first.is_zero() && !matcher.is_accepting().map_err(|e| refused(&e))? {
            return Err(refused(&"no text is of this form"));
        }
        Ok(())
    }
}

/// Longer tokens are left out of the trie, which cannot hold them: a constrained answer does without.
const LONGEST_TOKEN: usize = 1000;

/// Longest reason that is passed on, in characters.
const LONGEST_REASON: usize = 300;

/// What constraints need to know of a vocabulary.
pub(crate) struct Grammars {
    factory: ParserFactory,
    stop_ids: Vec<u32>,
    line_breaks: Vec<u32>,
}

impl Grammars {
    /// Makes the trie of a vocabulary.
    ///
    /// # Errors
    /// The library cannot hold it.
    pub(crate) fn new(tokenizer: &Tokenizer, stop_ids: &[u32]) -> Result<Grammars, String> {
        let count = u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX);
        let words: Vec<Vec<u8>> = (0..count).map(|id| word(tokenizer, id)).collect();
        let breaks = |id: &u32| words.get(*id as usize).is_some_and(|w| !w.is_empty() && w.iter().all(|&b| b == b'\n'));
        let line_breaks = (0..count).filter(breaks).collect();
        let factory = factory(&words, stop_ids)?;
        Ok(Grammars { factory, stop_ids: stop_ids.to_vec(), line_breaks })
    }

    /// Follows a text from its beginning.
    ///
    /// # Errors
    /// The schema or grammar cannot be followed; the reason is the library's.
    pub(crate) fn follow(&self, constraint: &Constraint) -> Result<Follower> {
        let matcher = compile(&self.factory, constraint).map_err(|why| Error::BadConstraint(reason(&why)))?;
        let (stop_ids, line_breaks) = (self.stop_ids.clone(), self.line_breaks.clone());
        Ok(Follower { matcher, stop_ids, line_breaks, behind_thinking: false })
    }
}

/// A token as the trie has it: special ones apart from text that looks the same.
fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let bytes = tokenizer.token_bytes(id).unwrap_or_default();
    match tokenizer.kind(id) {
        _ if bytes.is_empty() || bytes.len() > LONGEST_TOKEN => Vec::new(),
        Some(TokenKind::Control | TokenKind::Visible) => [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat(),
        Some(TokenKind::Normal) => bytes.to_vec(),
        Some(TokenKind::Unused) | None => Vec::new(),
    }
}

/// A message of the library as one short line.
fn reason(message: &str) -> String {
    // What follows are dumps of its state.
    let message = ["<backtrace>", "<state>", "<non-verbose/>"]
        .iter()
        .fold(message, |message, dump| message.split_once(dump).map_or(message, |(before, _)| before));
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST_REASON) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

/// Where an answer is in its grammar.
pub(crate) struct Follower {
    matcher: Matcher,
    stop_ids: Vec<u32>,
    line_breaks: Vec<u32>,
    /// The next token is the first behind thinking, where templates put a blank line.
    behind_thinking: bool,
}

impl Follower {
    /// Thinking has ended just now.
    pub(crate) fn begin_behind_thinking(&mut self) {
        self.behind_thinking = true;
    }

    /// The tokens that can come next.
    ///
    /// # Errors
    /// There is none, or the grammar is too complex to be followed any further.
    pub(crate) fn allowed(&mut self) -> Result<Allowed> {
        let mut tokens = self.matcher.compute_mask().map_err(|e| Error::Constraint(reason(&e.to_string())))?;
        if self.behind_thinking {
            self.line_breaks.iter().for_each(|&id| tokens.allow_token(id));
        }
        Ok(Allowed::These(tokens))
    }

    /// Any token but those that end the answer.
    pub(crate) fn not_yet(&self) -> Allowed {
        Allowed::AllBut(self.stop_ids.clone())
    }

    /// Goes on by a token that can come next and does not end the answer. Tells whether the text is over then.
    ///
    /// # Errors
    /// The grammar is too complex to be followed any further.
    pub(crate) fn advance(&mut self, token: u32) -> Result<bool> {
        if std::mem::take(&mut self.behind_thinking) && self.line_breaks.contains(&token) {
            return Ok(false);
        }
        self.matcher.consume_token(token).map_err(|e| Error::Constraint(reason(&e.to_string())))?;
        Ok(self.matcher.is_stopped())
    }
}

/// Tokens that can come next.
pub(crate) enum Allowed {
    /// These.
    These(SimpleVob),
    /// All but these few.
    AllBut(Vec<u32>),
}

impl Allowed {
    /// The logits of the allowed tokens; those of all others are -infinity, which is never drawn.
    ///
    /// # Errors
    /// The model can say none of them.
    pub(crate) fn of(&self, logits: &[f32]) -> Result<Vec<f32>> {
        let kept = match self {
            Allowed::These(tokens) => {
                let mut kept = vec![f32::NEG_INFINITY; logits.len()];
                tokens.iter_set_entries(|id| {
                    if let (Some(to), Some(&from)) = (kept.get_mut(id), logits.get(id)) {
                        *to = from;
                    }
                });
                kept
            }
            Allowed::AllBut(tokens) => {
                let mut kept = logits.to_vec();
                for &id in tokens {
                    if let Some(logit) = kept.get_mut(id as usize) {
                        *logit = f32::NEG_INFINITY;
                    }
                }
                kept
            }
        };
        if kept.iter().any(|&l| l > f32::NEG_INFINITY) {
            return Ok(kept);
        }
        Err(Error::Constraint("no token of the vocabulary can come next".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::path::Path;
    use std::time::Instant;
    use strata_gguf::{ArrayValue, Gguf, Value as Meta, Writer};

    fn nano() -> Gguf {
        Gguf::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/model/nano-IQ3_S.gguf")).unwrap()
    }

    fn schema() -> Constraint {
        Constraint::Json(json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}))
    }

    #[test]
    fn a_text_is_followed_to_its_end() {
        let tokenizer = Tokenizer::from_metadata(nano().meta()).unwrap();
        let stop = tokenizer.stop_ids();
        let mut follower = Grammars::new(&tokenizer, &stop).unwrap().follow(&schema()).unwrap();
        let allows = |follower: &mut Follower, id: u32| match follower.allowed().unwrap() {
            Allowed::These(tokens) => tokens.is_allowed(id),
            Allowed::AllBut(_) => unreachable!(),
        };
        for byte in *b"{\"a\":\"x\"}" {
            let id = tokenizer.encode([byte], strata_gguf::Special::Plain)[0];
            assert!(allows(&mut follower, id) && !allows(&mut follower, stop[0]), "{}", char::from(byte));
            assert_eq!(follower.advance(id).unwrap(), byte == b'}', "{}", char::from(byte));
        }
    }

    #[test]
    fn reasons_are_short_lines() {
        assert_eq!(reason("no such\n  thing\n<state>\nTokens: 5"), "no such thing");
        assert_eq!(reason(&"ü".repeat(400)).chars().count(), LONGEST_REASON + 3);
    }

    /// As many tokens as the published model has: nano's, and words of letters.
    #[test]
    #[ignore = "prints how long a large vocabulary takes"]
    fn a_large_vocabulary() {
        let nano = nano();
        let mut tokens = nano.meta().strings("tokenizer.ggml.tokens").unwrap().to_vec();
        for n in tokens.len()..248_320 {
            let letters = (0..3 + n % 9).map(|i| char::from(b'a' + ((n >> (2 * i)) as u8).wrapping_mul(7) % 26));
            tokens.push(format!("{}{n}", letters.collect::<String>()));
        }
        let mut types = nano.meta().opt_i32s("tokenizer.ggml.token_type").unwrap().unwrap().to_vec();
        types.resize(tokens.len(), 1);
        let mut writer = Writer::new();
        let ours = ["tokenizer.ggml.tokens", "tokenizer.ggml.token_type"];
        for (key, value) in nano.meta().iter().filter(|(key, _)| !ours.contains(key)) {
            writer.meta(key, value.clone()).unwrap();
        }
        writer.meta(ours[0], Meta::Array(ArrayValue::String(tokens))).unwrap();
        writer.meta(ours[1], Meta::Array(ArrayValue::I32(types))).unwrap();
        let large = Gguf::from_bytes("large", writer.to_bytes().unwrap()).unwrap();
        for (name, gguf) in [("nano", &nano), ("large", &large)] {
            let tokenizer = Tokenizer::from_metadata(gguf.meta()).unwrap();
            let (before, start) = (resident(), Instant::now());
            let grammars = Grammars::new(&tokenizer, &tokenizer.stop_ids()).unwrap();
            let (built, held) = (start.elapsed(), resident() - before);
            let start = Instant::now();
            let mut follower = grammars.follow(&schema()).unwrap();
            let followed = start.elapsed();
            let start = Instant::now();
            follower.allowed().unwrap();
            println!(
                "{name}: {} tokens, trie {built:?} and {held} KiB, schema {followed:?}, first mask {:?}",
                tokenizer.vocab_size(),
                start.elapsed()
            );
        }
    }

    /// Memory of this process in KiB.
    fn resident() -> i64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0)
    }
}
