//! What holds for the rules whatever the accesses are, and what they do in plain cases.

use crate::engine::rule;
use crate::golden::trace;
use proptest::prelude::*;
use std::sync::Arc;
use strata_policy::cache::{
    Cache, CacheParams, Capacity, Change, Classic, Costs, Future, Key, Rule, Scope, Shape, Start,
};
use strata_trace::{Move, Phase};

fn classic(rule: Rule, slots: usize, keys: &[Key], shape: &Shape) -> u64 {
    let future = Some(Arc::new(Future::new(keys, shape.keys(), |_| true).unwrap()));
    let start = Start { future, ..Start::default() };
    Classic::new(shape, rule, Capacity::Slots(slots), Scope::Global, &start).unwrap().accesses(keys)
}

proptest! {
    #[test]
    fn more_slots_never_hurt_lru(keys in prop::collection::vec(0u32..40, 0..400), slots in 0usize..40) {
        let shape = Shape::uniform(1, 40, 1).unwrap();
        prop_assert!(classic(Rule::Lru, slots, &keys, &shape) <= classic(Rule::Lru, slots + 1, &keys, &shape));
    }

    #[test]
    fn no_rule_that_inserts_only_misses_beats_belady(
        keys in prop::collection::vec(0u32..40, 0..400), slots in 0usize..40, rule in rule(),
    ) {
        let shape = Shape::uniform(4, 10, 1).unwrap();
        let bypasses = match rule {
            Rule::Lfu { bypass, .. } | Rule::Belady { bypass } => bypass,
            Rule::Lru | Rule::S3Fifo => false,
            Rule::Static | Rule::Saving { .. } => true,
            // One is not bounded by the slots; one may bring in what was not missed just now.
            Rule::Infinite | Rule::Adaptive { .. } => return Ok(()),
        };
        let bound = classic(Rule::Belady { bypass: bypasses }, slots, &keys, &shape);
        prop_assert!(classic(rule, slots, &keys, &shape) <= bound);
        prop_assert!(bound <= classic(Rule::Infinite, slots, &keys, &shape));
    }
}

#[test]
fn lru_below_the_demand_of_one_token_hits_nothing() {
    // Every token uses the same 4 of 16 experts in each of 6 layers.
    let shape = Shape::uniform(6, 16, 1).unwrap();
    let token: Vec<Key> = (0..6).flat_map(|layer| (0..4).map(move |expert| layer * 16 + expert)).collect();
    let keys = token.repeat(100);
    assert_eq!(classic(Rule::Lru, token.len() - 1, &keys, &shape), 0);
    assert_eq!(classic(Rule::Lru, token.len(), &keys, &shape), 99 * 24);
    // Round by round what the round uses does not leave, so a smaller cache keeps what it has.
    let mut cache = Cache::new(&shape, &CacheParams::new(Rule::Lru, Capacity::Slots(10)), &Start::default()).unwrap();
    let mut hits = Vec::new();
    for _ in 0..10 {
        cache.round(Phase::Decode, &token, &mut hits);
    }
    // The first two rounds miss: what the first inserts has landed when the second is over.
    assert_eq!(hits.iter().filter(|&&hit| hit).count(), 8 * 10);
}

#[test]
fn a_budget_is_handed_round_the_layers() {
    let shape = Shape::uniform(8, 16, 1).unwrap();
    let token = |n: Key| (0..8).map(move |layer| layer * 16 + n).collect::<Vec<Key>>();
    let params =
        CacheParams { insert_budget: Some(2), copy_rounds: 0, ..CacheParams::new(Rule::Lru, Capacity::Slots(8)) };
    let mut cache = Cache::new(&shape, &params, &Start::default()).unwrap();
    let mut inserted = vec![0; 8];
    for n in 0..16 {
        let changes = cache.round(Phase::Decode, &token(n), &mut Vec::new()).to_vec();
        changes.iter().filter_map(|c| c.came).for_each(|key| inserted[shape.layer_of(key)] += 1);
    }
    assert_eq!(inserted, [4; 8]);
}

#[test]
fn the_original_rule_waits_pairs_and_forgets() {
    let shape = Shape::uniform(2, 4, 1).unwrap();
    // Layer 0: 0 to 3, layer 1: 4 to 7.
    let start = Start { ranking: &[0, 1, 4], ..Start::default() };
    let params = CacheParams { copy_rounds: 0, ..CacheParams::new(Rule::original(), Capacity::Slots(3)) };
    let mut cache = Cache::new(&shape, &params, &start).unwrap();
    let mut go = |accesses: &[Key]| cache.round(Phase::Decode, accesses, &mut Vec::new()).to_vec();
    // Expert 2 is used three times, 6 twice, 3 once; 4 once. Only at the fourth round anything changes.
    for accesses in [&[2, 6][..], &[2, 6, 4], &[2, 3]] {
        assert_eq!(go(accesses), []);
    }
    // 2 has gained 3 over 0, the lower of two that were not used. 6 has only 1 more than 4.
    assert_eq!(go(&[]), [Change { came: Some(2), left: Some(0) }]);
    // Counts are 1.4 for 6, 0.7 for 4. With one use more 6 has 2.4, which is 1.7 more than 4.
    assert_eq!([go(&[6]), go(&[]), go(&[])], [[], [], []]);
    assert_eq!(go(&[]), [Change { came: Some(6), left: Some(4) }]);
    // A prompt does not count.
    for _ in 0..8 {
        assert_eq!(cache.round(Phase::Prefill, &[3; 9], &mut Vec::new()), []);
    }
}

#[test]
fn a_victim_leaves_at_once_or_when_the_copy_has_landed() {
    let shape = Shape::uniform(1, 4, 1).unwrap();
    for (wait, during) in [(false, [false, false]), (true, [true, true])] {
        let mut params = CacheParams { copy_rounds: 2, ..CacheParams::new(Rule::Lru, Capacity::Slots(1)) };
        if wait {
            params.admission = strata_policy::cache::Admission::WaitForCopy;
        }
        let start = Start { ranking: &[0], ..Start::default() };
        let mut cache = Cache::new(&shape, &params, &start).unwrap();
        let mut hits = Vec::new();
        let evicted = cache.round(Phase::Decode, &[1], &mut hits).to_vec();
        assert_eq!(evicted, if wait { vec![] } else { vec![Change { came: None, left: Some(0) }] });
        assert_eq!(cache.begun(), [1]);
        hits.clear();
        cache.round(Phase::Prefill, &[0], &mut hits);
        let landed = cache.round(Phase::Prefill, &[0], &mut hits).to_vec();
        assert_eq!(hits, during);
        assert_eq!(landed, [Change { came: Some(1), left: wait.then_some(0) }]);
        let record = Move { layer: 0, came: Some(1), left: wait.then_some((0, 0)) };
        assert_eq!(landed[0].to_move(&shape), record);
        hits.clear();
        cache.round(Phase::Decode, &[0, 1], &mut hits);
        assert_eq!(hits, [false, true]);
    }
}

#[test]
fn saving_moves_what_pays_for_its_copy_and_prefers_dear_misses() {
    let shape = Shape::uniform(2, 4, 1).unwrap();
    let rule = Rule::Saving { fast: 0.5, slow: 1.0, burst: 0.0, horizon: 4.0, copy: 1.0 };
    let params = CacheParams { copy_rounds: 0, ..CacheParams::new(rule, Capacity::Slots(1)) };
    let cache = |costs: &Costs| {
        Cache::new(&shape, &params, &Start { ranking: &[0], costs: Some(costs), ..Start::default() }).unwrap()
    };
    // Of four rounds, the one before the first included, one used the resident, and two a newcomer: so in 4 rounds a
    // swap saves 1 miss, 100 ns.
    let swapped = |copy: u64, used: &[Key]| {
        let mut cache = cache(&Costs { miss: vec![100, 150], copy: vec![copy; 2] });
        let mut go = |used: &[Key]| cache.round(Phase::Decode, used, &mut Vec::new()).to_vec();
        assert_eq!([go(&[]), go(used)], [[], []]);
        go(used).first().and_then(|c| c.came)
    };
    assert_eq!(swapped(99, &[1]), Some(1));
    assert_eq!(swapped(100, &[1]), None);
    // Both are used as often, and the second layer's misses cost more.
    assert_eq!(swapped(99, &[1, 5]), Some(5));
    // Equals are not traded back and forth.
    let mut cache = cache(&Costs { miss: vec![100; 2], copy: vec![1; 2] });
    for _ in 0..50 {
        cache.round(Phase::Decode, &[0, 1, 5], &mut Vec::new());
    }
    assert!(cache.holds(0));
}

/// What the engine mode gives on a made-up trace; a change of a rule's decisions must be meant.
#[test]
fn rules_rank_as_they_should_where_uses_are_skewed() {
    let shape = Shape::uniform(6, 64, 1).unwrap();
    let keys = trace(1, 6, 64, 4, 3000, 45);
    let future = Arc::new(Future::new(&keys, shape.keys(), |_| true).unwrap());
    let hits = |rule: Rule| {
        let start = Start { future: Some(future.clone()), ..Start::default() };
        let params = CacheParams { copy_rounds: 0, ..CacheParams::new(rule, Capacity::Slots(75)) };
        let mut cache = Cache::new(&shape, &params, &start).unwrap();
        let mut hits = Vec::new();
        keys.chunks(24).for_each(|token| _ = cache.round(Phase::Decode, token, &mut hits));
        hits.iter().filter(|&&hit| hit).count()
    };
    let (belady, lru, fixed) = (hits(Rule::Belady { bypass: true }), hits(Rule::Lru), hits(Rule::Static));
    let (saving, original) = (hits(Rule::saving()), hits(Rule::original()));
    let found = format!("belady {belady}, lru {lru}, static {fixed}, saving {saving}, original {original}");
    assert!(belady > lru && belady > saving && belady > original, "{found}");
    assert!(lru > fixed && saving > fixed && original > fixed, "{found}");
}
