//! Text from tokens as they arrive.

use super::ControlText;
use super::vocab::Vocab;
use std::sync::Arc;

/// Turns tokens into text one at a time. A character whose bytes are spread over several tokens appears when it is
/// complete; bytes that cannot become a character appear as U+FFFD, one for each maximal invalid sequence.
///
/// All pieces together, with [`finish`](StreamDecoder::finish), are what [`String::from_utf8_lossy`] makes of the
/// tokens' bytes.
#[derive(Clone)]
pub struct StreamDecoder {
    vocab: Arc<Vocab>,
    control: ControlText,
    /// Bytes not yet shown: after a push, the beginning of a character, so at most three.
    held: Vec<u8>,
}

impl StreamDecoder {
    pub(super) fn new(vocab: Arc<Vocab>, control: ControlText) -> Self {
        StreamDecoder { vocab, control, held: Vec::new() }
    }

    /// Takes a token and returns the text that is certain now, often the token's own, sometimes nothing.
    pub fn push(&mut self, id: u32) -> String {
        self.held.extend_from_slice(self.vocab.shown(id, self.control));
        let mut text = String::new();
        let mut rest = self.held.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    rest = &[];
                    break;
                }
                Err(e) => {
                    let (valid, bad) = rest.split_at(e.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    rest = bad;
                    let Some(len) = e.error_len() else {
                        break;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &rest[len..];
                }
            }
        }
        let shown = self.held.len() - rest.len();
        self.held.drain(..shown);
        text
    }

    /// Ends the text: the beginning of a character that never came is one U+FFFD. The decoder can then be used for
    /// another text.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held.clear();
        text
    }
}

impl std::fmt::Debug for StreamDecoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamDecoder").field("control", &self.control).field("held", &self.held).finish()
    }
}
