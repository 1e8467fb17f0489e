//! One sequence on an engine: reading prompts and writing answers.

use crate::checkpoints::{CheckpointParams, Checkpoints, Prompt};
use crate::decode::Answering;
use crate::engine::Engine;
use crate::error::Result;
use crate::recorder::Recorder;
use crate::sampler::SamplingParams;
use crate::speculation::{OwnDrafts, Speculation, SpeculationParams, Speculator};
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use strata_gguf::{ControlText, StreamDecoder};
use strata_model::{Ops, State};

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model ended it.
    Stop,
    /// The limit of tokens was reached.
    Length,
    /// The context is full.
    Context,
    /// It was cancelled.
    Cancelled,
    /// A text of [`GenerateParams::stop`] came.
    StopText,
}

/// What an answer must be. It holds for the answer, not for the thinking before it.
#[derive(Debug, Clone, PartialEq)]
pub enum Constraint {
    /// A JSON text that this schema allows.
    Json(serde_json::Value),
    /// A text of this grammar, in llguidance's Lark dialect.
    Lark(String),
}

/// How likely a token of an answer was.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprob {
    /// The token.
    pub id: u32,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// The likeliest tokens in its place, the best first: token, bytes, logarithm.
    pub top: Vec<(u32, Vec<u8>, f32)>,
}

/// What an answer depends on besides the prompt.
#[derive(Debug, Clone, Default)]
pub struct GenerateParams {
    /// How tokens are chosen.
    pub sampling: SamplingParams,
    /// Tokens of the answer at most; 0 is no limit but the context.
    pub max_tokens: usize,
    /// Goes on past the tokens that end an answer.
    pub ignore_stop: bool,
    /// Shows control tokens as text.
    pub show_control: bool,
    /// Texts that end the answer and are no part of it.
    pub stop: Vec<String>,
    /// What the answer must be.
    pub constraint: Option<Constraint>,
    /// Tokens of thinking at most; then it is closed.
    pub think_budget: Option<usize>,
    /// Tells how likely each token of the answer was, and so many of the likeliest ones.
    pub logprobs: Option<usize>,
}

/// What happens on the way to an answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event<'a> {
    /// So many tokens of the prompt are read.
    Prompt {
        /// Tokens read by now, those that needed no reading included.
        read: usize,
        /// Tokens in all.
        of: usize,
    },
    /// A piece of the model's thinking.
    Thinking(&'a str),
    /// A piece of the answer.
    Text(&'a str),
    /// A token of the chat format in the answer, which ordinary text cannot make.
    Mark(&'a str),
    /// How likely the token was whose text comes next.
    Logprob(&'a TokenLogprob),
}

/// How long an answer took.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Timings {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Those of them that the session had read before.
    pub cached_tokens: usize,
    /// Seconds spent reading the rest.
    pub prompt_seconds: f64,
    /// Tokens of the answer, the one that ended it included.
    pub output_tokens: usize,
    /// Seconds from the end of the prompt to the end of the answer.
    pub output_seconds: f64,
}

impl Timings {
    /// Prompt tokens read per second; 0 when none were.
    pub fn prompt_rate(&self) -> f64 {
        rate(self.prompt_tokens - self.cached_tokens, self.prompt_seconds)
    }

    /// Answer tokens per second, the first not counted: it comes with the prompt. 0 when there was no other.
    pub fn output_rate(&self) -> f64 {
        rate(self.output_tokens.saturating_sub(1), self.output_seconds)
    }
}

fn rate(tokens: usize, seconds: f64) -> f64 {
    if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 }
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The text, without thinking.
    pub text: String,
    /// What the model thought, if it did.
    pub thinking: String,
    /// The tokens, the one that ended the answer included.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub finish: Finish,
    /// How long it took.
    pub timings: Timings,
    /// What became of its drafts.
    pub speculation: Speculation,
    /// The text of [`GenerateParams::stop`] that ended it.
    pub stop_text: Option<String>,
    /// Tokens of its thinking.
    pub thinking_tokens: usize,
}

/// One sequence on an engine.
///
/// It keeps what it has read, and checkpoints on the way. A prompt that continues it costs only its new tokens; one that
/// leaves the known path (a question taken back, say, or edited) is read from the last checkpoint before it does; one
/// that shares no checkpoint is read afresh.
pub struct Session<'e, O: Ops> {
    pub(crate) engine: &'e Engine<O>,
    pub(crate) state: State<O>,
    pub(crate) checkpoints: Checkpoints<O>,
    pub(crate) chunk: usize,
    pub(crate) reread: usize,
    pub(crate) speculator: Speculator<O>,
    /// While it answers, if that is recorded.
    pub(crate) recorder: Option<Box<Recorder>>,
}

impl<'e, O: Ops> Session<'e, O> {
    pub(crate) fn new(engine: &'e Engine<O>, context: usize, chunk: usize) -> Session<'e, O> {
        let state = engine.model().new_state(context);
        let checkpoints = Checkpoints::new(CheckpointParams::default());
        let speculator = Speculator::new(SpeculationParams::default());
        Session { engine, state, checkpoints, chunk: chunk.max(1), reread: 0, speculator, recorder: None }
    }

    /// The session with other limits for its checkpoints.
    pub fn with_checkpoints(mut self, params: CheckpointParams) -> Session<'e, O> {
        self.checkpoints = Checkpoints::new(params);
        self
    }

    /// The session with other drafts.
    pub fn with_speculation(mut self, params: SpeculationParams) -> Session<'e, O> {
        self.speculator = Speculator::new(params);
        self
    }

    /// Has drafts come from a function instead: it is given the sequence, and how many can be used. With
    /// [`SpecSampling::Noise`](crate::SpecSampling) the answer is the same for all drafts; rejection sampling takes them
    /// as certain, not as drawn.
    pub fn with_own_drafts(mut self, own: OwnDrafts) -> Session<'e, O> {
        self.speculator.set_own(own);
        self
    }

    /// Bytes of memory that it holds now, checkpoints included.
    pub fn bytes(&self) -> usize {
        self.engine.model().held_bytes(&self.state) + self.checkpoints.bytes(self.engine.model())
    }

    /// Lengths at which it has checkpoints, ascending.
    pub fn checkpoints(&self) -> Vec<usize> {
        self.checkpoints.points.iter().map(|p| p.snapshot.len()).collect()
    }

    /// The state beneath.
    pub fn state(&self) -> &State<O> {
        &self.state
    }

    /// The engine.
    pub fn engine(&self) -> &'e Engine<O> {
        self.engine
    }

    /// Tokens read so far.
    pub fn tokens(&self) -> &[u32] {
        self.state.tokens()
    }

    /// Tokens that had been read and were read again because a prompt left the known path.
    pub fn reread_tokens(&self) -> usize {
        self.reread
    }

    /// Forgets everything read.
    pub fn clear(&mut self) {
        self.state = self.engine.model().new_state(self.state.capacity());
        self.checkpoints.points.clear();
        self.speculator.clear();
    }

    /// Answers a prompt of tokens. See [`Session::generate_from`].
    ///
    /// # Errors
    /// The prompt is empty or leaves no room for an answer, or the model fails.
    pub fn generate(
        &mut self,
        prompt: &[u32],
        params: &GenerateParams,
        cancel: &AtomicBool,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Answer> {
        self.generate_from(&prompt.to_vec().into(), params, cancel, on_event)
    }

    /// Answers a prompt.
    ///
    /// `cancel` is looked at between chunks of the prompt and between tokens of the answer. After an error of the
    /// model the session is cleared and can be used again.
    ///
    /// # Errors
    /// The prompt is empty or leaves no room for an answer, or the model fails.
    pub fn generate_from(
        &mut self,
        prompt: &Prompt,
        params: &GenerateParams,
        cancel: &AtomicBool,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Answer> {
        prompt.must_fit(self.state.capacity())?;
        self.recorder = self.engine.recorder().take();
        let answer = self.run(prompt, params, cancel, on_event);
        if let Some(recorder) = self.recorder.take() {
            self.engine.recorder().give(recorder);
        }
        if answer.is_err() {
            self.clear();
        }
        answer
    }

    fn run(
        &mut self,
        prompt: &Prompt,
        params: &GenerateParams,
        cancel: &AtomicBool,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Answer> {
        let start = Instant::now();
        let tokens = &prompt.tokens;
        let (cached, logits) = self.resume(tokens)?;
        self.speculator.begin(self.engine, tokens);
        let mut answer = Writer::new(self.engine, tokens, params.show_control);
        let mut timings = Timings { prompt_tokens: tokens.len(), cached_tokens: cached, ..Timings::default() };
        on_event(Event::Prompt { read: cached, of: tokens.len() });
        let logits = match logits {
            None => self.read(prompt, cancel, on_event)?,
            known => known,
        };
        timings.prompt_seconds = start.elapsed().as_secs_f64();
        let Some(logits) = logits else {
            return Ok(answer.finish(Finish::Cancelled, timings, on_event));
        };
        let writing = Instant::now();
        let finish = self.decode(&logits, &mut Answering { params, writer: &mut answer, on_event, cancel })?;
        self.speculator.end(self.engine);
        timings.output_tokens = answer.tokens.len();
        timings.output_seconds = writing.elapsed().as_secs_f64();
        let mut answer = answer.finish(finish, timings, on_event);
        answer.speculation = self.speculator.stats.clone();
        Ok(answer)
    }
}

/// Collects an answer and tells thinking from text.
pub(crate) struct Writer {
    decoder: StreamDecoder,
    think: Option<(u32, u32)>,
    thinking_now: bool,
    /// Between the end of thinking and the first visible character, blank lines are the template's, not the answer's.
    skip_blank: bool,
    thinking: String,
    text: String,
    tokens: Vec<u32>,
}

impl Writer {
    fn new<O: Ops>(engine: &Engine<O>, prompt: &[u32], show_control: bool) -> Writer {
        let think = engine.think_ids();
        let thinking_now = think.is_some_and(|(open, close)| {
            prompt.iter().rev().find(|&&t| t == open || t == close).is_some_and(|&t| t == open)
                && !prompt.iter().rev().take_while(|&&t| t != open).any(|t| engine.stop_ids().contains(t))
        });
        let control = if show_control { ControlText::Show } else { ControlText::Hide };
        Writer {
            decoder: engine.tokenizer().stream_decoder(control),
            think: think.filter(|_| !show_control),
            thinking_now: thinking_now && !show_control,
            skip_blank: false,
            thinking: String::new(),
            text: String::new(),
            tokens: Vec::new(),
        }
    }

    /// The answer's tokens so far.
    pub(crate) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Takes a token; one that ends the answer is kept but not shown.
    pub(crate) fn push(&mut self, token: u32, ends: bool, on_event: &mut dyn FnMut(Event<'_>)) {
        self.tokens.push(token);
        if ends {
            return;
        }
        match self.think {
            Some((open, _)) if token == open && !self.thinking_now && self.text.trim().is_empty() => {
                self.flush(on_event);
                self.thinking_now = true;
            }
            Some((_, close)) if token == close && self.thinking_now => {
                self.flush(on_event);
                self.thinking_now = false;
                self.skip_blank = true;
            }
            _ => {
                let piece = self.decoder.push(token);
                self.show(&piece, on_event);
            }
        }
    }

    fn flush(&mut self, on_event: &mut dyn FnMut(Event<'_>)) {
        let rest = self.decoder.finish();
        self.show(&rest, on_event);
    }

    fn show(&mut self, piece: &str, on_event: &mut dyn FnMut(Event<'_>)) {
        if self.thinking_now {
            if !piece.is_empty() {
                self.thinking.push_str(piece);
                on_event(Event::Thinking(piece));
            }
            return;
        }
        let piece = if self.skip_blank { piece.trim_start_matches('\n') } else { piece };
        if !piece.is_empty() {
            self.skip_blank = false;
            self.text.push_str(piece);
            on_event(Event::Text(piece));
        }
    }

    fn finish(mut self, finish: Finish, timings: Timings, on_event: &mut dyn FnMut(Event<'_>)) -> Answer {
        self.flush(on_event);
        Answer {
            text: self.text,
            thinking: self.thinking.trim().to_owned(),
            tokens: self.tokens,
            finish,
            timings,
            speculation: Speculation::default(),
            stop_text: None,
            thinking_tokens: 0,
        }
    }
}
