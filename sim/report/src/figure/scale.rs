//! Scales: where a value stands along an axis, and which values are written beside it.

use crate::number;

/// How values become places.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// In equal steps.
    Linear,
    /// In equal factors.
    Log,
    /// Words, one behind the other.
    Words(Vec<String>),
}

/// An axis of a figure.
#[derive(Debug, Clone)]
pub(super) struct Scale {
    pub(super) kind: Kind,
    /// First and last place.
    pub(super) range: (f64, f64),
    /// Place and text of each mark, ascending.
    pub(super) ticks: Vec<(f64, String)>,
}

/// Marks of a linear or logarithmic scale, about.
const TICKS: f64 = 6.0;

impl Scale {
    /// One place for each word.
    pub(super) fn words(words: Vec<String>) -> Scale {
        let ticks = words.iter().enumerate().map(|(i, w)| (i as f64, w.clone())).collect();
        Scale { range: (-0.5, words.len() as f64 - 0.5), kind: Kind::Words(words), ticks }
    }

    /// A scale of numbers that holds all values. `at_values`: marks stand at the values themselves if there are few.
    /// `from_zero`: a linear scale begins at 0 where the values would let half of it empty below.
    pub(super) fn numbers(values: &[f64], log: bool, at_values: bool, from_zero: bool) -> Result<Scale, String> {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for &v in values {
            (low, high) = (low.min(v), high.max(v));
        }
        if !(low.is_finite() && high.is_finite()) {
            return Err("there is nothing to draw".into());
        }
        let mut distinct = values.to_vec();
        distinct.sort_by(f64::total_cmp);
        distinct.dedup();
        let few = at_values && distinct.len() <= 12;
        if log {
            if low <= 0.0 {
                return Err(format!("found {low} on a logarithmic axis, expected numbers above 0"));
            }
            let (from, to) = (low.log10(), high.log10());
            let pad = ((to - from) * 0.04).max(0.02);
            let range = (from - pad, to + pad);
            let ticks = if few { distinct } else { decades(range) };
            let ticks = ticks.into_iter().map(|v| (v.log10(), number::short(v))).collect();
            return Ok(Scale { kind: Kind::Log, range, ticks });
        }
        let floor = from_zero && low >= 0.0 && low < 0.5 * high;
        let span = if high > low { high - low } else { (low.abs() * 0.2).max(1e-9) };
        let pad = if at_values { 0.03 } else { 0.06 } * span;
        let range = (if floor { 0.0 } else { low - pad }, high + pad);
        let ticks = if few { distinct } else { even(range) };
        let ticks = ticks.into_iter().map(|v| (v, number::short(v))).collect();
        Ok(Scale { kind: Kind::Linear, range, ticks })
    }

    /// The place of a number.
    pub(super) fn place(&self, value: f64) -> f64 {
        match self.kind {
            Kind::Log => value.log10(),
            Kind::Linear | Kind::Words(_) => value,
        }
    }
}

/// Round numbers, 1, 2 or 5 times a power of ten apart.
fn even((low, high): (f64, f64)) -> Vec<f64> {
    let rough = (high - low) / TICKS;
    let power = 10f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= rough * 0.999).unwrap_or(power * 10.0);
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    // A product of a whole number has fewer wrong bits than a sum of steps; twelve digits hide the rest.
    (first..=last).map(|i| format!("{:.12}", i as f64 * step).parse().unwrap_or(i as f64 * step)).collect()
}

/// Powers of ten, with 2 and 5 times them where the range is short.
fn decades((low, high): (f64, f64)) -> Vec<f64> {
    let all = |factors: &[f64]| -> Vec<f64> {
        let powers = low.floor() as i32..=high.ceil() as i32;
        let values = powers.flat_map(|p| factors.iter().map(move |f| f * 10f64.powi(p)));
        values.filter(|v| (low..=high).contains(&v.log10())).collect()
    };
    let powers = all(&[1.0]);
    if powers.len() > 4 {
        return powers;
    }
    let more = all(&[1.0, 2.0, 5.0]);
    if more.len() > 2 { more } else { even((10f64.powf(low), 10f64.powf(high))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(s: &Scale) -> Vec<&str> {
        s.ticks.iter().map(|(_, t)| t.as_str()).collect()
    }

    #[test]
    fn marks_are_round_or_at_the_values() {
        let s = Scale::numbers(&[0.0, 0.93], false, false, true).unwrap();
        assert_eq!(texts(&s), ["0", "0.2", "0.4", "0.6", "0.8"]);
        let s = Scale::numbers(&[256.0, 512.0, 24576.0], true, true, false).unwrap();
        assert_eq!(texts(&s), ["256", "512", "24,576"]);
        let s = Scale::numbers(&[1.0, 2000.0], true, false, false).unwrap();
        assert_eq!(texts(&s), ["1", "2", "5", "10", "20", "50", "100", "200", "500", "1000", "2000"]);
    }

    #[test]
    fn a_scale_begins_at_zero_where_that_leaves_little_empty() {
        assert_eq!(Scale::numbers(&[10.0, 90.0], false, false, true).unwrap().range.0, 0.0);
        assert!(Scale::numbers(&[80.0, 90.0], false, false, true).unwrap().range.0 > 70.0);
        let same = Scale::numbers(&[3.0, 3.0], false, false, true).unwrap();
        assert!(same.range.0 < 3.0 && same.range.1 > 3.0);
    }

    #[test]
    fn what_cannot_be_drawn_is_said() {
        assert!(Scale::numbers(&[0.0, 1.0], true, false, false).unwrap_err().contains("above 0"));
        assert!(Scale::numbers(&[], false, false, false).unwrap_err().contains("nothing"));
    }
}
