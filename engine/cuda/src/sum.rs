//! The experts' part of a pass, some experts at a time: as many as are resident, or have been brought.

use crate::buffer::{Floats, Memory, blocks, n};
use crate::experts::{Groups, Kinds, Routed, SharedExpert, run};
use crate::many::{self, Between};
use crate::ops::{THREADS, fits};
use std::ops::Range;
use std::sync::Arc;

/// The weighted sum of the routed experts' outputs for the rows of a pass. Every wanted expert is to be added once.
pub struct ExpertSum<'a> {
    x: &'a Floats,
    routed: Routed<'a>,
    kinds: Kinds,
    /// Pairs (row, choice) by expert: those of expert e are `starts[e]..starts[e + 1]`.
    pairs: Vec<u32>,
    starts: Vec<usize>,
    /// For each pair the number of its result.
    place: Vec<u32>,
    done: usize,
    /// `[pairs and rows][hidden]`
    results: Arc<Memory>,
    between: Option<Between>,
}

impl<'a> ExpertSum<'a> {
    /// For rows of `x` and their choices among `count` experts; none if they do not fit each other, which is a failure of
    /// the device.
    pub fn new(x: &'a Floats, routed: Routed<'a>, kinds: Kinds, count: usize) -> Option<ExpertSum<'a>> {
        let device = x.device();
        let (rows, pairs) = (x.len() / kinds.hidden.max(1), routed.ids.len());
        let whole = rows * kinds.hidden == x.len() && pairs == rows * routed.used && routed.weights.len() == pairs;
        if !fits(device, "experts", whole && routed.ids.iter().all(|&id| usize::from(id) < count)) {
            return None;
        }
        let mut starts = vec![0; count + 1];
        for &id in routed.ids {
            if let Some(start) = starts.get_mut(usize::from(id) + 1) {
                *start += 1;
            }
        }
        let mut before = 0;
        for start in &mut starts {
            before += *start;
            *start = before;
        }
        let (mut next, mut sorted) = (starts.clone(), vec![0; pairs]);
        for (pair, &id) in (0u32..).zip(routed.ids) {
            if let Some(next) = next.get_mut(usize::from(id)) {
                if let Some(place) = sorted.get_mut(*next) {
                    *place = pair;
                }
                *next += 1;
            }
        }
        let between = (many::suits(device, rows) && many::knows(&kinds)).then(|| Between::new(device, pairs, &kinds));
        let results = Memory::new(device, (pairs + rows) * kinds.hidden * 4);
        Some(ExpertSum { x, routed, kinds, pairs: sorted, starts, place: vec![0; pairs], done: 0, results, between })
    }

    /// The experts that rows use, in order of their numbers.
    pub fn wanted(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.starts.len() - 1).filter(|&expert| !self.range(expert).is_empty())
    }

    fn range(&self, expert: usize) -> Range<usize> {
        let at = |e: usize| self.starts.get(e).copied().unwrap_or(self.pairs.len());
        at(expert)..at(expert + 1)
    }

    /// The pairs (row, choice) that use an expert, as places in the routing's lists.
    pub fn pairs(&self, expert: usize) -> &[u32] {
        self.pairs.get(self.range(expert)).unwrap_or_default()
    }

    /// Takes note of where an expert's results will be.
    fn begin(&mut self, expert: usize) {
        for at in self.range(expert) {
            if let Some(place) = self.pairs.get(at).and_then(|&pair| self.place.get_mut(pair as usize)) {
                *place = u32::try_from(self.done).unwrap_or(u32::MAX);
            }
            self.done += 1;
        }
    }

    fn address(&self, result: usize) -> u64 {
        self.results.address() + (result * self.kinds.hidden * 4) as u64
    }

    /// Computes experts whose gate, up and down projections are at addresses on the device.
    pub fn add(&mut self, experts: &[(usize, [u64; 3])]) {
        let (first, used) = (self.done, u32::try_from(self.routed.used.max(1)).unwrap_or(u32::MAX));
        let mut groups = Groups { starts: vec![0], ..Groups::default() };
        for &(expert, [gate, up, down]) in experts {
            self.begin(expert);
            groups.gate.push(gate);
            groups.up.push(up);
            groups.down.push(down);
            groups.tokens.extend(self.pairs(expert).iter().map(|&pair| pair / used));
            groups.starts.push(u32::try_from(groups.tokens.len()).unwrap_or(u32::MAX));
        }
        if groups.tokens.is_empty() || !self.within() {
            return;
        }
        let at = self.address(first);
        match &self.between {
            Some(between) => many::experts(self.x, &groups, &self.kinds, between, first, at),
            None => run(self.x, &groups, &self.kinds, at),
        }
    }

    /// Whether there is room for all results, which there is unless experts were added twice.
    fn within(&self) -> bool {
        fits(self.x.device(), "experts' results", self.done <= self.pairs.len())
    }

    /// Takes the results of experts that the host computed: a row for each of their pairs, in the order of `experts` and of
    /// [`ExpertSum::pairs`].
    pub fn add_results(&mut self, experts: &[usize], results: &[f32]) {
        let first = self.done;
        experts.iter().for_each(|&expert| self.begin(expert));
        let device = self.x.device();
        let whole = results.len() == (self.done - first) * self.kinds.hidden;
        if fits(device, "the host's results", whole) && self.within() {
            // SAFETY: there is room for a row for each pair.
            unsafe { device.upload(self.address(first), results) };
        }
    }

    /// The sum in routing order, then of the shared expert's output.
    pub fn finish(self, shared: &SharedExpert<'_>) -> Floats {
        let device = self.x.device();
        let mut out = Floats::new(device, self.x.len());
        let rows = self.x.len() / self.kinds.hidden.max(1);
        let whole = self.done == self.pairs.len() && shared.opening.len() == rows;
        if fits(device, "experts and their sum", whole) {
            shared.results(self.x, self.address(self.done));
            combine(&self.results, &self.place, self.routed, shared.opening, &mut out);
        }
        out
    }
}

/// Adds up results, `[pairs and rows][hidden]`: pair p's is number `place[p]`, those of the shared expert come last.
fn combine(results: &Arc<Memory>, place: &[u32], routed: Routed<'_>, opening: &Floats, out: &mut Floats) {
    let device = opening.device();
    let (rows, used, hidden) = (opening.len(), routed.used, out.len() / opening.len().max(1));
    let (place, weights) = (Memory::of(device, place), Memory::of(device, routed.weights));
    let terms = rows * (used + 1);
    let (index, factor) = (Memory::new(device, terms * 4), Memory::new(device, terms * 4));
    let args = [weights.arg(), place.arg(), opening.arg(), index.arg(), factor.arg(), n(rows), n(used)];
    // SAFETY: a thread takes a row of `used` pairs and writes `used + 1` terms.
    unsafe { device.launch("terms", [blocks(rows, THREADS), 1, 1], THREADS as u32, &args) };
    let args = [results.arg(), index.arg(), factor.arg(), out.arg_mut(), n(rows), n(used + 1), n(hidden)];
    // SAFETY: every index is below the number of results.
    unsafe { device.launch("combine", [blocks(hidden, 128), blocks(rows, 1).min(65_535), 1], 128, &args) };
}
