//! How long the rounds of a replay would take on a machine.
//!
//! Each round has the distinct resident and missed experts of each of its layers, and the cost model makes its time of
//! them. Copies into the cache are added: they and the copies of missed experts share the link, and both and the CPU
//! share main memory. Copies that have rounds to land in are spread over these, and a round is no shorter than what the
//! link or main memory needs for all that they move in it; a copy that is waited for is waited for alone.
//! That the copies find the gaps that the layers leave is the best that can be: it is a lower bound.

use crate::check::invalid;
use crate::cost::{Acceptance, LayerCounts, RoundTime, Window, round_time};
use crate::error::SimError;
use crate::replay::Outcome;
use crate::study::setting::{Order, Setting};
use std::collections::VecDeque;
use strata_policy::cache::{Costs, Shape};

/// Sums over rounds.
pub(super) struct Timer<'a> {
    setting: &'a Setting,
    /// Rows of a window at most.
    window: usize,
    copy_rounds: usize,
    /// Bytes to be copied in the next rounds.
    coming: VecDeque<f64>,
    layers: Vec<LayerCounts>,
    pub(super) sum: RoundTime,
    /// By how much copies into the cache lengthen the rounds, in seconds.
    pub(super) inserts: f64,
    pub(super) rounds: f64,
}

impl<'a> Timer<'a> {
    pub(super) fn new(setting: &'a Setting, window: usize, copy_rounds: u32) -> Timer<'a> {
        Timer {
            setting,
            window,
            copy_rounds: copy_rounds as usize,
            coming: VecDeque::new(),
            layers: Vec::new(),
            sum: RoundTime::default(),
            inserts: 0.0,
            rounds: 0.0,
        }
    }

    /// Adds a round of an answer.
    ///
    /// # Errors
    /// The composition is none of single rounds.
    pub(super) fn round(&mut self, outcome: &Outcome<'_>, shape: &Shape) -> Result<(), SimError> {
        let s = self.setting;
        let Order::Composed(composition) = s.order else {
            return Err(invalid("axis composition", "two-groups", "barrier, serial or overlapped"));
        };
        self.layers.clear();
        self.layers.extend(outcome.layers.iter().map(|l| LayerCounts {
            hits: f64::from(l.distinct_hits),
            misses: f64::from(l.distinct_misses),
            entries: f64::from(l.entries),
        }));
        let rows = outcome.span.rows as usize;
        let window = Window {
            rows: rows as f64,
            drafts: Acceptance::steps(rows, self.window) as f64,
            context: s.context,
            kv: s.kv,
            layers: &self.layers,
        };
        let time = round_time(&s.machine, &s.model, &s.constants, s.split, (composition, s.copies), window)?;
        let begun: f64 = outcome.begun.iter().map(|&key| shape.bytes_of(key) as f64).sum();
        let beside = self.coming.pop_front().unwrap_or(0.0);
        let link = s.machine.link_gb_s * 1e9;
        let mut total = time.total.max((time.copied_bytes + beside) / link);
        total = total.max((time.copied_bytes + time.cpu_bytes + beside) / (s.machine.dram_gb_s * 1e9));
        if self.copy_rounds == 0 {
            total += begun / link;
        } else {
            let share = begun / self.copy_rounds as f64;
            self.coming.resize(self.coming.len().max(self.copy_rounds), 0.0);
            self.coming.iter_mut().take(self.copy_rounds).for_each(|bytes| *bytes += share);
        }
        self.inserts += total - time.total;
        self.sum.add(&time, 1.0);
        self.sum.total += total - time.total;
        self.rounds += 1.0;
        Ok(())
    }
}

/// What misses and copies cost on this machine, for the rule that weighs them.
pub(super) fn costs(setting: &Setting) -> Costs {
    let (machine, model, constants) = (&setting.machine, &setting.model, &setting.constants);
    let nanos = |seconds: f64| ((seconds * 1e9).round() as u64).max(1);
    let compute = model.expert_weights * constants.weight_ns(model.kind) * 1e-9 / (machine.workers * machine.balance);
    let miss = |&bytes: &f64| {
        let resident = bytes / (machine.vram_gb_s * 1e9 * constants.vram_efficiency);
        nanos((compute.max(bytes / (machine.cpu_gb_s * 1e9)) - resident).max(0.0))
    };
    let copy = |&bytes: &f64| nanos(bytes / (machine.link_gb_s * 1e9));
    Costs { miss: model.expert_bytes.iter().map(miss).collect(), copy: model.expert_bytes.iter().map(copy).collect() }
}
