//! Traces for tests.

use std::collections::BTreeMap;
use strata_sim::replay::StartState;
use strata_trace::{DraftSource, Meta, ModelMeta, Origin, Phase, Round, Token, Trace};

pub(crate) const LAYERS: usize = 3;
pub(crate) const EXPERTS: usize = 12;
pub(crate) const USED: usize = 3;
/// Bytes of an expert in each layer.
pub(crate) const BYTES: [u64; LAYERS] = [3 << 20, 2 << 20, 5 << 20];

/// Numbers that look drawn: Knuth's multiplicative generator, its high bits.
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

pub(crate) fn meta() -> Meta {
    Meta {
        origin: Origin::Synthetic,
        model: ModelMeta { name: "made up".into(), id: String::new(), quant: String::new() },
        engine: "test".into(),
        layers: LAYERS,
        experts: EXPERTS,
        used: USED,
        expert_bytes: BYTES.to_vec(),
        dense_bytes: 1,
        knobs: BTreeMap::new(),
        hardware: None,
        clock: "none".into(),
        resident: Vec::new(),
        unix_seconds: None,
        note: String::new(),
    }
}

/// `requests` prompts of 5 tokens, each with an answer of `rounds` rounds of one to three tokens. Experts with low numbers
/// are used more often.
pub(crate) fn trace(seed: u64, requests: u32, rounds: u32) -> Trace {
    let mut draw = Draw(seed);
    let mut trace = Trace::new(meta());
    for request in 0..requests {
        let mut position = 0;
        for round in 0..=rounds {
            let (phase, rows) = if round == 0 { (Phase::Prefill, 5) } else { (Phase::Decode, 1 + draw.below(3)) };
            let mut ids = Vec::new();
            for _ in 0..rows * LAYERS {
                let mut chosen: Vec<u16> = Vec::new();
                while chosen.len() < USED {
                    let most = 1 + draw.below(EXPERTS);
                    let expert = draw.below(most) as u16;
                    if !chosen.contains(&expert) {
                        chosen.push(expert);
                    }
                }
                ids.extend(chosen);
            }
            let token = |i| Token { id: 0, position: position + i, drafted: i > 0, committed: i == 0 };
            let tokens: Vec<Token> = (0..rows as u32).map(token).collect();
            let head = Round {
                request,
                round,
                phase,
                source: DraftSource::None,
                rows: rows as u32,
                committed: 1,
                total_nanos: 0,
                nanos: [0; 9],
                bytes: [0; 9],
            };
            trace.push(head, &tokens, &ids, &vec![0; ids.len()]).unwrap();
            position += rows as u32;
        }
    }
    trace
}

pub(crate) fn cold() -> StartState {
    StartState::default()
}
