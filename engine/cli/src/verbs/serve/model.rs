//! A model that answers: from an open file to its end.

use super::record::Recorder;
use super::{Task, start};
use crate::device::{Chosen, Machine, Placement, Purpose};
use crate::load;
use crate::recording::Target;
use anyhow::Result;
use std::sync::Arc;
use std::time::Duration;
use strata_config::Settings;
use strata_gguf::Gguf;
use strata_server::Defaults;
use strata_server::backend::Backend;
use strata_server::engine::EngineBackend;

/// What is known before a model is loaded.
pub(crate) struct Opened {
    pub(super) gguf: Gguf,
    /// The settings, with what the model suggests.
    pub(super) settings: Settings,
    /// What answers call it.
    pub(super) name: String,
    /// The file of its trace, if one is recorded.
    pub(super) target: Option<Target>,
    /// What there is to say of the settings of an expert cache.
    pub(super) idle_cache: Option<&'static str>,
}

impl Opened {
    /// What the user should know of the settings.
    pub(crate) fn notes(&self) -> Vec<String> {
        let warnings = self.settings.warnings().iter().map(String::as_str).chain(self.idle_cache);
        let warnings = warnings.map(|w| format!("warning: {w}"));
        self.settings.said_of_results().into_iter().chain(warnings).collect()
    }
}

/// A backend that can be ended, on whatever device.
pub(super) trait Serving: Backend {
    /// See [`EngineBackend::shutdown`].
    fn shutdown(&self, grace: Duration);
}

impl<O: Machine> Serving for EngineBackend<O> {
    fn shutdown(&self, grace: Duration) {
        EngineBackend::shutdown(self, grace);
    }
}

/// A model that answers or is being loaded.
pub(crate) struct Model {
    pub(super) backend: Arc<dyn Serving>,
    /// What holds where requests do not say.
    pub(super) defaults: Defaults,
    recorder: Recorder,
}

impl Model {
    /// Has it loaded, on threads of its own.
    ///
    /// # Errors
    /// They cannot be started, or the device that the settings name cannot be used.
    pub(crate) fn start(opened: Opened) -> Result<Model> {
        let Opened { gguf, mut settings, name, target, .. } = opened;
        let defaults = Defaults {
            sampling: load::sampling(&settings, 0),
            max_tokens: settings.sampling.max_tokens,
            think: settings.chat.think,
            name: name.clone(),
        };
        let recorder = Recorder::default();
        let c = &settings.cache;
        let purpose = Purpose { context: None, conversations: c.conversations, checkpoints: c.checkpoints };
        let placement = Placement::new(&gguf, &settings, purpose)?;
        settings.engine.prefill_chunk = placement.chunk(&settings);
        let chosen = placement.ops(&settings)?;
        let task = Task { gguf, settings, name, target, recorder: recorder.clone(), placement };
        let backend: Arc<dyn Serving> = match chosen {
            Chosen::Cpu(ops) => Arc::new(start(task, ops)?),
            Chosen::Cuda(ops) => Arc::new(start(task, *ops)?),
        };
        Ok(Model { backend, defaults, recorder })
    }

    /// Lets answers finish for so long, cancels the rest, and ends the trace.
    ///
    /// # Errors
    /// The trace could not be written.
    pub(super) fn end(&self, grace: Duration) -> Result<()> {
        self.backend.shutdown(grace);
        self.recorder.finish()
    }
}
