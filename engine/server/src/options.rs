//! What a server is told besides its address.

use crate::mcp::Mcp;
use crate::switch::Defaults;
use axum::Router;
use std::sync::Arc;
use std::time::Duration;
use strata_runtime::SamplingParams;

/// How a server behaves.
#[derive(Clone)]
pub struct Options {
    /// Keys of which every request must bring one; without any, all may ask.
    pub keys: Vec<String>,
    /// Names by which the server may be addressed, besides addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Origins, such as `https://chat.example`, whose pages may use the server, besides its own and those of this machine.
    pub origins: Vec<String>,
    /// Bytes of a request's body at most.
    pub body_limit: usize,
    /// What clients may take of the server's time and memory.
    pub limits: Limits,
    /// How long a stream may be silent before a sign of life is sent.
    pub heartbeat: Duration,
    /// How long answers may go on once the server is to stop.
    pub grace: Duration,
    /// How tokens are chosen where a request does not say. A request without a seed gets a random one.
    pub sampling: SamplingParams,
    /// Tokens of an answer where a request does not say; 0 is no limit but the context.
    pub max_tokens: usize,
    /// Whether the model thinks where a request does not say; `None` leaves it to the chat template.
    pub think: Option<bool>,
    /// The model's name while it is not loaded yet.
    pub name: String,
    /// Where lines for the log go.
    pub log: Log,
    /// What clients of the Model Context Protocol may do at `/mcp`; without it there is no such path.
    pub mcp: Option<Mcp>,
    /// Further paths, which get the same checks as the server's own.
    pub routes: Router,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            keys: Vec::new(),
            hosts: Vec::new(),
            origins: Vec::new(),
            body_limit: 32 << 20,
            limits: Limits::default(),
            heartbeat: Duration::from_secs(5),
            grace: Duration::from_secs(10),
            sampling: SamplingParams::default(),
            max_tokens: 0,
            think: None,
            name: "strata".to_owned(),
            log: Log::none(),
            mcp: None,
            routes: Router::new(),
        }
    }
}

/// What a client may take of the server's time and memory before it is let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at the same time. Further ones are answered with status 503.
    pub connections: usize,
    /// How long a request's head may take, from the start of the connection or the end of the answer before. So an idle
    /// connection ends after this time, and a head that is only half there is answered with status 408.
    pub head: Duration,
    /// How long a request's body may take, if it is slower than 1 KiB/s. Then the answer is status 408.
    pub body: Duration,
    /// How long a client may take nothing of what is sent to it. Then its connection ends, and its request is cancelled.
    pub unread: Duration,
    /// Events of an answer that may wait for a client that reads slowly. One more, and its request is cancelled.
    pub waiting: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            // Below the 1024 files that most systems let a process open.
            connections: 512,
            head: Duration::from_secs(30),
            body: Duration::from_secs(30),
            unread: Duration::from_secs(60),
            waiting: 1 << 14,
        }
    }
}

impl Options {
    /// The same options for another model.
    pub(crate) fn with(&self, defaults: &Defaults) -> Options {
        let Defaults { sampling, max_tokens, think, name } = defaults.clone();
        Options { sampling, max_tokens, think, name, ..self.clone() }
    }
}

/// Takes lines for the log.
#[derive(Clone)]
pub struct Log(Arc<dyn Fn(&str) + Send + Sync>);

impl Log {
    /// Has lines handed to a function.
    pub fn new(line: impl Fn(&str) + Send + Sync + 'static) -> Log {
        Log(Arc::new(line))
    }

    /// Drops them.
    pub fn none() -> Log {
        Log::new(|_| ())
    }

    pub(crate) fn line(&self, line: &str) {
        (self.0)(line);
    }
}
