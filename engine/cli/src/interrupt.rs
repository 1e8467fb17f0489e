//! Signals. Ctrl-C ends the answer, a second one the program; being told to end (SIGTERM, SIGHUP) ends both.
//!
//! Work that is cancelled ends by itself, so that what is to be kept can be kept. Whoever does not want to wait for that
//! sends the signal again.

use crate::exit::INTERRUPTED;
use anyhow::{Context, Result};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

static CANCEL: AtomicBool = AtomicBool::new(false);
/// The exit code with which the program is to end soon; 0 when it is not.
static LEAVE: AtomicU8 = AtomicU8::new(0);
/// Whether there is a conversation, which is kept before a second Ctrl-C ends the program.
static CONVERSING: AtomicBool = AtomicBool::new(false);
static INSTALLED: OnceLock<bool> = OnceLock::new();

/// The flag that a signal sets, lowered. The first call installs the handlers.
pub(crate) fn handler() -> Result<&'static AtomicBool> {
    if INSTALLED.get().is_none() {
        ctrlc::set_handler(ctrl_c).context("cannot listen for Ctrl-C")?;
        listen_for_the_end()?;
        let _ = INSTALLED.set(true);
    }
    CANCEL.store(false, Ordering::SeqCst);
    // A signal that came in between has raised the flag, or does so now.
    if leaving() {
        CANCEL.store(true, Ordering::SeqCst);
    }
    Ok(&CANCEL)
}

/// Whether the program was told to end.
pub(crate) fn leaving() -> bool {
    LEAVE.load(Ordering::SeqCst) != 0
}

/// The exit code of work that was interrupted: 128 plus the number of the signal, as shells have it.
pub(crate) fn exit_code() -> u8 {
    match LEAVE.load(Ordering::SeqCst) {
        0 => INTERRUPTED,
        code => code,
    }
}

/// From now on a second Ctrl-C too leaves time to keep a conversation; the caller looks at [`leaving`].
pub(crate) fn converse() {
    CONVERSING.store(true, Ordering::SeqCst);
}

fn ctrl_c() {
    if CANCEL.swap(true, Ordering::SeqCst) {
        let told_before = LEAVE.swap(INTERRUPTED, Ordering::SeqCst) != 0;
        if told_before || !CONVERSING.load(Ordering::SeqCst) {
            std::process::exit(INTERRUPTED.into());
        }
    }
}

/// Has SIGTERM and SIGHUP cancel what runs. A signal that the program was started to ignore stays ignored, as SIGHUP is
/// under `nohup`.
#[cfg(unix)]
fn listen_for_the_end() -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGTERM};
    let ignored = ignored_signals();
    let heard = [SIGTERM, SIGHUP].into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0);
    let mut signals = signal_hook::iterator::Signals::new(heard).context("cannot listen for signals")?;
    let listen = move || {
        for signal in signals.forever() {
            // Both numbers are below 128.
            let code = 128 + signal as u8;
            let told_before = LEAVE.swap(code, Ordering::SeqCst) != 0;
            CANCEL.store(true, Ordering::SeqCst);
            if told_before {
                std::process::exit(code.into());
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(listen).context("cannot listen for signals")?;
    Ok(())
}

#[cfg(not(unix))]
fn listen_for_the_end() -> Result<()> {
    Ok(())
}

/// The signals that this process ignores, bit 0 for the first. Where the system does not say, SIGHUP (1) may be one.
#[cfg(unix)]
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.unwrap_or(1)
}
