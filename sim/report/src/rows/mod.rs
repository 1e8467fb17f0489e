//! Rows: what a run gives, in the order of its points, whoever computed them.

mod csv;
mod frame;

use crate::spec::{Draw, Experiment};
use anyhow::{Result, bail};
use std::collections::BTreeMap;
use strata_sim::study::{AxisValue, Row};

/// One row of a study as it is kept between evaluation and result: labels that are no axis, and a figure for each of
/// the study's, `None` where the study gives none.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Kept {
    /// Labels besides the axes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<(String, AxisValue)>,
    /// `[metrics of the study]`
    pub figures: Vec<Option<f64>>,
}

/// The rows of a point, checked against what the study says of itself.
///
/// # Errors
/// A label or figure that the study does not declare, or a figure without end.
pub fn kept(experiment: &Experiment, rows: &[Row]) -> Result<Vec<Kept>> {
    let study = experiment.study;
    let mut all = Vec::with_capacity(rows.len());
    for row in rows {
        let mut labels = Vec::new();
        for (name, value) in &row.labels {
            if experiment.axes.contains(name) || study.axes().iter().any(|a| a.name == name) {
                continue;
            }
            if !study.labels().iter().any(|l| l.name == name) {
                bail!("study {} gives a row the label {name:?}, which it does not declare", study.name());
            }
            labels.push((name.clone(), value.clone()));
        }
        let mut figures = vec![None; study.metrics().len()];
        for (name, value) in &row.metrics {
            let Some(i) = study.metrics().iter().position(|m| m.name == name) else {
                bail!("study {} gives the figure {name:?}, which it does not declare", study.name());
            };
            if value.is_infinite() {
                bail!("study {} gives {value} for {name}, expected a finite number", study.name());
            }
            figures[i] = Some(*value).filter(|v| !v.is_nan());
        }
        all.push(Kept { labels, figures });
    }
    Ok(all)
}

/// All rows of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    /// Axes in the order of the experiment, then the study's labels that occur.
    pub keys: Vec<String>,
    /// The study's figures, each once or, in aggregated rows, as mean, low and high.
    pub metrics: Vec<String>,
    /// In the order of the points.
    pub lines: Vec<Line>,
    /// Whether there is more than one draw, so that the columns `seed` and `repetition` tell them apart.
    pub drawn: bool,
    /// Whether each line stands for all draws of its configuration.
    pub aggregated: bool,
}

/// One row.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// `[keys]`
    pub key: Vec<Option<AxisValue>>,
    /// Of aggregated rows: the first.
    pub draw: Draw,
    /// `[metrics]`
    pub figures: Vec<Option<f64>>,
}

impl Rows {
    /// The rows of all points, by the points' numbers.
    pub fn gather(experiment: &Experiment, points: &BTreeMap<usize, Vec<Kept>>) -> Rows {
        let labels: Vec<String> = experiment
            .study
            .labels()
            .iter()
            .map(|l| l.name.to_owned())
            .filter(|l| points.values().flatten().any(|row| row.labels.iter().any(|(name, _)| name == l)))
            .collect();
        let keys = experiment.axes.iter().cloned().chain(labels.iter().cloned()).collect();
        let metrics = experiment.study.metrics().iter().map(|m| m.name.to_owned()).collect();
        let mut lines = Vec::new();
        for (&index, rows) in points {
            let axes = experiment.configuration(index / experiment.draws.len());
            let draw = experiment.draws[index % experiment.draws.len()];
            for row in rows {
                let label = |name: &String| row.labels.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
                let key = axes.iter().cloned().map(Some).chain(labels.iter().map(label)).collect();
                lines.push(Line { key, draw, figures: row.figures.clone() });
            }
        }
        Rows { keys, metrics, lines, drawn: experiment.draws.len() > 1, aggregated: false }
    }

    /// The names of all columns, in order.
    pub fn columns(&self) -> Vec<&str> {
        let draws: &[&str] = if self.drawn && !self.aggregated { &["seed", "repetition"] } else { &[] };
        self.keys
            .iter()
            .map(String::as_str)
            .chain(draws.iter().copied())
            .chain(self.metrics.iter().map(String::as_str))
            .collect()
    }
}
