//! What tools need besides a backend, and what they tell of it.

use rmcp::schemars::{self, JsonSchema};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::pin::Pin;
use tokio::sync::watch;

/// Something that takes its time. An error is a sentence. Who drops it has cancelled it.
pub type Later<T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send>>;

/// Where something that takes its time tells how far it is.
pub type Told = watch::Sender<Step>;

/// How far something is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Step {
    /// The share that is done, from 0 to 1, where that is known.
    pub share: Option<f32>,
    /// What is done now.
    pub text: String,
}

/// What can be done with the program that answers.
///
/// Errors are sentences, for the model that called a tool and whoever reads what it does.
pub trait Control: Send + Sync + 'static {
    /// Sees to it that a model is loaded or being loaded. It does not wait for that, but may read the head of a file.
    ///
    /// # Errors
    /// There is no such model.
    fn begin(&self) -> Result<(), String>;

    /// The models of a folder, and the built-in one. Without a folder, of that of the settings. It reads heads of files.
    ///
    /// # Errors
    /// The folder cannot be read.
    fn models(&self, folder: Option<PathBuf>) -> Result<Models, String>;

    /// Loads a model, and has it answer in the place of the one before. That one finishes what it was asked; it stays if
    /// the other cannot be loaded, or the loading is cancelled.
    fn load(&self, model: String, told: Told) -> Later<Loaded>;

    /// Where the model is served over HTTP, if it is.
    fn serving(&self) -> Option<String>;

    /// Serves the model over HTTP, or says that it already is.
    fn start(&self, how: Start) -> Later<Serving>;

    /// Ends that; running answers may finish. Waits for it only if `wait` is set, which a client must not do that is served
    /// over HTTP itself.
    fn stop(&self, wait: bool) -> Later<Stopped>;

    /// Runs an experiment. Cancelling it ends the program that was started.
    fn experiment(&self, which: Experiment, told: Told) -> Later<Ended>;
}

/// The models that there are.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(crate = "schemars")]
pub struct Models {
    /// The folder that was looked into.
    pub folder: String,
    /// The models, the built-in one first.
    pub models: Vec<Model>,
}

/// A model that could be loaded.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(crate = "schemars")]
pub struct Model {
    /// Its name.
    pub name: String,
    /// What load_model takes for it.
    pub model: String,
    /// Whether it is part of the program.
    pub built_in: bool,
    /// Its size in bytes.
    pub bytes: u64,
    /// Files of it that are there.
    pub shards: usize,
    /// Files that it should have.
    pub shards_declared: u64,
    /// Files that are not there, without which it cannot be loaded.
    pub missing: Vec<String>,
    /// Whether it is a draft layer alone, which cannot be loaded as a model.
    pub draft_layer: bool,
}

/// A model that was loaded.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(crate = "schemars")]
pub struct Loaded {
    /// Its name, which answers bear.
    pub model: String,
    /// The name of the model that answered before, if one did.
    pub before: Option<String>,
    /// Tokens that a prompt and its answer can have together.
    pub context: usize,
    /// Seconds that loading took.
    pub seconds: f64,
}

/// How a model is to be served. What is left out is as the settings have it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[schemars(crate = "schemars")]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// The model: a .gguf file, any shard of a set, the folder of one model, or nano, which is built in. Left out: the one
    /// that is loaded, or else that of the settings.
    #[serde(default)]
    pub model: Option<String>,
    /// The address to listen on. Beyond this machine (such as 0.0.0.0) only where the program was started with an API key.
    #[serde(default)]
    pub host: Option<String>,
    /// The port to listen on; 0 for any that is free.
    #[serde(default)]
    pub port: Option<u16>,
}

/// A model that is served.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(crate = "schemars")]
pub struct Serving {
    /// Its address: chat page and monitor, and the base URL of Anthropic's clients. OpenAI's clients add /v1.
    pub url: String,
    /// Whether it was served there before.
    pub already: bool,
    /// Whether requests have to bring a key.
    pub key_needed: bool,
}

/// A server that ended, or ends.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(crate = "schemars")]
pub struct Stopped {
    /// Where it was.
    pub url: String,
    /// Whether it has ended already. Otherwise it does as soon as running answers are finished, or their time is over.
    pub ended: bool,
}

/// What is to be run.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[schemars(crate = "schemars")]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// The experiment's name, such as 002-cache-size, or its number. A name that is unknown is answered with those there are.
    pub name: String,
    /// Only look whether the experiment and its inputs are whole, and run nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// What came of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(crate = "schemars")]
pub struct Ended {
    /// The experiment's full name.
    pub name: String,
    /// The exit status of the program that ran it: 0 if all went well; none if a signal ended it.
    pub exit_status: Option<i32>,
    /// The end of what the program said.
    pub output_end: String,
    /// The folder in which the result lies: summary.md, figures and rows. None if nothing was written.
    pub result: Option<String>,
    /// Seconds that it took.
    pub seconds: f64,
}
