//! Traces for the tests.
// Each test binary uses its own part of these.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use proptest::prelude::*;
use strata_trace::{
    DraftSource, KnobValue, LayerTimes, Meta, ModelMeta, Move, Origin, Phase, Record, Round, Token, Trace,
};

pub fn meta(layers: usize, experts: usize, used: usize) -> Meta {
    let knob = KnobValue { value: "0.7".into(), origin: "flag".into() };
    Meta {
        origin: Origin::Synthetic,
        model: ModelMeta { name: "ein Modell, \"klein\"".into(), id: "00ff".into(), quant: "IQ3_S".into() },
        engine: "strata 0.1.0".into(),
        layers,
        experts,
        used,
        expert_bytes: (0..layers as u64).map(|layer| 1000 + layer).collect(),
        dense_bytes: 123_456,
        knobs: [("sampling.temp".to_owned(), knob)].into(),
        hardware: Some("cores = 2\n".into()),
        clock: "monotonic".into(),
        resident: Vec::new(),
        unix_seconds: Some(1_700_000_000),
        note: String::new(),
    }
}

/// Numbers that look like nothing in particular.
pub struct Noise(pub u64);

impl Noise {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }
}

/// Which parts rounds have, and in which sizes.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub layers: usize,
    pub experts: usize,
    pub used: usize,
    pub rounds: usize,
    pub times: bool,
    pub hits: bool,
    pub moves: bool,
}

pub fn shapes() -> impl Strategy<Value = Shape> {
    (1usize..4, 1usize..70, 1usize..5, 0usize..5, any::<[bool; 3]>()).prop_map(
        |(layers, experts, used, rounds, [times, hits, moves])| {
            let used = used.min(experts);
            Shape { layers, experts, used, rounds, times, hits, moves }
        },
    )
}

pub fn trace(shape: Shape, seed: u64) -> Trace {
    let Shape { layers, experts, used, .. } = shape;
    let mut trace = Trace::new(meta(layers, experts, used));
    let noise = &mut Noise(seed);
    for number in 0..shape.rounds {
        let rows = 1 + noise.below(4);
        let committed = noise.below(rows + 1);
        let tokens: Vec<Token> = (0..rows)
            .map(|row| Token {
                id: noise.next() as u32,
                position: (number * 8 + row) as u32,
                drafted: noise.below(2) == 1,
                committed: row < committed,
            })
            .collect();
        let ids: Vec<u16> = (0..rows * layers)
            .flat_map(|_| {
                let (first, step) = (noise.below(experts), 1 + noise.below(experts / used));
                (0..used).map(move |i| ((first + i * step) % experts) as u16)
            })
            .collect();
        let gates: Vec<u16> = ids.iter().map(|_| noise.next() as u16).collect();
        let times: Vec<LayerTimes> = (0..layers)
            .map(|_| LayerTimes { dense: noise.next(), cpu: noise.next() % 2, ..LayerTimes::default() })
            .collect();
        let hits: Vec<bool> = ids.iter().map(|_| noise.below(2) == 1).collect();
        let moves: Vec<Move> = (0..noise.below(3))
            .map(|_| {
                let [a, b] = [noise.below(experts) as u16, noise.below(experts) as u16];
                let (layer, other) = (noise.below(layers) as u16, noise.below(layers) as u16);
                match noise.below(3) {
                    0 => Move { layer, came: Some(a), left: None },
                    1 => Move { layer, came: None, left: Some((layer, b)) },
                    _ => Move { layer, came: Some(a), left: Some((other, b)) },
                }
            })
            .collect();
        let sources = [DraftSource::None, DraftSource::Mtp, DraftSource::Lookup, DraftSource::Both, DraftSource::Own];
        let round = Round {
            request: number as u32 / 2,
            round: number as u32 % 2,
            phase: [Phase::Prefill, Phase::Decode][noise.below(2)],
            source: sources[noise.below(5)],
            rows: rows as u32,
            committed: committed as u32,
            total_nanos: noise.next(),
            nanos: [0; 9].map(|_| noise.next() % 3),
            bytes: [0; 9].map(|_| noise.next() % 3),
        };
        trace
            .push_record(&Record {
                round,
                tokens: &tokens,
                ids: &ids,
                gates: &gates,
                layer_times: shape.times.then_some(&times),
                hits: shape.hits.then_some(&hits),
                moves: shape.moves.then_some(&moves),
            })
            .unwrap();
    }
    trace.lost = noise.below(3) as u64;
    trace
}

/// The trace as a file.
pub fn bytes(trace: &Trace) -> Vec<u8> {
    trace.write(Vec::new()).unwrap()
}

/// Whether `part` has the first rounds of `whole`, as they are there.
pub fn is_prefix(part: &Trace, whole: &Trace) -> bool {
    part.meta == whole.meta
        && part.rounds.len() <= whole.rounds.len()
        && (0..part.rounds.len()).all(|round| part.record(round) == whole.record(round))
}
