//! The laboratory from experiment to result, on a study whose answers are known.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used, clippy::panic)]

mod bowl;
mod project;

mod cluster;
mod command;
mod experiments;
mod figures;
mod promotions;
mod replays;
mod reports;
mod runs;
mod traces;
mod verdicts;
