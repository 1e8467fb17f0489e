//! The `strata` binary: runs the model and looks into model files.
//!
//! Each verb is one file under `verbs/`, with its part of the command line and what it does. Flags of settings are not
//! written here: [`flags`] makes them from the registry of `strata-config`. What is known about a model file without
//! running it is gathered once, in [`facts`], for `inspect` and `check` alike.
//!
//! Answers go to stdout, everything else to stderr. An error is one sentence, `error: ...`, and an exit code.
#![forbid(unsafe_code)]

mod app;
mod bench;
mod builtin;
mod device;
mod exit;
mod facts;
mod flags;
mod interrupt;
mod load;
mod output;
mod recording;
mod verbs;

use std::process::ExitCode;

fn main() -> ExitCode {
    match app::run(std::env::args_os()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error),
    }
}
