//! Finds parameters whose traces have given figures.
//!
//! The search goes along one parameter after the other: a step up, a step down, and what comes nearer to the targets is
//! kept; a step that goes on being right grows, and when no step of any parameter helps all are halved. All candidates are
//! drawn from the same seed, so what differs between two of them is the parameters and little chance. The search is a
//! plain function of its input: the same targets give the same parameters.

use super::SynthParams;
use crate::trace::{Trace, TraceError};

/// A parameter that the search may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parameter {
    /// [`SynthParams::zipf`]; a spread that is larger is cut to it.
    Zipf,
    /// [`SynthParams::tail`].
    Tail,
    /// [`SynthParams::reuse`].
    Reuse,
    /// [`SynthParams::topic_tokens`], in steps of a factor of 2^step.
    TopicTokens,
    /// [`SynthParams::topic_share`].
    TopicShare,
}

/// A parameter with the range to search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Free {
    /// Which one.
    pub parameter: Parameter,
    /// The least value.
    pub low: f64,
    /// The largest.
    pub high: f64,
    /// The first step; for a topic's length in doublings.
    pub step: f64,
}

/// A figure that traces should have.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// What it is, for people.
    pub name: String,
    /// What it should be.
    pub value: f64,
    /// How far off it may be and count as much as another target that is as many times off as it may be.
    pub tolerance: f64,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// The parameters.
    pub params: SynthParams,
    /// The figures that they give, in the order of the targets.
    pub achieved: Vec<f64>,
    /// The sum over targets of (difference / tolerance)^2.
    pub loss: f64,
    /// Traces that were made.
    pub traces: usize,
}

/// The largest factor by which a step grows.
const GROWTH: f64 = 8.0;

/// Halvings of all steps before the search ends.
const HALVINGS: usize = 5;

/// Searches from `start` for parameters whose traces have the targets' figures, which `measure` gives in their order.
/// Makes at most `most` traces, the first of them from `start`.
///
/// # Errors
/// Parameters are refused, a target cannot be one, or `measure` fails or gives another number of figures.
pub fn fit(
    start: &SynthParams,
    free: &[Free],
    targets: &[Target],
    most: usize,
    mut measure: impl FnMut(&Trace) -> Result<Vec<f64>, TraceError>,
) -> Result<Fitted, TraceError> {
    for target in targets {
        if !(target.value.is_finite() && target.tolerance > 0.0 && target.tolerance.is_finite()) {
            let found = format!("{} within {}", target.value, target.tolerance);
            return Err(invalid(&target.name, found, "a finite value and a tolerance above 0"));
        }
    }
    for free in free {
        if !(free.low <= free.high && free.step > 0.0 && free.high.is_finite() && free.step.is_finite()) {
            let found = format!("{} to {} in steps of {}", free.low, free.high, free.step);
            return Err(invalid(&format!("{:?}", free.parameter), found, "a range and a step above 0"));
        }
    }
    let mut traces = 0;
    let mut evaluate = |params: &SynthParams| -> Result<(f64, Vec<f64>), TraceError> {
        traces += 1;
        let achieved = measure(&params.generate()?)?;
        if achieved.len() != targets.len() {
            return Err(invalid("targets", format!("{} figures", achieved.len()), "one for each target"));
        }
        let off = |(target, value): (&Target, &f64)| {
            let times = (value - target.value) / target.tolerance;
            times * times
        };
        Ok((targets.iter().zip(&achieved).map(off).sum(), achieved))
    };
    let mut params = start.clone();
    for free in free {
        let value = get(&params, free.parameter);
        set(&mut params, free, value);
    }
    let (mut loss, mut achieved) = evaluate(&params)?;
    let mut left = most.saturating_sub(1);
    let mut scale = 1.0;
    for _ in 0..=HALVINGS {
        let mut better = true;
        while better && left > 0 {
            better = false;
            for free in free {
                for sign in [1.0, -1.0] {
                    let mut growth = 1.0;
                    let before = loss;
                    while left > 0 {
                        let mut candidate = params.clone();
                        let moved = step(get(&params, free.parameter), free, sign * scale * growth);
                        set(&mut candidate, free, moved);
                        if candidate == params {
                            break;
                        }
                        let (l, a) = evaluate(&candidate)?;
                        left -= 1;
                        // Not a number is not better.
                        if l < loss {
                            (params, loss, achieved) = (candidate, l, a);
                            growth = (growth * 2.0f64).min(GROWTH);
                        } else {
                            break;
                        }
                    }
                    if loss < before {
                        better = true;
                        break;
                    }
                }
            }
        }
        scale *= 0.5;
    }
    Ok(Fitted { params, achieved, loss, traces })
}

fn invalid(field: &str, found: String, expected: &str) -> TraceError {
    TraceError::Invalid { place: format!("fit of a synthetic trace: {field}"), found, expected: expected.into() }
}

fn get(params: &SynthParams, parameter: Parameter) -> f64 {
    match parameter {
        Parameter::Zipf => params.zipf,
        Parameter::Tail => params.tail,
        Parameter::Reuse => params.reuse,
        Parameter::TopicTokens => params.topic_tokens,
        Parameter::TopicShare => params.topic_share,
    }
}

fn set(params: &mut SynthParams, free: &Free, value: f64) {
    // Three digits are more than a search among traces of chance can tell apart, and easier on readers.
    let value = (value.clamp(free.low, free.high) * 1000.0).round() / 1000.0;
    match free.parameter {
        Parameter::Zipf => {
            params.zipf = value;
            params.zipf_spread = params.zipf_spread.min(value);
        }
        Parameter::Tail => params.tail = value,
        Parameter::Reuse => params.reuse = value,
        Parameter::TopicTokens => params.topic_tokens = value,
        Parameter::TopicShare => params.topic_share = value,
    }
}

/// A value so many steps on.
fn step(value: f64, free: &Free, steps: f64) -> f64 {
    match free.parameter {
        // The power of two by square roots would be exact, but that of our own exponential is the same everywhere too.
        Parameter::TopicTokens => value * super::numbers::exp(free.step * steps * std::f64::consts::LN_2),
        _ => value + free.step * steps,
    }
}
