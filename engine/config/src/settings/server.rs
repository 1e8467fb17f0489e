//! The settings of `strata serve`.

use super::Resolved;
use crate::error::ConfigError;
use crate::knob::{Knob, Value};
use crate::registry::*;
use std::path::PathBuf;

/// How requests are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// The address to listen on.
    pub host: String,
    /// The port; 0 = any that is free.
    pub port: u16,
    /// Keys of which every request must bring one; none = no key is asked for.
    pub api_keys: Vec<String>,
    /// Listens beyond this machine even without keys.
    pub insecure: bool,
    /// Further names by which the server may be called.
    pub allow_hosts: Vec<String>,
    /// Origins of pages from elsewhere that may use the server.
    pub allow_origins: Vec<String>,
    /// The model's name in answers; `None` = the model file's own.
    pub model_name: Option<String>,
    /// Requests answered at the same time.
    pub parallel: usize,
    /// Requests that may wait.
    pub queue: usize,
    /// The largest request, in MiB.
    pub body_limit: usize,
    /// Seconds that running answers have when the server is told to end.
    pub grace: usize,
    /// Seconds without progress after which the server says so.
    pub stuck: usize,
    /// The folder for traces; `None` = nothing is recorded.
    pub trace: Option<PathBuf>,
    /// `off`, `on`, or `all`, which lets clients run experiments.
    pub mcp: String,
    /// The program that runs experiments; `None` = the one that is found.
    pub lab: Option<PathBuf>,
}

impl Server {
    pub(super) fn new(values: &Resolved) -> Result<Server, ConfigError> {
        let list = |knob: &Knob| -> Vec<String> {
            let text = values.get(knob).and_then(Value::as_str).unwrap_or_default();
            text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(String::from).collect()
        };
        Ok(Server {
            host: values.text(&HOST)?,
            // Its range is a port's.
            port: values.int(&PORT)? as u16,
            api_keys: list(&API_KEY),
            insecure: values.truth(&INSECURE)?,
            allow_hosts: list(&ALLOW_HOST),
            allow_origins: list(&ALLOW_ORIGIN),
            model_name: values.get(&MODEL_NAME).and_then(Value::as_str).map(String::from),
            parallel: values.int(&PARALLEL)?,
            queue: values.int(&QUEUE)?,
            body_limit: values.int(&BODY_LIMIT)?,
            grace: values.int(&GRACE)?,
            stuck: values.int(&STUCK)?,
            trace: values.get(&TRACE).and_then(Value::as_path).map(Into::into),
            mcp: values.text(&MCP)?,
            lab: values.get(&LAB).and_then(Value::as_path).map(Into::into),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Layer, Origin, Settings};

    #[test]
    fn every_knob_of_the_server_reaches_its_field() {
        let file = Layer::from_toml(
            "x.toml",
            "[server]\nhost = '::'\nport = 1\napi_key = 'a, b,'\ninsecure = true\nallow_host = 'c'\n\
             allow_origin = 'http://d,http://e'\nmodel_name = 'f'\nparallel = 2\nqueue = 3\nbody_limit = 4\ngrace = 5\n\
             stuck = 6\ntrace = 'g'\nmcp = 'all'\nlab = 'h'\n",
        )
        .unwrap();
        let [flags, env, model] = [Origin::Flag, Origin::Env, Origin::Model].map(Layer::empty);
        let s = Settings::resolve(flags, env, file, model).unwrap();
        let mut given = s.iter().filter(|(knob, _)| knob.section() == "server");
        assert!(given.all(|(_, v)| v.is_some_and(|(_, origin)| origin == &Origin::File("x.toml".into()))));
        let strings = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        let want = Server {
            host: "::".into(),
            port: 1,
            api_keys: strings(&["a", "b"]),
            insecure: true,
            allow_hosts: strings(&["c"]),
            allow_origins: strings(&["http://d", "http://e"]),
            model_name: Some("f".into()),
            parallel: 2,
            queue: 3,
            body_limit: 4,
            grace: 5,
            stuck: 6,
            trace: Some("g".into()),
            mcp: "all".into(),
            lab: Some("h".into()),
        };
        assert_eq!(s.server, want);
    }
}
