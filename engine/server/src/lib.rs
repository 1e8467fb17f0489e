//! The HTTP server.
//!
//! What answers is behind [`backend::Backend`]: an engine, or a [script](scripted) in tests. [`serve`] speaks for it:
//!
//! | path | what |
//! |---|---|
//! | `POST /v1/chat/completions` | OpenAI's chat |
//! | `POST /v1/completions` | OpenAI's text completions, without a chat template |
//! | `POST /v1/responses` | OpenAI's responses, none of which is kept |
//! | `POST /v1/responses/input_tokens` | tokens of such a request |
//! | `POST /v1/messages` | Anthropic's messages |
//! | `POST /v1/messages/count_tokens` | tokens of such a request |
//! | `GET /v1/models`, `GET /v1/models/{id}` | the model, with its context |
//! | `POST /tokenize`, `POST /detokenize` | text to tokens and back |
//! | `GET /health` | 200 as long as the process lives |
//! | `GET /ready` | 200 once the model is loaded, 503 before |
//! | `GET /v1/status` | how things stand, as JSON |
//! | `GET /v1/events` | the same once a second, as server-sent events |
//! | `GET /metrics` | the same for Prometheus |
//! | `GET /web/` | pages for people: chat and monitor; `/` leads there |
//! | `/mcp` | the [Model Context Protocol](mcp), where [`Options::mcp`] is set |
//!
//! # What clients may expect
//!
//! Any model name is taken. `null` is as good as absent, and unknown fields are ignored; a known field that asks for
//! something this server cannot do is refused with status 400 and the field's name. Limits of tokens may be -1, which is
//! none. An answer that a limit ended says so (`length`, `max_tokens`, `incomplete`), and so does one whose tool call the
//! model left unfinished: its arguments are then no whole JSON, or with Anthropic's messages those that were whole.
//!
//! Where a call has to come, it is held to the tool's schema, and a strict tool's calls always are. What of a schema is not
//! known here refuses the request if the tool is strict; else it is not enforced, and a line in the log says so.
//!
//! Errors have their interface's form and a real status: 400 for what will never work, 401 and 403 for who may not ask,
//! 413 for a body that is too large, 429 with `retry-after` when the queue is full, 503 with `retry-after` while the model
//! is loaded, and 500 with `x-should-retry: false` when the engine failed.
//!
//! Streams begin at once, and show a sign of life whenever nothing was sent for [`Options::heartbeat`]. A client that goes
//! away cancels its request. A stream that does not come to its end says so with an error event.
//!
//! Clients that do not get on are let go; [`Limits`] has the times. A head or a body that comes too slowly is answered
//! with status 408, an idle connection ends without a word, and one connection too many is answered with status 503 and
//! `retry-after` on all paths but `/health`. `Expect: 100-continue` is honoured. A client that reads slowly holds up nobody: its
//! connection ends once it took nothing for [`Limits::unread`], and its answer is cancelled, with an error event behind what it
//! was sent, once [`Limits::waiting`] events wait for it.
#![forbid(unsafe_code)]

mod api;
pub mod backend;
mod blocking;
pub mod engine;
mod http;
mod ids;
pub mod mcp;
mod options;
pub mod scripted;
mod sse;
mod switch;
mod thinking;
mod tools;
mod web;

pub use options::{Limits, Log, Options};
pub use switch::{Defaults, Now, Switch};

use axum::extract::FromRef;
use backend::Backend;
use http::connections::Connections;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How often a server that is to stop looks whether anything is still answered, and how often it must see nothing.
const LOOK: Duration = Duration::from_millis(100);
const QUIET: u32 = 5;

/// What every handler has: what answers, from the request's begin to its end.
#[derive(Clone)]
pub(crate) struct App {
    backend: Arc<dyn Backend>,
    options: Arc<Options>,
    connections: Arc<Connections>,
}

/// What the server has from its start to its end.
#[derive(Clone)]
pub(crate) struct Root {
    backend: Arc<dyn Backend>,
    options: Arc<Options>,
    connections: Arc<Connections>,
    /// Whether the server is to stop.
    stopping: watch::Receiver<bool>,
    /// Is cancelled when the server has ended, for what goes on beside its connections.
    ended: CancellationToken,
}

impl Root {
    /// What a request has that begins now.
    pub(crate) fn app(&self) -> App {
        match self.backend.now() {
            Some(Now { backend, defaults }) => App {
                backend,
                options: Arc::new(self.options.with(&defaults)),
                connections: Arc::clone(&self.connections),
            },
            None => App {
                backend: Arc::clone(&self.backend),
                options: Arc::clone(&self.options),
                connections: Arc::clone(&self.connections),
            },
        }
    }
}

impl FromRef<Root> for App {
    fn from_ref(root: &Root) -> App {
        root.app()
    }
}

/// The server as a service. Connections have to bring their address (`into_make_service_with_connect_info`), by which
/// clients without a key are told apart.
pub fn router(backend: Arc<dyn Backend>, options: Options) -> axum::Router {
    let connections = Arc::new(Connections::new(options.limits, options.log.clone()));
    assemble(backend, options, connections, watch::channel(false).1, CancellationToken::new())
}

fn assemble(
    backend: Arc<dyn Backend>,
    mut options: Options,
    connections: Arc<Connections>,
    stopping: watch::Receiver<bool>,
    ended: CancellationToken,
) -> axum::Router {
    let routes = std::mem::take(&mut options.routes);
    http::router(Root { backend, options: Arc::new(options), connections, stopping, ended }, routes)
}

/// Serves until `stop` is ready, and then until running answers ended or [`Options::grace`] is over, whichever comes first.
/// What clients may take of its time and memory is in [`Options::limits`].
///
/// # Errors
/// The listener fails, for a minute on end.
pub async fn serve(
    listener: TcpListener,
    backend: Arc<dyn Backend>,
    options: Options,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let grace = options.grace;
    let (stopping, stopped) = watch::channel(false);
    let connections = Arc::new(Connections::new(options.limits, options.log.clone()));
    let ended = CancellationToken::new();
    let router = assemble(Arc::clone(&backend), options, Arc::clone(&connections), stopped.clone(), ended.clone());
    let _ends = ended.drop_guard();
    let ending = async {
        stop.await;
        stopping.send_replace(true);
        let _ = tokio::time::timeout(grace, idle(&*backend)).await;
    };
    tokio::select! {
        ended = connections.serve(listener, router, stopped) => ended,
        () = ending => Ok(()),
    }
}

/// Waits until nothing is answered any more, and what was answered had time to be sent: requests that are only half
/// there are not waited for.
async fn idle(backend: &dyn Backend) {
    let mut quiet = 0;
    while quiet < QUIET {
        tokio::time::sleep(LOOK).await;
        let queue = backend.status().queue;
        quiet = if queue.waiting + queue.running == 0 { quiet + 1 } else { 0 };
    }
}
