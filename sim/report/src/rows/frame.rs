//! Rows as a polars frame, which is how they get into Parquet files and out of them.

use super::{Line, Rows};
use crate::cells::is_aggregated;
use crate::spec::{Draw, Experiment};
use anyhow::{Context, Result, bail, ensure};
use polars::prelude::{AnyValue, Column, DataFrame, NamedFrom, ParquetReader, ParquetWriter, SerReader, Series};
use std::path::Path;
use strata_sim::study::AxisValue;

impl Rows {
    /// The rows as a frame: a column of one type for each axis, `seed` and `repetition` where draws differ, and the
    /// figures as 64-bit floats.
    ///
    /// # Errors
    /// polars refuses; for columns of equal length and different names it does not.
    pub fn frame(&self) -> Result<DataFrame> {
        let mut columns: Vec<Column> = Vec::new();
        for (i, name) in self.keys.iter().enumerate() {
            let values: Vec<Option<&AxisValue>> = self.lines.iter().map(|l| l.key[i].as_ref()).collect();
            columns.push(key_column(name, &values).into());
        }
        if self.drawn && !self.aggregated {
            let seeds: Vec<u64> = self.lines.iter().map(|l| l.draw.seed).collect();
            let repetitions: Vec<u32> = self.lines.iter().map(|l| l.draw.repetition).collect();
            columns.push(Series::new("seed".into(), seeds).into());
            columns.push(Series::new("repetition".into(), repetitions).into());
        }
        for (i, name) in self.metrics.iter().enumerate() {
            let figures: Vec<Option<f64>> = self.lines.iter().map(|l| l.figures[i]).collect();
            columns.push(Series::new(name.as_str().into(), figures).into());
        }
        Ok(DataFrame::new(self.lines.len(), columns)?)
    }

    /// The rows as the bytes of a Parquet file, which are the same for the same rows.
    ///
    /// # Errors
    /// As [`Rows::frame`].
    pub fn parquet(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        ParquetWriter::new(&mut bytes).finish(&mut self.frame()?)?;
        Ok(bytes)
    }

    /// The rows of an experiment out of a Parquet file.
    ///
    /// # Errors
    /// The file cannot be read, or its columns are not the experiment's.
    pub fn read(path: &Path, experiment: &Experiment) -> Result<Rows> {
        let place = || path.display().to_string();
        let file = std::fs::File::open(path).with_context(|| format!("cannot read {}", place()))?;
        let frame =
            ParquetReader::new(file).finish().with_context(|| format!("{} is no whole Parquet file", place()))?;
        let names: Vec<String> = frame.get_column_names().iter().map(ToString::to_string).collect();
        let labels: Vec<String> =
            experiment.study.labels().iter().map(|l| l.name.to_owned()).filter(|l| names.contains(l)).collect();
        let keys: Vec<String> = experiment.axes.iter().cloned().chain(labels).collect();
        let figures: Vec<String> = experiment.study.metrics().iter().map(|m| m.name.to_owned()).collect();
        let aggregated = is_aggregated(&names);
        let mut rows = Rows {
            keys,
            metrics: if aggregated { crate::cells::aggregated_names(&figures) } else { figures },
            lines: Vec::new(),
            drawn: experiment.draws.len() > 1 && !aggregated,
            aggregated,
        };
        ensure!(
            rows.columns() == names.iter().map(String::as_str).collect::<Vec<_>>(),
            "{}: found the columns {}, expected {}: run the experiment again",
            place(),
            names.join(", "),
            rows.columns().join(", "),
        );
        let wrong = |column: &str, found: &AnyValue<'_>, row: usize| {
            anyhow::anyhow!("{} row {row}: {column} is {found:?}, which it cannot be", place())
        };
        for row in 0..frame.height() {
            let get = |name: &str| -> Result<AnyValue<'_>> { Ok(frame.column(name)?.get(row)?) };
            let mut key = Vec::new();
            for name in &rows.keys {
                let found = get(name)?;
                key.push(match found {
                    AnyValue::Null => None,
                    _ => Some(key_value(&found, experiment.values_of(name)).ok_or_else(|| wrong(name, &found, row))?),
                });
            }
            let mut draw = Draw { seed: 0, repetition: 0 };
            if rows.drawn {
                match (get("seed")?, get("repetition")?) {
                    (AnyValue::UInt64(seed), AnyValue::UInt32(repetition)) => draw = Draw { seed, repetition },
                    (seed, _) => bail!(wrong("seed", &seed, row)),
                }
            } else if !aggregated && let Some(&only) = experiment.draws.first() {
                draw = only;
            }
            let mut figures = Vec::new();
            for name in &rows.metrics {
                figures.push(match get(name)? {
                    AnyValue::Null => None,
                    AnyValue::Float64(v) => Some(v),
                    found => bail!(wrong(name, &found, row)),
                });
            }
            rows.lines.push(Line { key, draw, figures });
        }
        Ok(rows)
    }
}

/// A column of the narrowest type that holds all values: yes or no, whole numbers, numbers, else words.
fn key_column(name: &str, values: &[Option<&AxisValue>]) -> Series {
    let all = |test: fn(&AxisValue) -> bool| values.iter().flatten().all(|v| test(v));
    let name = name.into();
    if all(|v| matches!(v, AxisValue::Bool(_))) {
        let list: Vec<_> = values.iter().map(|v| v.map(|v| *v == AxisValue::Bool(true))).collect();
        Series::new(name, list)
    } else if all(|v| matches!(v, AxisValue::Int(_))) {
        let int = |v: &AxisValue| if let AxisValue::Int(v) = v { *v } else { 0 };
        Series::new(name, values.iter().map(|v| v.map(int)).collect::<Vec<_>>())
    } else if all(|v| matches!(v, AxisValue::Int(_) | AxisValue::Float(_))) {
        let float = |v: &AxisValue| crate::spec::axes::as_number(v).unwrap_or_default();
        Series::new(name, values.iter().map(|v| v.map(float)).collect::<Vec<_>>())
    } else {
        Series::new(name, values.iter().map(|v| v.map(ToString::to_string)).collect::<Vec<_>>())
    }
}

/// A cell as the axis value that the experiment names, since a column of words holds numbers as words.
fn key_value(found: &AnyValue<'_>, named: Option<&[AxisValue]>) -> Option<AxisValue> {
    let value = match found {
        AnyValue::Boolean(v) => AxisValue::Bool(*v),
        AnyValue::Int64(v) => AxisValue::Int(*v),
        AnyValue::Float64(v) => AxisValue::Float(*v),
        AnyValue::String(v) => AxisValue::Text((*v).to_owned()),
        AnyValue::StringOwned(v) => AxisValue::Text(v.to_string()),
        _ => return None,
    };
    match named {
        Some(named) => named.iter().find(|n| n.to_string() == value.to_string()).cloned(),
        None => Some(value),
    }
}
