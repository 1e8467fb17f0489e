//! The models that answer, one after the other, and where they are served.

use super::address::Address;
use super::lab::Lab;
use super::model::{Model, Opened};
use super::{name, record, room};
use crate::exit::sentence;
use crate::output::note;
use crate::{builtin, flags, recording};
use anyhow::Result;
use clap::ArgMatches;
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use strata_config::Settings;
use strata_server::Switch;
use strata_server::backend::{Backend, State};
use strata_server::mcp::control::{Loaded, Step, Told};
use strata_server::mcp::{Mcp, Rights};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How often it is looked whether something is done.
const LOOK: Duration = Duration::from_millis(50);

/// Why clients may not steer a server that anybody reaches.
const NO_KEY: &str = "this server lets other machines in without a key, so clients may ask it and nothing else; the person who \
                      runs it can have it ask for one with --api-key";
/// Why clients may not start programs.
const NO_PROGRAMS: &str = "over HTTP, experiments are run only by a server that was started with --mcp all; `strata mcp` runs \
                           them for the client that started it";

/// What one program serves, for whoever asks it to.
#[derive(Clone)]
pub(crate) struct Host(Arc<Inner>);

pub(super) struct Inner {
    matches: ArgMatches,
    /// The settings without what a model suggests.
    pub(super) settings: Settings,
    pub(super) switch: Arc<Switch>,
    /// Models that have not ended, the one that answers last.
    models: Mutex<Vec<Arc<Model>>>,
    /// Held while a model is loaded.
    pub(super) loading: tokio::sync::Mutex<()>,
    /// Where it is served.
    pub(super) place: Mutex<Option<Place>>,
    /// Held while that changes.
    pub(super) moving: tokio::sync::Mutex<()>,
    pub(super) lab: Lab,
}

/// Where a model is served over HTTP.
pub(super) struct Place {
    pub(super) url: String,
    pub(super) stop: watch::Sender<bool>,
    /// What serves, unless that is the program's own end.
    pub(super) task: Option<JoinHandle<std::io::Result<()>>>,
}

impl Host {
    /// One that has loaded nothing yet.
    pub(crate) fn new(matches: ArgMatches, settings: Settings) -> Host {
        let lab = Lab::new(settings.server.lab.clone());
        Host(Arc::new(Inner {
            matches,
            settings,
            switch: Arc::new(Switch::new()),
            models: Mutex::default(),
            loading: tokio::sync::Mutex::default(),
            place: Mutex::default(),
            moving: tokio::sync::Mutex::default(),
            lab,
        }))
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.0
    }

    /// What answers, whichever model that is.
    pub(crate) fn switch(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.0.switch) as _
    }

    /// Opens a model: the one that is named, or that of the settings. What the settings say of a certain model, its draft layer
    /// and its name, is not for one that is named here.
    ///
    /// # Errors
    /// It is no model, or a setting is wrong.
    pub(crate) fn open(&self, model: Option<&Path>) -> Result<Opened> {
        let first = &self.0.settings;
        let target = first.server.trace.as_deref().map(record::target).transpose()?;
        let idle_cache = recording::check_cache(first, target.is_some())?;
        let gguf = builtin::open_to_run(model.or(first.engine.model.as_deref()))?;
        let mut settings = flags::settings(&self.0.matches, Some(&gguf))?;
        if let Some(model) = model {
            settings.engine.model = Some(model.into());
            settings.speculation.draft_model = None;
            settings.server.model_name = None;
        }
        let name = name(&settings, &gguf);
        Ok(Opened { gguf, settings, name, target, idle_cache })
    }

    /// Has a model answer from now on. The one before ends once it has answered what it was asked.
    pub(crate) fn put(&self, model: Model) {
        self.put_shared(Arc::new(model));
    }

    fn put_shared(&self, model: Arc<Model>) {
        let mut models = self.models();
        let old = models.last().cloned();
        models.push(Arc::clone(&model));
        drop(models);
        self.0.switch.put(Arc::clone(&model.backend) as _, model.defaults.clone());
        let Some(old) = old else { return };
        let host = self.clone();
        let retire = move || host.retire(&old);
        if let Err(e) = std::thread::Builder::new().name("retire".into()).spawn(retire) {
            note(&format!("warning: the old model is kept in memory, since no thread could be started to end it: {e}"));
        }
    }

    /// Waits until a model that was replaced has nothing more to answer, and ends it.
    fn retire(&self, old: &Arc<Model>) {
        // Requests that began with it hold its backend.
        while Arc::strong_count(&old.backend) > 1 || busy(old) {
            std::thread::sleep(LOOK);
        }
        if let Err(e) = old.end(Duration::ZERO) {
            note(&format!("error: {}", sentence(&e)));
        }
        self.models().retain(|model| !Arc::ptr_eq(model, old));
    }

    /// Loads a model and has it answer; the one before stays if that fails.
    ///
    /// # Errors
    /// It fails, as a sentence.
    pub(super) async fn replace(&self, model: String, told: &Told) -> Result<Loaded, String> {
        let Ok(_alone) = self.0.loading.try_lock() else {
            return Err("another model is being loaded; try again when that is done".to_owned());
        };
        let since = Instant::now();
        let before = self.0.switch.model().map(|model| model.id);
        let stays = |why: String| match &before {
            Some(name) => format!("{why}; {name} answers as before"),
            None => why,
        };
        let beside = matches!(self.0.switch.state(), State::Ready | State::Loading { .. });
        let host = self.clone();
        let begun = tokio::task::spawn_blocking(move || host.begun(Path::new(&model), beside)).await;
        let next = Arc::new(begun.map_err(|e| format!("a thread failed: {e}"))?.map_err(stays)?);
        loop {
            match next.backend.state() {
                State::Ready => break,
                State::Loading { share } => {
                    let text = format!("loading {}: {:.0} %", next.defaults.name, share * 100.0);
                    told.send_replace(Step { share: Some(share), text });
                }
                State::Failed(why) => return Err(stays(why)),
                State::Empty | State::Stopping => return Err(stays("the loading was broken off".to_owned())),
            }
            tokio::time::sleep(LOOK).await;
        }
        let info = next.backend.model().ok_or_else(|| stays("the model is gone".to_owned()))?;
        self.put_shared(next);
        Ok(Loaded { model: info.id, before, context: info.context, seconds: since.elapsed().as_secs_f64() })
    }

    /// Begins to load a model, `beside` another.
    fn begun(&self, model: &Path, beside: bool) -> Result<Model, String> {
        let opened = self.open(Some(model)).map_err(|e| sentence(&e))?;
        if beside {
            room::enough(opened.gguf.tensors().iter().map(|t| t.bytes()).sum())?;
        }
        Model::start(opened).map_err(|e| sentence(&e))
    }

    /// Sees to it that the model of the settings is being loaded if there is none, and none is being loaded.
    ///
    /// # Errors
    /// It is none, as a sentence.
    pub(super) fn begin(&self) -> Result<(), String> {
        // Who holds the lock is about to have a model.
        let Ok(_alone) = self.0.loading.try_lock() else { return Ok(()) };
        if self.0.switch.state() != State::Empty {
            return Ok(());
        }
        let opened = self.open(None).map_err(|e| sentence(&e))?;
        opened.notes().iter().for_each(|line| note(line));
        self.put(Model::start(opened).map_err(|e| sentence(&e))?);
        Ok(())
    }

    /// Remembers where the program serves. What is returned is ready once a client has asked for an end to that.
    pub(crate) fn served_at(&self, url: String) -> impl Future<Output = ()> + Send + 'static {
        let (stop, mut stopped) = watch::channel(false);
        *self.place() = Some(Place { url, stop, task: None });
        async move {
            if stopped.wait_for(|&stop| stop).await.is_err() {
                // Nobody is left who could ask.
                std::future::pending::<()>().await;
            }
        }
    }

    /// What clients find at `/mcp` of a server that listens there.
    pub(super) fn mcp(&self, address: &Address) -> Option<Mcp> {
        let server = &self.0.settings.server;
        let open = address.is_beyond() && server.api_keys.is_empty();
        let steer = if open { Err(NO_KEY) } else { Ok(()) };
        let programs = match server.mcp.as_str() {
            "all" => steer,
            _ => Err(NO_PROGRAMS),
        };
        (server.mcp != "off").then(|| Mcp { control: Arc::new(self.clone()), rights: Rights { steer, programs } })
    }

    /// Ends all models; their answers may finish for so long.
    ///
    /// # Errors
    /// A trace could not be written.
    pub(crate) fn end(&self, grace: Duration) -> Result<()> {
        let models: Vec<Arc<Model>> = self.models().drain(..).collect();
        let until = Instant::now() + grace;
        // All of them, whatever becomes of one.
        let ends = models.iter().map(|model| model.end(until.saturating_duration_since(Instant::now())));
        let ended: Vec<Result<()>> = ends.collect();
        ended.into_iter().collect()
    }

    fn models(&self) -> MutexGuard<'_, Vec<Arc<Model>>> {
        self.0.models.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn place(&self) -> MutexGuard<'_, Option<Place>> {
        self.0.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn busy(model: &Model) -> bool {
    let queue = model.backend.status().queue;
    queue.waiting + queue.running > 0
}
