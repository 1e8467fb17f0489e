//! A backend that answers by a script, for tests of the server and of clients.
//!
//! Its tokens are the characters of texts, by their Unicode numbers, and behind those the literals of the chat format.

use crate::backend::{
    Backend, ChatInput, Drafts, Event, ModelInfo, Outcome, Queue, Refusal, RefusalKind, Request, State, Status,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use strata_runtime::{Finish, Prompt, Timings, TokenLogprob};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Literals that are tokens.
pub const MARKS: [&str; 4] = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"];
/// Requests that are remembered.
const SEEN: usize = 1000;
/// The first token that is no character.
const SPECIAL: u32 = 0x11_0000;

/// One thing that a script does.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Says that so many tokens of the prompt are read, of all.
    Prompt(usize),
    /// Thinks.
    Think(String),
    /// Writes.
    Text(String),
    /// Writes a token of the chat format.
    Mark(String),
    /// Tells how likely the next token is.
    Logprob(TokenLogprob),
    /// Waits.
    Wait(Duration),
    /// Breaks off.
    Fail(Refusal),
    /// Ends without a last event, as an engine that died would.
    Vanish,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    /// What is done, in order.
    pub steps: Vec<Step>,
    /// Why the answer ends.
    pub finish: Finish,
    /// The stop text that ends it.
    pub stop_text: Option<String>,
    /// Tokens of the prompt that needed no reading.
    pub cached: usize,
    /// Why no more did not.
    pub miss: Option<String>,
}

impl Script {
    /// A script that ends as if the model ended the answer.
    pub fn new(steps: impl IntoIterator<Item = Step>) -> Script {
        Script { steps: steps.into_iter().collect(), finish: Finish::Stop, stop_text: None, cached: 0, miss: None }
    }

    /// One that writes these pieces. Pieces that are one of [`MARKS`] are marks.
    pub fn text<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Script {
        Script::new(pieces.into_iter().map(|piece| match MARKS.contains(&piece) {
            true => Step::Mark(piece.to_owned()),
            false => Step::Text(piece.to_owned()),
        }))
    }

    /// The same, ended by something else.
    pub fn ending(self, finish: Finish) -> Script {
        Script { finish, ..self }
    }
}

type Choose = dyn Fn(&Request) -> Result<Script, Refusal> + Send + Sync;

/// A backend that answers by scripts. Every answer runs at once, in a task of the runtime that calls it.
pub struct Scripted {
    model: Mutex<Option<ModelInfo>>,
    state: Mutex<State>,
    choose: Box<Choose>,
    seen: Mutex<VecDeque<(Request, Option<ChatInput>)>>,
    rendered: Mutex<Option<ChatInput>>,
    counts: Arc<Counts>,
    started: Instant,
}

#[derive(Default)]
struct Counts {
    running: AtomicUsize,
    requests: AtomicU64,
    cancelled: AtomicU64,
    refused: Mutex<BTreeMap<RefusalKind, u64>>,
}

impl Scripted {
    /// A backend that is ready and asks `choose` how to answer.
    pub fn new(choose: impl Fn(&Request) -> Result<Script, Refusal> + Send + Sync + 'static) -> Scripted {
        let model = ModelInfo {
            id: "scripted".to_owned(),
            created: 1_700_000_000,
            context: 4096,
            vocab: SPECIAL as usize + MARKS.len(),
            longest_token: MARKS.iter().map(|mark| mark.len()).max().unwrap_or(1),
            has_template: true,
            can_think: true,
            marks: MARKS.map(str::to_owned).to_vec(),
        };
        Scripted {
            model: Mutex::new(Some(model)),
            state: Mutex::new(State::Ready),
            choose: Box::new(choose),
            seen: Mutex::default(),
            rendered: Mutex::default(),
            counts: Arc::default(),
            started: Instant::now(),
        }
    }

    /// A backend that always answers alike.
    pub fn always(script: Script) -> Scripted {
        Scripted::new(move |_| Ok(script.clone()))
    }

    /// Changes what is told of the model.
    pub fn with_model(self, change: impl FnOnce(&mut ModelInfo)) -> Scripted {
        if let Some(model) = lock(&self.model).as_mut() {
            change(model);
        }
        self
    }

    /// Changes its state.
    pub fn set_state(&self, state: State) {
        *lock(&self.state) = state;
    }

    /// What was asked so far, or the last thousand of it, with the conversation that was rendered last before.
    pub fn seen(&self) -> Vec<(Request, Option<ChatInput>)> {
        lock(&self.seen).iter().cloned().collect()
    }

    /// The conversation that was rendered last.
    pub fn rendered(&self) -> Option<ChatInput> {
        lock(&self.rendered).clone()
    }

    /// Answers that run now.
    pub fn running(&self) -> usize {
        self.counts.running.load(Ordering::SeqCst)
    }

    /// Answers that were cancelled.
    pub fn cancelled(&self) -> u64 {
        self.counts.cancelled.load(Ordering::SeqCst)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Values are replaced as a whole, so a panic elsewhere leaves them whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Backend for Scripted {
    fn model(&self) -> Option<ModelInfo> {
        (*lock(&self.state) == State::Ready).then(|| lock(&self.model).clone()).flatten()
    }

    fn state(&self) -> State {
        lock(&self.state).clone()
    }

    /// Every message as its role and content, and every tool.
    fn render(&self, chat: &ChatInput) -> Result<Prompt, Refusal> {
        *lock(&self.rendered) = Some(chat.clone());
        let mut text = String::new();
        for part in chat.tools.iter().chain(&chat.messages) {
            text.push_str(&part.to_string());
            text.push('\n');
        }
        Ok(self.tokenize(&text, false)?.into())
    }

    fn tokenize(&self, text: &str, special: bool) -> Result<Vec<u32>, Refusal> {
        let mut tokens = Vec::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            match MARKS.iter().position(|m| special && rest.starts_with(m)) {
                Some(mark) => {
                    tokens.push(SPECIAL + mark as u32);
                    rest = &rest[MARKS[mark].len()..];
                }
                None => {
                    tokens.push(u32::from(first));
                    rest = &rest[first.len_utf8()..];
                }
            }
        }
        Ok(tokens)
    }

    fn detokenize(&self, tokens: &[u32]) -> Result<String, Refusal> {
        let text = |&token: &u32| match token.checked_sub(SPECIAL) {
            Some(mark) => MARKS.get(mark as usize).map(|m| (*m).to_owned()),
            None => Some(char::from_u32(token).unwrap_or(char::REPLACEMENT_CHARACTER).to_string()),
        };
        let texts: Option<String> = tokens.iter().map(text).collect();
        texts.ok_or_else(|| Refusal::param("tokens", "there is no such token"))
    }

    fn submit(&self, request: Request) -> Result<UnboundedReceiver<Event>, Refusal> {
        let script = (self.choose)(&request).inspect_err(|refusal| self.refused(refusal.kind))?;
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|e| Refusal::new(RefusalKind::Engine, format!("scripts need a runtime: {e}")))?;
        {
            let mut seen = lock(&self.seen);
            if seen.len() >= SEEN {
                seen.pop_front();
            }
            seen.push_back((request.clone(), lock(&self.rendered).clone()));
        }
        self.counts.requests.fetch_add(1, Ordering::SeqCst);
        self.counts.running.fetch_add(1, Ordering::SeqCst);
        let (sender, receiver) = unbounded_channel();
        let counts = Arc::clone(&self.counts);
        runtime.spawn(async move {
            if play(script, &request, &sender).await.is_none() {
                counts.cancelled.fetch_add(1, Ordering::SeqCst);
            }
            counts.running.fetch_sub(1, Ordering::SeqCst);
        });
        Ok(receiver)
    }

    fn refused(&self, kind: RefusalKind) {
        *lock(&self.counts.refused).entry(kind).or_default() += 1;
    }

    fn status(&self) -> Status {
        let mut status = Status { uptime: self.started.elapsed().as_secs_f64(), ..Status::default() };
        status.model = self.model().map(|m| m.id);
        status.queue = Queue { waiting: 0, running: self.running(), limit: 0 };
        status.counters.requests = self.counts.requests.load(Ordering::SeqCst);
        status.counters.cancelled = self.cancelled();
        status.counters.refused = lock(&self.counts.refused).clone();
        status
    }
}

/// Plays a script; `None` when nobody listens any more.
async fn play(script: Script, request: &Request, sender: &UnboundedSender<Event>) -> Option<()> {
    let of = request.prompt.tokens.len();
    let start = Instant::now();
    let send = |event| sender.send(event).ok();
    send(Event::Started { waited: Duration::ZERO })?;
    let (mut output, mut thought) = (0, 0);
    for step in script.steps {
        match step {
            Step::Prompt(read) => send(Event::Prompt { read: read.min(of), of })?,
            Step::Think(text) => {
                (output, thought) = (output + 1, thought + 1);
                send(Event::Thinking(text))?;
            }
            Step::Text(text) => {
                output += 1;
                send(Event::Text(text))?;
            }
            Step::Mark(mark) => {
                output += 1;
                send(Event::Mark(mark))?;
            }
            Step::Logprob(logprob) => send(Event::Logprob(logprob))?,
            Step::Wait(time) => tokio::select! {
                () = tokio::time::sleep(time) => {}
                () = sender.closed() => return None,
            },
            Step::Fail(refusal) => return send(Event::Failed(refusal)),
            Step::Vanish => return Some(()),
        }
    }
    let timings = Timings {
        prompt_tokens: of,
        cached_tokens: script.cached.min(of),
        prompt_seconds: 0.001,
        // The token that ends it counts, too.
        output_tokens: output + 1,
        output_seconds: start.elapsed().as_secs_f64(),
    };
    send(Event::Done(Outcome {
        finish: script.finish,
        stop_text: script.stop_text,
        timings,
        thinking_tokens: thought,
        drafts: Drafts { proposed: 4, accepted: 3, rounds: 2 },
        miss: script.miss,
    }))
}
