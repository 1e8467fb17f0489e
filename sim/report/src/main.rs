//! The `strata-lab` binary.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    strata_report::cli::main(strata_sim::study::find)
}
