//! Numbers for readers: few digits, thousands set apart.

use crate::stats::Estimate;
use strata_sim::study::AxisValue;

/// Digits that count in a table; the rows hold all of them.
const DIGITS: i32 = 4;

/// A number with four digits that count, more where it is large and whole.
pub(crate) fn short(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{}", value + 0.0);
    }
    let magnitude = value.abs().log10().floor() as i32;
    if !(-5..15).contains(&magnitude) {
        return format!("{value:.3e}");
    }
    let decimals = (DIGITS - 1 - magnitude).max(0) as usize;
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    apart(if text == "-0" { "0" } else { text })
}

/// Thousands apart by commas from 10,000 on, so that years and the like stay whole.
fn apart(text: &str) -> String {
    let (sign, rest) = text.strip_prefix('-').map_or(("", text), |r| ("-", r));
    let (whole, fraction) = rest.split_once('.').map_or((rest, None), |(w, f)| (w, Some(f)));
    if whole.len() < 5 {
        return text.to_owned();
    }
    let mut out = String::from(sign);
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// A number with its interval, where it has one that shows.
pub(crate) fn estimate(e: Estimate) -> String {
    let [value, low, high] = [e.value, e.low, e.high].map(short);
    if low == high { value } else { format!("{value} [{low}, {high}]") }
}

/// The value of an axis.
pub(crate) fn axis(value: &AxisValue) -> String {
    match value {
        AxisValue::Int(v) => apart(&v.to_string()),
        AxisValue::Float(v) => short(*v),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_right() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (0.768, "0.768"),
            (0.7632, "0.7632"),
            (0.123456, "0.1235"),
            (93.0, "93"),
            (93.04, "93.04"),
            (-1234.5, "-1234"),
            (9_999.6, "10,000"),
            (24_576.0, "24,576"),
            (1_234_567.8, "1,234,568"),
            (1.5e-9, "1.500e-9"),
        ] {
            assert_eq!(short(value), text, "{value}");
        }
        assert_eq!(estimate(Estimate { value: 1.0, low: 0.5, high: 1.25 }), "1 [0.5, 1.25]");
    }
}
