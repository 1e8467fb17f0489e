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
