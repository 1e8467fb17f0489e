//! Pearson's chi-square test.

use std::collections::BTreeMap;

/// What a test's p value must be above.
pub(crate) const LEAST: f64 = 0.001;

/// How likely draws of the expected distribution are to lie as far from it as these counts do. Cells with fewer than 5
/// expected draws count as one.
pub(crate) fn p_value<K: Ord>(counts: &BTreeMap<K, u64>, expected: &BTreeMap<K, f64>, draws: u64) -> f64 {
    if counts.keys().any(|cell| !expected.contains_key(cell)) || counts.values().sum::<u64>() != draws {
        return 0.0;
    }
    let mut cells = Vec::new();
    let mut rare = (0.0, 0.0);
    for (cell, share) in expected {
        let (seen, expected) = (counts.get(cell).copied().unwrap_or(0) as f64, share * draws as f64);
        if expected < 5.0 {
            rare = (rare.0 + seen, rare.1 + expected);
        } else {
            cells.push((seen, expected));
        }
    }
    match cells.first_mut() {
        Some(other) if rare.1 < 5.0 => *other = (other.0 + rare.0, other.1 + rare.1),
        _ => cells.push(rare),
    }
    let statistic = cells.iter().map(|(seen, expected)| (seen - expected).powi(2) / expected).sum();
    survival(statistic, cells.len() - 1)
}

/// The probability of a larger chi-square value, by the recurrence over degrees of freedom from 1 or 2 on.
fn survival(x: f64, degrees: usize) -> f64 {
    if degrees == 0 || x <= 0.0 {
        return 1.0;
    }
    // Q(a + 1, y) = Q(a, y) + y^a e^-y / Gamma(a + 1) with a = degrees / 2 and y = x / 2, in logarithms.
    let y = x / 2.0;
    let (mut a, mut q, mut term) = if degrees.is_multiple_of(2) {
        (1.0, (-y).exp(), y.ln() - y)
    } else {
        (0.5, complementary_error(y.sqrt()), 0.5 * y.ln() - y - (0.5 * std::f64::consts::PI.sqrt()).ln())
    };
    while a < degrees as f64 / 2.0 {
        q += term.exp();
        a += 1.0;
        term += y.ln() - a.ln();
    }
    q.min(1.0)
}

/// erfc to 1.2e-7 (Chebyshev fit of Numerical Recipes).
fn complementary_error(x: f64) -> f64 {
    const C: [f64; 10] = [
        -1.26551223,
        1.00002368,
        0.37409196,
        0.09678418,
        -0.18628806,
        0.27886807,
        -1.13520398,
        1.48851587,
        -0.82215223,
        0.17087277,
    ];
    let t = 1.0 / (1.0 + 0.5 * x);
    t * (-x * x + C.iter().rev().fold(0.0, |sum, c| sum * t + c)).exp()
}

#[test]
fn p_values_are_those_of_tables() {
    for (x, degrees, p) in
        [(10.828, 1, 0.001), (13.816, 2, 0.001), (16.266, 3, 0.001), (18.307, 10, 0.05), (99.617, 60, 0.001)]
    {
        assert!((survival(x, degrees) / p - 1.0).abs() < 0.01, "{degrees}: {}", survival(x, degrees));
    }
}
