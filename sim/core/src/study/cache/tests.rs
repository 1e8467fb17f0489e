use super::CacheStudy;
use crate::error::SimError;
use crate::replay::{Accesses, StartState, replay, replay_classic};
use crate::study::{AxisValue, Inputs, Point, Prepared, Study};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use strata_config::Layer;
use strata_policy::cache::{Cache, CacheParams, Capacity, Rule, Scope, Start};
use strata_trace::synth::SynthParams;
use strata_trace::{KnobValue, Origin, Record, Trace};

/// The shape of the built-in model.
fn world() -> SynthParams {
    SynthParams {
        layers: 8,
        experts: 64,
        used: 6,
        tokens: 400,
        requests: 6,
        window: 3,
        accept: 0.7,
        topics: 8,
        topic_tokens: 40.0,
        topic_share: 0.5,
        expert_bytes: 30_000,
        ..SynthParams::default()
    }
}

/// A model file of this shape whose layers differ in size.
const MODELS: &str = "
[shape]
layers = 8
attention_layers = 2
used = 6
expert_weights = 98304.0
dense_weights = 1e6
draft_bytes = 0.0
[[model]]
name = 'even'
experts = 64
expert_bytes = 30000.0
dense_bytes = 1e6
head_bytes = 1e5
kind = 'plain'
[[model]]
name = 'mixed'
experts = 64
expert_bytes = [40000.0, 20000.0, 20000.0, 20000.0, 40000.0, 20000.0, 20000.0, 20000.0]
dense_bytes = 1e6
head_bytes = 1e5
kind = 'plain'
";

struct Bench {
    dir: tempfile::TempDir,
    inputs: Inputs,
}

impl Bench {
    fn new() -> Bench {
        let bench = Bench { dir: tempfile::tempdir().unwrap(), inputs: Inputs::new() };
        let text = toml::to_string(&world()).unwrap();
        bench.with("world", "small.toml", format!("[synth]\n{text}\n[[figure]]\nwhat = 'reuse'\nat = 1\n"))
    }

    fn with(mut self, input: &str, name: &str, text: impl AsRef<[u8]>) -> Bench {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        self.inputs.insert(input.into(), path);
        self
    }

    fn prepared(&self) -> Box<dyn Prepared> {
        CacheStudy.prepare(&self.inputs).unwrap()
    }
}

fn point(values: &[(&str, AxisValue)]) -> Point {
    Point { values: values.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect(), seed: 7 }
}

fn figures(study: &dyn Prepared, values: &[(&str, AxisValue)]) -> Result<BTreeMap<String, f64>, SimError> {
    let rows = study.evaluate(&point(values))?;
    assert_eq!(rows.len(), 1);
    Ok(rows[0].metrics.iter().cloned().collect())
}

fn at(study: &dyn Prepared, values: &[(&str, AxisValue)]) -> BTreeMap<String, f64> {
    figures(study, values).unwrap()
}

fn text(word: &str) -> AxisValue {
    AxisValue::Text(word.into())
}

fn slots(n: i64) -> (&'static str, AxisValue) {
    ("experts.slots", AxisValue::Int(n))
}

fn policy(name: &str) -> (&'static str, AxisValue) {
    ("experts.policy", text(name))
}

const POLICIES: [&str; 8] = ["static", "lru", "lfu", "adaptive", "s3-fifo", "saving", "belady", "infinite"];

fn trace() -> Trace {
    SynthParams { seed: 7, ..world() }.generate().unwrap()
}

#[test]
fn figures_are_those_of_the_replay_of_the_second_half() {
    let bench = Bench::new();
    let row = at(&*bench.prepared(), &[policy("lru"), slots(100), ("start", text("cold"))]);
    let all = Accesses::from_trace(&trace()).unwrap();
    let half = all.only(|_, span| span.request >= 3);
    let lru = CacheParams::new(Rule::Lru, Capacity::Slots(100));
    let found = replay(&half, &lru, &StartState::default()).unwrap();
    assert_eq!(row["hit_rate"], found.decode.hit_rate());
    assert_eq!(row["inserts"], found.decode.inserts as f64 / found.decode.committed as f64);
    assert!(row["hit_low"] < row["hit_rate"] && row["hit_rate"] < row["hit_high"]);
    let belady = CacheParams::new(Rule::Belady { bypass: true }, Capacity::Slots(100));
    let belady = CacheParams { copy_rounds: 0, ..belady };
    let bound = replay(&half, &belady, &StartState::default()).unwrap();
    assert_eq!(row["oracle_hit_rate"], bound.decode.hit_rate());
    assert_eq!(row["of_oracle"], found.decode.hits as f64 / bound.decode.hits as f64);
    // What was learned from the first half is what the cache starts with.
    let popular = crate::replay::popularity(&all, |_, span| span.request < 3);
    let fixed = CacheParams::new(Rule::Static, Capacity::Slots(100));
    let found = replay(&half, &fixed, &StartState::ranked(popular)).unwrap();
    let row = at(&*bench.prepared(), &[policy("static"), slots(100)]);
    assert_eq!((row["hit_rate"], row["resident"]), (found.decode.hit_rate(), 100.0));
}

#[test]
fn one_pass_gives_the_classic_hits_of_every_size() {
    let bench = Bench::new();
    let study = bench.prepared();
    let half = Accesses::from_trace(&trace()).unwrap().only(|_, span| span.request >= 3);
    for n in [0, 10, 60, 200, 512] {
        let row = at(&*study, &[policy("lru"), slots(n), ("mode", text("classic")), ("start", text("cold"))]);
        let capacity = Capacity::Slots(n as usize);
        let hits = replay_classic(&half, Rule::Lru, capacity, Scope::Global, &StartState::default()).unwrap();
        assert_eq!(row["hit_rate"], hits as f64 / half.keys().len() as f64);
        assert!(row["of_oracle"] <= 1.0 && !row.contains_key("round_ms"));
    }
}

#[test]
fn rows_do_not_depend_on_what_was_evaluated_before_or_beside() {
    let bench = Bench::new().with("models", "models.toml", MODELS);
    let mut points = Vec::new();
    for (i, name) in POLICIES.iter().enumerate() {
        for seed in [1, 2] {
            let mut p = point(&[policy(name), slots(64 * (1 + i as i64 % 3)), ("model", text("mixed"))]);
            p.seed = seed;
            points.push(p);
        }
    }
    let alone: Vec<_> = points.iter().map(|p| bench.prepared().evaluate(p).unwrap()).collect();
    let shared = bench.prepared();
    let beside: Vec<_> = points.par_iter().rev().map(|p| shared.evaluate(p).unwrap()).collect();
    assert!(alone.iter().eq(beside.iter().rev()));
    assert_ne!(alone[0], alone[1], "seeds draw other worlds");
}

#[test]
fn times_follow_from_what_layers_missed_and_what_was_copied() {
    let bench = Bench::new().with("models", "models.toml", MODELS);
    let study = bench.prepared();
    // Without a model file that is described there are no times; the one with as large experts is found.
    let plain = [policy("lru"), slots(128)];
    assert!(!at(&*Bench::new().prepared(), &plain).contains_key("round_ms"));
    let row = at(&*study, &plain);
    assert!((row["tokens_per_s"] * row["round_ms"] / row["tokens_kept"] / 1e3 - 1.0).abs() < 1e-9);
    let named = at(&*study, &[policy("lru"), slots(128), ("model", text("even"))]);
    assert_eq!(row, named);
    // A copy that is waited for takes its time over the link, 50 GB/s.
    let waited = at(&*study, &[policy("lru"), slots(128), ("experts.copy_rounds", AxisValue::Int(0))]);
    let link_ms = waited["inserted_mb"] * waited["tokens_kept"] / 50.0;
    assert!((waited["insert_ms"] / link_ms - 1.0).abs() < 1e-9, "{} {link_ms}", waited["insert_ms"]);
    assert_eq!(row["insert_ms"], 0.0, "there is time for the copies beside the round");
    // A slow link has not.
    let slow = at(&*study, &[policy("lru"), slots(128), ("link_gb_s", AxisValue::Float(0.05))]);
    assert!(slow["insert_ms"] > 0.0);
    // With everything resident nothing is missed, copied or computed on the CPU.
    let all = at(&*study, &[policy("static"), slots(512)]);
    let few = at(&*study, &[policy("static"), slots(16)]);
    assert!(all["round_ms"] < few["round_ms"] && all["cpu_pool_ms"] < few["cpu_pool_ms"]);
}

#[test]
fn room_by_size_holds_more_than_slots_of_the_largest() {
    let bench = Bench::new().with("models", "models.toml", MODELS);
    let study = bench.prepared();
    let of =
        |sizing: &str| at(&*study, &[policy("static"), slots(100), ("model", text("mixed")), ("sizing", text(sizing))]);
    let (uniform, bytes) = (of("uniform"), of("bytes"));
    assert_eq!((uniform["cache_gb"], bytes["cache_gb"]), (100.0 * 40_000.0 / 1e9, 100.0 * 40_000.0 / 1e9));
    // A quarter of the layers has experts of 40,000 bytes, the others of 20,000.
    assert_eq!(uniform["resident"], 100.0);
    assert!((145.0..175.0).contains(&bytes["resident"]), "{}", bytes["resident"]);
    assert!(bytes["hit_rate"] > uniform["hit_rate"]);
}

#[test]
fn the_bound_bounds_where_a_round_fits_into_the_cache() {
    let bench = Bench::new();
    let study = bench.prepared();
    // Rounds of three rows use about 100 experts.
    for n in [128, 256] {
        for name in ["static", "lru", "lfu", "s3-fifo", "saving", "belady"] {
            let row = at(&*study, &[policy(name), slots(n)]);
            assert!(row["of_oracle"] <= 1.0, "{name} with {n}: {}", row["of_oracle"]);
        }
        let at_once = [policy("belady"), slots(n), ("experts.copy_rounds", AxisValue::Int(0))];
        assert_eq!(at(&*study, &at_once)["of_oracle"], 1.0);
    }
}

/// A recording of a cache: the synthetic trace with what the cache would have recorded.
fn recorded(params: &CacheParams, bend: bool) -> Vec<u8> {
    let made = trace();
    let mut meta = made.meta.clone();
    meta.origin = Origin::Recorded;
    let defaults = Layer::defaults().unwrap();
    for knob in strata_config::KNOBS.iter().filter(|knob| knob.section() == "experts") {
        if let Some(value) = defaults.get(knob) {
            meta.knobs.insert(knob.key.into(), KnobValue { value: value.to_string(), origin: "default".into() });
        }
    }
    for word in params.to_string().split(' ') {
        let (name, value) = word.split_once('=').unwrap();
        let value = KnobValue { value: value.into(), origin: "flag".into() };
        meta.knobs.insert(format!("experts.{name}"), value);
    }
    let accesses = Accesses::from_trace(&made).unwrap();
    let mut cache = Cache::new(accesses.shape(), params, &Start::default()).unwrap();
    let mut trace = Trace::new(meta);
    for i in 0..made.rounds.len() {
        let mut in_time = Vec::new();
        cache.round(made.rounds[i].phase, accesses.round(i), &mut in_time);
        // Hits are written by token, decided by layer.
        let first = made.tokens_of(i).start * made.per_token();
        let mut hits = vec![false; in_time.len()];
        for ((at, ..), hit) in made.accesses(i).zip(in_time) {
            hits[at - first] = hit;
        }
        hits[0] ^= bend && i == 20;
        let record = made.record(i);
        trace.push_record(&Record { hits: Some(&hits), ..record }).unwrap();
    }
    trace.write(Vec::new()).unwrap()
}

#[test]
fn a_recording_is_compared_with_its_replay() {
    for rule in [Rule::Lru, Rule::original(), Rule::saving()] {
        let params = CacheParams::new(rule, Capacity::Slots(128));
        for bend in [false, true] {
            let bench = Bench::new();
            let dir = bench.dir.path().to_owned();
            let mut bench = bench.with("trace", "nano-test.strace", recorded(&params, bend));
            bench.inputs.remove("world");
            let row = at(&*bench.prepared(), &[policy("belady"), slots(64)]);
            assert_eq!(row["engine_differs"], f64::from(u8::from(bend)), "{rule:?}");
            let all = Accesses::from_trace(&trace()).unwrap();
            let counted = replay(&all, &params, &StartState::default()).unwrap().decode.hit_rate();
            assert!((row["engine_hit_rate"] - counted).abs() < 1e-4);
            // As a folder the same file is found by its name.
            bench.inputs.insert("trace".into(), dir);
            let named = at(&*bench.prepared(), &[policy("belady"), slots(64), ("source", text("nano-test"))]);
            assert_eq!(row, named);
        }
    }
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let params = CacheParams::new(Rule::Lru, Capacity::Slots(128));
    let bench = Bench::new().with("models", "models.toml", MODELS);
    let bench = bench.with("trace", "nano.strace", recorded(&params, false));
    let study = bench.prepared();
    let refused = |values: &[(&str, AxisValue)]| figures(&*study, values).unwrap_err().to_string();
    let small = ("source", text("small"));
    let n = AxisValue::Int;
    for (values, said) in [
        (vec![slots(9)], "axis source: found none named, expected one of nano, small"),
        (vec![slots(9), ("source", text("large"))], "axis source: found large, expected one of nano, small"),
        (vec![slots(9), ("source", text("nano")), ("tokens", n(50))], "a recorded trace, expected a world"),
        (vec![slots(9), small.clone(), ("part", text("all"))], "axis part: found all, expected second-half"),
        (vec![slots(9), small.clone(), ("experts.vram", n(1))], "experts.vram: found both, expected one of them"),
        (vec![slots(-1), small.clone()], "experts.slots"),
        (vec![slots(9), small.clone(), ("experts.decay", n(2))], "experts.decay"),
        (vec![slots(9), small.clone(), policy("mru")], "experts.policy"),
        (vec![slots(9), small.clone(), ("start", text("warm"))], "axis start: found warm, expected cold"),
        (vec![slots(9), small.clone(), ("start", text("ranking"))], "the input ranking"),
        (vec![slots(9), small.clone(), ("sizing", text("large"))], "axis sizing: found large"),
        (vec![slots(9), small.clone(), ("mode", text("fast"))], "axis mode: found fast"),
        (vec![slots(9), small.clone(), ("model", text("Q2_0"))], "expected the trace's 8 x 64 and 6"),
        (vec![slots(9), small.clone(), ("composition", text("two-groups"))], "found two-groups"),
        (vec![slots(9), small.clone(), ("hit_rate", n(1))], "study cache, axis: found hit_rate"),
        (vec![slots(9), small.clone(), ("tokens", n(0))], "axis tokens: found 0"),
    ] {
        let error = refused(&values);
        assert!(error.contains(said), "{error}\n{said}");
    }
    let other = Bench::new();
    let error = figures(&*other.prepared(), &[policy("lru")]).unwrap_err().to_string();
    assert!(error.contains("axis experts.slots: found nothing, expected a number of experts"), "{error}");
}

#[test]
fn inputs_that_cannot_be_are_refused_by_file() {
    let refused = |inputs: &Inputs| match CacheStudy.prepare(inputs) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    };
    assert!(refused(&Inputs::new()).contains("neither trace nor world"));
    let bench = Bench::new().with("world", "bad.toml", "[synth]\nlayers = 0\n");
    assert!(refused(&bench.inputs).contains("layers: found 0"));
    let bench = Bench::new().with("world", "bad.toml", "[synth]\nlayer = 2\n");
    assert!(refused(&bench.inputs).contains("bad.toml") && refused(&bench.inputs).contains("layer"));
    let mut whole = recorded(&CacheParams::new(Rule::Lru, Capacity::Slots(8)), false);
    whole.truncate(whole.len() - 30);
    let bench = Bench::new().with("trace", "torn.strace", whole);
    assert!(refused(&bench.inputs).contains("torn.strace") && refused(&bench.inputs).contains("a whole trace"));
    let empty = Bench::new();
    std::fs::create_dir(empty.dir.path().join("none")).unwrap();
    let inputs: Inputs = [("trace".to_owned(), Path::new(empty.dir.path()).join("none"))].into();
    assert!(refused(&inputs).contains("files that end in .strace"));
}
