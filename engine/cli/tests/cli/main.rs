//! Drives the real binary on real files: the small models of the repository and of the shared folder, and damaged copies of them.
// Panics are how tests fail; clippy.toml allows them in test functions, and this in what those call.
#![allow(clippy::unwrap_used, clippy::panic)]

mod bench;
mod check;
mod common;
mod config;
mod device;
#[cfg(unix)]
mod gpu;
mod help;
mod inspect;
mod list;
#[cfg(unix)]
mod mcp;
#[cfg(unix)]
mod mcp_http;
mod pack;
mod run;
#[cfg(unix)]
mod serve;
#[cfg(unix)]
mod serve_agent;
#[cfg(unix)]
mod serve_files;
#[cfg(unix)]
mod serve_load;
#[cfg(unix)]
mod talk;
mod trace;
mod usage;
