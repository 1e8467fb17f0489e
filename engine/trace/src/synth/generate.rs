//! Draws the tokens' experts.

use super::SynthParams;
use super::numbers::{Random, chance_of};
use super::popularity::Popularity;
use crate::meta::{KnobValue, Meta, ModelMeta, Origin};
use crate::round::{BRANCHES, DraftSource, Phase, Round, Token};
use crate::trace::{Trace, TraceError};
use std::collections::BTreeMap;

/// Draws of an expert before all weights are looked through for one that may come. Only where a few experts have
/// nearly all of the weight does it come to that.
const DRAWS: usize = 32;

/// Who stands where in a layer under a topic.
struct Ranking {
    /// The expert of each rank.
    experts: Vec<u16>,
    /// The rank of each expert.
    ranks: Vec<u16>,
}

/// The rankings of a topic, one for each layer.
type Topic = Vec<Ranking>;

struct Generator<'a> {
    params: &'a SynthParams,
    random: Random,
    layers: Vec<Popularity>,
    topics: Vec<Topic>,
    /// For each expert of a layer, whether it may not be drawn. All are `false` between two calls.
    barred: Vec<bool>,
    leaving: Vec<u64>,
}

/// The trace of parameters that were checked.
pub(super) fn generate(params: &SynthParams) -> Result<Trace, TraceError> {
    let mut trace = Trace::new(meta(params));
    let mut generator = Generator::new(params);
    let (change, keep) = (chance_of(1.0 / params.topic_tokens), chance_of(params.accept));
    let per_token = params.layers * params.used;
    let (mut ids, mut gates) = (Vec::new(), Vec::new());
    for request in 0..params.requests {
        let mut left = params.tokens / params.requests + usize::from(request < params.tokens % params.requests);
        let (mut round, mut position) = (0, 0);
        let mut topic = generator.random.below(params.topics as u64) as usize;
        // The experts of the last token kept; at first there is none.
        let mut before: Vec<u16> = Vec::new();
        while left > 0 {
            let rows = params.window.min(left);
            let mut committed = 1;
            while committed < rows && generator.random.chance(keep) {
                committed += 1;
            }
            ids.clear();
            gates.clear();
            let mut now = topic;
            for row in 0..rows {
                if (position, row) != (0, 0) && generator.random.chance(change) {
                    now = generator.other_topic(now);
                }
                let previous = if row == 0 { before.clone() } else { ids[(row - 1) * per_token..].to_vec() };
                generator.token(now, &previous, &mut ids, &mut gates);
                if row + 1 == committed {
                    topic = now;
                }
            }
            let token = |row: usize| Token {
                id: 0,
                position: (position + row) as u32,
                drafted: row > 0,
                committed: row < committed,
            };
            let entry = Round {
                request: request as u32,
                round,
                phase: Phase::Decode,
                source: if rows > 1 { DraftSource::Own } else { DraftSource::None },
                rows: rows as u32,
                committed: committed as u32,
                total_nanos: 0,
                nanos: [0; BRANCHES.len()],
                bytes: [0; BRANCHES.len()],
            };
            trace.push(entry, &(0..rows).map(token).collect::<Vec<_>>(), &ids, &gates)?;
            before.clear();
            before.extend_from_slice(&ids[(committed - 1) * per_token..committed * per_token]);
            left -= committed;
            position += committed;
            round += 1;
        }
    }
    Ok(trace)
}

impl<'a> Generator<'a> {
    fn new(params: &'a SynthParams) -> Generator<'a> {
        let mut random = Random::new(params.seed);
        let layers = layers(params, &mut random);
        let topics = topics(params, &mut random);
        Generator { params, random, layers, topics, barred: vec![false; params.experts], leaving: Vec::new() }
    }

    /// A topic that is not this one, if there is one.
    fn other_topic(&mut self, topic: usize) -> usize {
        let others = self.topics.len() as u64 - 1;
        let drawn = self.random.below(others) as usize;
        if others == 0 { topic } else { drawn + usize::from(drawn >= topic) }
    }

    /// Adds a token's experts and gates, behind a token with these experts; none at the start of a request.
    fn token(&mut self, topic: usize, before: &[u16], ids: &mut Vec<u16>, gates: &mut Vec<u16>) {
        let used = self.params.used;
        for layer in 0..self.params.layers {
            let start = ids.len();
            if used == self.params.experts {
                ids.extend((0..used).map(|expert| expert as u16));
            } else {
                let before = before.get(layer * used..(layer + 1) * used).unwrap_or(&[]);
                self.stay(topic, layer, before, ids);
                self.come(topic, layer, before, used - (ids.len() - start), ids);
            }
            self.random.shuffle(&mut ids[start..]);
            self.gates(gates);
        }
    }

    /// Adds those of a token's experts that stay.
    fn stay(&mut self, topic: usize, layer: usize, before: &[u16], ids: &mut Vec<u16>) {
        let used = before.len();
        let mut left = used - self.staying(used);
        let (ranking, popularity) = (&self.topics[topic][layer], &self.layers[layer]);
        let weight = |&expert: &u16| popularity.leave[usize::from(ranking.ranks[usize::from(expert)])];
        self.leaving.clear();
        self.leaving.extend(before.iter().map(weight));
        let mut total: u64 = self.leaving.iter().sum();
        while left > 0 {
            let mut at = self.random.below(total);
            for weight in &mut self.leaving {
                if at < *weight {
                    total -= *weight;
                    *weight = 0;
                    break;
                }
                at -= *weight;
            }
            left -= 1;
        }
        ids.extend(before.iter().zip(&self.leaving).filter(|(_, weight)| **weight > 0).map(|(expert, _)| expert));
    }

    /// How many of so many experts stay: on average the share asked for.
    fn staying(&mut self, used: usize) -> usize {
        let reuse = self.params.reuse;
        if 2 * self.params.used <= self.params.experts {
            return (0..used).filter(|_| self.random.chance(chance_of(reuse))).count();
        }
        // There may not be enough others for all to leave, so the number is the one below or above the mean.
        let mean = reuse * used as f64;
        let least = mean as usize;
        least + usize::from(self.random.chance(chance_of(mean - least as f64)))
    }

    /// Adds `count` experts that are not among `before`.
    fn come(&mut self, topic: usize, layer: usize, before: &[u16], count: usize, ids: &mut Vec<u16>) {
        let start = ids.len();
        before.iter().for_each(|expert| self.barred[usize::from(*expert)] = true);
        let (ranking, popularity) = (&self.topics[topic][layer], &self.layers[layer]);
        let total = popularity.come.last().copied().unwrap_or(0);
        for _ in 0..count {
            let drawn = (0..DRAWS).find_map(|_| {
                let at = self.random.below(total);
                let expert = ranking.experts[popularity.come.partition_point(|sum| *sum <= at)];
                (!self.barred[usize::from(expert)]).then_some(expert)
            });
            let drawn = drawn.or_else(|| {
                let free =
                    || ranking.experts.iter().enumerate().filter(|(_, expert)| !self.barred[usize::from(**expert)]);
                let mut at = self.random.below(free().map(|(rank, _)| popularity.come(rank)).sum());
                let found = free().find(|(rank, _)| {
                    let weight = popularity.come(*rank);
                    let here = at < weight;
                    at = at.saturating_sub(weight);
                    here
                });
                found.map(|(_, expert)| *expert)
            });
            // Parameters that pass the check leave an expert that may come.
            let Some(expert) = drawn else { break };
            self.barred[usize::from(expert)] = true;
            ids.push(expert);
        }
        before.iter().chain(&ids[start..]).for_each(|expert| self.barred[usize::from(*expert)] = false);
    }

    /// Adds gates: falling, and together exactly 1. The largest is some times the smallest, as routers have it.
    fn gates(&mut self, gates: &mut Vec<u16>) {
        let start = gates.len();
        let mut parts: Vec<u64> = (0..self.params.used)
            .map(|_| {
                let x = self.random.next() >> 48;
                (1 << 30) + x * x
            })
            .collect();
        parts.sort_unstable_by(|a, b| b.cmp(a));
        let sum: u64 = parts.iter().sum();
        gates.extend(parts.iter().map(|part| (u128::from(*part) * 65_535 / u128::from(sum)) as u16));
        let missing = 65_535 - gates[start..].iter().map(|gate| u32::from(*gate)).sum::<u32>();
        gates[start..].iter_mut().take(missing as usize).for_each(|gate| *gate += 1);
    }
}

/// The layers' weights: exponents evenly over their range, in a random order.
fn layers(params: &SynthParams, random: &mut Random) -> Vec<Popularity> {
    if params.used == params.experts {
        return Vec::new();
    }
    let last = (params.layers - 1).max(1) as f64;
    let exponent = |i: usize| params.zipf + params.zipf_spread * (2.0 * i as f64 / last - 1.0);
    let mut exponents: Vec<f64> = match params.layers {
        1 => vec![params.zipf],
        layers => (0..layers).map(exponent).collect(),
    };
    random.shuffle(&mut exponents);
    let mut made: BTreeMap<u64, Popularity> = BTreeMap::new();
    let popularity = |s: &f64| {
        let make = || Popularity::new(params.experts, params.used, *s, params.tail, params.reuse);
        made.entry(s.to_bits()).or_insert_with(make).clone()
    };
    exponents.iter().map(popularity).collect()
}

/// The topics' rankings.
fn topics(params: &SynthParams, random: &mut Random) -> Vec<Topic> {
    let order = |random: &mut Random| {
        let mut experts: Vec<u16> = (0..params.experts).map(|expert| expert as u16).collect();
        random.shuffle(&mut experts);
        experts
    };
    let base: Vec<Vec<u16>> = (0..params.layers).map(|_| order(random)).collect();
    let moves = chance_of(params.topic_share);
    let topic = |_| {
        base.iter()
            .map(|base| {
                let mut experts = base.clone();
                let places: Vec<usize> = (0..experts.len()).filter(|_| random.chance(moves)).collect();
                let mut moved: Vec<u16> = places.iter().map(|place| experts[*place]).collect();
                random.shuffle(&mut moved);
                places.iter().zip(moved).for_each(|(place, expert)| experts[*place] = expert);
                let mut ranks = vec![0; experts.len()];
                experts.iter().enumerate().for_each(|(rank, expert)| ranks[usize::from(*expert)] = rank as u16);
                Ranking { experts, ranks }
            })
            .collect()
    };
    (0..params.topics).map(topic).collect()
}

/// What the trace says about itself.
fn meta(params: &SynthParams) -> Meta {
    let mut knobs = BTreeMap::new();
    for (key, value) in [
        ("requests", params.requests.to_string()),
        ("tokens", params.tokens.to_string()),
        ("window", params.window.to_string()),
        ("accept", params.accept.to_string()),
        ("zipf", params.zipf.to_string()),
        ("zipf_spread", params.zipf_spread.to_string()),
        ("tail", params.tail.to_string()),
        ("reuse", params.reuse.to_string()),
        ("topics", params.topics.to_string()),
        ("topic_tokens", params.topic_tokens.to_string()),
        ("topic_share", params.topic_share.to_string()),
        ("seed", params.seed.to_string()),
    ] {
        knobs.insert(format!("synth.{key}"), KnobValue { value, origin: "asked".into() });
    }
    Meta {
        origin: Origin::Synthetic,
        model: ModelMeta { name: "synthetic".into(), id: String::new(), quant: String::new() },
        engine: format!("strata {}", env!("CARGO_PKG_VERSION")),
        layers: params.layers,
        experts: params.experts,
        used: params.used,
        expert_bytes: vec![params.expert_bytes; params.layers],
        dense_bytes: params.dense_bytes,
        knobs,
        hardware: None,
        clock: "none".into(),
        resident: Vec::new(),
        unix_seconds: None,
        note: "Made up by a generator: routing with the statistics that were asked for, and no model's.".into(),
    }
}
