//! What turns a model into answers: sampling, the prefill and decode loops, conversations.
//!
//! An [`Engine`] is a loaded model with its tokenizer and chat template. A [`Session`] is one sequence on it:
//! [`Session::generate`] reads a prompt (only the part that the session has not read yet) and streams an answer. A
//! [`Chat`] keeps the messages of a conversation and renders them through the template. [`Conversations`] keeps several
//! sessions within a budget of memory and gives each prompt to the one that knows most of it; a [`Parking`] keeps
//! conversations in files. A [`Recording`] writes what the engine does into a trace.
#![forbid(unsafe_code)]

mod chat;
mod checkpoints;
mod constraint;
mod conversations;
mod decode;
mod engine;
mod error;
mod guide;
mod logprobs;
mod marks;
mod params;
mod parking;
mod recorder;
mod rejection;
mod sampler;
mod session;
mod side;
mod speculation;
mod stops;
mod writer;

pub use chat::{Chat, ChatOptions};
pub use checkpoints::{CheckpointParams, Prompt};
pub use constraint::Constraint;
pub use conversations::{ConversationParams, ConversationStats, Conversations, Near, Turn};
pub use engine::Engine;
pub use error::{Error, Result};
pub use logprobs::TokenLogprob;
pub use marks::ChatMarks;
pub use params::GenerateParams;
pub use parking::{Parked, Parking};
pub use recorder::{About, CacheCounts, CacheWatch, LayerHits, Recorded, Recorder, Recording};
pub use rejection::SpecSampling;
pub use sampler::{Sampler, SamplingParams};
pub use session::{Answer, Event, Finish, Pace, Session, Timings};
pub use speculation::{DraftNorm, OwnDrafts, Speculation, SpeculationParams, Tally};
// Who names an engine's type needs no other crate for it.
pub use strata_model::Ops;
