//! The expert cache: against a plain one, and against what always holds.

#![allow(clippy::unwrap_used, clippy::panic)]

mod engine;
mod golden;
mod naive;
mod rules;
mod text;
