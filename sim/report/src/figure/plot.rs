//! What a figure shows: points of series, taken from the cells that its selection lets pass.

use super::scale::Scale;
use crate::cells::{Cell, Cells};
use crate::number;
use crate::spec::Experiment;
use crate::spec::axes::{as_number, same};
use crate::spec::schema::{Figure, FigureKind, Given, LogAxis};
use crate::stats::Estimate;
use anyhow::{Result, anyhow, bail};
use strata_sim::study::AxisValue;

/// A figure ready to be drawn.
pub(super) struct Plot {
    pub(super) title: String,
    pub(super) bars: bool,
    pub(super) x: Scale,
    pub(super) y: Scale,
    pub(super) x_label: String,
    pub(super) y_label: String,
    pub(super) series: Vec<Series>,
    /// With the number of our series that each belongs to.
    pub(super) published: Vec<(Option<usize>, Series)>,
    /// Height and text.
    pub(super) lines: Vec<(f64, String)>,
}

/// Points that belong together.
pub(super) struct Series {
    pub(super) label: String,
    /// x as a number, or as the place of a word; y.
    pub(super) points: Vec<(f64, Estimate)>,
}

/// Where a figure's x comes from.
enum Along {
    Key(usize),
    Metric(usize),
}

impl Plot {
    pub(super) fn new(experiment: &Experiment, cells: &Cells, figure: &Figure) -> Result<Plot> {
        let chosen = cells.select(&figure.select)?;
        let along = match cells.key(&figure.x) {
            Ok(key) => Along::Key(key),
            Err(_) => Along::Metric(cells.metric(&figure.x)?),
        };
        let words = words(cells, &chosen, &along, figure)?;
        let x_of = |cell: &Cell| -> Option<f64> {
            match &along {
                Along::Metric(m) => cell.estimates[*m].map(|e| e.value),
                Along::Key(k) => match &words {
                    Some(words) => place(words, cell.key[*k].as_ref()?),
                    None => cell.key[*k].as_ref().and_then(as_number),
                },
            }
        };
        let mut series = Vec::new();
        // The value of the first series axis that each series has.
        let mut owners: Vec<Option<&AxisValue>> = Vec::new();
        let by: Vec<usize> = figure.series.iter().map(|s| cells.key(s)).collect::<Result<_>>()?;
        let mut groups: Vec<(Vec<Option<&AxisValue>>, Vec<&Cell>)> = Vec::new();
        for &cell in &chosen {
            let values: Vec<_> = by.iter().map(|&k| cell.key[k].as_ref()).collect();
            match groups.iter_mut().find(|(v, _)| *v == values) {
                Some((_, list)) => list.push(cell),
                None => groups.push((values, vec![cell])),
            }
        }
        for (values, list) in &groups {
            one_for_each_x(cells, list, &along, &by)?;
            for y in &figure.y {
                let metric = cells.metric(y)?;
                let points: Vec<_> = list.iter().filter_map(|c| Some((x_of(c)?, c.estimates[metric]?))).collect();
                if !points.is_empty() {
                    owners.push(values.first().copied().flatten());
                    series.push(Series { label: label(experiment, figure, values, y), points });
                }
            }
        }
        let published = published(figure, words.as_deref(), &owners)?;
        let (x, y) = scales(figure, words, &series, &published)?;
        let y_label = match (&figure.y_label, figure.y.as_slice()) {
            (Some(label), _) => label.clone(),
            (None, [one]) => experiment.headed(one),
            (None, several) => shared_unit(experiment, several),
        };
        Ok(Plot {
            title: figure.title.clone(),
            bars: figure.kind == FigureKind::Bar,
            x,
            y,
            x_label: experiment.headed(&figure.x),
            y_label,
            series,
            published,
            lines: figure.lines.iter().map(|l| (l.y, l.label.clone())).collect(),
        })
    }
}

/// The words along the bottom, where it is no scale of numbers: for bars, and for axes that hold words.
fn words(cells: &Cells, chosen: &[&Cell], along: &Along, figure: &Figure) -> Result<Option<Vec<AxisValue>>> {
    let Along::Key(key) = along else {
        if figure.kind == FigureKind::Bar {
            bail!("found the figure {:?} along the bottom of bars, expected an axis", figure.x);
        }
        return Ok(None);
    };
    let values = cells.values(chosen, *key);
    let numbers = values.iter().all(|v| as_number(v).is_some());
    if numbers && figure.kind == FigureKind::Line {
        return Ok(None);
    }
    Ok(Some(values.into_iter().cloned().collect()))
}

fn place(words: &[AxisValue], value: &AxisValue) -> Option<f64> {
    words.iter().position(|w| same(w, value)).map(|i| i as f64)
}

/// Each x once in a series; otherwise an axis was forgotten.
fn one_for_each_x(cells: &Cells, list: &[&Cell], along: &Along, by: &[usize]) -> Result<()> {
    let Along::Key(key) = along else { return Ok(()) };
    for (i, cell) in list.iter().enumerate() {
        let twin = list[..i].iter().copied().find(|c| c.key[*key] == cell.key[*key]);
        if let Some(twin) = twin {
            let mut aside = by.to_vec();
            aside.push(*key);
            let open = cells.differing(&[twin, *cell], &aside).join(", ");
            bail!("several rows have the same x and differ in {open}: add that to series or select");
        }
    }
    Ok(())
}

fn label(experiment: &Experiment, figure: &Figure, values: &[Option<&AxisValue>], y: &str) -> String {
    let named = |(name, value): (&String, &Option<&AxisValue>)| {
        let text = value.map_or_else(|| "none".to_owned(), number::axis);
        let plain = value.is_some_and(|v| matches!(v, AxisValue::Text(_)));
        if plain { text } else { format!("{} {text}", experiment.headed(name).split(',').next().unwrap_or(name)) }
    };
    let mut parts: Vec<String> = figure.series.iter().zip(values).map(named).collect();
    if figure.y.len() > 1 {
        parts.push(experiment.headed(y));
    }
    parts.join(", ")
}

/// The unit that several figures have in common, as their label.
fn shared_unit(experiment: &Experiment, names: &[String]) -> String {
    let unit = |n: &String| experiment.described(n).map_or("", |d| d.unit);
    match names.first().map(unit) {
        Some(first) if names.iter().all(|n| unit(n) == first) => first.to_owned(),
        _ => String::new(),
    }
}

fn published(
    figure: &Figure,
    words: Option<&[AxisValue]>,
    owners: &[Option<&AxisValue>],
) -> Result<Vec<(Option<usize>, Series)>> {
    let mut all = Vec::new();
    for from in &figure.published {
        let mut points = Vec::new();
        for (Given(x), y) in &from.points {
            let place = match words {
                Some(words) => place(words, x),
                None => as_number(x),
            };
            let place = place.ok_or_else(|| anyhow!("published point {x} is not a place on the axis {}", figure.x))?;
            points.push((place, Estimate::exact(*y)));
        }
        let owner = from.series.as_ref().and_then(|Given(v)| owners.iter().position(|o| o.is_some_and(|o| same(o, v))));
        all.push((owner, Series { label: from.label.clone(), points }));
    }
    Ok(all)
}

fn scales(
    figure: &Figure,
    words: Option<Vec<AxisValue>>,
    series: &[Series],
    published: &[(Option<usize>, Series)],
) -> Result<(Scale, Scale)> {
    let points = || series.iter().chain(published.iter().map(|(_, s)| s)).flat_map(|s| &s.points);
    let x = match words {
        Some(words) => Scale::words(words.iter().map(number::axis).collect()),
        None => {
            let log = figure.log.contains(&LogAxis::X);
            let ours: Vec<f64> = series.iter().flat_map(|s| &s.points).map(|(x, _)| *x).collect();
            let all: Vec<f64> = points().map(|(x, _)| *x).collect();
            let mut scale = Scale::numbers(&all, log, true, false).map_err(|e| anyhow!("x: {e}"))?;
            // Marks stand at our values; published points lie between them.
            if let Ok(own) = Scale::numbers(&ours, log, true, false) {
                scale.ticks = own.ticks;
            }
            scale
        }
    };
    let mut values: Vec<f64> = points().flat_map(|(_, y)| [y.low, y.high]).collect();
    values.extend(figure.lines.iter().map(|l| l.y));
    let log = figure.log.contains(&LogAxis::Y);
    let bars = figure.kind == FigureKind::Bar;
    if bars && !log {
        values.push(0.0);
    }
    let mut y = Scale::numbers(&values, log, false, true).map_err(|e| anyhow!("y: {e}"))?;
    if bars && !log && values.iter().all(|v| *v <= 0.0) {
        y.range.1 = 0.0;
    }
    Ok((x, y))
}
