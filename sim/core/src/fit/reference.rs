//! The constants of the reference machine, from as few published figures as there are constants.
//!
//! Six constants are fitted to six figures: the waiting for the GPU, the drafts and the rest of the published round, what
//! a window of four rows costs more than one of one, one speed of a code-book file, and one speed at a long context. The others of [`Constants`] are published by
//! themselves or assumed, and everything else that is published of this machine can then be predicted.

use super::{Parameter, least_squares, with_values};
use crate::check::invalid;
use crate::cost::counts::{HIT_POWER, Unions, expected, hit_rate};
use crate::cost::{Acceptance, Composition, Constants, Copies, KvType, Machine, ModelShape, RoundTime, Split};
use crate::cost::{Window, round_time};
use crate::error::SimError;
use crate::presets::{Published, machines, models, named, published};

/// The published figures that are fitted to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Anchors {
    /// Waiting for the GPU in a round of Q2_0 at 4K, in ms (technical report).
    pub wait_gpu_ms: f64,
    /// Drafts of such a round in ms (technical report).
    pub draft_ms: f64,
    /// What else such a round has besides GPU, CPU and drafts, in ms (technical report).
    pub other_ms: f64,
    /// Time of a window of four rows over that of one (what the engine expects before it has measured).
    pub four_rows: f64,
    /// Decoding IQ3_S at 4K in tokens/s (0.1.26).
    pub codebook_tokens_per_s: f64,
    /// Decoding Q2_0 at 262K in tokens/s.
    pub long_tokens_per_s: f64,
}

impl Default for Anchors {
    fn default() -> Anchors {
        Anchors {
            wait_gpu_ms: 14.6,
            draft_ms: 2.0,
            other_ms: 4.3,
            four_rows: 2.05,
            codebook_tokens_per_s: 53.3,
            long_tokens_per_s: 60.3,
        }
    }
}

/// Rows of a window at most: the original engine's default of three drafts.
const WINDOW: usize = 4;

/// How keys and values of the reference machine's runs are stored.
pub(crate) fn reference_kv(context: f64) -> KvType {
    if context <= 8192.0 { KvType::F16 } else { KvType::Int8 }
}

/// The share of missed experts that the original engine copies: 0.20 for its repacked Q2_0, 0.55 for other files.
pub(crate) fn reference_fraction(quant: &str) -> f64 {
    if quant == "Q2_0" { 0.20 } else { 0.55 }
}

/// The mean round and its tokens on a machine with the reference machine's settings, for a line of its tables.
///
/// # Errors
/// A number cannot be.
pub fn reference_round(
    machine: &Machine,
    model: &ModelShape,
    constants: &Constants,
    line: &Published,
) -> Result<(RoundTime, f64), SimError> {
    let rounds = Acceptance::published(line.acceptance)?.rounds(WINDOW)?;
    let mut mean = RoundTime::default();
    for (time, &share) in reference_windows(machine, model, constants, line)?.iter().zip(&rounds.rows) {
        mean.add(time, share);
    }
    Ok((mean, rounds.tokens))
}

/// Rounds of 1, 2, 3 and 4 rows with the reference machine's settings.
fn reference_windows(
    machine: &Machine,
    model: &ModelShape,
    constants: &Constants,
    line: &Published,
) -> Result<Vec<RoundTime>, SimError> {
    let hits = hit_rate(line.slots, model.pairs() as f64, HIT_POWER)?;
    let mut windows = Vec::with_capacity(WINDOW);
    for row in 0..WINDOW {
        let rows = (row + 1) as f64;
        let layers = expected(model.layers(), model.experts, model.used, rows, hits, Unions::default())?;
        let window = Window {
            rows,
            drafts: Acceptance::steps(row + 1, WINDOW) as f64,
            context: line.context,
            kv: reference_kv(line.context),
            layers: &layers,
        };
        let split = Split::Fixed(reference_fraction(&line.quant));
        let order = (Composition::Barrier, Copies::InTurn);
        windows.push(round_time(machine, model, constants, split, order, window)?);
    }
    Ok(windows)
}

/// Fits the six constants. Each depends on one figure in essence, so the fit is exact but for the search's tolerance.
///
/// # Errors
/// The built-in tables are damaged, or a figure cannot be met within bounds.
pub fn fit_reference(anchors: &Anchors) -> Result<Constants, SimError> {
    let (machines, models, table) = (machines()?, models()?, published()?);
    let machine = named("machine", &machines, "rtx5070", |m| &m.name)?;
    let line = |quant: &str, context: f64| {
        let found = table.iter().find(|l| l.quant == quant && l.context == context);
        found.ok_or_else(|| invalid("published.csv", format!("no {quant} at {context}"), "it"))
    };
    let model = |quant: &str| named("model", &models, quant, |m| &m.name);
    let (q2, iq3) = (model("Q2_0")?, model("IQ3_S")?);
    let (short, long, coded) = (line("Q2_0", 4096.0)?, line("Q2_0", 262_144.0)?, line("IQ3_S", 4096.0)?);
    let parameters = [
        Parameter::new("node_us", "us", 4.0, 0.5, 20.0),
        Parameter::new("row_us", "us", 20.0, 0.0, 200.0),
        Parameter::new("step_ms", "ms", 0.8, 0.1, 4.0),
        Parameter::new("other_ms", "ms", 3.0, 0.0, 10.0),
        Parameter::new("codebook_ns", "ns", 0.1, 0.01, 1.0),
        Parameter::new("select_ns", "ns", 1.0, 0.0, 10.0),
    ];
    let base = Constants::default();
    let minimum = least_squares(&parameters, |values| {
        let constants = with_values(&base, &parameters, values)?;
        let (round, _) = reference_round(machine, q2, &constants, short)?;
        let windows = reference_windows(machine, q2, &constants, short)?;
        let windows: Vec<f64> = windows.iter().map(|w| w.total).collect();
        let rest = round.head + round.commit + round.ngram + round.other;
        let speed =
            |model, line| reference_round(machine, model, &constants, line).map(|(round, tokens)| tokens / round.total);
        let pairs = [
            (round.wait_gpu * 1e3, anchors.wait_gpu_ms),
            (round.draft * 1e3, anchors.draft_ms),
            (rest * 1e3, anchors.other_ms),
            (windows[3] / windows[0], anchors.four_rows),
            (speed(iq3, coded)?, anchors.codebook_tokens_per_s),
            (speed(q2, long)?, anchors.long_tokens_per_s),
        ];
        Ok(pairs.iter().map(|(p, m)| (p / m).ln()).collect())
    })?;
    with_values(&base, &parameters, &minimum.values)
}
