//! Traces in and out of Parquet, for tools that are not ours.

pub mod flame;
pub mod table;

use anyhow::{Context, Result};
use polars::prelude::{DataFrame, ParquetReader, SerReader};
use std::path::Path;

/// Rows of a Parquet file from one on, of some columns.
fn rows_of(path: &Path, columns: &[&str], from: usize, rows: usize) -> Result<DataFrame> {
    let file = std::fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let names = columns.iter().map(ToString::to_string).collect();
    let reader = ParquetReader::new(file).with_columns(Some(names)).with_slice(Some((from, rows)));
    reader
        .finish()
        .with_context(|| format!("{}: expected a Parquet file with the columns {}", path.display(), columns.join(", ")))
}
