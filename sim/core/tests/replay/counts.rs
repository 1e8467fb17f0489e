//! What a replay counts adds up, and is what a plain count finds.

use crate::made::{EXPERTS, LAYERS, cold, trace};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use strata_policy::cache::{Admission, CacheParams, Capacity, Rule, Scope, Shape};
use strata_sim::replay::{Accesses, Counts, LayerRound, LruCurve, replay, replay_classic, replay_each};
use strata_trace::Phase;

fn rules() -> Vec<Rule> {
    vec![
        Rule::Static,
        Rule::Lru,
        Rule::S3Fifo,
        Rule::Infinite,
        Rule::Adaptive { every: 2, swaps: 4, min_use: 1.0, gain: 0.5, decay: 0.7 },
        Rule::Belady { bypass: true },
        Rule::Lfu { decay: 0.5, every: 3, remember: true, bypass: true },
        Rule::saving(),
    ]
}

fn params() -> impl Strategy<Value = CacheParams> {
    let capacity =
        prop_oneof![(0usize..40).prop_map(Capacity::Slots), (0u64..130).prop_map(|mib| Capacity::Bytes(mib << 20)),];
    let rule = prop::sample::select(rules());
    (rule, capacity, any::<bool>(), any::<bool>(), 0u32..3, prop::option::of(0u32..6), any::<bool>()).prop_map(
        |(rule, capacity, wait, per_layer, copy_rounds, insert_budget, count_prefill)| CacheParams {
            rule,
            capacity,
            scope: if per_layer { Scope::PerLayer } else { Scope::Global },
            admission: if wait { Admission::WaitForCopy } else { Admission::EvictFirst },
            copy_rounds,
            insert_budget,
            count_prefill,
        },
    )
}

proptest! {
    #[test]
    fn hits_and_misses_are_all_accesses_and_bytes_those_of_what_was_inserted(
        params in params(), seed in any::<u64>(), rounds in 1u32..30,
    ) {
        let trace = trace(seed, 3, rounds);
        let accesses = Accesses::from_trace(&trace).unwrap();
        let shape = accesses.shape().clone();
        let (mut inserts, mut bytes, mut hits) = ([0; LAYERS], [0; LAYERS], [0; LAYERS]);
        let mut prefill_inserts = 0;
        let mut wrong = None;
        let shown = replay_each(&accesses, &params, &cold(), |outcome| {
            let decode = outcome.span.phase == Phase::Decode;
            // The plain count of the round.
            let mut layers = [LayerRound::default(); LAYERS];
            let mut seen = BTreeSet::new();
            let mut missed: Vec<(u32, u32)> = Vec::new();
            for (&key, &hit) in outcome.accesses.iter().zip(outcome.hits) {
                let layer = &mut layers[key as usize / EXPERTS];
                let first = seen.insert(key);
                layer.entries += 1;
                layer.hit_entries += u32::from(hit);
                layer.distinct_hits += u32::from(first && hit);
                layer.distinct_misses += u32::from(first && !hit);
                if first && !hit {
                    missed.push((key, 0));
                }
                if let Some(entry) = missed.iter_mut().find(|(k, _)| *k == key) {
                    entry.1 += 1;
                }
                hits[key as usize / EXPERTS] += u64::from(hit && decode);
            }
            for &key in outcome.begun {
                layers[shape.layer_of(key)].inserts += 1;
                if decode {
                    inserts[shape.layer_of(key)] += 1;
                    bytes[shape.layer_of(key)] += shape.bytes_of(key);
                } else {
                    prefill_inserts += 1;
                }
            }
            let found: Vec<(u32, u32)> = outcome.missed.iter().map(|m| (m.key, m.tokens)).collect();
            if outcome.layers != layers || found != missed {
                wrong.get_or_insert(outcome.round);
            }
        });
        let shown = shown.unwrap();
        prop_assert_eq!(wrong, None, "a round's counts");
        prop_assert_eq!(&replay(&accesses, &params, &cold()).unwrap(), &shown);
        for (counts, phase) in [(&shown.decode, Phase::Decode), (&shown.prefill, Phase::Prefill)] {
            let rounds = (0..trace.rounds.len()).filter(|&i| trace.rounds[i].phase == phase);
            let (n, all) = rounds.fold((0, 0), |(n, sum), i| (n + 1, sum + trace.accesses(i).count() as u64));
            prop_assert_eq!((counts.rounds, counts.accesses), (n, all));
            prop_assert_eq!(counts.hits + counts.misses(), all);
        }
        prop_assert!(params.count_prefill || prefill_inserts == 0);
        prop_assert_eq!(shown.prefill.inserts, prefill_inserts);
        for (layer, counts) in shown.layers.iter().enumerate() {
            prop_assert_eq!((counts.hits, counts.inserts, counts.bytes), (hits[layer], inserts[layer], bytes[layer]));
            prop_assert_eq!(counts.bytes, counts.inserts * shape.bytes()[layer]);
        }
        let of_layers = |f: fn(&strata_sim::replay::LayerCounts) -> u64| shown.layers.iter().map(f).sum::<u64>();
        prop_assert_eq!(of_layers(|l| l.bytes), shown.decode.bytes);
        prop_assert_eq!(of_layers(|l| l.accesses), shown.decode.accesses);
        prop_assert_eq!(of_layers(|l| l.hits), shown.decode.hits);
        let mut sum = Counts::default();
        shown.rounds.iter().for_each(|round| sum.add(round));
        let mut both = shown.decode;
        both.add(&shown.prefill);
        prop_assert_eq!(sum, both);
    }

    #[test]
    fn the_curve_is_lru_at_every_size(
        keys in prop::collection::vec((0u32..300, any::<bool>()), 0..3000), slots in prop::collection::vec(0usize..310, 4),
    ) {
        let keys: Vec<u32> = keys.iter().map(|&(key, low)| if low { key / 20 } else { key }).collect();
        let curve = LruCurve::new(keys.iter().copied(), 300);
        prop_assert_eq!(curve.accesses(), keys.len() as u64);
        let accesses = Accesses::from_keys(Shape::uniform(3, 100, 1).unwrap(), keys, 7).unwrap();
        for slots in slots {
            let lru = replay_classic(&accesses, Rule::Lru, Capacity::Slots(slots), Scope::Global, &cold()).unwrap();
            prop_assert_eq!(curve.hits(slots), lru, "{} slots", slots);
        }
    }
}

#[test]
fn the_curve_stays_exact_when_the_line_is_used_up_many_times() {
    // A short line for few keys: 16,384 places, moved together 30 times.
    let mut draw = crate::made::Draw(9);
    let keys: Vec<u32> = (0..500_000).map(|_| draw.below(1 + draw.0 as usize % 40) as u32).collect();
    let curve = LruCurve::new(keys.iter().copied(), 40);
    let accesses = Accesses::from_keys(Shape::uniform(1, 40, 1).unwrap(), keys, 8).unwrap();
    for slots in 0..=40 {
        let lru = replay_classic(&accesses, Rule::Lru, Capacity::Slots(slots), Scope::Global, &cold()).unwrap();
        assert_eq!(curve.hits(slots), lru, "{slots} slots");
    }
}

#[test]
fn accesses_go_by_round_layer_row_and_rank() {
    let trace = trace(1, 2, 4);
    let accesses = Accesses::from_trace(&trace).unwrap();
    assert_eq!(accesses.keys().len(), trace.len());
    for (i, round) in trace.rounds.iter().enumerate() {
        let mut want = Vec::new();
        for layer in 0..LAYERS {
            for token in trace.tokens_of(i) {
                want.extend(trace.chosen(token, layer).iter().map(|&e| (layer * EXPERTS) as u32 + u32::from(e)));
            }
        }
        assert_eq!(accesses.round(i), want);
        assert_eq!((accesses.rounds()[i].rows, accesses.rounds()[i].request), (round.rows, round.request));
    }
    assert!(accesses.round(99).is_empty());
    let second = accesses.only(|_, span| span.request == 1);
    assert_eq!((second.rounds().len(), second.round(0)), (5, accesses.round(5)));
}

#[test]
fn prompts_are_futures_only_where_they_count() {
    let trace = trace(2, 2, 6);
    let accesses = Accesses::from_trace(&trace).unwrap();
    let belady = |count_prefill| CacheParams {
        count_prefill,
        copy_rounds: 0,
        ..CacheParams::new(Rule::Belady { bypass: true }, Capacity::Slots(9))
    };
    // With room for all but nothing inserted from prompts, what a prompt uses hits only if it was decoded before.
    let mut decoded: BTreeMap<u32, bool> = BTreeMap::new();
    replay_each(&accesses, &CacheParams { capacity: Capacity::Slots(36), ..belady(false) }, &cold(), |outcome| {
        for (&key, &hit) in outcome.accesses.iter().zip(outcome.hits) {
            assert_eq!(hit, decoded.contains_key(&key), "round {}", outcome.round);
        }
        if outcome.span.phase == Phase::Decode {
            outcome.accesses.iter().for_each(|&key| _ = decoded.insert(key, true));
        }
    })
    .unwrap();
    assert_ne!(accesses.future(true).unwrap(), accesses.future(false).unwrap());
    assert!(std::sync::Arc::ptr_eq(&accesses.future(true).unwrap(), &accesses.future(true).unwrap()));
    let (with, without) = (belady(true), belady(false));
    let hits = |params| replay(&accesses, params, &cold()).unwrap();
    assert!(hits(&with).prefill.inserts > 0 && hits(&without).prefill.inserts == 0);
}

#[test]
fn what_cannot_be_replayed_is_refused_in_a_sentence() {
    let shape = Shape::uniform(2, 4, 1).unwrap();
    let refused = Accesses::from_keys(shape.clone(), vec![0, 8], 1).unwrap_err().to_string();
    assert_eq!(refused, "accesses: found expert 8 at access 1, expected one below 8");
    assert!(Accesses::from_keys(shape, vec![0], 0).is_err());
    let mut trace = trace(1, 1, 1);
    trace.meta.expert_bytes.pop();
    let refused = Accesses::from_trace(&trace).unwrap_err().to_string();
    assert_eq!(refused, "shape.bytes: found sizes of 2 layers, expected one size for each of 3 layers");
}
