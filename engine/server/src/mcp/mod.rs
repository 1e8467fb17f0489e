//! The Model Context Protocol: what programs that are led by a model may do here.
//!
//! The same tools are there over a pipe ([`serve`]) and over HTTP, at `/mcp` of the [server](crate::serve). What they are about
//! is behind [`Control`]: loading models, serving them, running experiments. Prompts are answered by the server's
//! [backend](crate::backend), in the same queue as all others.
//!
//! | tool | what |
//! |---|---|
//! | `status` | how things stand: what `GET /v1/status` says, and where it is served |
//! | `list_models` | the models of a folder, and the built-in one |
//! | `load_model` | puts another model in the place of the one that answers |
//! | `start_serving`, `stop_serving` | the model over HTTP |
//! | `run_prompt` | an answer, with timings |
//! | `run_experiment` | an experiment of the laboratory |
//!
//! What goes wrong in a tool is told as the tool's own error, in a sentence for the model that called it. A call that is
//! cancelled ends what it began.

pub mod control;
pub(crate) mod http;

mod call;
mod desk;
mod progress;
mod tools;

pub use control::Control;

use crate::backend::Backend;
use crate::http::connections::Connections;
use crate::{Options, Root};
use desk::{Desk, Via};
use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use std::future::Future;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What clients over HTTP find at `/mcp`.
#[derive(Clone)]
pub struct Mcp {
    /// What the tools are about.
    pub control: Arc<dyn Control>,
    /// What clients may do there.
    pub rights: Rights,
}

/// What clients may do besides asking; where they may not, the sentence that says why.
#[derive(Debug, Clone, Copy)]
pub struct Rights {
    /// Look into folders, load models, and stop the server.
    pub steer: Result<(), &'static str>,
    /// Start programs.
    pub programs: Result<(), &'static str>,
}

impl Rights {
    /// All.
    pub const ALL: Rights = Rights { steer: Ok(()), programs: Ok(()) };
}

/// Speaks the protocol with the one client that is at the other end of a pipe, until it leaves or `stop` is ready.
///
/// # Errors
/// What the client sends first is not the protocol, as a sentence.
pub async fn serve<R, W>(
    reader: R,
    writer: W,
    backend: Arc<dyn Backend>,
    control: Arc<dyn Control>,
    options: Options,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), String>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (_stopping, stopping) = watch::channel(false);
    let ended = CancellationToken::new();
    let connections = Arc::new(Connections::new(options.limits, options.log.clone()));
    let root = Root { backend, options: Arc::new(options), connections, stopping, ended: ended.clone() };
    let desk = Desk::new(root, control, Rights::ALL, Via::Pipe);
    let served = async {
        match desk.serve_with_ct((reader, writer), ended.clone()).await {
            Ok(running) => running.waiting().await.map(drop).map_err(|e| format!("the client cannot be served: {e}")),
            // One that leaves at once, or that was told to, has nothing to complain about.
            Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => Ok(()),
            Err(ServerInitializeError::ExpectedInitializeRequest(_)) => Err(
                "the client does not begin as the Model Context Protocol does: with a request, most often `initialize`"
                    .to_owned(),
            ),
            Err(e) => Err(format!("the client cannot be served: {e}")),
        }
    };
    let stopped = async {
        stop.await;
        ended.cancel();
        std::future::pending().await
    };
    tokio::select! {
        served = served => served,
        never = stopped => never,
    }
}
