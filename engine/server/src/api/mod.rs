//! The interfaces.
//!
//! Each takes its requests apart into an [`ask::Ask`], and gives the pieces of the answer ([`answer::Part`]) its own form.
//! What lies between is the same for all.

pub(crate) mod answer;
pub(crate) mod anthropic;
pub(crate) mod ask;
pub(crate) mod asked;
pub(crate) mod events;
pub(crate) mod fields;
pub(crate) mod health;
pub(crate) mod metrics;
pub(crate) mod models;
pub(crate) mod openai;
pub(crate) mod responses;
pub(crate) mod sampling;
pub(crate) mod status;
pub(crate) mod tokens;
pub(crate) mod turns;
pub(crate) mod usage;
