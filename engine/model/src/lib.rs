//! qwen4exp: the forward pass and the state it carries.
#![forbid(unsafe_code)]
