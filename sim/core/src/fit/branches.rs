//! What the cost model says about a recorded window.

use super::data::{Recorded, RecordedMachine};
use crate::cost::counts::{LayerCounts, Unions, spread};
use crate::cost::{Composition, Constants, Copies, KvType, ModelShape, Split, Window, round_time};
use crate::error::SimError;

/// A recorded window with its machine and model.
#[derive(Debug, Clone)]
pub struct Case {
    /// What was recorded.
    pub recorded: Recorded,
    /// Where.
    pub machine: RecordedMachine,
    /// With what.
    pub model: ModelShape,
}

/// A figure that a window may have recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Term {
    /// Waiting for the GPU.
    WaitGpu,
    /// Experts on the CPU.
    CpuPool,
    /// Drafts.
    Draft,
    /// The whole window.
    Window,
}

impl Term {
    /// All of them.
    pub const ALL: [Term; 4] = [Term::WaitGpu, Term::CpuPool, Term::Draft, Term::Window];

    /// Its name, that of its column.
    pub fn name(self) -> &'static str {
        match self {
            Term::WaitGpu => "wait_gpu_ms",
            Term::CpuPool => "cpu_pool_ms",
            Term::Draft => "draft_ms",
            Term::Window => "window_ms",
        }
    }

    /// What was recorded of it.
    pub fn measured(self, recorded: &Recorded) -> Option<f64> {
        let value = match self {
            Term::WaitGpu => recorded.wait_gpu_ms,
            Term::CpuPool => recorded.cpu_pool_ms,
            Term::Draft => recorded.draft_ms,
            Term::Window => recorded.window_ms,
        };
        // 0 stands for "not measured" on builds without the counter, and is no number to be relatively right about.
        value.filter(|&v| v > 0.0)
    }
}

impl Case {
    /// What the model says, in the order of [`Term::ALL`] and in ms; `None` for a window that does not say how many rows
    /// and experts it had.
    ///
    /// # Errors
    /// A number of the window cannot be.
    pub fn predicted(&self, constants: &Constants) -> Result<Option<[f64; 4]>, SimError> {
        let Some(counts) = self.counts() else { return Ok(None) };
        let Some(rows) = self.recorded.window_rows(self.model.used as f64) else { return Ok(None) };
        let window = Window {
            rows,
            drafts: self.machine.window.map_or(rows - 1.0, |window| rows.min(window - 1.0)),
            context: self.recorded.context.parse().unwrap_or(0.0),
            kv: KvType::Int8,
            layers: &counts,
        };
        let copied = Split::Count(self.recorded.copied.unwrap_or(0.0));
        let order = (Composition::Barrier, Copies::InTurn);
        let t = round_time(&self.machine.machine(), &self.model, constants, copied, order, window)?;
        let waited = if self.machine.first_card_only { 0.5 } else { 1.0 };
        Ok(Some([t.wait_gpu * waited, t.cpu_pool, t.draft, t.total].map(|s| s * 1e3)))
    }

    /// Distinct experts of each layer: whole ones on the CPU, so that layers without any have none to wake up for.
    fn counts(&self) -> Option<Vec<LayerCounts>> {
        let r = &self.recorded;
        let used = self.model.used as f64;
        let rows = r.window_rows(used)?;
        let on_cpu = r.cpu_experts?;
        let copied = r.copied.unwrap_or(0.0);
        let distinct = used * rows.powf(Unions::default().all);
        let hits = match r.vram_entries {
            Some(entries) => entries * distinct / (used * rows),
            None => (distinct - on_cpu - copied).max(0.0),
        };
        let entries = used * rows;
        let spread = spread(self.model.layers(), distinct.max(on_cpu), on_cpu);
        Some(spread.into_iter().map(|cpu| LayerCounts { hits, misses: cpu + copied, entries }).collect())
    }
}
