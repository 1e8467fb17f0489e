//! Decode and prefill loops, sampling and conversations.
#![forbid(unsafe_code)]
