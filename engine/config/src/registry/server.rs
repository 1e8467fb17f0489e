//! The knobs of `strata serve`.

use super::{MIB_MAX, PLAIN};
use crate::knob::{Kind, Knob, Verb};

const SERVING: &[Verb] = &[Verb::Serve];

/// What the knobs of the server have in common.
const OURS: Knob = Knob { verbs: SERVING, ..PLAIN };

/// `server.host`
pub static HOST: Knob = Knob {
    key: "server.host",
    flag: "host",
    env: "STRATA_HOST",
    kind: Kind::Text,
    help: "Address to listen on; beyond this machine only with --api-key",
    ..OURS
};

/// `server.port`
pub static PORT: Knob = Knob {
    key: "server.port",
    flag: "port",
    env: "STRATA_PORT",
    kind: Kind::Int { min: 0, max: 65_535 },
    help: "Port to listen on; 0 = any that is free, which is printed",
    ..OURS
};

/// `server.api_key`
pub static API_KEY: Knob = Knob {
    key: "server.api_key",
    flag: "api-key",
    env: "STRATA_API_KEY",
    kind: Kind::Text,
    help: "Key that every request must bring; several with commas between them",
    long_help: "As `Authorization: Bearer KEY` or `x-api-key: KEY`. A flag is seen by everybody on the machine: the variable \
                and the file are not.",
    unset: Some("none is asked for"),
    secret: true,
    ..OURS
};

/// `server.insecure`
pub static INSECURE: Knob = Knob {
    key: "server.insecure",
    flag: "insecure",
    env: "STRATA_INSECURE",
    kind: Kind::Bool,
    help: "Listen beyond this machine without a key",
    ..OURS
};

/// `server.allow_host`
pub static ALLOW_HOST: Knob = Knob {
    key: "server.allow_host",
    flag: "allow-host",
    env: "STRATA_ALLOW_HOST",
    kind: Kind::Text,
    help: "Further names by which the server may be called; several with commas between them",
    long_help: "Requests without a key that name another host are refused, so that a web page cannot reach the server through \
                a name of its own that it points here.",
    unset: Some("localhost, and numbers such as 192.168.1.5"),
    ..OURS
};

/// `server.allow_origin`
pub static ALLOW_ORIGIN: Knob = Knob {
    key: "server.allow_origin",
    flag: "allow-origin",
    env: "STRATA_ALLOW_ORIGIN",
    kind: Kind::Text,
    help: "Web pages from elsewhere that may use the server, such as https://example.org; commas between",
    unset: Some("the server's own pages and those of this machine"),
    ..OURS
};

/// `server.model_name`
pub static MODEL_NAME: Knob = Knob {
    key: "server.model_name",
    flag: "model-name",
    env: "STRATA_MODEL_NAME",
    kind: Kind::Text,
    help: "Name of the model in answers",
    long_help: "Requests may name any model: there is one, and it answers.",
    unset: Some("the model file's own"),
    ..OURS
};

/// `server.parallel`
pub static PARALLEL: Knob = Knob {
    key: "server.parallel",
    flag: "parallel",
    env: "STRATA_PARALLEL",
    kind: Kind::Int { min: 1, max: 64 },
    help: "Requests that are answered at the same time",
    long_help: "They share the processor, so each is slower. The others wait.",
    ..OURS
};

/// `server.queue`
pub static QUEUE: Knob = Knob {
    key: "server.queue",
    flag: "queue",
    env: "STRATA_QUEUE",
    kind: Kind::Int { min: 0, max: 100_000 },
    unit: "requests",
    help: "Requests that may wait; one more is told to come back later",
    ..OURS
};

/// `server.body_limit`
pub static BODY_LIMIT: Knob = Knob {
    key: "server.body_limit",
    flag: "body-limit",
    env: "STRATA_BODY_LIMIT",
    kind: Kind::Int { min: 1, max: MIB_MAX },
    unit: "MiB",
    help: "The largest request",
    ..OURS
};

/// `server.grace`
pub static GRACE: Knob = Knob {
    key: "server.grace",
    flag: "grace",
    env: "STRATA_GRACE",
    kind: Kind::Int { min: 0, max: 86_400 },
    unit: "seconds",
    help: "Time that running answers have when the server is told to end; then they are cancelled",
    ..OURS
};

/// `server.stuck`
pub static STUCK: Knob = Knob {
    key: "server.stuck",
    flag: "stuck",
    env: "STRATA_STUCK",
    kind: Kind::Int { min: 1, max: 86_400 },
    unit: "seconds",
    help: "Time without any progress of a running answer after which the server says so",
    ..OURS
};

/// `server.trace`
pub static TRACE: Knob = Knob {
    key: "server.trace",
    flag: "trace",
    env: "STRATA_TRACE",
    kind: Kind::Path,
    help: "Folder for a trace of everything that is answered: which experts, and how long each part took",
    unset: Some("nothing is recorded"),
    ..OURS
};

/// `server.mcp`
pub static MCP: Knob = Knob {
    key: "server.mcp",
    flag: "mcp",
    env: "STRATA_MCP",
    kind: Kind::Choice(&["off", "on", "all"]),
    help: "The Model Context Protocol at /mcp; all = with experiments, which start a program",
    long_help: "With `on`, whoever may ask may also list and load models and stop the server. Experiments start a program, so \
                they are run for clients only where `all` asks for it; `strata mcp` runs them for the client that started \
                it. A server that others reach without a key (--insecure) only answers there and says how it does.",
    ..OURS
};

/// `server.lab`
pub static LAB: Knob = Knob {
    key: "server.lab",
    flag: "lab",
    env: "STRATA_LAB",
    kind: Kind::Path,
    help: "The program that runs experiments for clients of the Model Context Protocol",
    unset: Some("strata-lab beside this program, or in PATH"),
    ..OURS
};
