//! One definition per knob: flag, TOML key, default and help.
#![forbid(unsafe_code)]
