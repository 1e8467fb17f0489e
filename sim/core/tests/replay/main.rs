//! Replays: counts that add up, recordings that are checked, intervals that are what they say.

#![allow(clippy::unwrap_used, clippy::panic)]

mod bootstrap;
mod check;
mod counts;
mod made;
mod start;
