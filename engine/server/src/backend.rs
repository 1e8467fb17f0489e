//! The boundary between HTTP and what answers.
//!
//! Nothing on this side knows of devices, and nothing on the other side knows of HTTP. A request goes over as tokens and
//! parameters; its answer comes back as events through a channel. Who drops the receiver of that channel has cancelled
//! the request.

use crate::switch::Now;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;
use strata_runtime::{Finish, GenerateParams, Prompt, Timings, TokenLogprob};
use tokio::sync::mpsc::UnboundedReceiver;

/// What answers: an engine, or a script in tests.
///
/// No method waits for an answer; they may be called from a thread that serves connections.
pub trait Backend: Send + Sync + 'static {
    /// What is served; `None` while it loads or after it failed.
    fn model(&self) -> Option<ModelInfo>;

    /// Whether it can answer.
    fn state(&self) -> State;

    /// The prompt of a conversation, ready to be submitted. It needs no queue.
    ///
    /// # Errors
    /// The model is not loaded or has no chat template, or the template refuses the messages.
    fn render(&self, chat: &ChatInput) -> Result<Prompt, Refusal>;

    /// The tokens of a text; literals of special tokens become those tokens only if `special` is set.
    ///
    /// # Errors
    /// The model is not loaded.
    fn tokenize(&self, text: &str, special: bool) -> Result<Vec<u32>, Refusal>;

    /// The text of tokens, special ones as their literals.
    ///
    /// # Errors
    /// The model is not loaded, or has no such token.
    fn detokenize(&self, tokens: &[u32]) -> Result<String, Refusal>;

    /// Queues a request. Its events come through the channel; dropping the receiver cancels it.
    ///
    /// # Errors
    /// The prompt leaves no room for an answer, the queue is full, a parameter cannot be obeyed, or the model is not
    /// loaded.
    fn submit(&self, request: Request) -> Result<UnboundedReceiver<Event>, Refusal>;

    /// Counts a request that was refused before it was submitted.
    fn refused(&self, kind: RefusalKind);

    /// How things stand.
    fn status(&self) -> Status;

    /// What answers requests that begin now, where another backend can be put in its place; `None` where this one always
    /// answers. A request keeps to the one that it began with, since tokens of one model mean nothing to another.
    fn now(&self) -> Option<Now> {
        None
    }
}

/// Whether a backend can answer.
#[derive(Debug, Clone, PartialEq)]
pub enum State {
    /// No model is loaded, and none is being loaded.
    Empty,
    /// The model is being loaded.
    Loading {
        /// How much of it is, from 0 to 1.
        share: f32,
    },
    /// It answers.
    Ready,
    /// It cannot answer any more, or never could, for this reason.
    Failed(String),
    /// It takes no more requests.
    Stopping,
}

/// What is served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelInfo {
    /// Its name.
    pub id: String,
    /// When it was loaded, in seconds since 1970.
    pub created: u64,
    /// Tokens that a prompt and its answer can have together.
    pub context: usize,
    /// Tokens of its vocabulary.
    pub vocab: usize,
    /// Bytes of the longest of them.
    pub longest_token: usize,
    /// Whether it has a chat template that can be used.
    pub has_template: bool,
    /// Whether it can think before it answers.
    pub can_think: bool,
    /// Literals of the chat format that are tokens, such as `<tool_call>`.
    pub marks: Vec<String>,
}

/// A conversation for the chat template.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChatInput {
    /// The messages: `role`, `content` (a text), and where there are any `reasoning_content` and `tool_calls`, whose
    /// `arguments` are objects.
    pub messages: Vec<Value>,
    /// Tools, each `{"type": "function", "function": {name, description, parameters}}`.
    pub tools: Vec<Value>,
    /// Whether the model thinks before it answers; `None` leaves it to the template.
    pub think: Option<bool>,
    /// Further variables of the template, such as `reasoning_effort`.
    pub extra: Map<String, Value>,
    /// Refuses what would be so many tokens or more, if its length in bytes tells. `None` takes anything.
    pub most: Option<usize>,
}

/// Something to be answered.
#[derive(Debug, Clone)]
pub struct Request {
    /// Its name in logs.
    pub id: String,
    /// What is read.
    pub prompt: Prompt,
    /// How it is answered.
    pub params: GenerateParams,
    /// Who asks, so that turns are fair: a key or an address.
    pub client: String,
}

/// What happens on the way to an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// It left the queue.
    Started {
        /// How long it was there.
        waited: Duration,
    },
    /// So many tokens of the prompt are read.
    Prompt {
        /// Tokens read by now, those that needed no reading included.
        read: usize,
        /// Tokens in all.
        of: usize,
    },
    /// A piece of the model's thinking.
    Thinking(String),
    /// A piece of the answer.
    Text(String),
    /// A token of the chat format in the answer, such as `<tool_call>`, which ordinary text cannot make.
    Mark(String),
    /// How likely the token was whose text comes next.
    Logprob(TokenLogprob),
    /// The answer is whole. The last event.
    Done(Outcome),
    /// It broke off. The last event.
    Failed(Refusal),
}

/// How an answer ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Why.
    pub finish: Finish,
    /// The stop text that ended it.
    pub stop_text: Option<String>,
    /// How long it took.
    pub timings: Timings,
    /// Tokens of its thinking.
    pub thinking_tokens: usize,
    /// What became of its drafts.
    pub drafts: Drafts,
    /// Why the prompt could not go on where a conversation was, in words.
    pub miss: Option<String>,
}

/// What became of drafts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Drafts {
    /// Tokens that were guessed.
    pub proposed: u64,
    /// Those of them that were right.
    pub accepted: u64,
    /// Passes over the model.
    pub rounds: u64,
}

/// Why something cannot be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// What kind of reason it is.
    pub kind: RefusalKind,
    /// The reason, as a sentence.
    pub message: String,
    /// The parameter of the request that is to blame.
    pub param: Option<String>,
    /// When another try is worth it.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// A refusal that names no parameter and no time.
    pub fn new(kind: RefusalKind, message: impl Into<String>) -> Refusal {
        Refusal { kind, message: message.into(), param: None, retry_after: None }
    }

    /// One of a prompt with so many tokens, or more, for a context of so many.
    pub fn too_long(tokens: usize, context: usize) -> Refusal {
        // The words that agents look for before they shorten a conversation.
        let most = context.saturating_sub(1);
        let message = format!(
            "prompt is too long: {tokens} tokens > {most} maximum; the context holds {context} and the answer needs one at least"
        );
        Refusal::new(RefusalKind::TooLong, message)
    }

    /// One about a parameter of the request.
    pub fn param(param: impl Into<String>, message: impl Into<String>) -> Refusal {
        Refusal { param: Some(param.into()), ..Refusal::new(RefusalKind::Invalid, message) }
    }
}

/// Kinds of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// The request is wrong.
    Invalid,
    /// The prompt does not fit the context.
    TooLong,
    /// The queue is full.
    Busy,
    /// The model is being loaded, or the server is stopping.
    NotReady,
    /// There is no such thing.
    NotFound,
    /// The engine failed; trying again will not help.
    Engine,
    /// It was cancelled.
    Cancelled,
}

/// How things stand, for people and for monitors.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Status {
    /// Seconds since it was started.
    pub uptime: f64,
    /// The model's name, once it is loaded.
    pub model: Option<String>,
    /// What computes, in words, once that is known.
    pub device: Option<String>,
    /// Where the weights lie.
    pub tiers: Tiers,
    /// Who waits.
    pub queue: Queue,
    /// What was counted since the start.
    pub counters: Counters,
    /// How fast the last answers were, the newest last.
    pub speeds: Vec<Speed>,
    /// What became of all drafts.
    pub drafts: Drafts,
    /// Conversations that are kept.
    pub conversations: KeptConversations,
    /// What is worse than it could be.
    pub degradations: Vec<Degradation>,
    /// Times of the last rounds, the newest last.
    pub rounds: Vec<Round>,
    /// Expert caches by layer; empty where there are none.
    pub expert_cache: Vec<LayerCache>,
    /// Whether these hold nothing, and what they would hold is counted in a recording.
    pub expert_cache_on_paper: bool,
}

/// Where the weights lie, in bytes, and experts by number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Tiers {
    /// In main memory.
    pub ram: u64,
    /// On the graphics card; 0 without one.
    pub vram: u64,
    /// Left in the file and read when needed.
    pub file: u64,
    /// Routed experts on the graphics card, a number of them.
    pub experts_on_gpu: u64,
    /// Routed experts of all layers.
    pub experts: u64,
}

/// Who waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Queue {
    /// Requests that wait.
    pub waiting: usize,
    /// Requests that are answered now.
    pub running: usize,
    /// Requests that may wait at most.
    pub limit: usize,
}

/// What was counted since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Requests that were taken.
    pub requests: u64,
    /// Tokens of their prompts.
    pub prompt_tokens: u64,
    /// Those of them that needed no reading.
    pub cached_tokens: u64,
    /// Tokens of answers.
    pub output_tokens: u64,
    /// Requests that were cancelled.
    pub cancelled: u64,
    /// Requests that were refused or failed, by kind.
    pub refused: BTreeMap<RefusalKind, u64>,
}

/// How fast an answer was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Speed {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Those of them that needed no reading.
    pub cached_tokens: usize,
    /// Prompt tokens read per second.
    pub prompt_rate: f64,
    /// Tokens of the answer.
    pub output_tokens: usize,
    /// Answer tokens per second.
    pub output_rate: f64,
}

/// Conversations that are kept, and what became of prompts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct KeptConversations {
    /// Conversations kept now.
    pub kept: usize,
    /// Bytes that they take.
    pub bytes: u64,
    /// Prompts that started with nothing known.
    pub started: u64,
    /// Prompts that went on in a conversation.
    pub resumed: u64,
    /// Prompts that went on from an earlier point of a conversation.
    pub branched: u64,
    /// Conversations given up for others.
    pub evicted: u64,
}

/// Something that is worse than it could be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Degradation {
    /// Its name, such as `no_draft_layer`.
    pub name: String,
    /// How often it happened.
    pub count: u64,
    /// What it means, as a sentence.
    pub text: String,
}

/// Times of one pass over the model.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Round {
    /// Tokens of its window.
    pub window: usize,
    /// Tokens that it added to the answer.
    pub committed: usize,
    /// What took how long.
    pub branches: Vec<BranchTime>,
}

/// How long one part of a pass took.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BranchTime {
    /// The part.
    pub name: String,
    /// Milliseconds.
    pub ms: f64,
}

/// How one layer's expert cache does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LayerCache {
    /// The layer, from 0.
    pub layer: usize,
    /// Lookups that found their expert.
    pub hits: u64,
    /// All lookups.
    pub lookups: u64,
}
