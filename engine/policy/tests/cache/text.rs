//! Settings as text, and what is refused.

use crate::engine::rule;
use proptest::prelude::*;
use strata_policy::cache::{Admission, Cache, CacheParams, Capacity, Rule, Scope, Shape, Start};

proptest! {
    #[test]
    fn settings_survive_text_and_serde(
        rule in rule(),
        capacity in prop_oneof![any::<usize>().prop_map(Capacity::Slots), any::<u64>().prop_map(Capacity::Bytes)],
        per_layer in any::<bool>(), wait in any::<bool>(), copy_rounds in any::<u32>(),
        insert_budget in any::<Option<u32>>(), count_prefill in any::<bool>(),
    ) {
        let scope = if per_layer { Scope::PerLayer } else { Scope::Global };
        let admission = if wait { Admission::WaitForCopy } else { Admission::EvictFirst };
        let params = CacheParams { rule, capacity, scope, admission, copy_rounds, insert_budget, count_prefill };
        prop_assert_eq!(params.to_string().parse::<CacheParams>().unwrap(), params);
        let json = serde_json::to_string(&params).unwrap();
        prop_assert_eq!(serde_json::from_str::<CacheParams>(&json).unwrap(), params);
    }
}

#[test]
fn the_text_is_what_people_read() {
    let params = CacheParams { insert_budget: Some(96), ..CacheParams::new(Rule::original(), Capacity::Slots(4105)) };
    let text = "policy=adaptive adapt_every=4 adapt_swaps=96 adapt_min_use=2 adapt_gain=1.5 decay=0.7 slots=4105 \
                scope=global admission=evict-first copy_rounds=1 insert_budget=96 count_prefill=false";
    assert_eq!(params.to_string(), text);
}

#[test]
fn nonsense_is_refused_in_a_sentence() {
    let parse = |text: &str| text.parse::<CacheParams>().unwrap_err().to_string();
    let rest = "scope=global admission=evict-first copy_rounds=0 count_prefill=false";
    assert_eq!(parse("lru"), "cache: found \"lru\", expected name=value");
    assert_eq!(parse("slots=1 slots=2"), "cache: found slots twice, expected each name once");
    assert!(parse("slot=1").starts_with("cache: found \"slot\", expected one of policy, slots"));
    assert_eq!(parse("policy=lru"), "cache: found no size, expected slots, vram or bytes");
    assert_eq!(parse("slots=1 vram=1"), "slots: found a number of slots and a size, expected one of the two");
    assert_eq!(parse("slots=-1"), "slots: found \"-1\", expected a whole number of experts");
    assert_eq!(parse("slots=1 policy=lfu"), "decay: found nothing, expected a number");
    assert!(
        parse(&format!("slots=1 policy=best {rest}")).starts_with("policy: found \"best\", expected one of static")
    );
    assert_eq!(parse("slots=1 policy=lru scope=all"), "scope: found \"all\", expected one of global, per-layer");
}

#[test]
fn a_cache_that_cannot_be_is_refused_in_a_sentence() {
    let shape = Shape::uniform(2, 4, 10).unwrap();
    let refused = |rule: Rule, start: &Start<'_>| {
        Cache::new(&shape, &CacheParams::new(rule, Capacity::Slots(3)), start).unwrap_err().to_string()
    };
    let cold = Start::default();
    assert_eq!(
        refused(Rule::Belady { bypass: true }, &cold),
        "policy: found belady and no future, expected a recorded trace to look ahead in"
    );
    let twice = Start { ranking: &[1, 2, 1], ..Start::default() };
    assert_eq!(refused(Rule::Lru, &twice), "start ranking, entry 2: found expert 1 again, expected each expert once");
    let beyond = Start { ranking: &[8], ..Start::default() };
    assert_eq!(refused(Rule::Lru, &beyond), "start ranking, entry 0: found expert 8, expected one below 8");
    let lfu = |decay| Rule::Lfu { decay, every: 1, remember: true, bypass: true };
    assert_eq!(refused(lfu(f32::NAN), &cold), "decay: found NaN, expected a number from 0 to 1");
    let adaptive = Rule::Adaptive { every: 0, swaps: 1, min_use: 2.0, gain: 1.5, decay: 0.7 };
    assert_eq!(refused(adaptive, &cold), "adapt_every: found 0, expected at least 1 round");
    assert_eq!(
        Shape::new(2, 4, vec![1]).unwrap_err().to_string(),
        "shape.bytes: found sizes of 1 layers, expected one size for each of 2 layers"
    );
    assert!(Shape::uniform(usize::MAX, 2, 1).is_err() && Shape::uniform(0, 4, 1).is_err());
    assert!(Shape::new(1, 1, vec![0]).is_err());
}
