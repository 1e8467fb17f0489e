//! Axes become configurations: every combination of the axes' values, in the order of the file, the last axis fastest.

use super::schema::{Axis, Number, Range};
use std::collections::HashSet;
use strata_sim::study::AxisValue;

/// More values than an axis needs, and few enough to list.
const MOST_VALUES: usize = 100_000;

impl Number {
    fn value(self) -> f64 {
        match self {
            Number::Int(v) => v as f64,
            Number::Float(v) => v,
        }
    }

    fn is_int(self) -> bool {
        matches!(self, Number::Int(_))
    }

    /// Digits behind the point as written, so that 0.1 three times is 0.3.
    fn decimals(self) -> usize {
        let text = self.value().to_string();
        text.split_once('.').map_or(0, |(_, after)| after.len())
    }
}

/// The values of an axis.
///
/// # Errors
/// A sentence about a list that is empty or says a value twice, or a range that has no values or no way to step.
pub(crate) fn values(axis: &Axis) -> Result<Vec<AxisValue>, String> {
    let values = match axis {
        Axis::List(list) => list.clone(),
        Axis::Range(range) => range_values(range)?,
    };
    if values.is_empty() {
        return Err("found no value, expected at least one".into());
    }
    let mut seen = HashSet::new();
    if let Some(twice) = values.iter().find(|value| !seen.insert(identity(value))) {
        return Err(format!("found {twice} twice, expected each value once"));
    }
    Ok(values)
}

/// Values without those that stand earlier in the list.
pub(crate) fn once(values: &[AxisValue]) -> Vec<AxisValue> {
    let mut seen = HashSet::new();
    values.iter().filter(|value| seen.insert(identity(value))).cloned().collect()
}

/// What is equal for values that are the same by [`same`], so that many of them can be told apart in one go.
#[derive(PartialEq, Eq, Hash)]
enum Identity<'a> {
    Bool(bool),
    Number(u64),
    Text(&'a str),
}

fn identity(value: &AxisValue) -> Identity<'_> {
    // Adding 0 makes the negative zero a positive one, which it equals.
    let number = |v: f64| Identity::Number((v + 0.0).to_bits());
    match value {
        AxisValue::Bool(v) => Identity::Bool(*v),
        AxisValue::Int(v) => number(*v as f64),
        AxisValue::Float(v) => number(*v),
        AxisValue::Text(v) => Identity::Text(v),
    }
}

fn range_values(range: &Range) -> Result<Vec<AxisValue>, String> {
    let (from, to) = (range.from.value(), range.to.value());
    if !from.is_finite() || !to.is_finite() || from > to {
        return Err(format!("found a range from {from} to {to}, expected finite numbers, the lower one first"));
    }
    let whole = range.from.is_int() && range.to.is_int();
    match (range.step, range.factor, range.count) {
        (Some(step), None, None) if !range.log => {
            let width = step.value();
            if !(width > 0.0 && width.is_finite()) {
                return Err(format!("found step {width}, expected a number above 0"));
            }
            let count = count(((to - from) / width + 1e-9).floor() + 1.0)?;
            let digits = range.from.decimals().max(step.decimals());
            Ok((0..count).map(|i| number(from + i as f64 * width, whole && step.is_int(), digits)).collect())
        }
        (None, Some(factor), None) if !range.log => {
            if from <= 0.0 || !(factor.value() > 1.0 && factor.value().is_finite()) {
                return Err(
                    "found a factor of at most 1, or a start of at most 0, where a range by factors needs more".into(),
                );
            }
            let mut list = Vec::new();
            let mut value = from;
            while value <= to * (1.0 + 1e-12) {
                count(list.len() as f64 + 1.0)?;
                list.push(number(value, whole, 12));
                value *= factor.value();
            }
            Ok(list)
        }
        (None, None, Some(n)) => {
            if range.log && from <= 0.0 {
                return Err(format!("found a logarithmic range from {from}, expected one from above 0"));
            }
            if n == 0 || (n == 1 && from < to) {
                return Err(format!("found {n} values between {from} and {to}, expected at least both ends"));
            }
            let n = count(f64::from(n))?;
            let share = |i: usize| if n == 1 { 0.0 } else { i as f64 / (n - 1) as f64 };
            let at = |i: usize| match i {
                0 => from,
                _ if i == n - 1 => to,
                _ if range.log => from * (to / from).powf(share(i)),
                _ => from + (to - from) * share(i),
            };
            let mut list: Vec<_> = (0..n).map(|i| number(at(i), whole, 12)).collect();
            // Between whole ends some may round to the same number.
            list.dedup();
            Ok(list)
        }
        _ => Err("expected one of step, factor and count; log goes with count".into()),
    }
}

fn count(n: f64) -> Result<usize, String> {
    if n <= MOST_VALUES as f64 {
        Ok(n as usize)
    } else {
        Err(format!("found a range of {n} values, expected at most {MOST_VALUES}"))
    }
}

fn number(value: f64, whole: bool, digits: usize) -> AxisValue {
    if whole {
        return AxisValue::Int(value.round() as i64);
    }
    // Twelve digits behind the point are more than anyone writes; what a product adds behind them is noise.
    AxisValue::Float(format!("{value:.*}", digits.min(12)).parse().unwrap_or(value))
}

/// Whether two values are the same; a whole number equals the same number with a point.
pub(crate) fn same(a: &AxisValue, b: &AxisValue) -> bool {
    match (as_number(a), as_number(b)) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

/// The number that a value is.
pub(crate) fn as_number(value: &AxisValue) -> Option<f64> {
    match value {
        AxisValue::Int(v) => Some(*v as f64),
        AxisValue::Float(v) => Some(*v),
        AxisValue::Bool(_) | AxisValue::Text(_) => None,
    }
}

/// A set of axes that move together, each with as many values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Group {
    pub(crate) names: Vec<String>,
    /// `[axis][step]`
    pub(crate) values: Vec<Vec<AxisValue>>,
}

impl Group {
    pub(crate) fn len(&self) -> usize {
        self.values.first().map_or(0, Vec::len)
    }
}

/// How many combinations there are, if the number can be counted.
pub(crate) fn combinations(groups: &[Group]) -> Option<usize> {
    groups.iter().try_fold(1usize, |n, g| n.checked_mul(g.len()))
}

/// The values of combination `index`, in the order of the groups' axes.
pub(crate) fn combination(groups: &[Group], index: usize) -> Vec<AxisValue> {
    let mut steps = vec![0; groups.len()];
    let mut rest = index;
    for (step, group) in steps.iter_mut().zip(groups).rev() {
        *step = rest % group.len().max(1);
        rest /= group.len().max(1);
    }
    groups.iter().zip(steps).flat_map(|(g, step)| g.values.iter().map(move |v| v[step].clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Result<Vec<String>, String> {
        #[derive(serde::Deserialize)]
        struct One {
            x: Axis,
        }
        let one: One = toml::from_str(&format!("x = {text}")).map_err(|e| e.message().to_owned())?;
        values(&one.x).map(|list| list.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn ranges_hold_what_a_reader_expects() {
        assert_eq!(range("{ from = 0.0, to = 0.5, step = 0.1 }").unwrap(), ["0", "0.1", "0.2", "0.3", "0.4", "0.5"]);
        assert_eq!(range("{ from = 1, to = 8, step = 3 }").unwrap(), ["1", "4", "7"]);
        assert_eq!(range("{ from = 256, to = 2048, factor = 2 }").unwrap(), ["256", "512", "1024", "2048"]);
        assert_eq!(range("{ from = 1, to = 1000, count = 4, log = true }").unwrap(), ["1", "10", "100", "1000"]);
        assert_eq!(range("{ from = 0.0, to = 1.0, count = 5 }").unwrap(), ["0", "0.25", "0.5", "0.75", "1"]);
        assert_eq!(range("{ from = 1, to = 3, count = 9 }").unwrap(), ["1", "2", "3"]);
        assert_eq!(range("'lru'").unwrap(), ["lru"]);
        assert_eq!(range("[true, 1.5, 'x']").unwrap(), ["true", "1.5", "x"]);
    }

    #[test]
    fn ranges_that_cannot_be_are_refused() {
        for (text, word) in [
            ("{ from = 2, to = 1, step = 1 }", "lower one first"),
            ("{ from = 1, to = 2, step = 0 }", "above 0"),
            ("{ from = 1, to = 2 }", "step, factor and count"),
            ("{ from = 1, to = 2, step = 1, count = 2 }", "step, factor and count"),
            ("{ from = 0, to = 2, factor = 2 }", "at most 0"),
            ("{ from = 1, to = 2, factor = 1 }", "at most 1"),
            ("{ from = 0, to = 2, count = 2, log = true }", "above 0"),
            ("{ from = 0, to = 2, count = 1 }", "both ends"),
            ("{ from = 0, to = 1e9, step = 1 }", "at most 100000"),
            ("{ from = 0, to = 1, stop = 1 }", "unknown field `stop`"),
            ("[]", "no value"),
            ("[1, 1.0]", "found 1 twice"),
            ("[0.0, -0.0]", "twice"),
            ("['a', true, 'a']", "found a twice"),
            ("[nan]", "finite"),
            ("[[1]]", "a word"),
        ] {
            let error = range(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn as_many_values_as_there_may_be_are_compared_in_a_moment() {
        let begun = std::time::Instant::now();
        let list = range("{ from = 0.0, to = 1.0, count = 100000 }").unwrap();
        assert_eq!(list.len(), 100_000);
        // Each with each would be 5 * 10^9 comparisons.
        assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
        let twice = [1, 2, 1].map(AxisValue::Int);
        assert_eq!(once(&twice), [1, 2].map(AxisValue::Int));
    }

    #[test]
    fn the_last_axis_moves_fastest_and_zipped_axes_together() {
        let int = |list: &[i64]| list.iter().map(|&v| AxisValue::Int(v)).collect::<Vec<_>>();
        let groups = [
            Group { names: vec!["a".into()], values: vec![int(&[1, 2])] },
            Group { names: vec!["b".into(), "c".into()], values: vec![int(&[3, 4, 5]), int(&[6, 7, 8])] },
        ];
        assert_eq!(combinations(&groups), Some(6));
        let all: Vec<_> = (0..6).map(|i| combination(&groups, i)).collect();
        assert_eq!(all[0], int(&[1, 3, 6]));
        assert_eq!(all[1], int(&[1, 4, 7]));
        assert_eq!(all[5], int(&[2, 5, 8]));
        assert_eq!(combinations(&[]), Some(1));
        assert!(combination(&[], 0).is_empty());
    }
}
