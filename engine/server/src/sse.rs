//! Streams of server-sent events.
//!
//! A task takes an answer's events, has an encoder give them their form, and sends them on. It ends, and thereby cancels
//! the answer, when the connection is gone. A client that reads slowly holds back this task and nothing else: events
//! wait in the backend's channel. Too many of them, and the answer is cancelled; the client finds an error behind what
//! was sent.

use crate::api::answer::{Assembler, Part, vanished};
use crate::backend::{Event, Refusal, RefusalKind};
use crate::options::Options;
use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::mpsc::{Sender, UnboundedReceiver, channel};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

/// Pieces of a stream that wait for the client at most; each holds the events of one moment.
const WAITING: usize = 16;
/// Bytes of a piece beyond which no further event is put into it.
const PIECE: usize = 16 << 10;
/// Least time between two events about a prompt's progress.
const PROGRESS: Duration = Duration::from_millis(200);
/// How often it is looked how much waits for a client that does not read.
const GLANCE: Duration = Duration::from_millis(100);

/// When something is sent, and what may wait to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    heartbeat: Duration,
    /// Events that may wait.
    waiting: usize,
}

impl Pace {
    pub(crate) fn of(options: &Options) -> Pace {
        Pace { heartbeat: options.heartbeat, waiting: options.limits.waiting }
    }
}

/// Gives pieces of an answer an interface's form.
pub(crate) trait Encoder: Send + 'static {
    /// What is sent before anything is known.
    fn start(&mut self, out: &mut Out);
    /// A piece; the last one is [`Part::Done`]. [`Part::Progress`] and [`Part::Failed`] do not come here.
    fn part(&mut self, part: Part, out: &mut Out);
    /// An error, after which nothing comes.
    fn failed(&mut self, refusal: &Refusal, out: &mut Out);
    /// How far the prompt is read.
    fn progress(&mut self, read: usize, of: usize, out: &mut Out) {
        out.comment(&format!("prompt {read}/{of}"));
    }
    /// A sign of life.
    fn alive(&mut self, out: &mut Out) {
        out.comment("alive");
    }
}

/// Events that are to be sent.
#[derive(Debug, Default)]
pub(crate) struct Out(String);

impl Out {
    /// An event with data only.
    pub(crate) fn data(&mut self, data: &Value) {
        self.line("data: ", &data.to_string());
        self.0.push('\n');
    }

    /// An event with a name.
    pub(crate) fn event(&mut self, name: &str, data: &Value) {
        self.line("event: ", name);
        self.data(data);
    }

    /// The end of OpenAI's streams, which is no JSON.
    pub(crate) fn end(&mut self) {
        self.0.push_str("data: [DONE]\n\n");
    }

    /// A line that clients skip.
    pub(crate) fn comment(&mut self, text: &str) {
        self.line(": ", text);
        self.0.push('\n');
    }

    fn line(&mut self, start: &str, text: &str) {
        self.0.push_str(start);
        self.0.push_str(text);
        self.0.push('\n');
    }
}

/// Answers with a stream.
pub(crate) fn stream(
    events: UnboundedReceiver<Event>,
    assembler: Assembler,
    encoder: impl Encoder,
    pace: Pace,
) -> Response {
    let (sender, receiver) = channel(WAITING);
    let last = Last::default();
    tokio::spawn(drive(events, assembler, encoder, pace, sender, Arc::clone(&last)));
    // Asked for only when everything else was sent.
    let last = std::iter::once_with(move || match last.get() {
        Some(words) if words.is_empty() => None,
        Some(words) => Some(Ok(words.clone())),
        None => Some(Err(io::Error::other("the stream broke off"))),
    });
    let pieces = ReceiverStream::new(receiver).map(Ok).chain(tokio_stream::iter(last.flatten()));
    let mut response = Body::from_stream(pieces).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies such as nginx would collect the stream otherwise.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// What comes behind all pieces, or nothing; unset for a stream that is not whole, which then must not look so.
type Last = Arc<OnceLock<Bytes>>;

/// Sends a piece as soon as there is room for it; `false` if the connection is gone.
///
/// # Errors
/// Too many events have come to wait meanwhile.
async fn send(
    piece: String,
    sender: &Sender<Bytes>,
    events: &UnboundedReceiver<Event>,
    waiting: usize,
) -> Result<bool, Refusal> {
    loop {
        tokio::select! {
            biased;
            room = sender.reserve() => {
                let Ok(room) = room else { return Ok(false) };
                room.send(Bytes::from(piece));
                return Ok(true);
            }
            () = sleep(GLANCE) => {
                let unread = events.len();
                if unread > waiting {
                    let message = format!("the answer was cancelled: {unread} events of it waited to be read");
                    return Err(Refusal::new(RefusalKind::Cancelled, message));
                }
            }
        }
    }
}

async fn drive(
    mut events: UnboundedReceiver<Event>,
    mut assembler: Assembler,
    mut encoder: impl Encoder,
    pace: Pace,
    sender: Sender<Bytes>,
    last: Last,
) {
    let mut out = Out::default();
    encoder.start(&mut out);
    let mut told = None;
    let mut over = false;
    loop {
        if !out.0.is_empty() {
            match send(std::mem::take(&mut out.0), &sender, &events, pace.waiting).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(refusal) => {
                    encoder.failed(&refusal, &mut out);
                    // It is set once, here or below.
                    let _ = last.set(Bytes::from(out.0));
                    return;
                }
            }
        }
        if over {
            let _ = last.set(Bytes::new());
            return;
        }
        let silent_until = Instant::now() + pace.heartbeat;
        let event = tokio::select! {
            biased;
            () = sender.closed() => return,
            event = events.recv() => event,
            () = sleep_until(silent_until) => {
                encoder.alive(&mut out);
                continue;
            }
        };
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let parts = event.map_or_else(|| vec![Part::Failed(vanished())], |event| assembler.push(event));
            for part in parts {
                match part {
                    Part::Progress { read, of } => {
                        let due = told.is_none_or(|at: Instant| at.elapsed() >= PROGRESS) || read == of;
                        if due {
                            told = Some(Instant::now());
                            encoder.progress(read, of, &mut out);
                        }
                    }
                    Part::Failed(refusal) => {
                        encoder.failed(&refusal, &mut out);
                        over = true;
                    }
                    part => {
                        over = matches!(part, Part::Done(_));
                        encoder.part(part, &mut out);
                    }
                }
            }
            if !over && out.0.len() < PIECE {
                next = events.try_recv().ok().map(Some);
            }
        }
    }
}
