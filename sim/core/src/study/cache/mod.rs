//! `cache`: what a cache of experts hits, and what that is worth.
//!
//! A point names a source of accesses, a policy with its settings, and room; the policy's own code is replayed over the
//! accesses ([`crate::replay`]), and the cost model makes times of what each layer of each round missed. Unless told
//! otherwise the first half of the requests says which experts are popular, the cache starts filled with these, and the
//! second half counts.
//!
//! Inputs: `trace`, a recording, and `world`, a TOML file with the table `[synth]` of
//! [`SynthParams`](strata_trace::synth::SynthParams), drawn with the point's seed; each a file or a folder of such files,
//! of which the axis `source` names one by its name without ending. `ranking` is a list of experts, best first, for
//! `start = "ranking"`. Those of the study `round`, for the times.
//!
//! Beside a policy's hits stand those of an oracle: Belady's rule with bypass under the same room, scope, insert budget and
//! start, whose copies are there at once. It bounds rules that bring in what was just missed, as long as a round's experts
//! fit into the cache; where they do not, it does not know that an expert which several rows share is worth more than
//! one that is used sooner.
//!
//! Times need a model file that is described: that of the axis `model`, or the one whose experts are as many and as large as the
//! trace's; without one the figures of time are absent.

mod plan;
mod shared;
mod source;
#[cfg(test)]
mod tests;
mod time;

use super::setting::{AXES as SHARED, INPUTS as COST_INPUTS, Library, Setting};
use super::values::Values;
use super::{Described, Inputs, Point, Prepared, Row, Study};
use crate::check::invalid;
use crate::cost::ModelShape;
use crate::error::SimError;
use crate::replay::{Accesses, LruCurve, StartState, blocks, rate, replay, replay_classic, replay_each, start_cache};
use plan::{Mode, Plan, Start};
use source::{Drawn, Form, Loaded, Sized, Sources};
use std::sync::Arc;
use strata_policy::cache::{CacheParams, Capacity, Rule, Scope};
use strata_trace::Phase;
use time::{Timer, costs};

/// The study.
pub struct CacheStudy;

const NAME: &str = "cache";

/// Tokens of a block of the bootstrap.
const BLOCK: u32 = 256;

const fn axis(name: &'static str, unit: &'static str, help: &'static str) -> Described {
    Described { name, unit, help }
}

const AXES: &[Described] = &[
    axis("source", "", "A trace or a world by the name of its file without ending; the only one unless given"),
    axis("tokens", "tokens", "That a world's requests keep; the world's own unless given"),
    axis("window", "rows", "Of a world's rounds; the world's own unless given"),
    axis("part", "", "second-half (the default) of the requests counts, or all"),
    axis("start", "", "Filled by popularity in the first half (the default), cold, or by the input `ranking`"),
    axis("mode", "", "engine (the default): round by round; classic: access by access, hits alone"),
    axis(
        "sizing",
        "",
        "uniform (the default): each slot holds any expert; bytes: as much memory, each takes its own size",
    ),
    axis("experts.policy", "", "Which experts are resident; belady knows the future, infinite is a bound"),
    axis("experts.slots", "experts", "Room for so many of the largest experts; what fits on the machine unless given"),
    axis("experts.vram", "MiB", "Room as memory, instead of experts.slots"),
    axis("experts.scope", "", "global or per-layer"),
    axis("experts.admission", "", "evict-first or wait-for-copy"),
    axis("experts.copy_rounds", "rounds", "Until a copy has landed; 0: it is waited for, and nothing else is done"),
    axis("experts.insert_budget", "experts", "Copies that begin after a round at most; no limit unless given"),
    axis("experts.count_prefill", "", "Whether prompts count as use"),
    axis("experts.adapt_every", "rounds", "Between adaptations of adaptive, and decays of lfu"),
    axis("experts.adapt_swaps", "experts", "Swapped at an adaptation at most"),
    axis("experts.adapt_min_use", "", "Uses that an expert needs to come in"),
    axis("experts.adapt_gain", "", "Uses beyond those of the expert that leaves"),
    axis("experts.decay", "", "What uses are multiplied by at an adaptation"),
    axis("experts.lfu_remember", "", "Whether lfu remembers the use of absent experts"),
    axis("experts.bypass", "", "Whether lfu and belady may leave a miss out"),
    axis("experts.saving_fast", "", "Decay of saving's short memory"),
    axis("experts.saving_slow", "", "Decay of its long memory"),
    axis("experts.saving_blend", "", "Share of the short memory"),
    axis("experts.saving_horizon", "rounds", "Within which a move must pay"),
    axis("experts.saving_copy", "", "Share of a copy that counts as lost"),
    SHARED[0],
    axis("model", "", "A model file that is described; unless given the one with the trace's experts"),
    SHARED[2],
    SHARED[3],
    SHARED[4],
    SHARED[5],
    SHARED[8],
    SHARED[9],
    SHARED[10],
    SHARED[13],
    SHARED[14],
    SHARED[15],
    SHARED[16],
];

const METRICS: &[Described] = &[
    axis("hit_rate", "", "Share of the accesses of answers whose expert is resident"),
    axis("hit_low", "", "Lower end of its interval of 95 %, by blocks of 256 tokens"),
    axis("hit_high", "", "Upper end"),
    axis("distinct_hit_rate", "", "The same of distinct experts of a layer and round"),
    axis("misses", "experts", "Distinct ones missed in a layer and round"),
    axis("inserts", "experts", "Copied into the cache for each token kept"),
    axis("inserted_mb", "MB", "Copied into the cache for each token kept"),
    axis("oracle_hit_rate", "", "Of belady with bypass and copies that are there at once, otherwise the same settings"),
    axis("of_oracle", "", "Hits over those of the oracle"),
    axis("resident", "experts", "In the cache, mean over rounds"),
    axis("cache_gb", "GB", "Room; where it is infinite, what all experts take"),
    axis("tokens_kept", "tokens", "Kept of a round"),
    axis("rows", "rows", "Of a round"),
    axis("round_ms", "ms", "A round, by the cost model"),
    axis("tokens_per_s", "tokens/s", "Tokens kept over the time of rounds"),
    axis("wait_gpu_ms", "ms", "Waiting for the GPU in a round"),
    axis("cpu_pool_ms", "ms", "Experts on the CPU in a round"),
    axis("insert_ms", "ms", "By how much copies into the cache lengthen a round at least"),
    axis("engine_hit_rate", "", "What the engine counted when it recorded, over the whole trace"),
    axis("engine_differs", "", "1 if the replay of the engine's own settings differs from its record anywhere, else 0"),
];

const INPUTS: &[(&str, bool)] = &[
    ("trace", false),
    ("world", false),
    ("ranking", false),
    COST_INPUTS[0],
    COST_INPUTS[1],
    COST_INPUTS[2],
    COST_INPUTS[3],
];

impl Study for CacheStudy {
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
        Ok(Box::new(CachePrepared { library: Library::read(inputs)?, sources: Sources::read(inputs)? }))
    }
}

struct CachePrepared {
    library: Library,
    sources: Sources,
}

impl Prepared for CachePrepared {
    fn evaluate(&self, point: &Point) -> Result<Vec<Row>, SimError> {
        let values = Values::new(NAME, point, AXES)?;
        let count = |axis: &str| match point.values.contains_key(axis) {
            true => values.int(axis, 1, 1, 1 << 32).map(|n| Some(n as usize)),
            false => Ok(None),
        };
        let drawn = Drawn { seed: point.seed, tokens: count("tokens")?, window: count("window")? };
        let source = match values.text("source", "")? {
            "" => self.sources.get(None, drawn)?,
            name => self.sources.get(Some(name), drawn)?,
        };
        let model = self.model(&values, &source.form)?;
        let bytes = match &model {
            Some(model) => model.expert_bytes.iter().map(|bytes| bytes.round() as u64).collect(),
            None => source.form.bytes.clone(),
        };
        let sized = source.sized(&bytes)?;
        let setting = model.map(|model| Setting::of_model(&values, &self.library, model)).transpose()?;
        let shape = sized.all.shape();
        let plan = Plan::of(point, &values, shape, &|| match &setting {
            Some(setting) => Ok(setting.slots * setting.model.mean_expert_bytes()),
            None => {
                let expected = "a number of experts, or experts.vram: no described model has this trace's experts";
                Err(invalid("axis experts.slots", "nothing", expected))
            }
        })?;
        let mut start = StartState::ranked(match plan.start {
            Start::Cold => Vec::new(),
            Start::Popularity => source.popular.clone(),
            Start::Ranking => match &self.sources.ranking {
                Some(text) => plan::ranking(text, shape)?,
                None => return Err(invalid("axis start", "ranking and no input of that name", "the input ranking")),
            },
        });
        start.costs = setting.as_ref().map(costs);
        let figures = match plan.mode {
            Mode::Engine => engine(&plan, &source, &sized, &start, setting.as_ref(), point.seed)?,
            Mode::Classic => classic(&plan, &sized, &start)?,
        };
        let metrics = METRICS.iter().filter_map(|m| {
            let value = figures.iter().find(|(name, _)| *name == m.name)?.1;
            Some((m.name.to_owned(), value))
        });
        Ok(vec![Row { labels: values.labels(), metrics: metrics.collect() }])
    }
}

impl CachePrepared {
    /// The described model of the trace.
    fn model(&self, values: &Values, form: &Form) -> Result<Option<ModelShape>, SimError> {
        let alike = |m: &ModelShape| m.layers() == form.layers && m.experts == form.experts && m.used == form.used;
        let same = |m: &ModelShape| m.expert_bytes.iter().zip(&form.bytes).all(|(a, b)| a.round() as u64 == *b);
        match values.text("model", "")? {
            "" => Ok(self.library.models().iter().find(|m| alike(m) && same(m)).cloned()),
            name => {
                let model = self.library.model(name)?;
                if alike(model) {
                    return Ok(Some(model.clone()));
                }
                let found = format!("{name} with {} x {} experts, {} used", model.layers(), model.experts, model.used);
                let expected = format!("the trace's {} x {} and {}", form.layers, form.experts, form.used);
                Err(invalid("axis model", found, expected))
            }
        }
    }
}

type Figures = Vec<(&'static str, f64)>;

fn part<'a>(plan: &Plan, sized: &'a Sized) -> &'a Arc<Accesses> {
    if plan.half { &sized.half } else { &sized.all }
}

/// The settings under which Belady's rule is the bound, and their name.
fn oracle_of(plan: &Plan, bypass: bool) -> (CacheParams, String) {
    let params = CacheParams { rule: Rule::Belady { bypass }, copy_rounds: 0, ..plan.params };
    let name = format!("{params} start={:?} mode={:?} half={}", plan.start, plan.mode, plan.half);
    (params, name)
}

fn engine(
    plan: &Plan,
    source: &Loaded,
    sized: &Sized,
    start: &StartState,
    setting: Option<&Setting>,
    seed: u64,
) -> Result<Figures, SimError> {
    let accesses = part(plan, sized);
    let shape = accesses.shape();
    let answers = || accesses.rounds().iter().filter(|span| span.phase == Phase::Decode);
    let window = answers().map(|span| span.rows as usize).max().unwrap_or(1);
    let mut timer = setting.map(|setting| Timer::new(setting, window, plan.params.copy_rounds));
    let (mut distinct_hits, mut distinct_misses, mut resident_sum) = (0u64, 0u64, 0u64);
    let mut resident = start_cache(accesses, &plan.params, start)?.residents().count() as u64;
    let mut wrong = None;
    let replayed = replay_each(accesses, &plan.params, start, |outcome| {
        if outcome.span.phase == Phase::Decode {
            distinct_hits += outcome.layers.iter().map(|l| u64::from(l.distinct_hits)).sum::<u64>();
            distinct_misses += outcome.layers.iter().map(|l| u64::from(l.distinct_misses)).sum::<u64>();
            resident_sum += resident;
            if let Some(Err(error)) = timer.as_mut().map(|timer| timer.round(outcome, shape)) {
                wrong.get_or_insert(error);
            }
        }
        for change in outcome.changes {
            resident += u64::from(change.came.is_some());
            resident -= u64::from(change.left.is_some());
        }
    })?;
    if let Some(error) = wrong {
        return Err(error);
    }
    let (params, name) = oracle_of(plan, true);
    let oracle = sized.oracles.get(name, || Ok(replay(accesses, &params, start)?.decode.hits))?;
    let decode = &replayed.decode;
    let per = |sum: f64, of: u64| if of == 0 { 0.0 } else { sum / of as f64 };
    let interval = rate(&blocks(accesses, &replayed, BLOCK), seed);
    let mut figures = vec![
        ("hit_rate", decode.hit_rate()),
        ("hit_low", interval.low),
        ("hit_high", interval.high),
        ("distinct_hit_rate", per(distinct_hits as f64, distinct_hits + distinct_misses)),
        ("misses", per(distinct_misses as f64 / shape.layers() as f64, decode.rounds)),
        ("inserts", per(decode.inserts as f64, decode.committed)),
        ("inserted_mb", per(decode.bytes as f64 / 1e6, decode.committed)),
        ("oracle_hit_rate", per(oracle as f64, decode.accesses)),
        ("of_oracle", per(decode.hits as f64, oracle)),
        ("resident", per(resident_sum as f64, decode.rounds)),
        ("cache_gb", room(plan, accesses) as f64 / 1e9),
        ("tokens_kept", per(decode.committed as f64, decode.rounds)),
        ("rows", per(decode.rows as f64, decode.rounds)),
    ];
    if let Some(timer) = timer.filter(|timer| timer.rounds > 0.0) {
        let ms = 1e3 / timer.rounds;
        figures.extend([
            ("round_ms", timer.sum.total * ms),
            ("tokens_per_s", decode.committed as f64 / timer.sum.total),
            ("wait_gpu_ms", timer.sum.wait_gpu * ms),
            ("cpu_pool_ms", timer.sum.cpu_pool * ms),
            ("insert_ms", timer.inserts * ms),
        ]);
    }
    if let Some(engine) = source.engine {
        figures.extend([("engine_hit_rate", engine.hit_rate), ("engine_differs", f64::from(u8::from(engine.differs)))]);
    }
    Ok(figures)
}

/// The room in bytes: slots hold any expert, so each takes what the largest does.
fn room(plan: &Plan, accesses: &Accesses) -> u64 {
    let shape = accesses.shape();
    let all = shape.bytes().iter().map(|bytes| bytes * shape.experts() as u64).sum();
    match plan.params.capacity {
        _ if plan.params.rule == Rule::Infinite => all,
        Capacity::Slots(n) => n as u64 * shape.bytes().iter().copied().max().unwrap_or(0),
        Capacity::Bytes(n) => n,
    }
}

/// Hits access by access; of LRU with one pool and slots of one size those of all sizes at once.
fn classic(plan: &Plan, sized: &Sized, start: &StartState) -> Result<Figures, SimError> {
    let accesses = part(plan, sized);
    let CacheParams { rule, capacity, scope, .. } = plan.params;
    let count = accesses.keys().len() as u64;
    let hits = match (rule, capacity, scope, plan.start) {
        (Rule::Lru, Capacity::Slots(slots), Scope::Global, Start::Cold) => {
            let curve = sized.curves.get(plan.half, || {
                Ok(Arc::new(LruCurve::new(accesses.keys().iter().copied(), accesses.shape().keys())))
            })?;
            curve.hits(slots)
        }
        _ => replay_classic(accesses, rule, capacity, scope, start)?,
    };
    let (params, name) = oracle_of(plan, false);
    let oracle = sized.oracles.get(name, || replay_classic(accesses, params.rule, capacity, scope, start))?;
    let per = |sum: u64, of: u64| if of == 0 { 0.0 } else { sum as f64 / of as f64 };
    Ok(vec![
        ("hit_rate", per(hits, count)),
        ("oracle_hit_rate", per(oracle, count)),
        ("of_oracle", per(hits, oracle)),
        ("cache_gb", room(plan, accesses) as f64 / 1e9),
    ])
}
