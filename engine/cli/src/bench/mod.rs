//! What `strata bench` measures, and how.
//!
//! Five measurements, each a file: [`memory`] (how fast memory can be read at all), [`kernels`] (how near to that the
//! products with weights come), [`hardware`] (both and more, as a profile for predictions), [`model`] (how fast a model
//! reads and writes), and [`ab`] (whether one build, setting or model is faster than another). They have in common [`report`] (the machine, the moment, every raw sample, one JSON
//! document), [`stats`] (medians with intervals) and [`values`] (what flags take).
//!
//! Others use the machine too and only ever make a run slower, so figures are medians with intervals, never the best of
//! several; and no test asserts one.

pub(crate) mod ab;
pub(crate) mod corpus;
mod disk;
pub(crate) mod hardware;
pub(crate) mod kernels;
mod machine;
pub(crate) mod memory;
pub(crate) mod model;
mod report;
mod silence;
mod stats;
pub(crate) mod values;
mod weights;

/// Bytes in a GB, and so on: powers of ten, as memory makers and disk makers count.
const GIGA: f64 = 1e9;
