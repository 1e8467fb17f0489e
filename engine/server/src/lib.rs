//! The HTTP server.
//!
//! What answers is behind [`backend::Backend`]: an engine, or a script in tests.
#![forbid(unsafe_code)]

pub mod backend;
