//! The tokens of a file: their bytes and kinds.

use super::ControlText;
use super::bpe::Merges;
use super::special::SpecialLiterals;
use crate::error::{Result, show_text};
use crate::value::{Metadata, Value};
use std::collections::HashMap;

const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";
const SCORES: &str = "tokenizer.ggml.scores";

/// What a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// A piece of text.
    Normal,
    /// Structure that readers do not see, such as `<|im_end|>`.
    Control,
    /// An added token that belongs to the shown text, such as `<think>` or `<tool_call>`.
    Visible,
    /// A row of the embedding that stands for nothing.
    Unused,
}

/// Bytes and kind of each token.
pub(super) struct Vocab {
    /// All tokens' bytes, one after the other.
    bytes: Vec<u8>,
    /// Where each token's bytes begin, and the end of the last.
    starts: Vec<u32>,
    kinds: Vec<TokenKind>,
    longest: usize,
}

impl Vocab {
    /// Reads tokens and their types.
    pub(super) fn from_metadata(meta: &Metadata) -> Result<Self> {
        let tokens = meta.strings(TOKENS)?;
        let Some(types) = meta.opt_i32s(TYPES)? else {
            return Err(meta.invalid(format!("key {TYPES} is missing")));
        };
        if u32::try_from(tokens.len()).is_err() {
            return Err(meta.invalid(format!("key {TOKENS} has {} elements, more than ids can name", tokens.len())));
        }
        if types.len() != tokens.len() {
            let (found, expected) = (types.len(), tokens.len());
            return Err(meta.invalid(format!("key {TYPES} has {found} elements, expected {expected} as {TOKENS} has")));
        }
        if let Some(scores) = meta.get(SCORES) {
            let ok = matches!(scores, Value::Array(a) if a.len() == tokens.len() && a.element_name() == "f32");
            if !ok {
                let found = match scores {
                    Value::Array(a) => format!("{} elements of {}", a.len(), a.element_name()),
                    other => other.type_name(),
                };
                return Err(meta.invalid(format!("key {SCORES} has {found}, expected {} of f32", tokens.len())));
            }
        }
        let byte_of = byte_of_char();
        let mut vocab =
            Vocab { bytes: Vec::new(), starts: vec![0], kinds: Vec::with_capacity(tokens.len()), longest: 0 };
        for (id, (token, &kind)) in tokens.iter().zip(types).enumerate() {
            // The numbers are ggml's llama_token_type: normal, unknown, control, user-defined, unused, byte.
            let kind = match kind {
                1 | 6 => TokenKind::Normal,
                2 | 3 => TokenKind::Control,
                4 => TokenKind::Visible,
                5 => TokenKind::Unused,
                _ => return Err(meta.invalid(format!("key {TYPES}[{id}] is {kind}, expected 1 to 6"))),
            };
            let before = vocab.bytes.len();
            match kind {
                TokenKind::Unused => {}
                TokenKind::Control | TokenKind::Visible => vocab.bytes.extend_from_slice(token.as_bytes()),
                TokenKind::Normal => {
                    // A token with a character that stands for no byte is taken literally, all of it.
                    let whole = token.chars().all(|c| match byte_of.get(c as usize) {
                        Some(&Some(b)) => {
                            vocab.bytes.push(b);
                            true
                        }
                        _ => false,
                    });
                    if !whole {
                        vocab.bytes.truncate(before);
                        vocab.bytes.extend_from_slice(token.as_bytes());
                    }
                }
            }
            vocab.kinds.push(kind);
            vocab.longest = vocab.longest.max(vocab.bytes.len() - before);
            match u32::try_from(vocab.bytes.len()) {
                Ok(end) => vocab.starts.push(end),
                Err(_) => return Err(meta.invalid(format!("key {TOKENS} holds more than 4 GiB of text"))),
            }
        }
        Ok(vocab)
    }

    pub(super) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Bytes of the longest token.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    pub(super) fn kind(&self, id: u32) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    pub(super) fn bytes(&self, id: u32) -> Option<&[u8]> {
        let start = *self.starts.get(id as usize)?;
        let end = *self.starts.get(id as usize + 1)?;
        self.bytes.get(start as usize..end as usize)
    }

    /// The bytes of a token in shown text; ids without a token add nothing.
    pub(super) fn shown(&self, id: u32, control: ControlText) -> &[u8] {
        match self.kind(id) {
            Some(TokenKind::Control) if control == ControlText::Hide => &[],
            _ => self.bytes(id).unwrap_or_default(),
        }
    }

    /// The literals of added tokens, control and visible.
    pub(super) fn literals(&self, meta: &Metadata, warnings: &mut Vec<String>) -> Result<SpecialLiterals> {
        let added = (0..self.kinds.len() as u32)
            .filter(|&id| matches!(self.kind(id), Some(TokenKind::Control | TokenKind::Visible)));
        let pairs: Vec<(&str, u32)> =
            added.filter_map(|id| Some((std::str::from_utf8(self.bytes(id)?).ok()?, id))).collect();
        let literals =
            SpecialLiterals::new(pairs.iter().copied()).map_err(|e| meta.invalid(format!("key {TOKENS}: {e}")))?;
        let again = pairs.iter().filter_map(|&(literal, id)| Some((literal, literals.id_of(literal)?, id)));
        warnings.extend(repeated(meta, again.filter(|(_, first, id)| first != id)));
        Ok(literals)
    }

    /// The merge table: each merge names two tokens and their concatenation is a third.
    pub(super) fn merges(&self, meta: &Metadata, warnings: &mut Vec<String>) -> Result<Merges> {
        let tokens = meta.strings(TOKENS)?;
        let lines = meta.strings(MERGES)?;
        // Added tokens stay out: ordinary text must never merge into one.
        let mut ids: HashMap<&str, u32> = HashMap::with_capacity(tokens.len());
        let mut again = Vec::new();
        for ((token, id), kind) in tokens.iter().zip(0u32..).zip(&self.kinds) {
            if *kind == TokenKind::Normal {
                let first = *ids.entry(token).or_insert(id);
                if first != id {
                    again.push((token.as_str(), first, id));
                }
            }
        }
        warnings.extend(repeated(meta, again.into_iter()));
        let mut bytes = [0; 256];
        let mut text = [0; 4];
        for (byte, c) in char_of_byte().into_iter().enumerate() {
            match ids.get(&*c.encode_utf8(&mut text)) {
                Some(&id) => bytes[byte] = id,
                None => {
                    return Err(meta.invalid(format!(
                        "key {TOKENS} lacks the token \"{}\" of the byte 0x{byte:02X}; byte-level text needs all 256",
                        show_text(&c.to_string())
                    )));
                }
            }
        }
        let mut merges = Merges::new(bytes, lines.len());
        let mut joined = String::new();
        for (line, rank) in lines.iter().zip(0u32..) {
            let Some((left, right)) = line.split_once(' ') else {
                let line = show_text(line);
                return Err(
                    meta.invalid(format!("key {MERGES}[{rank}] is \"{line}\", expected two tokens and a space"))
                );
            };
            joined.clear();
            joined.push_str(left);
            joined.push_str(right);
            let find = |token: &str| {
                ids.get(token).copied().ok_or_else(|| {
                    let (line, token) = (show_text(line), show_text(token));
                    meta.invalid(format!(
                        "key {MERGES}[{rank}] is \"{line}\", but \"{token}\" is no normal token of {TOKENS}"
                    ))
                })
            };
            merges.add(find(left)?, find(right)?, rank, find(&joined)?);
        }
        Ok(merges)
    }
}

/// One warning about tokens that occur more than once, each with its first and its later id.
fn repeated<'a>(meta: &Metadata, mut tokens: impl Iterator<Item = (&'a str, u32, u32)>) -> Option<String> {
    let (token, first, again) = tokens.next()?;
    let more = match tokens.count() {
        0 => String::new(),
        n => format!(", and {n} more like it"),
    };
    let (file, token) = (meta.file(), show_text(token));
    Some(format!(
        "{file}: key {TOKENS} has \"{token}\" as {first} and as {again}{more}; text is encoded with the first id"
    ))
}

/// The printable character standing for each byte in GPT-2 vocabularies: printable Latin-1 stands for itself, the
/// other bytes, in order, for the characters from U+0100 on.
fn char_of_byte() -> [char; 256] {
    let mut chars = ['\0'; 256];
    let mut next = 0x100u32;
    for b in 0..=255u8 {
        let printable = matches!(b, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
        chars[usize::from(b)] = if printable {
            char::from(b)
        } else {
            next += 1;
            char::from_u32(next - 1).unwrap_or_default()
        };
    }
    chars
}

/// The inverse of [`char_of_byte`], by code point.
fn byte_of_char() -> Vec<Option<u8>> {
    let mut bytes = vec![None; 0x180];
    for (b, c) in (0..=255u8).zip(char_of_byte()) {
        if let Some(slot) = bytes.get_mut(c as usize) {
            *slot = Some(b);
        }
    }
    bytes
}
