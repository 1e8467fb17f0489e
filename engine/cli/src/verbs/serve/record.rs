//! `--trace DIR`: a trace of everything that is answered.

use crate::device::Machine;
use crate::output::note;
use crate::recording::{self, Target};
use anyhow::{Context, Result};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use strata_config::Settings;
use strata_gguf::{Gguf, show_path};
use strata_runtime::{CacheWatch, Engine};

/// A new file in the folder, which is made if need be, named by the time.
///
/// # Errors
/// The folder cannot be made, or there is such a file.
pub(super) fn target(folder: &Path) -> Result<Target> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", show_path(folder)))?;
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    Target::new(&folder.join(format!("serve-{seconds}-{}.strace", std::process::id())), false)
}

/// The recording, once there is one.
#[derive(Clone, Default)]
pub(super) struct Recorder(Arc<Mutex<Option<recording::Started>>>);

impl Recorder {
    /// Records from now on. Returns what the expert cache of the recording counts, if there is one.
    pub(super) fn begin<O: Machine>(
        &self,
        target: &Target,
        gguf: &Gguf,
        engine: &Engine<O>,
        settings: &Settings,
    ) -> Result<CacheWatch> {
        let started = target.start(gguf, engine, settings, None)?;
        note(&format!("recording into {}", show_path(target.path())));
        let cache = started.cache();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
        Ok(cache)
    }

    /// Ends the trace, if there is one.
    ///
    /// # Errors
    /// It could not be written.
    pub(super) fn finish(&self) -> Result<()> {
        let started = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(started) = started else { return Ok(()) };
        let path = started.path().to_path_buf();
        let recorded = started.finish()?;
        note(&format!("trace: {}", recording::summary(&path, &recorded)));
        Ok(())
    }
}
