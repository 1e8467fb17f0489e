//! A conversation that may be kept in a folder from one run to the next.

use crate::output::{count, note};
use anyhow::{Result, bail};
use std::path::PathBuf;
use strata_config::Settings;
use strata_gguf::{Gguf, show_path};
use strata_model::{CpuOps, ModelId};
use strata_runtime::{Chat, Parking};

/// A conversation and where it is kept.
pub(super) struct Kept<'e> {
    pub(super) chat: Chat<'e, CpuOps>,
    parking: Option<Parking>,
    /// The file that it was resumed from, or parked in.
    file: Option<PathBuf>,
}

impl<'e> Kept<'e> {
    /// A conversation that is kept where the settings say, taken up again if `resume` says so.
    pub(super) fn new(
        gguf: &Gguf,
        chat: Chat<'e, CpuOps>,
        settings: &Settings,
        resume: bool,
        quiet: bool,
    ) -> Result<Kept<'e>> {
        let folder = settings.cache.park.as_ref();
        let limit = (settings.cache.park_disk as u64) << 20;
        let parking = folder.map(|folder| Parking::new(folder, ModelId::of(gguf), limit));
        let mut kept = Kept { chat, parking, file: None };
        if resume && let (Some(parking), Some(folder)) = (&kept.parking, folder) {
            let Some(file) = parking.newest()? else {
                bail!("{} holds no conversation with this model", show_path(folder));
            };
            kept.chat.resume(parking, &file)?;
            if settings.chat.system.is_some() && settings.chat.system.as_deref() != kept.chat.system() {
                note("warning: the conversation goes on with its own system message, not with the one given now");
            }
            if !quiet {
                let tokens = count(kept.chat.session().tokens().len(), "token");
                note(&format!("resumed {} with {tokens}", show_path(&file)));
            }
            kept.file = Some(file);
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
        if self.chat.session().tokens().is_empty() {
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
