//! How fast replays are: `cargo bench -p strata-sim --bench replay [REPETITIONS] [PARTS OF NAMES]`.
//!
//! The trace is made up: 48 layers of 512 experts, 10 a token, popularity by Zipf's law with exponent 0.65 in an order of
//! its own for each layer, 45 % of the experts of a token used again by the next; 20,000 tokens, 9.6 million accesses. All
//! on one thread, whose time on a processor counts where Linux says it, and the time of day elsewhere. Of several
//! repetitions, taken in turn, the best is what the machine can do, and the worst says how much else it was doing: what
//! runs beside it still takes its share of caches and memory.

use std::time::Instant;
use strata_policy::cache::{Admission, CacheParams, Capacity, Rule, Scope, Shape};
use strata_sim::SimError;
use strata_sim::replay::{Accesses, LruCurve, StartState, replay, replay_classic, replay_each};

const LAYERS: usize = 48;
const EXPERTS: usize = 512;
const USED: usize = 10;
const TOKENS: usize = 20_000;

struct SplitMix64(u64);

impl SplitMix64 {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn trace() -> Result<Accesses, SimError> {
    let mut random = SplitMix64(1);
    let mut sums = vec![0.0];
    for rank in 1..=EXPERTS {
        sums.push(sums[rank - 1] + (rank as f64).powf(-0.65));
    }
    let orders: Vec<Vec<usize>> = (0..LAYERS)
        .map(|_| {
            let mut order: Vec<usize> = (0..EXPERTS).collect();
            (1..EXPERTS).rev().for_each(|i| order.swap(i, (random.unit() * (i + 1) as f64) as usize));
            order
        })
        .collect();
    let mut before = vec![[usize::MAX; USED]; LAYERS];
    let mut keys = Vec::with_capacity(TOKENS * LAYERS * USED);
    for _ in 0..TOKENS {
        for (layer, before) in before.iter_mut().enumerate() {
            let mut chosen = Vec::with_capacity(USED);
            for &expert in &*before {
                if expert != usize::MAX && random.unit() < 0.45 {
                    chosen.push(expert);
                }
            }
            while chosen.len() < USED {
                let at = random.unit() * sums[EXPERTS];
                let expert = orders[layer][sums.partition_point(|&s| s <= at) - 1];
                if !chosen.contains(&expert) {
                    chosen.push(expert);
                }
            }
            before.copy_from_slice(&chosen);
            keys.extend(chosen.iter().map(|&expert| (layer * EXPERTS + expert) as u32));
        }
    }
    // Bytes of an expert in Q2_0.
    let shape = Shape::uniform(LAYERS, EXPERTS, 1_382_400)?;
    Accesses::from_keys(shape, keys, LAYERS * USED)
}

/// Seconds that this thread has run, or that have passed.
fn seconds(begin: Instant) -> f64 {
    let schedule = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = schedule.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
    nanos.map_or_else(|| begin.elapsed().as_secs_f64(), |nanos| nanos / 1e9)
}

fn main() -> Result<(), SimError> {
    let repetitions = std::env::args().filter_map(|word| word.parse::<usize>().ok()).next().unwrap_or(5);
    let named: Vec<String> =
        std::env::args().skip(1).filter(|w| !w.starts_with('-') && w.parse::<usize>().is_err()).collect();
    let accesses = trace()?;
    let n = accesses.keys().len() as u64;
    let start = StartState::default();
    let slots = Capacity::Slots(4423);
    let engine = |rule: Rule| CacheParams { insert_budget: Some(96), ..CacheParams::new(rule, slots) };
    let classic = |rule: Rule| replay_classic(&accesses, rule, slots, Scope::Global, &start);
    let rounds = |params: CacheParams| replay(&accesses, &params, &start).map(|r| r.decode.hits);
    let lfu = Rule::Lfu { decay: 0.7, every: 4, remember: true, bypass: true };
    let per_layer = CacheParams { scope: Scope::PerLayer, ..engine(Rule::Lru) };
    let wait = CacheParams { admission: Admission::WaitForCopy, ..engine(Rule::Lru) };
    let bytes = CacheParams { capacity: Capacity::Bytes(4423 * 1_382_400), ..engine(Rule::saving()) };
    let free = CacheParams { insert_budget: None, ..engine(Rule::Belady { bypass: true }) };
    type Work<'a> = Box<dyn Fn() -> Result<u64, SimError> + 'a>;
    let works: Vec<(&str, Work<'_>)> = vec![
        ("LRU, access by access", Box::new(|| classic(Rule::Lru))),
        ("LFU, access by access", Box::new(|| classic(Rule::plain_lfu()))),
        ("Belady, access by access", Box::new(|| classic(Rule::Belady { bypass: false }))),
        ("the future, once for a trace", Box::new(|| Ok(accesses.only(|_, _| true).future(true)?.len() as u64))),
        ("LRU for all sizes", Box::new(|| Ok(LruCurve::new(accesses.keys().iter().copied(), 24_576).hits(4423)))),
        ("rounds: static", Box::new(|| rounds(engine(Rule::Static)))),
        ("rounds: LRU", Box::new(|| rounds(engine(Rule::Lru)))),
        ("rounds: LRU, no budget", Box::new(|| rounds(CacheParams { insert_budget: None, ..engine(Rule::Lru) }))),
        ("rounds: LRU, each round shown", {
            Box::new(|| replay_each(&accesses, &engine(Rule::Lru), &start, |_| ()).map(|r| r.decode.hits))
        }),
        ("rounds: LRU by layer", Box::new(|| rounds(per_layer))),
        ("rounds: LRU, wait for copy", Box::new(|| rounds(wait))),
        ("rounds: LFU with decay", Box::new(|| rounds(engine(lfu)))),
        ("rounds: adaptive", Box::new(|| rounds(engine(Rule::original())))),
        ("rounds: S3-FIFO", Box::new(|| rounds(engine(Rule::S3Fifo)))),
        ("rounds: saving", Box::new(|| rounds(engine(Rule::saving())))),
        ("rounds: saving in bytes", Box::new(|| rounds(bytes))),
        ("rounds: Belady", Box::new(|| rounds(engine(Rule::Belady { bypass: true })))),
        ("rounds: Belady, no budget", Box::new(|| rounds(free))),
        ("rounds: infinite", Box::new(|| rounds(engine(Rule::Infinite)))),
    ];
    let works: Vec<_> = works
        .into_iter()
        .filter(|(name, _)| named.is_empty() || named.iter().any(|part| name.contains(part.as_str())))
        .collect();
    let mut speeds = vec![Vec::new(); works.len()];
    let mut found = vec![0; works.len()];
    let begin = Instant::now();
    for _ in 0..repetitions.max(1) {
        for (i, (_, work)) in works.iter().enumerate() {
            let before = seconds(begin);
            found[i] = work()?;
            speeds[i].push(n as f64 / (seconds(begin) - before) / 1e6);
        }
    }
    println!("{n} accesses, {repetitions} repetitions; million accesses a second on one core");
    println!("{:<32} {:>7} {:>7} {:>7}  {:>9}", "", "best", "median", "worst", "hits");
    for ((name, _), (speeds, hits)) in works.iter().zip(speeds.iter_mut().zip(&found)) {
        speeds.sort_by(f64::total_cmp);
        let (worst, best) = (speeds[0], speeds[speeds.len() - 1]);
        let rate = *hits as f64 / n as f64;
        println!("{name:<32} {best:>7.1} {:>7.1} {worst:>7.1}  {rate:>9.4}", speeds[speeds.len() / 2]);
    }
    Ok(())
}
