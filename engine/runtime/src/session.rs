//! One sequence on an engine: reading prompts and writing answers.

use crate::checkpoints::{CheckpointParams, Checkpoints, Prompt};
use crate::decode::Answering;
use crate::engine::Engine;
use crate::error::Result;
use crate::guide::Guide;
use crate::logprobs::TokenLogprob;
use crate::params::GenerateParams;
use crate::recorder::Recorder;
use crate::speculation::{OwnDrafts, Speculation, SpeculationParams, Speculator};
use crate::writer::Writer;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
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
    /// A token of the chat format in the answer, such as `<tool_call>`: a piece of its text that ordinary tokens cannot
    /// make. One that opens a call of a tool ends the thinking, if there is no constraint.
    Mark(&'a str),
    /// How likely the token was whose text comes next, if that was asked for. Tokens that are thought, that are not
    /// shown, or that belong to a stop text have none.
    Logprob(&'a TokenLogprob),
    /// A pass of the answer is over.
    Round(Pace),
}

/// How long one pass of an answer took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pace {
    /// Tokens that it read: the newest and drafts.
    pub window: usize,
    /// Tokens that it added to the answer.
    pub committed: usize,
    /// Seconds that it took in all.
    pub seconds: f64,
    /// Of them for drafts.
    pub draft_seconds: f64,
    /// Of them for taking back what was not right.
    pub commit_seconds: f64,
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
    /// The text, without thinking; marks are in it as their literals.
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
    /// Tokens of its thinking, those that open and close it not counted.
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
    /// The prompt is empty or leaves no room for an answer, a parameter cannot be obeyed, or the model fails.
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
    /// The prompt is empty or leaves no room for an answer, a parameter cannot be obeyed, the model fails, or the answer
    /// cannot go on within its constraint.
    pub fn generate_from(
        &mut self,
        prompt: &Prompt,
        params: &GenerateParams,
        cancel: &AtomicBool,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Answer> {
        prompt.must_fit(self.state.capacity())?;
        let guide = Guide::new(self.engine, &prompt.tokens, params)?;
        self.generate_guided(prompt, params, guide, cancel, on_event)
    }

    /// Answers a prompt that fits, with the guide that was made for it.
    pub(crate) fn generate_guided(
        &mut self,
        prompt: &Prompt,
        params: &GenerateParams,
        guide: Guide,
        cancel: &AtomicBool,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Answer> {
        self.recorder = self.engine.recorder().take();
        let answer = self.run(prompt, params, guide, cancel, on_event);
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
        mut guide: Guide,
        cancel: &AtomicBool,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Answer> {
        let start = Instant::now();
        let tokens = &prompt.tokens;
        let (cached, logits) = self.resume(tokens)?;
        self.speculator.begin(self.engine, tokens);
        let mut answer = Writer::new(self.engine, params, &guide);
        let mut timings = Timings { prompt_tokens: tokens.len(), cached_tokens: cached, ..Timings::default() };
        on_event(Event::Prompt { read: cached, of: tokens.len() });
        let logits = match logits {
            None => self.read(prompt, cancel, on_event)?,
            known => known,
        };
        timings.prompt_seconds = start.elapsed().as_secs_f64();
        let Some(logits) = logits else {
            return Ok(answer.finish(Finish::Cancelled, timings, &guide, on_event));
        };
        let writing = Instant::now();
        let mut answering = Answering { params, guide: &mut guide, writer: &mut answer, on_event, cancel };
        let finish = self.decode(&logits, &mut answering)?;
        self.speculator.end(self.engine);
        timings.output_tokens = answer.tokens().len();
        timings.output_seconds = writing.elapsed().as_secs_f64();
        let mut answer = answer.finish(finish, timings, &guide, on_event);
        answer.speculation = self.speculator.stats.clone();
        Ok(answer)
    }
}
