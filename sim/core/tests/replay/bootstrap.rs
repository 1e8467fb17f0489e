//! Blocks and intervals.

use crate::made::{Draw, cold, trace};
use strata_policy::cache::{CacheParams, Capacity, Rule};
use strata_sim::replay::{Accesses, Block, blocks, difference, rate, replay};

#[test]
fn blocks_are_whole_requests_or_so_many_tokens_and_lose_nothing() {
    let accesses = Accesses::from_trace(&trace(8, 5, 50)).unwrap();
    let replayed = replay(&accesses, &CacheParams::new(Rule::Lru, Capacity::Slots(10)), &cold()).unwrap();
    let sum = |blocks: &[Block]| blocks.iter().fold((0, 0), |(a, b), block| (a + block.part, b + block.whole));
    let whole = (replayed.decode.hits, replayed.decode.accesses);
    let requests = blocks(&accesses, &replayed, u32::MAX);
    assert_eq!((requests.len(), sum(&requests)), (5, whole));
    let short = blocks(&accesses, &replayed, 20);
    assert_eq!(sum(&short), whole);
    // 9 accesses a token; no block is shorter than asked for, and none twice as long.
    assert!(short.len() >= 20 && short.iter().all(|b| (20 * 9..44 * 9).contains(&b.whole)), "{short:?}");
    // A request that is shorter than a block is one.
    assert_eq!(blocks(&accesses, &replayed, 1000).len(), 5);
}

/// Blocks of 100 accesses that hit with a probability of 60 %.
fn drawn(draw: &mut Draw, n: usize) -> Vec<Block> {
    let part = |draw: &mut Draw| (0..100).filter(|_| draw.below(100) < 60).count() as u64;
    (0..n).map(|_| Block { part: part(draw), whole: 100 }).collect()
}

#[test]
fn an_interval_holds_the_truth_as_often_as_it_says() {
    let mut draw = Draw(4);
    let trials = 400;
    let holds = (0..trials).filter(|&seed| {
        let interval = rate(&drawn(&mut draw, 40), seed);
        assert!(interval.low <= interval.value && interval.value <= interval.high);
        interval.low <= 0.6 && 0.6 <= interval.high
    });
    // 95 % of 400 is 380, give or take 4.4; the percentile method is a little too narrow for 40 blocks.
    let holds = holds.count();
    assert!((364..=393).contains(&holds), "{holds} of {trials}");
}

#[test]
fn a_difference_draws_the_same_blocks_of_both() {
    let mut draw = Draw(5);
    // Rates of blocks vary widely, and b is always 2 points below a.
    let a: Vec<Block> = (0..30).map(|_| Block { part: 200 + draw.below(700) as u64, whole: 1000 }).collect();
    let b: Vec<Block> = a.iter().map(|block| Block { part: block.part - 20, ..*block }).collect();
    let found = difference(&a, &b, 1);
    assert!((found.low - 0.02).abs() < 1e-9 && (found.high - 0.02).abs() < 1e-9 && !found.holds_zero());
    assert!(difference(&a, &a, 1).holds_zero());
    assert_eq!(difference(&b, &a, 7).value, -difference(&a, &b, 7).value);
}

#[test]
fn equal_seeds_give_equal_intervals_and_others_do_not() {
    let blocks = drawn(&mut Draw(6), 30);
    assert_eq!(rate(&blocks, 1), rate(&blocks, 1));
    assert_ne!(rate(&blocks, 1), rate(&blocks, 2));
    let none = rate(&[], 1);
    assert_eq!((none.low, none.value, none.high), (0.0, 0.0, 0.0));
}
