//! What happened in a trace, added up.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used)]

mod common;

use common::meta;
use strata_trace::{Branch, DraftSource, Phase, Record, Round, Summary, Token, Trace};

/// A round of these tokens: drafted or not; the first `committed` are kept.
fn push(trace: &mut Trace, request: u32, phase: Phase, source: DraftSource, drafted: &[bool], committed: u32) {
    let (mut nanos, mut bytes) = ([0; 9], [0; 9]);
    nanos[Branch::CpuExperts as usize] = 500_000_000;
    nanos[Branch::Draft as usize] = 250_000_000;
    bytes[Branch::CpuExperts as usize] = 1000;
    let rows = drafted.len();
    let round = Round {
        request,
        round: trace.rounds.len() as u32,
        phase,
        source,
        rows: rows as u32,
        committed,
        total_nanos: 1_000_000_000,
        nanos,
        bytes,
    };
    let token =
        |(i, &drafted): (usize, &bool)| Token { id: 1, position: 0, drafted, committed: i < committed as usize };
    let tokens: Vec<Token> = drafted.iter().enumerate().map(token).collect();
    let (ids, gates) = ([0, 1, 2, 3].repeat(rows), [1, 1, 1, 1].repeat(rows));
    let hits = [true, false, false, false].repeat(rows);
    trace
        .push_record(&Record {
            round,
            tokens: &tokens,
            ids: &ids,
            gates: &gates,
            layer_times: None,
            hits: Some(&hits),
            moves: None,
        })
        .unwrap();
}

#[test]
fn rounds_drafts_and_times_are_added_up() {
    let mut trace = Trace::new(meta(2, 8, 2));
    push(&mut trace, 4, Phase::Prefill, DraftSource::None, &[false; 5], 5);
    push(&mut trace, 4, Phase::Decode, DraftSource::Mtp, &[false, true, true, true], 3);
    push(&mut trace, 9, Phase::Decode, DraftSource::None, &[false], 1);
    push(&mut trace, 9, Phase::Decode, DraftSource::Lookup, &[false, true], 1);
    trace.lost = 2;
    let s = Summary::of(&trace);
    assert_eq!((s.requests, s.lost, s.used_pairs, s.pairs, s.hit_rate), (2, 2, 4, 16, Some(0.25)));
    let (prefill, decode) = (s.prefill.clone().unwrap(), s.decode.clone().unwrap());
    assert_eq!((prefill.rounds, prefill.tokens, prefill.kept, prefill.seconds), (1, 5, 5, 1.0));
    assert_eq!((decode.rounds, decode.tokens, decode.kept, decode.seconds), (3, 7, 5, 3.0));
    assert_eq!(decode.tokens_per_second, Some(5.0 / 3.0));
    let [experts, draft] = &decode.branches[..] else { panic!("{:?}", decode.branches) };
    assert_eq!(
        (experts.branch, experts.seconds, experts.share, experts.bytes),
        (Branch::CpuExperts, 1.5, Some(0.5), 3000)
    );
    assert_eq!((experts.bytes_per_second, draft.branch, draft.bytes_per_second), (Some(2000.0), Branch::Draft, None));
    let drafts: Vec<_> = s.drafts.iter().map(|d| (d.source, d.rounds, d.verified, d.accepted)).collect();
    assert_eq!(drafts, [(DraftSource::Mtp, 1, 3, 2), (DraftSource::Lookup, 1, 1, 0)]);
    assert_eq!(s.acceptance(), Some(0.5));
}

#[test]
fn an_empty_trace_has_nothing_to_add_up() {
    let s = Summary::of(&Trace::new(meta(2, 8, 2)));
    assert_eq!(
        (s.requests, s.prefill.clone(), s.decode.clone(), s.hit_rate, s.acceptance()),
        (0, None, None, None, None)
    );
}
