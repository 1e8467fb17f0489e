//! The `strata` binary.
#![forbid(unsafe_code)]

fn main() {}
