//! What clients of the Model Context Protocol can have done.

use super::address::Address;
use super::host::{Host, Place};
use super::options;
use crate::builtin;
use crate::exit::sentence;
use crate::output::note;
use std::path::{Path, PathBuf};
use std::time::Duration;
use strata_gguf::{ModelFiles, models_in};
use strata_server::Options;
use strata_server::mcp::Control;
use strata_server::mcp::control::{Ended, Experiment, Later, Loaded, Model, Models, Serving, Start, Stopped, Told};
use tokio::sync::watch;

/// Longer than killing a program takes.
const SOON: Duration = Duration::from_secs(5);

impl Control for Host {
    fn begin(&self) -> Result<(), String> {
        Host::begin(self)
    }

    fn models(&self, folder: Option<PathBuf>) -> Result<Models, String> {
        let folder = folder.unwrap_or_else(|| usual_folder(self.inner().settings.engine.model.as_deref()));
        let found = models_in(&folder).map_err(|e| e.to_string())?;
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        let models = std::iter::once(nano()).chain(found.iter().map(described)).collect();
        Ok(Models { folder: folder.to_string_lossy().into_owned(), models })
    }

    fn load(&self, model: String, told: Told) -> Later<Loaded> {
        let host = self.clone();
        Box::pin(async move { host.replace(model, &told).await })
    }

    fn serving(&self) -> Option<String> {
        let place = self.place();
        let alive = |place: &&Place| place.task.as_ref().is_none_or(|task| !task.is_finished());
        place.as_ref().filter(alive).map(|place| place.url.clone())
    }

    fn start(&self, how: Start) -> Later<Serving> {
        let host = self.clone();
        Box::pin(async move { host.start_serving(how).await })
    }

    fn stop(&self, wait: bool) -> Later<Stopped> {
        let host = self.clone();
        Box::pin(async move { host.stop_serving(wait).await })
    }

    fn experiment(&self, which: Experiment, told: Told) -> Later<Ended> {
        let host = self.clone();
        Box::pin(async move { host.inner().lab.run(&which, &told).await })
    }
}

impl Host {
    async fn start_serving(&self, how: Start) -> Result<Serving, String> {
        let _alone = self.inner().moving.lock().await;
        let mut server = self.inner().settings.server.clone();
        let key_needed = !server.api_keys.is_empty();
        if let Some(url) = self.serving() {
            return match how.model {
                None => Ok(Serving { url, already: true, key_needed }),
                Some(_) => {
                    Err(format!("a model is served at {url} already; load_model puts another one in its place there"))
                }
            };
        }
        server.host = how.host.unwrap_or(server.host);
        server.port = how.port.unwrap_or(server.port);
        let address = Address::of(&server).map_err(|e| sentence(&e))?;
        let listener = address.listen().await.map_err(|e| sentence(&e))?;
        let url = Address::url(&listener).map_err(|e| sentence(&e))?;
        match how.model {
            Some(model) => drop(self.replace(model, &watch::Sender::default()).await?),
            None => {
                let host = self.clone();
                let begun = tokio::task::spawn_blocking(move || host.begin()).await;
                begun.map_err(|e| format!("a thread failed: {e}"))??;
            }
        }
        // What depends on the model comes from the model that answers.
        let options = Options { mcp: self.mcp(&address), ..options(&self.inner().settings, builtin::NAME) };
        let (stop, mut stopped) = watch::channel(false);
        let told = async move { drop(stopped.wait_for(|&stop| stop).await) };
        let task = tokio::spawn(strata_server::serve(listener, self.switch(), options, told));
        note(&format!("serving at {url}"));
        *self.place() = Some(Place { url: url.clone(), stop, task: Some(task) });
        Ok(Serving { url, already: false, key_needed })
    }

    /// Ends what clients began besides models, once there are none any more.
    pub(crate) async fn leave(&self) {
        // That nothing is served is as well.
        let _ = self.stop_serving(true).await;
        let _ = tokio::time::timeout(SOON, self.inner().lab.idle()).await;
    }

    /// Ends what is served over HTTP; waits for that only if `wait` is set.
    ///
    /// # Errors
    /// Nothing is, as a sentence.
    async fn stop_serving(&self, wait: bool) -> Result<Stopped, String> {
        let _alone = self.inner().moving.lock().await;
        let place = self.place().take();
        let Some(Place { url, stop, task }) = place else { return Err("nothing is served over HTTP".to_owned()) };
        stop.send_replace(true);
        let ended = match task {
            Some(task) if wait => {
                let served = task.await.map_err(|e| format!("the server at {url} broke off: {e}"))?;
                served.map_err(|e| format!("the server at {url} ended with an error: {e}"))?;
                note(&format!("no longer serving at {url}"));
                true
            }
            _ => false,
        };
        Ok(Stopped { url, ended })
    }
}

/// Where models are looked for if nobody says where: beside that of the settings, or where the program was started.
fn usual_folder(model: Option<&Path>) -> PathBuf {
    let beside = model.and_then(|model| if model.is_dir() { Some(model) } else { model.parent() });
    beside.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).into()
}

fn nano() -> Model {
    Model {
        name: builtin::NAME.to_owned(),
        model: builtin::NAME.to_owned(),
        built_in: true,
        bytes: builtin::bytes(),
        shards: 1,
        shards_declared: 1,
        missing: Vec::new(),
        draft_layer: false,
    }
}

fn described(files: &ModelFiles) -> Model {
    let path = files.paths.first().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone()));
    Model {
        name: files.name.clone(),
        model: path.unwrap_or_default().to_string_lossy().into_owned(),
        built_in: false,
        bytes: files.bytes,
        shards: files.paths.len(),
        shards_declared: files.declared,
        missing: files.missing.clone(),
        draft_layer: files.is_draft_layer(),
    }
}
