//! An engine behind the server: it loads, answers in turn, and says how it is.
//!
//! The model lives on threads of its own. Whoever submits puts a job into a queue that is fair between clients and has a
//! bound; a thread takes it, sends its events through the job's channel, and looks after each round and each chunk of a
//! prompt whether anybody still listens. `worker.rs` says how several answers are made at once.

mod board;
mod desk;
mod miss;
mod queue;
mod running;
mod watch;
mod worker;

use crate::backend::{
    Backend, ChatInput, Degradation, Event, KeptConversations, ModelInfo, Refusal, RefusalKind, Request, State, Status,
    Tiers,
};
use board::Board;
use queue::Queue;
use running::Running;
use serde_json::Value;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use strata_gguf::{ControlText, RenderOptions, Special};
use strata_runtime::{CacheWatch, ChatMarks, ConversationParams, Engine, Error, Ops, Prompt, SpeculationParams};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

/// Kinds of conversations for which it is remembered what their prompts share.
const KINDS: usize = 16;

/// A device whose engine several threads can use.
pub trait SharedOps:
    Ops<
        Buf: Send + Sync,
        Matrix: Send + Sync,
        Table: Send + Sync,
        Experts: Send + Sync,
        Cache: Send + Sync,
        Selection: Send + Sync,
    > + Send
    + Sync
    + 'static
{
}

impl<O> SharedOps for O where
    O: Ops<
            Buf: Send + Sync,
            Matrix: Send + Sync,
            Table: Send + Sync,
            Experts: Send + Sync,
            Cache: Send + Sync,
            Selection: Send + Sync,
        > + Send
        + Sync
        + 'static
{
}

/// How an engine serves.
#[derive(Clone)]
pub struct EngineOptions {
    /// Answers that are made at once, at least 1. More than one share the device, so each is slower.
    pub parallel: usize,
    /// Requests that may wait.
    pub queue: usize,
    /// An answer that does not get on for so long is reported.
    pub stuck_after: Duration,
    /// Is given a line for each thing that is worse than it could be.
    pub log: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions { parallel: 1, queue: 64, stuck_after: Duration::from_secs(120), log: Arc::new(|_| ()) }
    }
}

/// A model that is ready to answer.
pub struct Loaded<O: Ops> {
    /// Its name for clients.
    pub id: String,
    /// The engine.
    pub engine: Arc<Engine<O>>,
    /// Conversations that are kept, and the context of each.
    pub conversations: ConversationParams,
    /// How answers are drafted.
    pub speculation: SpeculationParams,
    /// What computes, in words.
    pub device: String,
    /// Where its weights lie.
    pub tiers: Tiers,
    /// What is worse than it could be from the start.
    pub degradations: Vec<Degradation>,
    /// What the expert cache of a recording counts; `None` if nothing is recorded.
    pub expert_cache: Option<CacheWatch>,
}

/// An engine that answers requests.
pub struct EngineBackend<O: SharedOps> {
    shared: Arc<Shared<O>>,
}

/// Something to be answered, and who is told.
struct Job {
    request: Request,
    events: UnboundedSender<Event>,
    since: Instant,
}

/// What is known once the model is loaded.
struct Ready<O: Ops> {
    engine: Arc<Engine<O>>,
    info: ModelInfo,
    device: String,
    tiers: Tiers,
    degradations: Vec<Degradation>,
    expert_cache: Option<CacheWatch>,
}

/// Who waits, who is answered, and whether that goes on.
struct Desk {
    state: State,
    queue: Queue<Job>,
    running: Vec<Arc<Running>>,
    kept: KeptConversations,
    /// Whether the threads that answer have ended.
    ended: bool,
}

struct Shared<O: Ops> {
    options: EngineOptions,
    started: Instant,
    /// Bits of the share that is loaded.
    share: AtomicU32,
    ready: OnceLock<Ready<O>>,
    desk: Mutex<Desk>,
    bell: Condvar,
    board: Mutex<Board>,
    /// What prompts share, by what it depends on, the last used last.
    kinds: Mutex<Vec<(Value, ChatMarks)>>,
}

impl<O: SharedOps> EngineBackend<O> {
    /// Loads a model on a thread of its own, and answers once that is done. `load` is given a function to be told the
    /// share that is loaded, from 0 to 1; an error of it is a sentence.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(
        options: EngineOptions,
        load: impl FnOnce(&dyn Fn(f32)) -> Result<Loaded<O>, String> + Send + 'static,
    ) -> std::io::Result<EngineBackend<O>> {
        let desk = Desk {
            state: State::Loading { share: 0.0 },
            queue: Queue::new(),
            running: Vec::new(),
            kept: KeptConversations::default(),
            ended: false,
        };
        let shared = Arc::new(Shared {
            options,
            started: Instant::now(),
            share: AtomicU32::new(0),
            ready: OnceLock::new(),
            desk: Mutex::new(desk),
            bell: Condvar::new(),
            board: Mutex::new(Board::default()),
            kinds: Mutex::new(Vec::new()),
        });
        let (host, watch) = (Arc::clone(&shared), Arc::clone(&shared));
        std::thread::Builder::new().name("watchdog".into()).spawn(move || watch::watch(&watch))?;
        let engine = std::thread::Builder::new().name("engine".into()).spawn(move || worker::host(&host, load));
        if let Err(e) = engine {
            shared.ended();
            return Err(e);
        }
        Ok(EngineBackend { shared })
    }

    /// Takes no more requests, lets those that are answered finish for so long, cancels the rest, and returns when the
    /// threads have ended. A model that is still being loaded is not waited for.
    pub fn shutdown(&self, grace: Duration) {
        let loading = self.shared.stop();
        let until = Instant::now() + grace;
        let mut desk = self.shared.desk();
        while !desk.ended && !loading {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                desk.running.iter().for_each(|running| running.cancel.store(true, Ordering::Relaxed));
            }
            let wait = if left.is_zero() { Duration::from_secs(1) } else { left };
            desk = self.shared.bell.wait_timeout(desk, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl<O: SharedOps> Drop for EngineBackend<O> {
    fn drop(&mut self) {
        self.shared.stop();
        self.shared.desk().running.iter().for_each(|running| running.cancel.store(true, Ordering::Relaxed));
    }
}

impl<O: SharedOps> Backend for EngineBackend<O> {
    fn model(&self) -> Option<ModelInfo> {
        self.shared.ready.get().map(|ready| ready.info.clone())
    }

    fn state(&self) -> State {
        match self.shared.desk().state.clone() {
            State::Loading { .. } => {
                State::Loading { share: f32::from_bits(self.shared.share.load(Ordering::Relaxed)) }
            }
            state => state,
        }
    }

    fn render(&self, chat: &ChatInput) -> Result<Prompt, Refusal> {
        let ready = self.shared.loaded()?;
        let options = RenderOptions {
            enable_thinking: chat.think,
            tools: chat.tools.clone(),
            extra: chat.extra.clone(),
            ..RenderOptions::default()
        };
        // Everything but the messages behind the system's.
        let system = chat.messages.first().filter(|m| m.get("role").and_then(Value::as_str) == Some("system"));
        let kind = serde_json::json!([system, chat.tools, chat.think, chat.extra]);
        let mut marks = {
            let mut kinds = self.shared.kinds();
            let known = kinds.iter().position(|(k, _)| *k == kind);
            known.map(|at| kinds.remove(at).1).unwrap_or_default()
        };
        let prompt = marks.prompt(&ready.engine, &chat.messages, &options, chat.most).map_err(|e| refusal(&e));
        let mut kinds = self.shared.kinds();
        if kinds.len() >= KINDS {
            kinds.remove(0);
        }
        kinds.push((kind, marks));
        prompt
    }

    fn tokenize(&self, text: &str, special: bool) -> Result<Vec<u32>, Refusal> {
        let special = if special { Special::Parse } else { Special::Plain };
        Ok(self.shared.loaded()?.engine.tokenizer().encode(text, special))
    }

    fn detokenize(&self, tokens: &[u32]) -> Result<String, Refusal> {
        let tokenizer = self.shared.loaded()?.engine.tokenizer();
        let vocab = tokenizer.vocab_size();
        if let Some(id) = tokens.iter().find(|&&id| id as usize >= vocab) {
            return Err(Refusal::param("tokens", format!("token {id} is outside the vocabulary of {vocab}")));
        }
        Ok(String::from_utf8_lossy(&tokenizer.decode(tokens, ControlText::Show)).into_owned())
    }

    fn submit(&self, request: Request) -> Result<UnboundedReceiver<Event>, Refusal> {
        let submitted = self.shared.submit(request);
        if let Err(refusal) = &submitted {
            self.shared.board().refused(refusal.kind);
        }
        submitted
    }

    fn refused(&self, kind: RefusalKind) {
        self.shared.board().refused(kind);
    }

    fn status(&self) -> Status {
        self.shared.status()
    }
}

impl<O: Ops> Shared<O> {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        // No lock is held while anything else is called, so there is nothing half-done in it.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kinds(&self) -> MutexGuard<'_, Vec<(Value, ChatMarks)>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self, line: &str) {
        (self.options.log)(line);
    }

    fn degraded(&self, name: &str, text: String) {
        self.log(&text);
        self.board().degraded(name, text);
    }
}

/// An error of the runtime as the reason why something cannot be done.
fn refusal(e: &Error) -> Refusal {
    let message = e.to_string();
    match e {
        Error::PromptTooLong { prompt, context } => Refusal::too_long(*prompt, *context),
        Error::TextTooLong { least, context, .. } => Refusal::too_long(*least, *context),
        Error::BadParameter { name, .. } => Refusal::param(*name, message),
        // Which field a constraint, a prompt or messages came from is known to who asked.
        Error::BadConstraint(_)
        | Error::Grammars(_)
        | Error::EmptyPrompt
        | Error::Template(_)
        | Error::EmptyRendering
        | Error::NoTemplate { .. } => Refusal::new(RefusalKind::Invalid, message),
        _ => Refusal::new(RefusalKind::Engine, message),
    }
}
