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
//! model left unfinished: its arguments are then no whole JSON.
//!
//! Errors have their interface's form and a real status: 400 for what will never work, 401 and 403 for who may not ask,
//! 413 for a body that is too large, 429 with `retry-after` when the queue is full, 503 with `retry-after` while the model
//! is loaded, and 500 with `x-should-retry: false` when the engine failed.
//!
//! Streams begin at once, and show a sign of life whenever nothing was sent for [`Options::heartbeat`]. A client that goes
//! away cancels its request.
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

pub use options::{Log, Options};
pub use switch::{Defaults, Now, Switch};

use axum::extract::FromRef;
use backend::Backend;
use std::future::Future;
use std::net::SocketAddr;
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
}

/// What the server has from its start to its end.
#[derive(Clone)]
pub(crate) struct Root {
    backend: Arc<dyn Backend>,
    options: Arc<Options>,
    /// Whether the server is to stop.
    stopping: watch::Receiver<bool>,
    /// Is cancelled when the server has ended, for what goes on beside its connections.
    ended: CancellationToken,
}

impl Root {
    /// What a request has that begins now.
    pub(crate) fn app(&self) -> App {
        match self.backend.now() {
            Some(Now { backend, defaults }) => App { backend, options: Arc::new(self.options.with(&defaults)) },
            None => App { backend: Arc::clone(&self.backend), options: Arc::clone(&self.options) },
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
    assemble(backend, options, watch::channel(false).1, CancellationToken::new())
}

fn assemble(
    backend: Arc<dyn Backend>,
    mut options: Options,
    stopping: watch::Receiver<bool>,
    ended: CancellationToken,
) -> axum::Router {
    let routes = std::mem::take(&mut options.routes);
    http::router(Root { backend, options: Arc::new(options), stopping, ended }, routes)
}

/// Serves until `stop` is ready, and then until running answers ended or [`Options::grace`] is over, whichever comes first.
///
/// # Errors
/// The listener fails.
pub async fn serve(
    listener: TcpListener,
    backend: Arc<dyn Backend>,
    options: Options,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let grace = options.grace;
    let (stopping, mut stopped) = watch::channel(false);
    let busy = Arc::clone(&backend);
    let ended = CancellationToken::new();
    let service = assemble(backend, options, stopped.clone(), ended.clone());
    let service = service.into_make_service_with_connect_info::<SocketAddr>();
    let _ends = ended.drop_guard();
    let signal = async move {
        stop.await;
        stopping.send_replace(true);
    };
    let serving = axum::serve(listener, service).with_graceful_shutdown(signal);
    tokio::select! {
        ended = serving => ended,
        () = async {
            // An error means that the sender is gone, which it is only once serving ended.
            let _ = stopped.wait_for(|&stopped| stopped).await;
            let _ = tokio::time::timeout(grace, idle(&*busy)).await;
        } => Ok(()),
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
