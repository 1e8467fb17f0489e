//! Pre-tokenisation: text into pieces that merge separately.

use crate::error::Result;
use crate::value::Metadata;
use regex::bytes::Regex;

/// The metadata key naming the split.
const PRE: &str = "tokenizer.ggml.pre";

/// Known splits. Each pattern is the published one without its two last alternatives `\s+(?!\S)|\s+`, for which
/// [`Splitter::piece_end`] stands in: the regex crate has no lookahead, and so is linear in the text.
const KNOWN: [(&str, &str); 2] = [
    (
        "qwen35",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+",
    ),
    ("qwen2", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"),
];

/// Splits text as the pattern a file names does.
pub(super) struct Splitter {
    pattern: Regex,
}

impl Splitter {
    /// The split named by the file, with a warning to show when it had to be assumed.
    pub(super) fn from_metadata(meta: &Metadata) -> Result<(Self, Option<String>)> {
        let known = || KNOWN.map(|(name, _)| name).join(", ");
        let (name, warning) = match meta.opt_str(PRE)? {
            Some(name) if name != "default" => (name, None),
            found => {
                let what = if found.is_some() { "is \"default\"" } else { "is missing" };
                let text = format!(
                    "{}: key {PRE} {what}, so how text is split is assumed to be {}; token ids may differ from the \
                     model's own",
                    meta.file(),
                    KNOWN[0].0
                );
                (KNOWN[0].0, Some(text))
            }
        };
        let Some((_, pattern)) = KNOWN.iter().find(|(known, _)| *known == name) else {
            let name = crate::error::show_text(name);
            return Err(meta.invalid(format!("key {PRE} is \"{name}\", expected one of {}", known())));
        };
        // Anchored and applied to what is left of the text: no alternative looks behind, and an anchored search
        // need not find out where a match starts.
        match Regex::new(&format!(r"\A(?:{pattern}|\s+)")) {
            Ok(pattern) => Ok((Splitter { pattern }, warning)),
            Err(e) => Err(meta.invalid(format!("the split {name} cannot be compiled: {e}"))),
        }
    }

    /// The pieces of a text, in order; together they are the text. A byte that is not part of valid UTF-8 is a piece
    /// of its own.
    pub(super) fn pieces<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = text;
        std::iter::from_fn(move || {
            let end = self.piece_end(rest)?;
            let (piece, after) = rest.split_at(end);
            rest = after;
            Some(piece)
        })
    }

    /// The length in bytes of the first piece.
    ///
    /// A run of white space without line ends that something follows gives its last character to what follows,
    /// unless it has only one: this is `\s+(?!\S)|\s+`, where the first alternative backs off by one character.
    /// Such a run is the only match ending in white space other than a line end.
    fn piece_end(&self, rest: &[u8]) -> Option<usize> {
        if rest.is_empty() {
            return None;
        }
        if let Some(end) = plain_ascii(rest) {
            return Some(end);
        }
        let Some(found) = self.pattern.find(rest) else {
            return Some(1);
        };
        let end = found.end();
        if end == rest.len() {
            return Some(end);
        }
        let last = last_char(found.as_bytes());
        let backs_off = last.is_some_and(|c| c.is_whitespace() && c != '\r' && c != '\n');
        Some(match last {
            Some(c) if backs_off && c.len_utf8() < end => end - c.len_utf8(),
            _ => end,
        })
    }
}

/// The length of a first piece that needs no pattern: an ASCII digit, or a word of ASCII letters, perhaps behind a
/// space, that ends at the text's end or before another ASCII character. Every known split agrees on these.
fn plain_ascii(rest: &[u8]) -> Option<usize> {
    let first = *rest.first()?;
    if first.is_ascii_digit() {
        return Some(1);
    }
    let start = usize::from(first == b' ');
    let letters = rest[start..].iter().take_while(|b| b.is_ascii_alphabetic()).count();
    let end = start + letters;
    (letters > 0 && rest.get(end).is_none_or(u8::is_ascii)).then_some(end)
}

fn last_char(bytes: &[u8]) -> Option<char> {
    let start = bytes.iter().rposition(|b| b & 0xC0 != 0x80)?;
    std::str::from_utf8(&bytes[start..]).ok()?.chars().next()
}
