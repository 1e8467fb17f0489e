//! Least squares without derivatives: the simplex of Nelder and Mead, inside bounds.

use crate::check::invalid;
use crate::error::SimError;

/// A constant to be fitted.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Its unit; empty for none.
    pub unit: &'static str,
    /// Where the search starts.
    pub start: f64,
    /// Least value.
    pub low: f64,
    /// Largest value.
    pub high: f64,
}

impl Parameter {
    /// A constant with a start and bounds.
    pub fn new(name: &str, unit: &'static str, start: f64, low: f64, high: f64) -> Parameter {
        Parameter { name: name.to_owned(), unit, start, low, high }
    }
}

/// The best values found.
#[derive(Debug, Clone, PartialEq)]
pub struct Minimum {
    /// In the order of the parameters.
    pub values: Vec<f64>,
    /// Sum of the squares of the residuals.
    pub squares: f64,
    /// How often the residuals were computed.
    pub evaluations: usize,
}

/// Evaluations of one search.
const MOST: usize = 1500;
/// Searches: each starts anew around the best point of the one before, which frees a simplex that has collapsed.
const RESTARTS: usize = 4;

/// The values within the bounds for which the sum of the squares of `residuals` is least. Deterministic: equal inputs
/// give equal values, bit for bit. Values outside the bounds count as those on them.
///
/// # Errors
/// Bounds are empty, a start lies outside, there are fewer residuals than constants, or one is no number at the start.
pub fn least_squares(
    parameters: &[Parameter],
    residuals: impl Fn(&[f64]) -> Result<Vec<f64>, SimError>,
) -> Result<Minimum, SimError> {
    for p in parameters {
        let within = p.low < p.high && (p.low..=p.high).contains(&p.start);
        if !(within && p.low.is_finite() && p.high.is_finite()) {
            let found = format!("start {} within {} to {}", p.start, p.low, p.high);
            return Err(invalid(format!("parameter {}", p.name), found, "finite bounds around the start"));
        }
    }
    let mut best: Vec<f64> = parameters.iter().map(|p| p.start).collect();
    let at_start = residuals(&best)?;
    if at_start.len() < parameters.len() {
        let expected = format!("at least {}, one for each constant", parameters.len());
        return Err(invalid("measurements to fit to", at_start.len(), expected));
    }
    if let Some(i) = at_start.iter().position(|r| !r.is_finite()) {
        return Err(invalid(format!("residual {} at the start", i + 1), at_start[i], "a finite number"));
    }
    if parameters.is_empty() {
        return Ok(Minimum { values: best, squares: squares(&at_start), evaluations: 1 });
    }
    let mut evaluations = 1;
    let mut value = |point: &[f64]| {
        evaluations += 1;
        residuals(point).map_or(f64::INFINITY, |r| {
            let sum = squares(&r);
            if sum.is_nan() { f64::INFINITY } else { sum }
        })
    };
    let mut least = squares(&at_start);
    for restart in 0..RESTARTS {
        let size = 0.25 / f64::from(1 << restart);
        let (point, found) = search(parameters, &best, size, &mut value);
        if found <= least {
            (best, least) = (point, found);
        }
    }
    Ok(Minimum { values: best, squares: least, evaluations })
}

fn squares(residuals: &[f64]) -> f64 {
    residuals.iter().map(|r| r * r).sum()
}

/// One search, with a first simplex of `size` times the bounds' width.
fn search(
    parameters: &[Parameter],
    start: &[f64],
    size: f64,
    value: &mut impl FnMut(&[f64]) -> f64,
) -> (Vec<f64>, f64) {
    let n = start.len();
    let clamp = |mut point: Vec<f64>| {
        for (v, p) in point.iter_mut().zip(parameters) {
            *v = v.clamp(p.low, p.high);
        }
        point
    };
    let mut corners: Vec<(Vec<f64>, f64)> = vec![(start.to_vec(), value(start))];
    for i in 0..n {
        let mut corner = start.to_vec();
        let step = size * (parameters[i].high - parameters[i].low);
        // Away from the nearer bound, so that the simplex has width in every direction.
        corner[i] += if corner[i] + step <= parameters[i].high { step } else { -step };
        let corner = clamp(corner);
        let found = value(&corner);
        corners.push((corner, found));
    }
    for _ in 0..MOST {
        corners.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (low, high) = (corners[0].1, corners[n].1);
        if !high.is_finite() && !low.is_finite() || (high - low).abs() <= 1e-12 * low.abs() + 1e-18 {
            break;
        }
        let centre: Vec<f64> = (0..n).map(|i| corners[..n].iter().map(|c| c.0[i]).sum::<f64>() / n as f64).collect();
        let along = |t: f64| clamp((0..n).map(|i| centre[i] + t * (corners[n].0[i] - centre[i])).collect::<Vec<f64>>());
        let mirrored = along(-1.0);
        let at_mirrored = value(&mirrored);
        let (point, found) = if at_mirrored < low {
            let further = along(-2.0);
            let at_further = value(&further);
            if at_further < at_mirrored { (further, at_further) } else { (mirrored, at_mirrored) }
        } else if at_mirrored < corners[n - 1].1 {
            (mirrored, at_mirrored)
        } else {
            let nearer = along(if at_mirrored < high { -0.5 } else { 0.5 });
            let at_nearer = value(&nearer);
            if at_nearer < high.min(at_mirrored) {
                (nearer, at_nearer)
            } else {
                let first = corners[0].0.clone();
                for corner in corners.iter_mut().skip(1) {
                    for (v, f) in corner.0.iter_mut().zip(&first) {
                        *v = f + 0.5 * (*v - f);
                    }
                    corner.1 = value(&corner.0);
                }
                continue;
            }
        };
        corners[n] = (point, found);
    }
    corners.sort_by(|a, b| a.1.total_cmp(&b.1));
    corners.swap_remove(0)
}
