//! Checks and the verdict: whether what was expected came out.
//!
//! A check is met when its whole interval lies where it should, missed when none of it does, and open otherwise. The
//! verdict rests on the checks that decide: confirmed when all are met, refuted when one is missed, else inconclusive.

use crate::cells::{Cell, Cells};
use crate::number;
use crate::spec::axes::as_number;
use crate::spec::schema::{Check, Reduce, Select};
use crate::stats::{self, Estimate};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What became of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The whole interval lies where it should.
    Met,
    /// None of the interval does.
    Missed,
    /// Part of it does.
    Open,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Met => "yes",
            Outcome::Missed => "no",
            Outcome::Open => "undecided",
        })
    }
}

/// What became of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// What was expected came out.
    Confirmed,
    /// It did not.
    Refuted,
    /// The intervals leave it open.
    Inconclusive,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Confirmed => "confirmed",
            Verdict::Refuted => "refuted",
            Verdict::Inconclusive => "inconclusive",
        })
    }
}

/// A check with its number.
pub struct Checked<'a> {
    /// What was asked.
    pub check: &'a Check,
    /// What came out.
    pub estimate: Estimate,
    /// Whether that is where it should be.
    pub outcome: Outcome,
}

impl Check {
    /// The bounds, both included, within which the check is met.
    pub fn bounds(&self) -> (f64, f64) {
        match self.expect {
            Some(e) => {
                let slack = self.percent.map(|p| e.abs() * p / 100.0).or(self.absolute).unwrap_or(0.0);
                (e - slack, e + slack)
            }
            None => (self.at_least.unwrap_or(f64::NEG_INFINITY), self.at_most.unwrap_or(f64::INFINITY)),
        }
    }

    /// The bounds in words.
    pub fn wanted(&self) -> String {
        match (self.expect, self.percent, self.absolute) {
            (Some(e), Some(p), _) => format!("{} ± {} %", number::short(e), number::short(p)),
            (Some(e), None, Some(t)) if t > e.abs() * 1e-6 => format!("{} ± {}", number::short(e), number::short(t)),
            (Some(e), None, _) => number::short(e),
            (None, ..) => match (self.at_least, self.at_most) {
                (Some(low), Some(high)) => format!("{} to {}", number::short(low), number::short(high)),
                (Some(low), None) => format!("at least {}", number::short(low)),
                (None, Some(high)) => format!("at most {}", number::short(high)),
                (None, None) => String::new(),
            },
        }
    }

    fn outcome(&self, e: Estimate) -> Outcome {
        // Sums of decimal numbers miss their bound by bits: 0.1 + 0.2 is no reason to fail.
        let (low, high) = self.bounds();
        let slack = |bound: f64| if bound.is_finite() { bound.abs() * 1e-9 } else { 0.0 };
        let (low, high) = (low - slack(low), high + slack(high));
        if e.low >= low && e.high <= high {
            Outcome::Met
        } else if e.high < low || e.low > high {
            Outcome::Missed
        } else {
            Outcome::Open
        }
    }
}

/// Checks that a verdict tells one by one when they are met.
const TOLD: usize = 2;

/// One number for each of the resamples, out of the selected cells.
fn reduce(cells: &Cells, check: &Check, select: &Select, sets: &[Vec<usize>]) -> Result<Vec<Option<f64>>> {
    let chosen = cells.select(select)?;
    let metric = cells.metric(&check.metric)?;
    if check.reduce == Reduce::Value {
        if chosen.len() > 1 {
            let open = cells.differing(&chosen, &[]).join(", ");
            bail!("the selection leaves {} configurations that differ in {open}, expected one", chosen.len());
        }
        return Ok(sets.iter().map(|set| stats::mean(&chosen[0].samples[metric], set)).collect());
    }
    // What is read off at the extreme: the axis or the figure itself.
    let axis = match &check.axis {
        Some(axis) => {
            let key = cells.key(axis)?;
            let value = |cell: &&Cell| {
                let found = cell.key[key].as_ref();
                found.and_then(as_number).with_context(|| format!("{axis} is no number in some of the rows"))
            };
            Some(chosen.iter().map(value).collect::<Result<Vec<f64>>>()?)
        }
        None => None,
    };
    let one = |set: &Vec<usize>| -> Option<f64> {
        // Cells without a figure take no part in the comparison.
        let values: Vec<(usize, f64)> =
            chosen.iter().enumerate().filter_map(|(i, c)| Some((i, stats::mean(&c.samples[metric], set)?))).collect();
        // The first of equals, so that a plateau gives the lower end of an ascending axis.
        let best = |sign: f64| {
            let mut best: Option<(usize, f64)> = None;
            for &(i, v) in &values {
                if best.is_none_or(|(_, b)| sign * v > sign * b) {
                    best = Some((i, v));
                }
            }
            best
        };
        match check.reduce {
            Reduce::Value => None,
            Reduce::Mean => {
                (!values.is_empty()).then(|| values.iter().map(|(_, v)| v).sum::<f64>() / values.len() as f64)
            }
            Reduce::Min => best(-1.0).map(|(_, v)| v),
            Reduce::Max => best(1.0).map(|(_, v)| v),
            Reduce::Argmin => best(-1.0).and_then(|(i, _)| axis.as_ref()?.get(i).copied()),
            Reduce::Argmax => best(1.0).and_then(|(i, _)| axis.as_ref()?.get(i).copied()),
        }
    };
    Ok(sets.iter().map(one).collect())
}

/// The number of a check.
///
/// # Errors
/// The selection finds nothing, or more than one configuration where one is wanted, or no figure.
pub fn evaluate(cells: &Cells, check: &Check) -> Result<Estimate> {
    let wrong = || format!("check {:?}", check.name);
    let sets = stats::resamples(cells.draws);
    let mut each = reduce(cells, check, &check.select, &sets).with_context(wrong)?;
    let other = check.relative_to.as_ref().or(check.difference_to.as_ref());
    if let Some(change) = other {
        let mut select = check.select.clone();
        select.extend(change.clone());
        let against = reduce(cells, check, &select, &sets).with_context(wrong)?;
        for (value, by) in each.iter_mut().zip(against) {
            *value = match (*value, by) {
                (Some(a), Some(b)) if check.relative_to.is_some() => (b != 0.0).then(|| a / b),
                (Some(a), Some(b)) => Some(a - b),
                _ => None,
            };
        }
    }
    let found = stats::estimate(cells.draws, &each);
    found.with_context(|| {
        format!("check {:?}: the selected rows have no {}, or one to divide by is 0", check.name, check.metric)
    })
}

/// All checks with their numbers. `known` are those kept with aggregated rows, by the checks' names: they hold
/// intervals that need every draw.
///
/// # Errors
/// As [`evaluate`]; or a number kept with the rows is missing or not the one that the rows give.
pub fn all<'a>(cells: &Cells, checks: &'a [Check], known: &[(String, Estimate)]) -> Result<Vec<Checked<'a>>> {
    let mut list = Vec::new();
    for check in checks {
        let mut estimate = evaluate(cells, check)?;
        if cells.aggregated {
            let Some((_, kept)) = known.iter().find(|(name, _)| *name == check.name) else {
                bail!("check {:?} was not there when the rows were aggregated: run the experiment again", check.name);
            };
            let far = (kept.value - estimate.value).abs() > 1e-6 * kept.value.abs().max(1e-12);
            // A ratio of means over draws is no mean of ratios, but both are made from means here.
            if far {
                bail!("check {:?} is {} by the rows and {} by meta.json", check.name, estimate.value, kept.value);
            }
            estimate = *kept;
        }
        list.push(Checked { check, estimate, outcome: check.outcome(estimate) });
    }
    Ok(list)
}

/// The verdict, and the sentence that says why.
pub fn verdict(checked: &[Checked<'_>]) -> (Verdict, String) {
    let deciding: Vec<_> = checked.iter().filter(|c| c.check.decides()).collect();
    let with = |outcome: Outcome| deciding.iter().filter(move |c| c.outcome == outcome).collect::<Vec<_>>();
    let say = |c: &&&Checked<'_>| {
        format!("{}: {}, expected {}", c.check.name, number::estimate(c.estimate), c.check.wanted())
    };
    let sentences = |list: &[&&Checked<'_>]| list.iter().map(say).collect::<Vec<_>>().join("; ");
    let (missed, open) = (with(Outcome::Missed), with(Outcome::Open));
    if !missed.is_empty() {
        (Verdict::Refuted, sentences(&missed))
    } else if !open.is_empty() {
        (Verdict::Inconclusive, sentences(&open))
    } else {
        let met = with(Outcome::Met);
        let few = met.len() <= TOLD;
        (Verdict::Confirmed, if few { sentences(&met) } else { format!("all {} deciding checks are met", met.len()) })
    }
}
