//! A recording against its replay.

use crate::made::{cold, trace};
use strata_config::{Layer, Origin, Settings};
use strata_policy::cache::{Cache, CacheParams, Capacity, Rule, Start};
use strata_sim::replay::{Accesses, StartState, check, popularity};
use strata_trace::{KnobValue, Trace};

/// Runs a cache beside the trace, as an engine does, and records what it does.
fn record(params: &CacheParams, start: &StartState) -> Trace {
    let mut trace = trace(3, 3, 40);
    let accesses = Accesses::from_trace(&trace).unwrap();
    let from = Start { ranking: &start.ranking, ..Start::default() };
    let mut cache = Cache::new(accesses.shape(), params, &from).unwrap();
    trace.hits = vec![false; trace.len()];
    for i in 0..trace.rounds.len() {
        let mut hits = Vec::new();
        let changes = cache.round(trace.rounds[i].phase, accesses.round(i), &mut hits).to_vec();
        let places: Vec<usize> = trace.accesses(i).map(|(at, _, _)| at).collect();
        places.iter().zip(&hits).for_each(|(&at, &hit)| trace.hits[at] = hit);
        trace.moves.extend(changes.iter().map(|change| change.to_move(accesses.shape())));
        trace.move_ends.push(trace.moves.len() as u32);
    }
    trace
}

#[test]
fn a_recording_replays_without_a_difference() {
    let ranking = popularity(&Accesses::from_trace(&trace(3, 3, 40)).unwrap(), |_, span| span.request == 0);
    for rule in [Rule::Static, Rule::Lru, Rule::S3Fifo, Rule::original(), Rule::saving(), Rule::Infinite] {
        for start in [cold(), StartState::ranked(ranking.clone())] {
            let params = CacheParams { insert_budget: Some(3), ..CacheParams::new(rule, Capacity::Slots(11)) };
            let trace = record(&params, &start);
            assert!(trace.hits.iter().any(|&hit| hit), "{params}");
            assert_eq!(check(&trace, &params, &start).unwrap(), None, "{params}");
        }
    }
}

#[test]
fn the_first_difference_is_named() {
    let params = CacheParams::new(Rule::Lru, Capacity::Slots(11));
    let recorded = record(&params, &cold());
    let found = |trace: &Trace| check(trace, &params, &cold()).unwrap().unwrap().to_string();
    // A hit in the second row of a round, whose accesses are not where its tokens are.
    let round = (0..recorded.rounds.len()).rev().find(|&i| recorded.rounds[i].rows == 3).unwrap();
    let (number, (at, layer, expert)) = recorded
        .accesses(round)
        .enumerate()
        .find(|&(_, (at, layer, _))| at / recorded.per_token() == recorded.tokens_of(round).start + 1 && layer == 1)
        .unwrap();
    let mut trace = recorded.clone();
    trace.hits[at] = !trace.hits[at];
    let head = &recorded.rounds[round];
    let position = recorded.tokens[recorded.tokens_of(round).start + 1].position;
    let access = recorded.tokens_of(round).start * recorded.per_token() + number;
    let (was, is) = if trace.hits[at] { ("a hit", "a miss") } else { ("a miss", "a hit") };
    let want = format!(
        "request {}, round {}, token at {position}, layer {layer}, expert {expert} (access {access}): {was} in the \
         recording, {is} in the replay",
        head.request, head.round
    );
    assert_eq!(found(&trace), want);
    // A change that was not recorded.
    let mut trace = recorded.clone();
    trace.moves.pop();
    trace.move_ends.iter_mut().for_each(|end| *end = (*end).min(trace.moves.len() as u32));
    assert!(found(&trace).contains(": none in the recording, nothing came and layer "), "{}", found(&trace));
    // Another cache altogether.
    let other = CacheParams::new(Rule::Lru, Capacity::Slots(12));
    assert!(check(&recorded, &other, &cold()).unwrap().is_some());
}

#[test]
fn a_trace_without_a_recording_is_refused() {
    let params = CacheParams::new(Rule::Lru, Capacity::Slots(11));
    let refused = check(&trace(3, 1, 1), &params, &cold()).unwrap_err().to_string();
    assert!(refused.starts_with("hits: found 0 recorded hits and misses, expected one for each of "), "{refused}");
    let mut short = record(&params, &cold());
    short.move_ends.pop();
    assert!(check(&short, &params, &cold()).unwrap_err().to_string().starts_with("moves: found changes of "));
    let mut wild = record(&params, &cold());
    wild.move_ends[0] = u32::MAX;
    assert!(check(&wild, &params, &cold()).unwrap_err().to_string().contains("ending at change 4294967295"));
}

#[test]
fn the_settings_of_the_engine_make_the_cache_that_the_header_names() {
    let settings = |text: &str| {
        let [flags, env, model] = [Origin::Flag, Origin::Env, Origin::Model].map(Layer::empty);
        Settings::resolve(flags, env, Layer::from_toml("x.toml", text).unwrap(), model).unwrap()
    };
    let params = |text: &str| CacheParams::from_knobs(|name| settings(text).expert_knob(name));
    assert_eq!(params("").unwrap(), None);
    let original = CacheParams::new(Rule::original(), Capacity::Slots(7));
    assert_eq!(params("[experts]\nslots = 7").unwrap(), Some(original));
    let saving = CacheParams::new(Rule::saving(), Capacity::Bytes(7 << 20));
    assert_eq!(params("[experts]\nvram = 7\npolicy = 'saving'").unwrap(), Some(saving));
    // Every policy that may be named can be made, and no other.
    for name in ["static", "lru", "lfu", "adaptive", "s3-fifo", "saving", "belady", "infinite"] {
        let found = params(&format!("[experts]\nslots = 7\npolicy = '{name}'")).unwrap().unwrap();
        assert_eq!(found.rule.name(), name);
    }
    let strata_config::Kind::Choice(words) = strata_config::find("experts.policy").unwrap().kind else { panic!() };
    assert_eq!(words.len(), 8);
    // A header holds the same names.
    let mut trace = trace(1, 1, 1);
    assert_eq!(CacheParams::from_meta(&trace.meta).unwrap(), None);
    for (knob, value) in settings("[experts]\nslots = 7\ninsert_budget = 2").iter() {
        let Some((value, origin)) = value else { continue };
        let value = KnobValue { value: value.to_string(), origin: origin.to_string() };
        trace.meta.knobs.insert(knob.key.into(), value);
    }
    let recorded = CacheParams::from_meta(&trace.meta).unwrap();
    assert_eq!(recorded, Some(CacheParams { insert_budget: Some(2), ..original }));
}
