//! An answer's tokens as text: thinking apart from what is said.

use crate::engine::Engine;
use crate::guide::{Guide, Part};
use crate::logprobs::TokenLogprob;
use crate::params::GenerateParams;
use crate::session::{Answer, Event, Finish, Timings};
use crate::speculation::Speculation;
use crate::stops::Stops;
use strata_gguf::{ControlText, StreamDecoder, TokenKind, Tokenizer};
use strata_model::Ops;

/// Collects an answer and tells thinking from text.
pub(crate) struct Writer<'e> {
    tokenizer: &'e Tokenizer,
    decoder: StreamDecoder,
    /// Shows thinking and what opens and closes it as text too.
    all: bool,
    /// The token that closes thinking.
    close: Option<u32>,
    thinking_now: bool,
    /// Between the end of thinking and the first visible character, blank lines are the template's, not the answer's.
    skip_blank: bool,
    thinking: String,
    stops: Stops,
    stop_text: Option<String>,
    tokens: Vec<u32>,
}

impl<'e> Writer<'e> {
    pub(crate) fn new<O: Ops>(engine: &'e Engine<O>, params: &GenerateParams, guide: &Guide) -> Writer<'e> {
        let control = if params.show_control { ControlText::Show } else { ControlText::Hide };
        Writer {
            tokenizer: engine.tokenizer(),
            decoder: engine.tokenizer().stream_decoder(control),
            all: params.show_control,
            close: engine.think_ids().map(|(_, close)| close),
            thinking_now: guide.thinking() && !params.show_control,
            skip_blank: false,
            thinking: String::new(),
            stops: Stops::new(params.stop.clone()),
            stop_text: None,
            tokens: Vec::new(),
        }
    }

    /// The answer's tokens so far.
    pub(crate) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Whether a stop text has ended the answer.
    pub(crate) fn stopped(&self) -> bool {
        self.stop_text.is_some()
    }

    /// Takes the token that ends the answer, which is not shown.
    pub(crate) fn end(&mut self, token: u32) {
        self.tokens.push(token);
    }

    /// Takes a token.
    pub(crate) fn push(
        &mut self,
        token: u32,
        part: Part,
        logprob: Option<TokenLogprob>,
        on_event: &mut dyn FnMut(Event<'_>),
    ) {
        self.tokens.push(token);
        match part {
            Part::Opens | Part::Closes if !self.all => {
                self.flush(on_event);
                self.thinking_now = part == Part::Opens;
                self.skip_blank = part == Part::Closes;
                return;
            }
            Part::SaidAtOnce if !self.all => {
                self.flush(on_event);
                self.thinking_now = false;
            }
            // A model whose thinking was cut short by its budget may close it once more.
            _ if !self.all && !self.thinking_now && self.close == Some(token) => {
                self.flush(on_event);
                self.skip_blank = true;
                return;
            }
            _ => {}
        }
        let mark = !self.thinking_now && self.tokenizer.kind(token) == Some(TokenKind::Visible);
        if mark {
            let rest = self.decoder.finish();
            self.show(&rest, false, None, on_event);
        }
        let piece = self.decoder.push(token);
        self.show(&piece, mark, logprob, on_event);
    }

    fn flush(&mut self, on_event: &mut dyn FnMut(Event<'_>)) {
        let rest = self.decoder.finish();
        self.show(&rest, false, None, on_event);
        self.stops.flush(on_event);
    }

    fn show(&mut self, piece: &str, mark: bool, logprob: Option<TokenLogprob>, on_event: &mut dyn FnMut(Event<'_>)) {
        if self.stopped() {
            return;
        }
        if self.thinking_now {
            if !piece.is_empty() {
                self.thinking.push_str(piece);
                on_event(Event::Thinking(piece));
            }
            return;
        }
        let kept = if self.skip_blank { piece.trim_start_matches('\n') } else { piece };
        if kept.is_empty() && !piece.is_empty() {
            return;
        }
        self.skip_blank &= kept.is_empty();
        if let Some(logprob) = logprob {
            self.stops.logprob(logprob);
        }
        self.stop_text = self.stops.push(kept, mark, on_event);
    }

    pub(crate) fn finish(
        mut self,
        finish: Finish,
        timings: Timings,
        guide: &Guide,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Answer {
        if !self.stopped() {
            self.flush(on_event);
        }
        Answer {
            text: self.stops.into_shown(),
            thinking: self.thinking.trim().to_owned(),
            tokens: self.tokens,
            finish,
            timings,
            speculation: Speculation::default(),
            stop_text: self.stop_text,
            thinking_tokens: guide.thinking_tokens(),
        }
    }
}
