//! Runs: from an experiment to its rows.

pub mod inputs;
mod parts;

pub use parts::{Parts, Shard};

use crate::rows::{Kept, Rows, kept};
use crate::spec::Experiment;
use anyhow::{Context, Result, anyhow};
use inputs::Input;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Points that are evaluated at once at most, however many are asked for: more threads than any machine has cores.
pub const MOST_JOBS: usize = 1024;

/// How a run goes.
pub struct How<'a> {
    /// Points at once, of which no more than [`MOST_JOBS`] are; 0 = as many as there are cores.
    pub jobs: usize,
    /// Which of the points.
    pub shard: Shard,
    /// Where unfinished runs are kept.
    pub parts: PathBuf,
    /// Whether what is kept there is put away first: of a shard its own part.
    pub fresh: bool,
    /// Becomes true when the run shall stop.
    pub stop: &'a AtomicBool,
    /// Is told how many points are done, of how many.
    pub progress: &'a (dyn Fn(usize, usize) + Sync),
}

/// How a run ended.
pub enum Ended {
    /// Every point is done.
    Whole(Box<Finished>),
    /// The shard is done; others may not be.
    Shard {
        /// Points of the shard.
        points: usize,
        /// Where they lie.
        dir: PathBuf,
    },
    /// It was stopped and can go on.
    Stopped {
        /// Points done.
        done: usize,
        /// Points wanted.
        points: usize,
    },
}

/// What a whole run gives.
pub struct Finished {
    /// All rows.
    pub rows: Rows,
    /// What they were made from.
    pub inputs: BTreeMap<String, Input>,
    /// Where the points lie until the result is written.
    pub parts: Parts,
}

/// Runs an experiment, or goes on with it.
///
/// # Errors
/// An input is missing or cannot be used, a point cannot be evaluated, or a part cannot be kept.
pub fn run(root: &Path, experiment: &Experiment, how: &How<'_>) -> Result<Ended> {
    inputs::require(root, std::slice::from_ref(experiment))?;
    let hashed = inputs::hashed(root, experiment)?;
    let parts = Parts::new(&how.parts, experiment, parts::key(experiment, &hashed)?);
    let whole = how.shard == Shard::WHOLE;
    match how.fresh {
        true if whole => parts.remove()?,
        true => parts.remove_part(how.shard)?,
        false => {}
    }
    // A shard that begins anew takes nothing from the parts of others, which stay.
    let mut done = if how.fresh { BTreeMap::new() } else { parts.done()? };
    let wanted: Vec<usize> = (0..experiment.points()).filter(|&p| how.shard.has(p)).collect();
    let open: Vec<usize> = wanted.iter().copied().filter(|p| !done.contains_key(p)).collect();
    if !open.is_empty() {
        let prepared = experiment.study.prepare(&inputs::paths(root, experiment))?;
        let writer = parts.writer(how.shard)?;
        let before = wanted.len() - open.len();
        let evaluate = |point: usize| {
            let rows = prepared.evaluate(&experiment.point(point)).map_err(|e| anyhow!("{e}"));
            let rows = rows.and_then(|rows| kept(experiment, &rows)).with_context(|| at(experiment, point))?;
            writer.keep(point, &rows)?;
            Ok(rows)
        };
        let found = in_parallel(&open, how, before, wanted.len(), &evaluate)?;
        done.extend(found);
    }
    let finished = wanted.iter().filter(|p| done.contains_key(p)).count();
    if finished < wanted.len() {
        return Ok(Ended::Stopped { done: finished, points: wanted.len() });
    }
    if !whole {
        return Ok(Ended::Shard { points: finished, dir: parts.dir().to_owned() });
    }
    Ok(Ended::Whole(Box::new(Finished { rows: Rows::gather(experiment, &done), inputs: hashed, parts })))
}

/// Joins the parts of all shards.
///
/// # Errors
/// Points are missing, or a part belongs to another run.
pub fn merge(root: &Path, experiment: &Experiment, base: &Path) -> Result<Finished> {
    inputs::require(root, std::slice::from_ref(experiment))?;
    let hashed = inputs::hashed(root, experiment)?;
    let parts = Parts::new(base, experiment, parts::key(experiment, &hashed)?);
    let done = parts.done()?;
    parts.require_all(&done)?;
    Ok(Finished { rows: Rows::gather(experiment, &done), inputs: hashed, parts })
}

/// The rows of a whole experiment, kept nowhere on the way.
///
/// # Errors
/// As [`run`].
pub fn rows(root: &Path, experiment: &Experiment) -> Result<Rows> {
    inputs::require(root, std::slice::from_ref(experiment))?;
    let prepared = experiment.study.prepare(&inputs::paths(root, experiment))?;
    let evaluate = |point: usize| {
        let rows = prepared.evaluate(&experiment.point(point)).map_err(|e| anyhow!("{e}"));
        rows.and_then(|rows| kept(experiment, &rows)).with_context(|| at(experiment, point))
    };
    let how = How {
        jobs: 0,
        shard: Shard::WHOLE,
        parts: PathBuf::new(),
        fresh: false,
        stop: &AtomicBool::new(false),
        progress: &|_, _| {},
    };
    let points: Vec<usize> = (0..experiment.points()).collect();
    let done = in_parallel(&points, &how, 0, points.len(), &evaluate)?;
    Ok(Rows::gather(experiment, &done))
}

/// Which point an error is about.
fn at(experiment: &Experiment, point: usize) -> String {
    let values: Vec<_> = experiment.point(point).values.iter().map(|(k, v)| format!("{k} = {v}")).collect();
    format!("{}: {}", experiment.file, values.join(", "))
}

type Evaluate<'a> = dyn Fn(usize) -> Result<Vec<Kept>> + Sync + 'a;

/// Evaluates points on all cores. Of several errors the one of the first point is told.
fn in_parallel(
    points: &[usize],
    how: &How<'_>,
    before: usize,
    all: usize,
    evaluate: &Evaluate<'_>,
) -> Result<BTreeMap<usize, Vec<Kept>>> {
    // More threads than points would only wait.
    let jobs = how.jobs.min(points.len().clamp(1, MOST_JOBS));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs).build().context("cannot start threads")?;
    let (failed, count) = (AtomicBool::new(false), Mutex::new(before));
    let one = |&point: &usize| -> Option<(usize, Result<Vec<Kept>>)> {
        if how.stop.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed) {
            return None;
        }
        let rows = evaluate(point);
        failed.fetch_or(rows.is_err(), Ordering::Relaxed);
        let mut count = count.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *count += 1;
        (how.progress)(*count, all);
        Some((point, rows))
    };
    // One point at a time to each thread: points differ in cost by orders of magnitude.
    let found: Vec<_> = pool.install(|| points.par_iter().with_max_len(1).filter_map(one).collect());
    let mut done = BTreeMap::new();
    for (point, rows) in found {
        done.insert(point, rows?);
    }
    Ok(done)
}
