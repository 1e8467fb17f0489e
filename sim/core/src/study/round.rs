//! `round`: how long a round of decoding takes and how many tokens a second come of it, for any machine, model file,
//! context, cache, split and window, by the cost model.
//!
//! Inputs, all optional: `profile`, a hardware profile whose machine is taken unless another is named; `machines` and `models`, TOML of the form of `sim/core/data/machines.toml` and `models.toml`,
//! whose names hide published ones; `constants`, TOML with tables `[round]`, `[prompt]` and `[vram]` that replace
//! constants of the cost model by name ([`Constants`](crate::cost::Constants),
//! [`PromptConstants`](crate::cost::PromptConstants), [`VramConstants`](crate::cost::VramConstants)).

use super::setting::{INPUTS, Setting};
use super::{Described, Inputs, Point, Prepared, Row, Study};
use crate::cost::counts::{Unions, expected};
use crate::cost::{Acceptance, RoundTime, Window, round_time, two_groups};
use crate::error::SimError;
use crate::study::setting::{AXES, Library, Order};
use crate::study::values::Values;

/// The study.
pub struct RoundStudy;

const NAME: &str = "round";

const METRICS: &[Described] = &[
    Described { name: "round_ms", unit: "ms", help: "A round, mean over windows of all sizes" },
    Described {
        name: "wait_gpu_ms",
        unit: "ms",
        help: "Waiting for the GPU: its dense part and what its experts take longer",
    },
    Described { name: "cpu_pool_ms", unit: "ms", help: "Experts on the CPU" },
    Described { name: "draft_ms", unit: "ms", help: "Drafts" },
    Described { name: "rest_ms", unit: "ms", help: "Head, commit, n-gram rows and everything else" },
    Described { name: "dense_ms", unit: "ms", help: "Dense weights and context on the GPU; a part of waiting" },
    Described { name: "start_ms", unit: "ms", help: "Starting the graph's nodes, and doorbells; a part of waiting" },
    Described { name: "hits_ms", unit: "ms", help: "Resident experts on the GPU, beside the CPU" },
    Described { name: "copy_ms", unit: "ms", help: "Copies over PCIe, beside the CPU" },
    Described { name: "tokens", unit: "tokens", help: "Kept of a round" },
    Described { name: "rows", unit: "rows", help: "Of a window" },
    Described { name: "tokens_per_s", unit: "tokens/s", help: "Tokens over the time of a round" },
    Described { name: "slots", unit: "experts", help: "Places for experts in VRAM" },
    Described { name: "hit_pct", unit: "%", help: "Look-ups that find their expert resident" },
    Described { name: "cpu_experts", unit: "experts", help: "Distinct ones on the CPU for each layer and round" },
    Described { name: "copied_experts", unit: "experts", help: "Distinct ones copied for each layer and round" },
    Described { name: "cpu_mb", unit: "MB", help: "Read by the CPU in a round" },
    Described { name: "copied_mb", unit: "MB", help: "Copied over PCIe in a round" },
];

impl Study for RoundStudy {
    fn name(&self) -> &'static str {
        NAME
    }

    fn axes(&self) -> &'static [Described] {
        AXES
    }

    fn metrics(&self) -> &'static [Described] {
        METRICS
    }

    fn inputs(&self) -> &'static [(&'static str, bool)] {
        INPUTS
    }

    fn prepare(&self, inputs: &Inputs) -> Result<Box<dyn Prepared>, SimError> {
        Ok(Box::new(RoundPrepared { library: Library::read(inputs)? }))
    }
}

struct RoundPrepared {
    library: Library,
}

impl Prepared for RoundPrepared {
    fn evaluate(&self, point: &Point) -> Result<Vec<Row>, SimError> {
        let values = Values::new(NAME, point, AXES)?;
        let setting = Setting::of(&values, &self.library)?;
        let s = &setting;
        let hits = s.hit_rate()?;
        let rounds = s.acceptance.rounds(s.window)?;
        let mut mean = RoundTime::default();
        for (row, &share) in rounds.rows.iter().enumerate() {
            if share == 0.0 {
                continue;
            }
            let rows = (row + 1) as f64;
            let layers = expected(s.model.layers(), s.model.experts, s.model.used, rows, hits, Unions::default())?;
            let drafts = Acceptance::steps(row + 1, s.window) as f64;
            let window = Window { rows, drafts, context: s.context, kv: s.kv, layers: &layers };
            let time = match s.order {
                Order::Composed(composition) => {
                    let order = (composition, s.copies);
                    round_time(&s.machine, &s.model, &s.constants, s.split, order, window)?
                }
                Order::TwoGroups => {
                    two_groups(&s.machine, &s.model, &s.constants, s.split, hits, Unions::default(), window)?
                }
            };
            mean.add(&time, share);
        }
        let layers = s.model.layers() as f64;
        let figures = [
            mean.total * 1e3,
            mean.wait_gpu * 1e3,
            mean.cpu_pool * 1e3,
            mean.draft * 1e3,
            (mean.head + mean.commit + mean.ngram + mean.other) * 1e3,
            mean.dense * 1e3,
            (mean.nodes + mean.sync) * 1e3,
            mean.hits * 1e3,
            mean.copy * 1e3,
            rounds.tokens,
            rounds.mean_rows,
            rounds.tokens / mean.total,
            s.slots,
            hits * 100.0,
            mean.on_cpu / layers,
            mean.copied / layers,
            mean.cpu_bytes / 1e6,
            mean.copied_bytes / 1e6,
        ];
        Ok(vec![Row::of(values.labels(), METRICS, &figures)])
    }
}
