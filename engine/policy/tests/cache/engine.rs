//! The cache round by round, against the plain one.

use crate::naive::Naive;
use proptest::prelude::*;
use std::sync::Arc;
use strata_policy::cache::{Admission, Cache, CacheParams, Capacity, Classic, Future, Key, Rule, Scope, Shape, Start};
use strata_trace::Phase;

pub(crate) fn rule() -> impl Strategy<Value = Rule> {
    let share = prop::sample::select(vec![0.0f32, 0.5, 0.7, 0.98, 1.0]);
    prop_oneof![
        Just(Rule::Static),
        Just(Rule::Lru),
        Just(Rule::S3Fifo),
        Just(Rule::Infinite),
        any::<bool>().prop_map(|bypass| Rule::Belady { bypass }),
        (share.clone(), 1u32..4, any::<bool>(), any::<bool>()).prop_map(|(decay, every, remember, bypass)| Rule::Lfu {
            decay,
            every,
            remember,
            bypass
        }),
        (1u32..4, 0u32..5, 0u32..3, 0u32..4, share.clone()).prop_map(|(every, swaps, min_use, gain, decay)| {
            Rule::Adaptive { every, swaps, min_use: min_use as f32, gain: gain as f32 / 2.0, decay }
        }),
        (share.clone(), share.clone(), share, 0u32..40, 0u32..3).prop_map(|(fast, slow, burst, horizon, copy)| {
            Rule::Saving { fast, slow, burst, horizon: horizon as f32, copy: copy as f32 / 2.0 }
        }),
    ]
}

/// Layers, experts and what one takes in each layer.
pub(crate) fn shape() -> impl Strategy<Value = Shape> {
    (1usize..4, 1usize..9).prop_flat_map(|(layers, experts)| {
        prop::collection::vec(1u64..5, layers)
            .prop_map(move |bytes| Shape::new(layers, experts, bytes.iter().map(|b| b << 20).collect()).unwrap())
    })
}

fn params() -> impl Strategy<Value = CacheParams> {
    let capacity =
        prop_oneof![(0usize..26).prop_map(Capacity::Slots), (0u64..60).prop_map(|mib| Capacity::Bytes(mib << 20)),];
    let scope = prop_oneof![Just(Scope::Global), Just(Scope::PerLayer)];
    let admission = prop_oneof![Just(Admission::EvictFirst), Just(Admission::WaitForCopy)];
    (rule(), capacity, scope, admission, 0u32..4, prop::option::of(0u32..6), any::<bool>()).prop_map(
        |(rule, capacity, scope, admission, copy_rounds, insert_budget, count_prefill)| CacheParams {
            rule,
            capacity,
            scope,
            admission,
            copy_rounds,
            insert_budget,
            count_prefill,
        },
    )
}

/// Rounds of accesses, given as numbers that are taken modulo the keys: layer by layer as the engine goes, and with a
/// preference for low keys, so that there is something to learn.
type Rounds = Vec<(bool, Vec<(u32, bool)>)>;

fn rounds() -> impl Strategy<Value = Rounds> {
    prop::collection::vec((prop::bool::weighted(0.1), prop::collection::vec((0u32..1000, any::<bool>()), 0..14)), 0..40)
}

fn spread(shape: &Shape, rounds: &Rounds) -> Vec<(Phase, Vec<Key>)> {
    let keys = shape.keys() as u32;
    let key = |&(number, low): &(u32, bool)| if low { number % keys.div_ceil(3) } else { number % keys };
    let phase = |prefill: bool| if prefill { Phase::Prefill } else { Phase::Decode };
    rounds
        .iter()
        .map(|(prefill, numbers)| {
            let mut accesses: Vec<Key> = numbers.iter().map(key).collect();
            accesses.sort_by_key(|&k| shape.layer_of(k));
            (phase(*prefill), accesses)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn every_rule_decides_as_the_plain_one(
        shape in shape(), params in params(), rounds in rounds(), seed in any::<u32>(), ranked in 0usize..30,
    ) {
        let rounds = spread(&shape, &rounds);
        let all: Vec<Key> = rounds.iter().flat_map(|(_, accesses)| accesses.iter().copied()).collect();
        let phases: Vec<Phase> = rounds.iter().flat_map(|(phase, accesses)| accesses.iter().map(|_| *phase)).collect();
        let counts = |phase: Phase| phase == Phase::Decode || params.count_prefill;
        let future = Future::new(&all, shape.keys(), |i| counts(phases[i])).unwrap();
        // The plain one looks for its next use among what counts.
        let counted: Vec<Key> = all.iter().zip(&phases).map(|(&k, &p)| if counts(p) { k } else { Key::MAX }).collect();
        let mut ranking: Vec<Key> = (0..shape.keys() as Key).collect();
        ranking.sort_by_key(|&k| (k ^ seed).wrapping_mul(0x9E37_79B9));
        ranking.truncate(ranked);
        let start = Start { ranking: &ranking, costs: None, future: Some(Arc::new(future)) };
        let mut cache = Cache::new(&shape, &params, &start).unwrap();
        let mut naive = Naive::new(&shape, &params, &ranking, &counted);
        let mut room = match params.capacity {
            Capacity::Slots(n) => n as u64,
            Capacity::Bytes(n) => n,
        };
        if params.rule == Rule::Infinite {
            room = u64::MAX;
        }
        for (i, (phase, accesses)) in rounds.iter().enumerate() {
            let before: Vec<Key> = cache.residents().collect();
            let mut hits = Vec::new();
            let changes = cache.round(*phase, accesses, &mut hits).to_vec();
            prop_assert_eq!(&hits, &naive.round(accesses, counts(*phase)), "hits of round {}", i);
            prop_assert_eq!(&changes, &naive.changes, "changes of round {}", i);
            prop_assert_eq!(cache.begun().len(), naive.begun, "copies of round {}", i);
            let after: Vec<Key> = cache.residents().collect();
            prop_assert_eq!(&after, &naive.residents(), "residents after round {}", i);
            prop_assert_eq!(cache.taken(), naive.taken());
            // Hits are what was resident, and the changes lead from what was to what is.
            prop_assert!(accesses.iter().zip(&hits).all(|(k, &hit)| before.contains(k) == hit));
            let mut moved = before;
            for change in &changes {
                if let Some(left) = change.left {
                    let at = moved.iter().position(|&k| k == left);
                    prop_assert!(at.is_some(), "{} leaves and is not there", left);
                    moved.remove(at.unwrap());
                }
                moved.extend(change.came);
            }
            moved.sort_unstable();
            prop_assert_eq!(moved, after);
            prop_assert!(cache.taken() <= room, "{} of {}", cache.taken(), room);
            let budget = params.insert_budget.filter(|_| params.rule != Rule::Infinite);
            prop_assert!(budget.is_none_or(|most| cache.begun().len() <= most as usize));
            let at_once = params.admission == Admission::EvictFirst || params.copy_rounds == 0;
            if counts(*phase) && at_once {
                prop_assert!(changes.iter().all(|c| c.left.is_none_or(|k| !accesses.contains(&k))));
            }
        }
    }

    #[test]
    fn rounds_of_one_access_decide_as_the_classic_cache(
        (layers, experts) in (1usize..4, 1usize..9),
        rule in rule(),
        slots in 0usize..26,
        numbers in prop::collection::vec((0u32..1000, any::<bool>()), 0..200),
        ranked in 0usize..30,
    ) {
        let shape = Shape::uniform(layers, experts, 1).unwrap();
        let accesses: Vec<Key> = spread(&shape, &vec![(false, numbers)]).remove(0).1;
        // Back from the order of layers, which is not the order of a classic trace.
        let accesses: Vec<Key> = (0..accesses.len()).map(|i| accesses[i * 37 % accesses.len()]).collect();
        let future = Some(Arc::new(Future::new(&accesses, shape.keys(), |_| true).unwrap()));
        let ranking: Vec<Key> = (0..shape.keys() as Key).rev().take(ranked).collect();
        let start = Start { ranking: &ranking, costs: None, future };
        let capacity = Capacity::Slots(slots);
        let mut classic = Classic::new(&shape, rule, capacity, Scope::Global, &start).unwrap();
        let params = CacheParams { copy_rounds: 0, ..CacheParams::new(rule, capacity) };
        let mut cache = Cache::new(&shape, &params, &start).unwrap();
        for (i, &key) in accesses.iter().enumerate() {
            let mut hits = Vec::new();
            cache.round(Phase::Decode, &[key], &mut hits);
            prop_assert_eq!(classic.access(key), hits[0], "access {}", i);
        }
    }
}
