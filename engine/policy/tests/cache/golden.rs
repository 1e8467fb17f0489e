//! Hit counts of libCacheSim, counted by `experiments/libcachesim/golden.py` over the same made-up traces.

use std::sync::Arc;
use strata_policy::cache::{Capacity, Classic, Future, Key, Rule, Scope, Shape, Start};

/// Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014.
pub(crate) struct SplitMix64(pub(crate) u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

/// Keys in the order of time. `reuse` of 100 experts are those of the token before; the others are skewed to low
/// numbers, whose meaning drifts.
pub(crate) fn trace(seed: u64, layers: usize, experts: usize, used: usize, tokens: usize, reuse: usize) -> Vec<Key> {
    let mut random = SplitMix64(seed);
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); layers];
    let mut keys = Vec::new();
    for token in 0..tokens {
        for (layer, before) in before.iter_mut().enumerate() {
            let mut chosen = Vec::new();
            while chosen.len() < used {
                let expert = if !before.is_empty() && random.below(100) < reuse {
                    before[random.below(used)]
                } else {
                    let outer = 1 + random.below(experts);
                    let inner = 1 + random.below(outer);
                    (random.below(inner) + token / 500 * 7) % experts
                };
                if !chosen.contains(&expert) {
                    chosen.push(expert);
                }
            }
            keys.extend(chosen.iter().map(|&expert| (layer * experts + expert) as Key));
            *before = chosen;
        }
    }
    keys
}

fn fnv(keys: &[Key]) -> String {
    let bytes = keys.iter().flat_map(|key| key.to_le_bytes());
    let hash = bytes.fold(0xCBF2_9CE4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01B3));
    format!("{hash:016x}")
}

#[test]
fn classic_hits_are_those_of_libcachesim() {
    let golden: serde_json::Value = serde_json::from_str(include_str!("../data/libcachesim.json")).unwrap();
    let traces = [(trace(1, 6, 64, 4, 3000, 45), 6, 64), (trace(2, 1, 2000, 1, 60_000, 20), 1, 2000)];
    let mut compared = 0;
    for ((keys, layers, experts), golden) in traces.iter().zip(golden["traces"].as_array().unwrap()) {
        assert_eq!(fnv(keys), golden["fnv1a"].as_str().unwrap(), "another trace than the script's");
        let shape = Shape::uniform(*layers, *experts, 1).unwrap();
        let future = Arc::new(Future::new(keys, shape.keys(), |_| true).unwrap());
        for row in golden["hits"].as_array().unwrap() {
            let rule = match row[0].as_str().unwrap() {
                "LRU" => Rule::Lru,
                "LFU" => Rule::plain_lfu(),
                "Belady" => Rule::Belady { bypass: false },
                "S3FIFO" => Rule::S3Fifo,
                other => panic!("{other}"),
            };
            let capacity = Capacity::Slots(row[1].as_u64().unwrap() as usize);
            let start = Start { future: Some(future.clone()), ..Start::default() };
            let mut cache = Classic::new(&shape, rule, capacity, Scope::Global, &start).unwrap();
            assert_eq!(cache.accesses(keys), row[2].as_u64().unwrap(), "{row}");
            compared += 1;
        }
    }
    assert_eq!(compared, 24, "four policies, three capacities, two traces");
}
