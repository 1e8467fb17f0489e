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
mod conversations;
mod decode;
mod engine;
mod error;
mod marks;
mod parking;
mod recorder;
mod rejection;
mod sampler;
mod session;
mod side;
mod speculation;

pub use chat::{Chat, ChatOptions};
pub use checkpoints::{CheckpointParams, Prompt};
pub use conversations::{ConversationParams, ConversationStats, Conversations};
pub use engine::Engine;
pub use error::{Error, Result};
pub use marks::ChatMarks;
pub use parking::{Parked, Parking};
pub use recorder::{About, Recorded, Recorder, Recording};
pub use rejection::SpecSampling;
pub use sampler::{Sampler, SamplingParams};
pub use session::{Answer, Constraint, Event, Finish, GenerateParams, Session, Timings, TokenLogprob};
pub use speculation::{DraftNorm, OwnDrafts, Speculation, SpeculationParams, Tally};
