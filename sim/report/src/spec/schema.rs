//! `experiment.toml` as it is written, field by field. What the fields mean together is decided in [`super`].

use serde::Deserialize;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use strata_sim::study::AxisValue;
use toml::Spanned;

/// A table whose keys keep their place in the file.
pub(crate) type Placed<T> = BTreeMap<Spanned<String>, T>;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    pub(crate) title: String,
    pub(crate) hypothesis: String,
    pub(crate) gate: String,
    pub(crate) study: Spanned<String>,
    #[serde(default)]
    pub(crate) quick: bool,
    #[serde(default)]
    pub(crate) inputs: Placed<String>,
    #[serde(default)]
    pub(crate) axes: Placed<Spanned<Axis>>,
    #[serde(default)]
    pub(crate) zip: Vec<Placed<Spanned<Axis>>>,
    pub(crate) seeds: Option<Spanned<Vec<u64>>>,
    pub(crate) repetitions: Option<Spanned<u32>>,
    pub(crate) baseline: Option<Spanned<Baseline>>,
    #[serde(default)]
    pub(crate) tables: Vec<Spanned<Table>>,
    #[serde(default)]
    pub(crate) figures: Vec<Spanned<Figure>>,
    #[serde(default)]
    pub(crate) checks: Vec<Spanned<Check>>,
    pub(crate) promote: Option<Spanned<Promote>>,
}

/// The values of an axis.
#[derive(Debug)]
pub(crate) enum Axis {
    List(Vec<AxisValue>),
    Range(Range),
}

/// A row of numbers: in equal steps, by equal factors, or so many between two ends.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Range {
    pub(crate) from: Number,
    pub(crate) to: Number,
    pub(crate) step: Option<Number>,
    pub(crate) factor: Option<Number>,
    pub(crate) count: Option<u32>,
    #[serde(default)]
    pub(crate) log: bool,
}

/// A number that remembers whether it was written as a whole one.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Number {
    Int(i64),
    Float(f64),
}

/// Which rows: a value, or one of several, for some of the axes.
pub type Select = BTreeMap<String, Choice>;

/// The values that a selection lets pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice(pub Vec<AxisValue>);

/// What the rows of the table are compared with.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// The values that make a configuration the baseline of those that differ in them alone.
    pub select: Select,
    /// The figure that is compared.
    pub metric: String,
}

/// A table of the summary.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// What stands above it.
    #[serde(default)]
    pub title: String,
    /// Which rows.
    #[serde(default)]
    pub select: Select,
    /// Axes and figures, in order; all when empty. Not with `down`.
    #[serde(default)]
    pub columns: Vec<String>,
    /// The axis whose values stand at the left. With `across` and `metric`.
    pub down: Option<String>,
    /// The axis whose values stand at the top.
    pub across: Option<String>,
    /// The figure in the cells.
    pub metric: Option<String>,
}

/// How a figure is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FigureKind {
    /// Lines with a mark at each value.
    Line,
    /// Bars side by side.
    Bar,
}

/// The axis of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogAxis {
    /// The horizontal one.
    X,
    /// The vertical one.
    Y,
}

/// A figure of the summary.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The name of the file, without `.svg`.
    pub file: String,
    /// What stands above it.
    pub title: String,
    /// Lines or bars.
    pub kind: FigureKind,
    /// The axis or figure along the bottom.
    pub x: String,
    /// The figures drawn upwards; several make a series each.
    pub y: Vec<String>,
    /// The axes whose values make a series each.
    #[serde(default)]
    pub series: Vec<String>,
    /// Which rows.
    #[serde(default)]
    pub select: Select,
    /// Axes with a logarithmic scale.
    #[serde(default)]
    pub log: Vec<LogAxis>,
    /// Words for the left side in place of the figures' names.
    pub y_label: Option<String>,
    /// Published points beside ours.
    #[serde(default)]
    pub published: Vec<Published>,
    /// Horizontal lines.
    #[serde(default)]
    pub lines: Vec<Level>,
}

/// Points from elsewhere in a figure.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Who published them.
    pub label: String,
    /// Which of our series they belong to: its value on the first of the series' axes.
    pub series: Option<Given>,
    /// x and y of each; x is a value of the figure's x axis.
    pub points: Vec<(Given, f64)>,
}

/// A horizontal line in a figure.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// What it marks.
    pub label: String,
    /// Its height.
    pub y: f64,
}

/// How the selected rows become one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reduce {
    /// The selection leaves one configuration: its figure.
    #[default]
    Value,
    /// The least figure.
    Min,
    /// The greatest figure.
    Max,
    /// The mean of all.
    Mean,
    /// The axis's value where the figure is least.
    Argmin,
    /// The axis's value where the figure is greatest.
    Argmax,
}

/// A statement that the result meets or misses.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// What is stated.
    pub name: String,
    /// Which rows.
    #[serde(default)]
    pub select: Select,
    /// The figure.
    pub metric: String,
    /// How the rows become one number.
    #[serde(default)]
    pub reduce: Reduce,
    /// The axis of `argmin` and `argmax`.
    pub axis: Option<String>,
    /// Divide by the number that `select`, changed by this, gives.
    pub relative_to: Option<Select>,
    /// Subtract the number that `select`, changed by this, gives.
    pub difference_to: Option<Select>,
    /// The number expected.
    pub expect: Option<f64>,
    /// How far off it may be, in percent of it.
    pub percent: Option<f64>,
    /// How far off it may be.
    pub absolute: Option<f64>,
    /// The least that meets the check.
    pub at_least: Option<f64>,
    /// The most that meets the check.
    pub at_most: Option<f64>,
    /// Where the expected number was published.
    pub published: Option<String>,
    /// Whether a constant of the study was fitted to the expected number, which then validates nothing.
    #[serde(default)]
    pub fitted: bool,
    /// Whether the verdict rests on it; when nothing is said, whether it is not fitted.
    pub gate: Option<bool>,
}

/// Which settings become the engine's defaults when the verdict is confirmed.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promote {
    /// Among which rows the best is looked for.
    #[serde(default)]
    pub select: Select,
    /// The figure that says which is best.
    pub metric: String,
    /// `argmin` or `argmax`.
    pub reduce: Reduce,
    /// The knob that each of these axes sets.
    pub knobs: BTreeMap<String, String>,
}

/// A value of an axis, with an error that says what it may be.
#[derive(Debug, Clone, PartialEq)]
pub struct Given(pub AxisValue);

const VALUE: &str = "true, false, a finite number or a word";

struct GivenVisitor;

impl Visitor<'_> for GivenVisitor {
    type Value = Given;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(VALUE)
    }

    fn visit_bool<E: Error>(self, v: bool) -> Result<Given, E> {
        Ok(Given(AxisValue::Bool(v)))
    }

    fn visit_i64<E: Error>(self, v: i64) -> Result<Given, E> {
        Ok(Given(AxisValue::Int(v)))
    }

    fn visit_f64<E: Error>(self, v: f64) -> Result<Given, E> {
        if v.is_finite() {
            Ok(Given(AxisValue::Float(v)))
        } else {
            Err(E::custom(format!("found {v}, expected {VALUE}")))
        }
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<Given, E> {
        Ok(Given(AxisValue::Text(v.into())))
    }
}

impl<'de> Deserialize<'de> for Given {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Given, D::Error> {
        d.deserialize_any(GivenVisitor)
    }
}

/// One value, a list of them, or, where `RANGE` allows it, a range.
struct AxisVisitor<const RANGE: bool>;

impl<'de, const RANGE: bool> Visitor<'de> for AxisVisitor<RANGE> {
    type Value = Axis;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list of values")?;
        if RANGE { f.write_str(" or a range, { from, to, step | factor | count }") } else { Ok(()) }
    }

    fn visit_bool<E: Error>(self, v: bool) -> Result<Axis, E> {
        GivenVisitor.visit_bool(v).map(|g| Axis::List(vec![g.0]))
    }

    fn visit_i64<E: Error>(self, v: i64) -> Result<Axis, E> {
        GivenVisitor.visit_i64(v).map(|g| Axis::List(vec![g.0]))
    }

    fn visit_f64<E: Error>(self, v: f64) -> Result<Axis, E> {
        GivenVisitor.visit_f64(v).map(|g| Axis::List(vec![g.0]))
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<Axis, E> {
        GivenVisitor.visit_str(v).map(|g| Axis::List(vec![g.0]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Axis, A::Error> {
        let mut list = Vec::new();
        while let Some(Given(value)) = seq.next_element()? {
            list.push(value);
        }
        Ok(Axis::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Axis, A::Error> {
        if !RANGE {
            return Err(A::Error::custom("found a table, expected a value or a list of values"));
        }
        Range::deserialize(serde::de::value::MapAccessDeserializer::new(map)).map(Axis::Range)
    }
}

impl<'de> Deserialize<'de> for Axis {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Axis, D::Error> {
        d.deserialize_any(AxisVisitor::<true>)
    }
}

impl<'de> Deserialize<'de> for Choice {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Choice, D::Error> {
        match d.deserialize_any(AxisVisitor::<false>)? {
            Axis::List(list) => Ok(Choice(list)),
            Axis::Range(_) => Err(D::Error::custom("found a range, expected a value or a list of values")),
        }
    }
}
