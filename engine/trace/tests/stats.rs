//! Statistics on traces small enough to count by hand, and against the plainest way to count.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;
use strata_trace::stats::{Sequence, Stats};
use strata_trace::synth::SynthParams;
use strata_trace::{DraftSource, Phase, Round, Token, Trace};

/// A trace of one layer with 6 experts of which tokens use 2; requests are lists of tokens, all kept but those of which the
/// first number is 9, which is left out.
fn by_hand(requests: &[&[[u16; 2]]]) -> Trace {
    let shape = SynthParams { layers: 1, experts: 6, used: 2, tokens: 1, requests: 1, ..SynthParams::default() };
    let mut trace = Trace::new(shape.generate().unwrap().meta);
    for (request, tokens) in requests.iter().enumerate() {
        for (i, chosen) in tokens.iter().enumerate() {
            add(&mut trace, request, i, Phase::Decode, chosen);
        }
    }
    trace
}

fn add(trace: &mut Trace, request: usize, position: usize, phase: Phase, chosen: &[u16; 2]) {
    let kept = chosen[0] != 9;
    let token = |committed: bool| Token { id: 0, position: position as u32, drafted: !committed, committed };
    let round = Round {
        request: request as u32,
        round: position as u32,
        phase,
        source: DraftSource::None,
        rows: 2,
        committed: u32::from(kept),
        total_nanos: 0,
        nanos: [0; 9],
        bytes: [0; 9],
    };
    // Behind each token a rejected draft that would disturb every figure.
    let ids = [if kept { chosen[0] } else { 5 }, chosen[1], 5, 4];
    trace.push(round, &[token(kept), token(false)], &ids, &[40_000, 25_535, 40_000, 25_535]).unwrap();
}

#[test]
fn figures_are_those_counted_by_hand() {
    let trace = by_hand(&[&[[0, 1], [1, 2], [9, 3], [1, 0]], &[[0, 3], [0, 2]]]);
    let sequence = Sequence::new(&trace);
    assert_eq!((sequence.requests(), sequence.tokens()), (2, 5));
    // Pairs of neighbours: 01 12, 12 10, 03 02: each has one of two in common.
    assert_eq!(sequence.reuse(), Some(0.5));
    let union = sequence.union(None);
    assert_eq!((union[0], union[1], union[2], union[3]), (Some(2.0), Some(3.0), Some(3.0), None));
    // Without 0 and 1: 0 1 | 1 1 | 0 0 ..., one window of three has only the 2.
    let mut resident = [false; 6];
    (resident[0], resident[1]) = (true, true);
    assert_eq!(sequence.union(Some(&resident))[2], Some(1.0));
    // 0 1 1 2 1 0: distances of 1: 0, 1: 1, 0: 2; then 0 3 0 2: 0: 1.
    let distances = sequence.distances(usize::MAX);
    assert_eq!((distances.firsts, distances.reuses()), (6, 4));
    assert_eq!([1, 2, 3].map(|slots| distances.hits(slots)), [0.1, 0.3, 0.4]);
    assert_eq!([0.0, 0.25, 0.5, 0.75, 1.0].map(|q| distances.quantile(q)), [0, 0, 1, 1, 2]);
    let first_two = sequence.distances(2);
    assert_eq!((first_two.firsts, first_two.reuses()), (6, 2));

    let (one, other) = sequence.halves().unwrap();
    // The first request uses 1 three times, 0 twice; of the second's four uses 0 has two and 1 none.
    let best = sequence.ranking(&one);
    assert_eq!(sequence.hits(&best.best(1), &other), 0.0);
    assert_eq!(sequence.hits(&best.best(2), &other), 0.5);
    assert_eq!(sequence.hits(&sequence.first_used(&one, 1), &one), 1.0 / 3.0);
    assert_eq!(sequence.hits(&sequence.first_used(&one, 9), &one), 1.0);
}

#[test]
fn a_trace_without_tokens_has_no_figures() {
    for trace in [by_hand(&[]), by_hand(&[&[[9, 1]]])] {
        let stats = Stats::of(&trace);
        assert_eq!((stats.tokens, stats.reuse, stats.coverage, stats.reuse_distance), (0, None, None, None));
        assert_eq!((stats.union, stats.near, stats.far), ([None; 8], None, None));
        assert_eq!((stats.zipf.as_slice(), stats.first_uses), ([0.0].as_slice(), 0.0));
    }
    let one = Stats::of(&by_hand(&[&[[0, 1]]]));
    assert_eq!((one.tokens, one.reuse, one.coverage, one.union[0]), (1, None, None, Some(2.0)));
}

#[test]
fn a_single_request_is_cut_in_half() {
    let trace = by_hand(&[&[[0, 1], [0, 1], [0, 2], [0, 3]]]);
    let sequence = Sequence::new(&trace);
    let (one, other) = sequence.halves().unwrap();
    assert_eq!((one.len(), other.len(), &one[0], &other[0]), (1, 1, &(0..2), &(2..4)));
    assert_eq!(sequence.hits(&sequence.ranking(&one).best(2), &other), 0.5);
}

#[test]
fn answers_are_counted_and_prompts_only_where_there_are_none() {
    let mut trace = by_hand(&[]);
    add(&mut trace, 0, 0, Phase::Prefill, &[0, 1]);
    add(&mut trace, 0, 1, Phase::Prefill, &[0, 1]);
    assert_eq!(Stats::of(&trace).tokens, 2);
    add(&mut trace, 0, 2, Phase::Decode, &[2, 3]);
    assert_eq!(Stats::of(&trace).tokens, 1);
}

#[test]
fn requests_that_take_turns_are_told_apart() {
    let mut trace = by_hand(&[]);
    for (request, chosen) in [(1, [0, 1]), (0, [2, 3]), (1, [0, 1]), (0, [2, 3])] {
        add(&mut trace, request, 0, Phase::Decode, &chosen);
    }
    assert_eq!(Sequence::new(&trace).reuse(), Some(1.0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn lru_of_every_size_is_lru(zipf in 0.0f64..2.0, reuse in 0.0f64..1.0, slots in 1usize..30, seed: u64) {
        let params = SynthParams {
            layers: 2, experts: 24, used: 3, tokens: 200, requests: 3, window: 3, accept: 0.5, zipf, zipf_spread: 0.0, reuse,
            seed, ..SynthParams::default()
        };
        let trace = params.generate().unwrap();
        let (mut hits, mut uses) = (0u32, 0u32);
        for layer in 0..2 {
            let mut request = u32::MAX;
            let mut cache: Vec<u16> = Vec::new();
            for round in 0..trace.rounds.len() {
                if trace.rounds[round].request != request {
                    request = trace.rounds[round].request;
                    cache.clear();
                }
                for token in trace.tokens_of(round).filter(|token| trace.tokens[*token].committed) {
                    for expert in trace.chosen(token, layer) {
                        uses += 1;
                        hits += u32::from(cache.contains(expert));
                        cache.retain(|e| e != expert);
                        cache.push(*expert);
                        if cache.len() > slots {
                            cache.remove(0);
                        }
                    }
                }
            }
        }
        let sequence = Sequence::new(&trace);
        prop_assert_eq!(sequence.distances(usize::MAX).hits(slots), f64::from(hits) / f64::from(uses));
    }

    /// More slots hold more, a longer window has no fewer experts and no more than it could.
    #[test]
    fn figures_grow_where_they_must(zipf in 0.0f64..2.0, reuse in 0.0f64..1.0, seed: u64) {
        let params = SynthParams {
            layers: 2, experts: 40, used: 4, tokens: 300, requests: 4, zipf, zipf_spread: 0.0, reuse, seed,
            ..SynthParams::default()
        };
        let stats = Stats::of(&params.generate().unwrap());
        let coverage = stats.coverage.unwrap();
        prop_assert!(coverage.windows(2).all(|w| w[0] <= w[1]) && coverage[4] <= 1.0);
        prop_assert!(stats.lru.windows(2).all(|w| w[0].1 <= w[1].1));
        for (i, pair) in stats.union.windows(2).enumerate() {
            let (less, more) = (pair[0].unwrap(), pair[1].unwrap());
            prop_assert!(less <= more + 0.2 && more <= 4.0 * (i as f64 + 2.0), "{:?}", stats.union);
        }
        prop_assert!(stats.first_uses > 0.0 && stats.first_uses < 1.0);
    }
}
