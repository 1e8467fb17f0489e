//! Cells: the rows of a configuration over all its draws, and how checks, tables and figures pick among them.

use crate::rows::{Line, Rows};
use crate::spec::Draw;
use crate::spec::axes::same;
use crate::spec::schema::{Choice, Select};
use crate::stats::{self, Estimate};
use anyhow::{Result, bail};
use rayon::prelude::*;
use std::collections::BTreeMap;
use strata_sim::study::AxisValue;

/// What a result is about: for each configuration (and label) the figures of all draws.
pub struct Cells {
    /// Axes, then labels.
    pub keys: Vec<String>,
    /// Figures of the study.
    pub metrics: Vec<String>,
    /// In the order of the rows.
    pub cells: Vec<Cell>,
    /// Draws of each; 1 also where the rows are aggregated and the draws gone.
    pub draws: usize,
    /// Of what the rows hold only mean and interval.
    pub aggregated: bool,
}

/// One configuration.
pub struct Cell {
    /// `[keys]`
    pub key: Vec<Option<AxisValue>>,
    /// `[metrics][draws]`
    pub samples: Vec<Vec<Option<f64>>>,
    /// `[metrics]`
    pub estimates: Vec<Option<Estimate>>,
}

/// Endings of the columns of aggregated rows.
const LOW: &str = "_low";
const HIGH: &str = "_high";

/// The columns of aggregated rows that stand for these figures.
pub fn aggregated_names(metrics: &[String]) -> Vec<String> {
    metrics.iter().flat_map(|m| [m.clone(), format!("{m}{LOW}"), format!("{m}{HIGH}")]).collect()
}

/// Whether these are the columns of aggregated rows.
pub fn is_aggregated(columns: &[String]) -> bool {
    let has = |name: String| columns.contains(&name);
    columns.iter().any(|c| has(format!("{c}{LOW}")) && has(format!("{c}{HIGH}")))
}

impl Cells {
    /// The cells of rows, aggregated or not.
    pub fn of(rows: &Rows, draws: &[Draw]) -> Cells {
        if rows.aggregated { Cells::of_aggregated(rows) } else { Cells::of_draws(rows, draws) }
    }

    fn of_draws(rows: &Rows, draws: &[Draw]) -> Cells {
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        let mut cells: Vec<Cell> = Vec::new();
        for line in &rows.lines {
            let name = format!("{:?}", line.key);
            let place = *places.entry(name).or_insert_with(|| {
                let samples = vec![vec![None; draws.len()]; rows.metrics.len()];
                cells.push(Cell { key: line.key.clone(), samples, estimates: Vec::new() });
                cells.len() - 1
            });
            if let Some(draw) = draws.iter().position(|d| *d == line.draw) {
                for (samples, figure) in cells[place].samples.iter_mut().zip(&line.figures) {
                    samples[draw] = *figure;
                }
            }
        }
        let sets = stats::resamples(draws.len());
        cells.par_iter_mut().for_each(|cell| {
            let estimate = |samples: &Vec<Option<f64>>| {
                if samples.iter().all(|s| *s == samples[0]) {
                    return samples[0].map(Estimate::exact);
                }
                let each: Vec<_> = sets.iter().map(|set| stats::mean(samples, set)).collect();
                stats::estimate(draws.len(), &each)
            };
            cell.estimates = cell.samples.iter().map(estimate).collect();
        });
        Cells { keys: rows.keys.clone(), metrics: rows.metrics.clone(), cells, draws: draws.len(), aggregated: false }
    }

    fn of_aggregated(rows: &Rows) -> Cells {
        let cell = |line: &Line| {
            let estimates: Vec<_> = line
                .figures
                .chunks_exact(3)
                .map(|f| f[0].map(|value| Estimate { value, low: f[1].unwrap_or(value), high: f[2].unwrap_or(value) }))
                .collect();
            let samples = estimates.iter().map(|e| vec![e.map(|e| e.value)]).collect();
            Cell { key: line.key.clone(), samples, estimates }
        };
        let metrics = rows.metrics.iter().step_by(3).cloned().collect();
        let cells = rows.lines.iter().map(cell).collect();
        Cells { keys: rows.keys.clone(), metrics, cells, draws: 1, aggregated: true }
    }

    /// The cells as rows with mean, low and high for each figure.
    pub fn aggregate(&self) -> Rows {
        let metrics = aggregated_names(&self.metrics);
        let three = |e: &Option<Estimate>| e.map_or([None; 3], |e| [Some(e.value), Some(e.low), Some(e.high)]);
        let line = |cell: &Cell| Line {
            key: cell.key.clone(),
            draw: Draw { seed: 0, repetition: 0 },
            figures: cell.estimates.iter().flat_map(three).collect(),
        };
        Rows {
            keys: self.keys.clone(),
            metrics,
            lines: self.cells.iter().map(line).collect(),
            drawn: false,
            aggregated: true,
        }
    }

    /// Where a figure stands.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn metric(&self, name: &str) -> Result<usize> {
        match self.metrics.iter().position(|m| m == name) {
            Some(i) => Ok(i),
            None => bail!("the rows hold no figure {name:?}"),
        }
    }

    /// Where an axis or label stands.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn key(&self, name: &str) -> Result<usize> {
        match self.keys.iter().position(|k| k == name) {
            Some(i) => Ok(i),
            None => bail!("the rows hold no axis or label {name:?}"),
        }
    }

    /// The cells that a selection lets pass, in order.
    ///
    /// # Errors
    /// An axis or label is not in the rows, or nothing passes.
    pub fn select(&self, select: &Select) -> Result<Vec<&Cell>> {
        let mut wanted: Vec<(usize, &Choice)> = Vec::new();
        for (name, choice) in select {
            wanted.push((self.key(name)?, choice));
        }
        let passes = |cell: &Cell| {
            wanted.iter().all(|(i, Choice(values))| {
                cell.key[*i].as_ref().is_some_and(|found| values.iter().any(|v| same(v, found)))
            })
        };
        let found: Vec<&Cell> = self.cells.iter().filter(|c| passes(c)).collect();
        if found.is_empty() {
            bail!("no row has {}", said(select));
        }
        Ok(found)
    }

    /// The axes and labels, aside from those named, in which cells differ.
    pub fn differing(&self, cells: &[&Cell], aside: &[usize]) -> Vec<&str> {
        let differs = |i: usize| cells.iter().any(|c| c.key[i] != cells[0].key[i]);
        (0..self.keys.len()).filter(|i| !aside.contains(i) && differs(*i)).map(|i| self.keys[i].as_str()).collect()
    }

    /// The values of a key that occur in cells, each once, in order.
    pub fn values<'a>(&self, cells: &[&'a Cell], key: usize) -> Vec<&'a AxisValue> {
        let mut values: Vec<&AxisValue> = Vec::new();
        for value in cells.iter().filter_map(|c| c.key[key].as_ref()) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values
    }
}

/// A selection in words: `policy = lru, slots = 256 or 512`.
pub fn said(select: &Select) -> String {
    let one = |(name, Choice(values)): (&String, &Choice)| {
        let values: Vec<_> = values.iter().map(ToString::to_string).collect();
        format!("{name} = {}", values.join(" or "))
    };
    select.iter().map(one).collect::<Vec<_>>().join(", ")
}
