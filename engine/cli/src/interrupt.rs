//! Ctrl-C: the first ends the answer, the second the program.

use crate::exit::INTERRUPTED;
use anyhow::{Context, Result};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static CANCEL: AtomicBool = AtomicBool::new(false);
static INSTALLED: OnceLock<bool> = OnceLock::new();

/// The flag that Ctrl-C sets, lowered. The first call installs the handler.
pub(crate) fn handler() -> Result<&'static AtomicBool> {
    CANCEL.store(false, Ordering::Relaxed);
    if INSTALLED.get().is_none() {
        ctrlc::set_handler(|| {
            if CANCEL.swap(true, Ordering::Relaxed) {
                std::process::exit(INTERRUPTED.into());
            }
        })
        .context("cannot listen for Ctrl-C")?;
        let _ = INSTALLED.set(true);
    }
    Ok(&CANCEL)
}
