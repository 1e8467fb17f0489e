//! Figures: SVG with text as text, so that they are small, sharp and searchable, and equal for equal rows.

mod draw;
mod marks;
mod plot;
mod scale;

use crate::cells::Cells;
use crate::spec::Experiment;
use crate::spec::schema::Figure;
use anyhow::{Context, Result};

/// A figure of an experiment, as SVG text.
///
/// # Errors
/// Its selection finds nothing or leaves rows that it cannot tell apart, or its logarithmic axis holds a number of at
/// most 0.
pub fn svg(experiment: &Experiment, cells: &Cells, figure: &Figure) -> Result<String> {
    let plot = plot::Plot::new(experiment, cells, figure);
    plot.and_then(|p| draw::svg(&p)).with_context(|| format!("{}: figure {:?}", experiment.file, figure.file))
}
