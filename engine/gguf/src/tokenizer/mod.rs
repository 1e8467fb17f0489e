//! Byte-level BPE as GGUF files carry it: text into token ids and back.
//!
//! Text is split into pieces by a published pattern, and in each piece the pair of neighbours earliest in the merge
//! list is joined until no listed pair is left. Text is taken as it is: there is no Unicode normalisation.

mod bpe;
mod special;
mod split;
mod stream;
mod vocab;

pub use special::{Prompt, SpecialLiterals};
pub use stream::StreamDecoder;
pub use vocab::TokenKind;

use crate::error::{Result, show_text};
use crate::value::Metadata;
use bpe::{Merges, Scratch};
use split::Splitter;
use std::sync::Arc;
use vocab::Vocab;

/// What special-token literals in a text mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// `<|im_end|>` in the text is that token: for text from a template, or from a user who asked for no template.
    Parse,
    /// `<|im_end|>` in the text is ten ordinary characters.
    Plain,
}

/// What control tokens are in decoded text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlText {
    /// Nothing: for readers.
    Hide,
    /// Their literal text: for inspection and round trips.
    Show,
}

/// The tokenizer of a GGUF file.
pub struct Tokenizer {
    vocab: Arc<Vocab>,
    merges: Merges,
    splitter: Splitter,
    literals: SpecialLiterals,
    eos: Option<u32>,
    bos: Option<u32>,
    padding: Option<u32>,
    add_bos: bool,
    warnings: Vec<String>,
}

impl Tokenizer {
    /// Reads `tokenizer.ggml.*`.
    ///
    /// # Errors
    ///
    /// When a key is missing or of another type, when the arrays do not belong together, or when the file names a
    /// tokenizer model or a split that is not supported. A file that names no split is usable; see
    /// [`warnings`](Tokenizer::warnings).
    pub fn from_metadata(meta: &Metadata) -> Result<Self> {
        let model = meta.str("tokenizer.ggml.model")?;
        if model != "gpt2" {
            let model = show_text(model);
            return Err(meta.invalid(format!("key tokenizer.ggml.model is \"{model}\", expected gpt2")));
        }
        let mut warnings = Vec::new();
        let (splitter, assumed) = Splitter::from_metadata(meta)?;
        warnings.extend(assumed);
        let vocab = Vocab::from_metadata(meta)?;
        let merges = vocab.merges(meta, &mut warnings)?;
        let literals = vocab.literals(meta, &mut warnings)?;
        let id = |key: &str| match meta.opt_u64(key)? {
            None => Ok(None),
            Some(id) => match u32::try_from(id).ok().filter(|&id| (id as usize) < vocab.len()) {
                Some(id) => Ok(Some(id)),
                None => Err(meta.invalid(format!("key {key} is {id}, expected less than {} tokens", vocab.len()))),
            },
        };
        Ok(Tokenizer {
            eos: id("tokenizer.ggml.eos_token_id")?,
            bos: id("tokenizer.ggml.bos_token_id")?,
            padding: id("tokenizer.ggml.padding_token_id")?,
            add_bos: meta.opt_bool("tokenizer.ggml.add_bos_token")?.unwrap_or(false),
            vocab: Arc::new(vocab),
            merges,
            splitter,
            literals,
            warnings,
        })
    }

    /// What was assumed or passed over while reading the file, a sentence each, to be shown once.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The ids of a text. Bytes that are not valid UTF-8 are encoded too; [`decode`](Tokenizer::decode) with
    /// [`ControlText::Show`] gives back exactly the bytes. No token is put before the text; see
    /// [`bos_to_add`](Tokenizer::bos_to_add).
    pub fn encode(&self, text: impl AsRef<[u8]>, special: Special) -> Vec<u32> {
        let text = text.as_ref();
        let mut out = Vec::with_capacity(text.len() / 3);
        let mut scratch = Scratch::default();
        match special {
            Special::Plain => self.encode_plain(text, &mut scratch, &mut out),
            Special::Parse => self.parse(text, None, &mut out, |bytes, out| {
                self.encode_plain(bytes, &mut scratch, out);
            }),
        }
        out
    }

    /// The ids of a rendered prompt: literals from the template are their tokens, literals from users are text, split
    /// and merged like any other.
    pub fn encode_prompt(&self, prompt: &Prompt) -> Vec<u32> {
        let (text, marker) = prompt.parts();
        let mut out = Vec::with_capacity(text.len() / 3);
        let mut scratch = Scratch::default();
        self.parse(text.as_bytes(), marker, &mut out, |bytes, out| {
            // The bytes between literals of valid text are valid text.
            let clean = std::str::from_utf8(bytes).map(|text| special::unmark(text, marker));
            let clean = clean.as_ref().map_or(bytes, |text| text.as_bytes());
            self.encode_plain(clean, &mut scratch, out);
        });
        out
    }

    /// Cuts text at special literals, the leftmost first and the longest of those; `plain` encodes what is between.
    fn parse(
        &self,
        text: &[u8],
        marker: Option<char>,
        out: &mut Vec<u32>,
        mut plain: impl FnMut(&[u8], &mut Vec<u32>),
    ) {
        let mut utf8 = [0; 4];
        let marker: Option<&[u8]> = marker.map(|m| m.encode_utf8(&mut utf8).as_bytes());
        let (mut done, mut from) = (0, 0);
        while let Some((at, id)) = self.literals.next(text, from) {
            from = at.end;
            if marker.is_some_and(|m| text[at.end..].starts_with(m)) && is_one_char(&text[at.clone()]) {
                continue;
            }
            plain(&text[done..at.start], out);
            out.push(id);
            done = at.end;
        }
        plain(&text[done..], out);
    }

    fn encode_plain(&self, text: &[u8], scratch: &mut Scratch, out: &mut Vec<u32>) {
        self.pieces(text).for_each(|piece| self.merges.encode(piece, scratch, out));
    }

    /// The pieces of a text that are merged separately. Together they are the text.
    pub fn pieces<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        self.splitter.pieces(text)
    }

    /// The bytes of a sequence of tokens. Ids without a token add nothing.
    pub fn decode(&self, ids: &[u32], control: ControlText) -> Vec<u8> {
        ids.iter().flat_map(|&id| self.vocab.shown(id, control)).copied().collect()
    }

    /// A decoder for tokens that arrive one at a time. It shares the vocabulary and may outlive the tokenizer.
    pub fn stream_decoder(&self, control: ControlText) -> StreamDecoder {
        StreamDecoder::new(Arc::clone(&self.vocab), control)
    }

    /// The bytes of one token: for added tokens their literal, for unused ones nothing.
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.vocab.bytes(id)
    }

    /// Bytes of the longest token: a text has at least as many tokens as these go into it.
    pub fn longest_token(&self) -> usize {
        self.vocab.longest()
    }

    /// What a token is for.
    pub fn kind(&self, id: u32) -> Option<TokenKind> {
        self.vocab.kind(id)
    }

    /// Whether a token is a control token, hidden from shown text. `<think>` and `<tool_call>` are not.
    pub fn is_special(&self, id: u32) -> bool {
        self.kind(id) == Some(TokenKind::Control)
    }

    /// The id of an added token by its literal, such as `<think>`. Ordinary tokens have no literal.
    pub fn id_of(&self, literal: &str) -> Option<u32> {
        self.literals.id_of(literal)
    }

    /// The literals of the added tokens, for rendering templates.
    pub fn literals(&self) -> &SpecialLiterals {
        &self.literals
    }

    /// The tokens that end an answer: the file's end-of-sequence token, `<|im_end|>` and `<|endoftext|>`, as far as
    /// the vocabulary has them.
    pub fn stop_ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.eos.into_iter().collect();
        for literal in ["<|im_end|>", "<|endoftext|>"] {
            ids.extend(self.id_of(literal).filter(|id| !ids.contains(id)));
        }
        ids
    }

    /// The end-of-sequence token the file names.
    pub fn eos_id(&self) -> Option<u32> {
        self.eos
    }

    /// The begin-of-sequence token the file names.
    pub fn bos_id(&self) -> Option<u32> {
        self.bos
    }

    /// The padding token the file names.
    pub fn padding_id(&self) -> Option<u32> {
        self.padding
    }

    /// The token to put before raw text, if the file asks for one. Chat templates write their own.
    pub fn bos_to_add(&self) -> Option<u32> {
        self.bos.filter(|_| self.add_bos)
    }

    /// Number of ids with a token, padding rows included.
    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("vocab_size", &self.vocab_size()).field("eos", &self.eos).finish()
    }
}

fn is_one_char(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| text.chars().count() == 1)
}
