//! What is recorded is what happened, and recording changes nothing.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used)]

mod common;

use common::{engine, exactly, generate, knobs, nano, nano_with_draft_layer};
use std::collections::BTreeMap;
use std::path::Path;
use strata_gguf::{Gguf, Special};
use strata_model::{CpuOps, Observer, Routing, Want};
use strata_policy::cache::{Admission, CacheParams, Capacity, Rule, Scope};
use strata_policy::window::{Settings, Source};
use strata_runtime::{
    About, Answer, CheckpointParams, Engine, LayerHits, Recorded, Recording, Session, SpeculationParams,
};
use strata_sim::replay::{Accesses, StartState, check, replay};
use strata_trace::{Branch, DraftSource, KnobValue, Phase, Trace, gate_to_fixed};

const TEXT: &str = "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is Madrid. The";
const CHUNK: usize = 7;

/// What `work` made an engine do, as a trace.
fn recorded(engine: &Engine<CpuOps>, gguf: &Gguf, work: impl FnOnce()) -> Trace {
    recorded_with(engine, gguf, Default::default(), work).0
}

fn recorded_with(
    engine: &Engine<CpuOps>,
    gguf: &Gguf,
    knobs: BTreeMap<String, KnobValue>,
    work: impl FnOnce(),
) -> (Trace, Recorded) {
    let about = About::of(gguf, engine, "test 1", knobs).unwrap();
    let (recorder, recording) = Recording::start(Vec::new(), about, CHUNK).unwrap();
    engine.record(recorder);
    work();
    engine.stop_recording();
    let watch = recording.cache();
    let (file, recorded) = recording.finish().unwrap();
    assert_eq!(recorded.warning(), None);
    // What is told of each layer while it is recorded adds up to what is told at the end.
    let layers = watch.layers();
    let sum = |of: fn(&LayerHits) -> u64| layers.iter().map(of).sum::<u64>();
    let told = (!layers.is_empty()).then(|| (sum(|layer| layer.accesses), sum(|layer| layer.hits)));
    assert_eq!(told, recorded.cache.map(|cache| (cache.accesses, cache.hits)));
    let opened = Trace::read_from(&file[..], file.len() as u64, "t").unwrap();
    assert_eq!((opened.warnings.len(), opened.trace.rounds.len() as u64), (0, recorded.rounds));
    (opened.trace, recorded)
}

fn session<'e>(engine: &'e Engine<CpuOps>, speculation: SpeculationParams) -> Session<'e, CpuOps> {
    engine.session(512, CHUNK).with_checkpoints(CheckpointParams::none()).with_speculation(speculation)
}

fn drafting() -> SpeculationParams {
    let policy = Settings { source: Source::Both, fixed: Some(3), max_rows: 4, ..Settings::default() };
    SpeculationParams { policy, ..SpeculationParams::default() }
}

/// The experts and weights of every token, by an observer of its own.
#[derive(Default)]
struct Chosen(Vec<Routing>);

impl Observer for Chosen {
    fn routing(&mut self, _layer: usize, routing: &Routing) {
        self.0.push(routing.clone());
    }
}

/// Compares the tokens that were kept, in order, with a sequence read in one pass.
fn check_kept(engine: &Engine<CpuOps>, trace: &Trace, sequence: &[u32]) {
    let model = engine.model();
    let mut chosen = Chosen::default();
    model.forward(&mut model.new_state(sequence.len()), sequence, Want::Nothing, &mut chosen).unwrap();
    let kept: Vec<usize> = (0..trace.tokens.len()).filter(|&t| trace.tokens[t].committed).collect();
    let tokens: Vec<u32> = kept.iter().map(|&t| trace.tokens[t].id).collect();
    assert_eq!(tokens, sequence);
    let used = trace.meta.used;
    for (position, &token) in kept.iter().enumerate() {
        assert_eq!(trace.tokens[token].position as usize, position);
        for (layer, routing) in chosen.0.iter().enumerate() {
            let row = position * used..(position + 1) * used;
            assert_eq!(trace.chosen(token, layer), &routing.ids[row.clone()], "token {position}, layer {layer}");
            let start = (token * trace.meta.layers + layer) * used;
            let gates: Vec<u16> = routing.weights[row].iter().map(|&w| gate_to_fixed(w)).collect();
            assert_eq!(trace.gates[start..start + used], gates);
        }
    }
}

#[test]
fn the_tokens_that_were_kept_are_the_answer_and_the_answer_is_the_same() {
    let engine = nano_with_draft_layer();
    let gguf = nano();
    let prompt = engine.tokenizer().encode(TEXT, Special::Plain);
    let without = generate(&mut session(&engine, SpeculationParams::none()), &prompt, 60);
    for params in [SpeculationParams::none(), drafting(), SpeculationParams::default()] {
        let mut answer: Option<Answer> = None;
        let started = std::time::Instant::now();
        let trace = recorded(&engine, &gguf, || {
            answer = Some(generate(&mut session(&engine, params), &prompt, 60));
        });
        let wall = started.elapsed().as_nanos() as u64;
        let answer = answer.unwrap();
        assert_eq!((&answer.tokens, &answer.text), (&without.tokens, &without.text));
        // The last token of an answer is chosen and not read.
        let sequence = [&prompt[..], &answer.tokens[..59]].concat();
        check_kept(&engine, &trace, &sequence);
        check_rounds(&trace, &prompt, &answer, wall);
    }
}

fn check_rounds(trace: &Trace, prompt: &[u32], answer: &Answer, wall: u64) {
    let chunks = prompt.len().div_ceil(CHUNK);
    let (read, written) = trace.rounds.split_at(chunks);
    assert!(read.iter().all(|r| r.phase == Phase::Prefill && r.committed == r.rows && r.source == DraftSource::None));
    assert!(written.iter().all(|r| r.phase == Phase::Decode && r.committed >= 1));
    assert_eq!(written.len(), answer.speculation.rounds);
    assert_eq!(written.iter().map(|r| r.rows as usize).sum::<usize>(), answer.speculation.rows);
    let accepted: usize = written.iter().map(|r| r.committed as usize - 1).sum();
    assert_eq!(accepted, answer.speculation.mtp.accepted + answer.speculation.lookup.accepted);
    let drafts = |source| written.iter().filter(|r| r.source == source).map(|r| r.rows as usize - 1).sum::<usize>();
    assert_eq!(drafts(DraftSource::None), 0);
    assert!(drafts(DraftSource::Mtp) <= answer.speculation.mtp.verified);

    let total: u64 = trace.rounds.iter().map(|r| r.total_nanos).sum();
    assert!(total <= wall);
    let writing: u64 = written.iter().map(|r| r.total_nanos).sum();
    assert!(writing as f64 / 1e9 <= answer.timings.output_seconds);
    for (i, round) in trace.rounds.iter().enumerate() {
        assert_eq!(round.round as usize, i);
        assert_eq!(round.nanos.iter().sum::<u64>(), round.total_nanos);
        let times = trace.record(i).layer_times.unwrap();
        assert!(times.iter().all(|t| t.dense > 0 && t.cpu > 0 && t.gpu == 0 && t.copy == 0));
        let dense: u64 = times.iter().map(|t| t.dense).sum();
        assert!(dense <= round.nanos[Branch::Other as usize]);
        // Distinct experts by a set.
        let distinct: std::collections::BTreeSet<_> = trace.accesses(i).map(|(_, layer, id)| (layer, id)).collect();
        let bytes: u64 = distinct.iter().map(|(layer, _)| trace.meta.expert_bytes[*layer]).sum();
        assert_eq!(round.bytes[Branch::CpuExperts as usize], bytes);
    }
    // Draft time is what the answer's statistics say, but for reading along behind the last round.
    let drafting: u64 = trace.rounds.iter().map(|r| r.nanos[Branch::Draft as usize]).sum();
    let counted = answer.speculation.draft_seconds + answer.speculation.prompt_seconds;
    assert!(drafting as f64 / 1e9 <= counted + 1e-6);
}

/// Requests go on in a session, from checkpoints too; each has its number, and what needs no reading is not in it.
#[test]
fn every_answer_is_a_request() {
    let (gguf, engine) = (nano(), engine(&nano()));
    let prompt = engine.tokenizer().encode(TEXT, Special::Plain);
    let (mut first, mut longer) = (Vec::new(), Vec::new());
    let trace = recorded(&engine, &gguf, || {
        let mut session = engine.session(512, CHUNK);
        first = generate(&mut session, &prompt, 5).tokens;
        longer = [&prompt[..], &first, &prompt[..4]].concat();
        generate(&mut session, &longer, 3);
        assert!(session.generate(&[], &exactly(1), &common::NEVER, &mut |_| ()).is_err());
        generate(&mut session, &prompt, 2);
    });
    let ids = |request: u32| {
        let rounds = (0..trace.rounds.len()).filter(|&r| trace.rounds[r].request == request);
        rounds.flat_map(|r| trace.tokens_of(r)).map(|t| trace.tokens[t].id).collect::<Vec<_>>()
    };
    assert_eq!(ids(0), [&prompt[..], &first[..4]].concat());
    assert_eq!(ids(1)[..5], longer[longer.len() - 5..]);
    assert_eq!(ids(2), first[..1]);
    assert_eq!(trace.rounds.last().unwrap().request, 2);
    assert_eq!(trace.rounds.iter().filter(|r| r.round == 0).count(), 3);
}

/// The engine's own log of its cache against the simulator, for every rule that an engine can run.
#[test]
fn what_the_cache_did_is_what_its_replay_does() {
    let (engine, gguf) = (nano_with_draft_layer(), nano());
    let tokens = engine.tokenizer().encode(TEXT, Special::Plain);
    let lfu = Rule::Lfu { decay: 0.7, every: 4, remember: true, bypass: true };
    let rules = [Rule::Static, Rule::Lru, lfu, Rule::original(), Rule::S3Fifo, Rule::saving(), Rule::Infinite];
    let mut all = Vec::new();
    for rule in rules {
        let plain = CacheParams::new(rule, Capacity::Slots(96));
        let bytes = Capacity::Bytes(
            60 * gguf
                .tensors()
                .iter()
                .filter(|t| t.name().contains("blk.0.ffn_up_exps"))
                .map(|t| t.bytes())
                .sum::<u64>()
                / 64,
        );
        let other = CacheParams {
            capacity: bytes,
            scope: Scope::PerLayer,
            admission: Admission::WaitForCopy,
            copy_rounds: 2,
            insert_budget: Some(7),
            count_prefill: true,
            ..plain
        };
        all.extend([plain, CacheParams { copy_rounds: 0, ..plain }, other]);
    }
    let mut rates = Vec::new();
    for params in all {
        let (mut trace, recorded) = recorded_with(&engine, &gguf, knobs(&params), || {
            for (from, speculation) in [(0, drafting()), (4, SpeculationParams::none())] {
                generate(&mut session(&engine, speculation), &tokens[from..], 12);
            }
        });
        assert_eq!(CacheParams::from_meta(&trace.meta).unwrap(), Some(params));
        let cold = StartState::default();
        assert_eq!(check(&trace, &params, &cold).unwrap(), None, "{params}");

        let counted = recorded.cache.unwrap();
        let replayed = replay(&Accesses::from_trace(&trace).unwrap(), &params, &cold).unwrap();
        let sum = |of: fn(&strata_sim::replay::Counts) -> u64| of(&replayed.prefill) + of(&replayed.decode);
        assert_eq!((counted.accesses, counted.hits), (sum(|c| c.accesses), sum(|c| c.hits)), "{params}");
        assert_eq!((counted.inserts, counted.bytes), (sum(|c| c.inserts), sum(|c| c.bytes)), "{params}");
        assert_eq!(counted.accesses, trace.len() as u64);
        assert!(counted.hits > 0 && counted.inserts > 0 && !trace.moves.is_empty(), "{params}: {counted:?}");
        rates.push(counted.hits);

        let last = trace.hits.len() - 1;
        trace.hits[last] = !trace.hits[last];
        assert!(check(&trace, &params, &cold).unwrap().is_some(), "{params}");
    }
    rates.sort_unstable();
    rates.dedup();
    assert!(rates.len() > 12, "the caches are hardly different: {rates:?}");
}

#[test]
fn a_cache_that_cannot_be_run_is_refused_before_anything_is_written() {
    let (gguf, engine) = (nano(), engine(&nano()));
    let start = |change: &dyn Fn(&mut BTreeMap<String, KnobValue>)| {
        let mut knobs = knobs(&CacheParams::new(Rule::Belady { bypass: true }, Capacity::Slots(5)));
        change(&mut knobs);
        let about = About::of(&gguf, &engine, "test 1", knobs).unwrap();
        Recording::start(Vec::new(), about, CHUNK).err().unwrap().to_string()
    };
    let future = "experts.policy: found belady, expected a policy that does not know the future; replays can have it";
    assert_eq!(start(&|_| ()), future);
    let missing = start(&|knobs| drop(knobs.remove("experts.scope")));
    assert_eq!(missing, "experts.scope: found nothing, expected one of global, per-layer");
}

#[test]
fn the_trace_says_what_the_model_is() {
    let (gguf, engine) = (nano(), engine(&nano()));
    let About { meta, head_bytes } = About::of(&gguf, &engine, "test 1", Default::default()).unwrap();
    assert_eq!((meta.layers, meta.experts, meta.used), (8, 64, 6));
    assert_eq!((meta.model.name.as_str(), meta.model.id.len()), ("nano-IQ3_S.gguf", 32));
    let experts: u64 = meta.expert_bytes.iter().map(|bytes| bytes * 64).sum();
    let bytes =
        |name: &dyn Fn(&str) -> bool| gguf.tensors().iter().filter(|t| name(t.name())).map(|t| t.bytes()).sum::<u64>();
    assert_eq!(experts, bytes(&|name| name.contains("_exps.")));
    let rows = |name: &str| name == "token_embd.weight" || name == "per_layer_token_embd.weight";
    let tied = gguf.tensor("output.weight").is_none();
    let embedding = if tied { bytes(&|name| name == "token_embd.weight") } else { 0 };
    // Every byte is an expert's, dense, or of a table of which some rows are read.
    assert_eq!(experts + meta.dense_bytes - embedding + bytes(&rows), bytes(&|_| true));
    assert!(head_bytes > 0 && head_bytes < meta.dense_bytes);
}

/// The trained model in BF16 against PyTorch in float32: what was recorded of a prompt is what PyTorch's router chose.
#[test]
fn recorded_experts_are_the_oracles() {
    let root = std::env::var_os("STRATA_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), std::path::PathBuf::from);
    let path = root.join("nano/nano-bf16.gguf");
    if !path.exists() {
        println!("skipped: {} is not here", path.display());
        return;
    }
    let gguf = Gguf::open(&path).unwrap();
    let engine = engine(&gguf);
    for case in ["capital", "code", "one_token", "plain", "story", "sum"] {
        let data =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/data/oracle").join(format!("{case}.json"));
        let oracle: serde_json::Value = serde_json::from_slice(&std::fs::read(data).unwrap()).unwrap();
        let numbers = |value: &serde_json::Value| -> Vec<u16> {
            value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u16).collect()
        };
        let prompt: Vec<u32> = numbers(&oracle["tokens"]).into_iter().map(u32::from).collect();
        let trace = recorded(&engine, &gguf, || {
            generate(&mut session(&engine, SpeculationParams::none()), &prompt, 1);
        });
        assert_eq!(trace.tokens.len(), prompt.len());
        for token in 0..prompt.len() {
            for layer in 0..trace.meta.layers {
                let expected = numbers(&oracle["experts"][layer][token]);
                assert_eq!(trace.chosen(token, layer), expected, "{case}: token {token}, layer {layer}");
            }
        }
    }
}
