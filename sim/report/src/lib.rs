//! The laboratory: runs experiments, and makes tables, figures and verdicts of what comes out.
//!
//! An experiment is a file, `experiments/NNN-name/experiment.toml` ([`spec`]): what is expected and why, which study is
//! asked, which of its axes take which values, and the checks that will decide. All of that is written before the run,
//! so that a result cannot choose its question. [`run`] evaluates every combination of the axes on all cores, keeps each
//! point as it is done, and joins the parts of several machines. What comes out are [`rows`]; everything else that lies
//! in `results/NNN-name/` ([`result`]), the figures ([`figure`]) and `results/INDEX.md` ([`index`]), is made from them
//! and can be made again ([`report`]). The same experiment, inputs and program give the same bytes, whatever the number
//! of threads or machines.
//!
//! polars, Parquet and plotters live in this crate and in no other, because they take minutes to build. Errors are
//! sentences for the person at the terminal, so the crate uses `anyhow` throughout: it is the inside of the binary
//! `strata-lab`, and a library so that tests can bring studies of their own.
#![forbid(unsafe_code)]

pub mod cells;
pub mod checks;
pub mod cli;
pub mod cost;
pub mod figure;
pub mod index;
mod number;
pub mod promote;
pub mod replay;
pub mod report;
pub mod result;
pub mod rows;
pub mod run;
pub mod spec;
pub mod stats;
pub mod trace;
