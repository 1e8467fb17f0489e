//! Intervals for rates: what another stretch of the same work might have shown.
//!
//! Accesses of one answer depend on each other, so single accesses must not be drawn again as if they did not. Blocks
//! are: some hundred tokens, or a request. Blocks are drawn with replacement as often as there are blocks, the rate over
//! them is taken, and the middle 95 % of many such rates are the interval (percentile method). With less than some ten
//! blocks it is too narrow.

use super::accesses::Accesses;
use super::run::Replayed;
use strata_trace::Phase;
use strata_trace::synth::Random;

/// A part of what a rate is made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Block {
    /// The numerator: hits.
    pub part: u64,
    /// The denominator: accesses.
    pub whole: u64,
}

/// A rate and where it lies with a probability of 95 %.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Interval {
    /// Over all blocks.
    pub value: f64,
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Interval {
    /// Whether 0 lies inside: of a difference, that there may be none.
    pub fn holds_zero(&self) -> bool {
        self.low <= 0.0 && self.high >= 0.0
    }
}

/// Samples that an interval is made of.
const SAMPLES: usize = 2000;

/// Hits over accesses of answers, in blocks of at least `tokens` tokens of one request; what is left at a request's end
/// joins its last block. `tokens` = `u32::MAX` makes each request a block.
pub fn blocks(accesses: &Accesses, replayed: &Replayed, tokens: u32) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut request, mut rows, mut first) = (None, 0u64, true);
    for (span, counts) in accesses.rounds().iter().zip(&replayed.rounds) {
        if span.phase != Phase::Decode {
            continue;
        }
        let next = request != Some(span.request);
        if next || rows >= u64::from(tokens) {
            // The block before may be the short rest of its request.
            if next {
                join_rest(&mut blocks, rows < u64::from(tokens) && !first);
            }
            first = next;
            request = Some(span.request);
            rows = 0;
            blocks.push(Block::default());
        }
        rows += u64::from(span.rows);
        if let Some(block) = blocks.last_mut() {
            block.part += counts.hits;
            block.whole += counts.accesses;
        }
    }
    join_rest(&mut blocks, rows < u64::from(tokens) && !first);
    blocks
}

/// Joins the last block to the one before.
fn join_rest(blocks: &mut Vec<Block>, short: bool) {
    if let Some(rest) = blocks.pop_if(|_| short)
        && let Some(last) = blocks.last_mut()
    {
        last.part += rest.part;
        last.whole += rest.whole;
    }
}

/// The rate over blocks.
pub fn rate(blocks: &[Block], seed: u64) -> Interval {
    interval(blocks.len(), seed, |chosen| ratio(chosen.map(|i| blocks[i])))
}

/// The rate over `a` less that over `b`, which are blocks of the same work under two settings: each sample draws the
/// same blocks of both, so what both share does not widen the interval. Blocks beyond the shorter are left out.
pub fn difference(a: &[Block], b: &[Block], seed: u64) -> Interval {
    interval(a.len().min(b.len()), seed, |chosen| {
        let chosen: Vec<usize> = chosen.collect();
        ratio(chosen.iter().map(|&i| a[i])) - ratio(chosen.iter().map(|&i| b[i]))
    })
}

fn ratio(blocks: impl Iterator<Item = Block>) -> f64 {
    let (part, whole) = blocks.fold((0, 0), |(part, whole), b| (part + b.part, whole + b.whole));
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn interval(blocks: usize, seed: u64, mut figure: impl FnMut(&mut dyn Iterator<Item = usize>) -> f64) -> Interval {
    let value = figure(&mut (0..blocks));
    if blocks == 0 {
        return Interval { value, low: value, high: value };
    }
    let mut random = Random::new(seed);
    let mut samples: Vec<f64> =
        (0..SAMPLES).map(|_| figure(&mut (0..blocks).map(|_| random.below(blocks as u64) as usize))).collect();
    samples.sort_by(f64::total_cmp);
    // 50 samples lie below the interval, and 50 above it.
    let out = SAMPLES / 40;
    Interval { value, low: samples[out], high: samples[SAMPLES - 1 - out] }
}
