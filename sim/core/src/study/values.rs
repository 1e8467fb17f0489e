//! Reads the values of a point.

use super::{AxisValue, Described, Point};
use crate::check::invalid;
use crate::error::SimError;

/// A point whose axes are all known.
pub(crate) struct Values<'a> {
    point: &'a Point,
}

/// A number, or a word that stands for how to find it.
pub(crate) enum NumberOr<'a> {
    Number(f64),
    Word(&'a str),
}

impl<'a> Values<'a> {
    /// # Errors
    /// An axis is not one of `axes`.
    pub(crate) fn new(study: &str, point: &'a Point, axes: &[Described]) -> Result<Values<'a>, SimError> {
        match point.values.keys().find(|name| !axes.iter().any(|axis| axis.name == name.as_str())) {
            None => Ok(Values { point }),
            Some(name) => {
                let names: Vec<&str> = axes.iter().map(|axis| axis.name).collect();
                Err(invalid(format!("study {study}, axis"), name, format!("one of {}", names.join(", "))))
            }
        }
    }

    /// The word at an axis.
    pub(crate) fn text(&self, axis: &str, default: &'a str) -> Result<&'a str, SimError> {
        match self.point.values.get(axis) {
            None => Ok(default),
            Some(AxisValue::Text(word)) => Ok(word),
            Some(other) => Err(invalid(format!("axis {axis}"), other, "a word")),
        }
    }

    /// The number at an axis.
    pub(crate) fn number(&self, axis: &str, default: f64) -> Result<f64, SimError> {
        match self.point.values.get(axis) {
            None => Ok(default),
            Some(&AxisValue::Int(v)) => Ok(v as f64),
            Some(&AxisValue::Float(v)) if v.is_finite() => Ok(v),
            Some(other) => Err(invalid(format!("axis {axis}"), other, "a finite number")),
        }
    }

    /// The number at an axis, or the word that is there instead.
    pub(crate) fn number_or(&self, axis: &str, default: &'a str) -> Result<NumberOr<'a>, SimError> {
        match self.point.values.get(axis) {
            None => Ok(NumberOr::Word(default)),
            Some(AxisValue::Text(word)) => Ok(NumberOr::Word(word)),
            Some(_) => self.number(axis, 0.0).map(NumberOr::Number),
        }
    }

    /// The whole number at an axis, within bounds.
    pub(crate) fn int(&self, axis: &str, default: i64, low: i64, high: i64) -> Result<i64, SimError> {
        match self.point.values.get(axis) {
            None => Ok(default),
            Some(&AxisValue::Int(v)) if (low..=high).contains(&v) => Ok(v),
            Some(other) => Err(invalid(format!("axis {axis}"), other, format!("a whole number from {low} to {high}"))),
        }
    }

    /// The values as labels, in the order of the axes' names.
    pub(crate) fn labels(&self) -> Vec<(String, AxisValue)> {
        self.point.values.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

/// A sentence about a word at an axis.
pub(crate) fn word(axis: &str, found: &str, expected: &str) -> SimError {
    invalid(format!("axis {axis}"), found, expected)
}
