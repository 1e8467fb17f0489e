//! A conversation that may be kept in a folder from one run to the next.

use crate::device::Machine;
use crate::output::{count, note};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use strata_config::Settings;
use strata_gguf::{Gguf, show_path};
use strata_model::ModelId;
use strata_runtime::{Chat, Parking};

/// What stands for the conversation that was kept last where a file may be named.
pub(super) const NEWEST: &str = "newest";

/// The file to resume: as named, or of that name in the folder.
fn file(parking: &Parking, named: &Path) -> Result<PathBuf> {
    let folder = parking.folder();
    if named.as_os_str() == NEWEST {
        return parking
            .newest()?
            .with_context(|| format!("{} holds no conversation with this model", show_path(folder)));
    }
    let inside = folder.join(named);
    Ok(if !named.exists() && inside.exists() { inside } else { named.to_owned() })
}

/// The error that a file cannot be resumed, with the one that was kept before it.
fn with_older(error: anyhow::Error, parking: &Parking, file: &Path) -> anyhow::Error {
    match parking.before(file) {
        Ok(Some(older)) => anyhow::anyhow!("{error}; --resume={} goes on in the one kept before it", show_path(&older)),
        _ => error,
    }
}

/// A conversation and where it is kept.
pub(super) struct Kept<'e, O: Machine> {
    pub(super) chat: Chat<'e, O>,
    parking: Option<Parking>,
    /// The file that it was resumed from, or parked in.
    file: Option<PathBuf>,
}

impl<'e, O: Machine> Kept<'e, O> {
    /// A conversation that is kept where the settings say, or one that is taken up again: the one in the file that
    /// `resume` names, or in the newest of all for [`NEWEST`].
    pub(super) fn new(
        gguf: &Gguf,
        chat: Chat<'e, O>,
        settings: &Settings,
        resume: Option<&Path>,
        quiet: bool,
    ) -> Result<Kept<'e, O>> {
        let folder = settings.cache.park.as_ref();
        let limit = (settings.cache.park_disk as u64) << 20;
        let parking = folder.map(|folder| Parking::new(folder, ModelId::of(gguf), limit));
        let mut kept = Kept { chat, parking, file: None };
        if let (Some(named), Some(parking)) = (resume, &kept.parking) {
            let file = file(parking, named)?;
            kept.chat.resume(parking, &file).map_err(|e| with_older(e.into(), parking, &file))?;
            if settings.chat.system.is_some() && settings.chat.system.as_deref() != kept.chat.system() {
                note("warning: the conversation goes on with its own system message, not with the one given now");
            }
            if !quiet {
                let tokens = count(kept.chat.session().tokens().len(), "token");
                note(&format!("resumed {} with {tokens}", show_path(&file)));
            }
            // Another folder's file stays as it is.
            kept.file = (file.parent() == Some(parking.folder())).then_some(file);
        }
        Ok(kept)
    }

    /// Starts anew. What was kept stays, and the new conversation will be kept beside it.
    pub(super) fn clear(&mut self) {
        self.chat.clear();
        self.file = None;
    }

    /// Keeps the conversation as it is now, if there is a folder for it and anything to keep.
    pub(super) fn park(&mut self, quiet: bool) -> Result<()> {
        let Some(parking) = &self.parking else { return Ok(()) };
        // The session may still know what was taken back or left behind.
        if self.chat.is_empty() {
            return Ok(());
        }
        let parked = parking.save(self.chat.session(), &self.chat.note(), self.file.as_deref())?;
        if !quiet {
            let mib = parked.bytes.div_ceil(1 << 20);
            note(&format!("kept in {} ({mib} MiB); --resume goes on there", show_path(&parked.path)));
        }
        if parked.removed > 0 {
            let removed = count(parked.removed, "older conversation");
            note(&format!("warning: {removed} removed to keep the folder within --park-disk"));
        }
        self.file = Some(parked.path);
        Ok(())
    }
}
