//! A trace in memory.

use crate::meta::Meta;
use crate::round::{LayerTimes, Move, Round, Token};

/// Why something is no trace, or no part of one.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A value that cannot be: where, what was found, what was expected.
    #[error("{place}: found {found}, expected {expected}")]
    Invalid {
        /// File and line, byte or field.
        place: String,
        /// What was found.
        found: String,
        /// What was expected.
        expected: String,
    },
    /// The operating system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// Its reason.
        source: std::io::Error,
    },
}

/// A whole trace.
///
/// `ids` and `gates` are `[tokens][layers][used]`: experts of a token in routing order, best first. Tokens stand in the
/// order in which rounds read them, so the tokens of round `r` are a range ([`Trace::tokens_of`]).
///
/// The order of accesses in time is another one: a pass goes through the layers, and each layer serves all rows of the
/// window. So accesses happen by round, then layer, then row, then routing order ([`Trace::accesses`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// What holds for all of it.
    pub meta: Meta,
    /// The rounds, in time.
    pub rounds: Vec<Round>,
    /// The tokens of all rounds.
    pub tokens: Vec<Token>,
    /// Experts, `[tokens][layers][used]`.
    pub ids: Vec<u16>,
    /// Router weights in units of 1 / 65,535, `[tokens][layers][used]`.
    pub gates: Vec<u16>,
    /// `[rounds][layers]`, or empty.
    pub layer_times: Vec<LayerTimes>,
    /// Whether the engine's cache held the expert, `[tokens][layers][used]`, or empty.
    pub hits: Vec<bool>,
    /// What the engine's cache changed: for each round a range of `moves` ends at `move_ends[round]`; or empty.
    pub move_ends: Vec<u32>,
    /// The changes of all rounds.
    pub moves: Vec<Move>,
    /// Where each round's tokens start, and the end.
    starts: Vec<usize>,
}

/// A router weight from 0 to 1 in units of 1 / 65,535.
pub fn gate_to_fixed(weight: f32) -> u16 {
    // Not a number becomes 0.
    (weight.clamp(0.0, 1.0) * 65535.0).round() as u16
}

/// The router weight of [`gate_to_fixed`].
pub fn gate_from_fixed(gate: u16) -> f32 {
    f32::from(gate) / 65535.0
}

impl Trace {
    /// An empty trace.
    pub fn new(meta: Meta) -> Trace {
        Trace {
            meta,
            rounds: Vec::new(),
            tokens: Vec::new(),
            ids: Vec::new(),
            gates: Vec::new(),
            layer_times: Vec::new(),
            hits: Vec::new(),
            move_ends: Vec::new(),
            moves: Vec::new(),
            starts: vec![0],
        }
    }

    /// Adds a round with its tokens and their experts and weights, `[rows][layers][used]`.
    ///
    /// # Errors
    /// A length does not match, an expert is out of range or twice in a token's layer, or more rows are kept than read.
    pub fn push(&mut self, round: Round, tokens: &[Token], ids: &[u16], gates: &[u16]) -> Result<(), TraceError> {
        let place = || format!("round {} of request {}", round.round, round.request);
        let invalid = |found: String, expected: String| TraceError::Invalid { place: place(), found, expected };
        let values = tokens.len() * self.per_token();
        if tokens.len() != round.rows as usize {
            return Err(invalid(format!("{} tokens", tokens.len()), format!("its {} rows", round.rows)));
        }
        if round.committed > round.rows {
            return Err(invalid(format!("{} rows kept", round.committed), format!("at most its {}", round.rows)));
        }
        for (what, len) in [("experts", ids.len()), ("router weights", gates.len())] {
            if len != values {
                return Err(invalid(format!("{len} {what}"), format!("{values}")));
            }
        }
        if let Some(&id) = ids.iter().find(|&&id| usize::from(id) >= self.meta.experts) {
            return Err(invalid(format!("expert {id}"), format!("one below {}", self.meta.experts)));
        }
        for chosen in ids.chunks_exact(self.meta.used.max(1)) {
            if let Some(i) = (1..chosen.len()).find(|&i| chosen[..i].contains(&chosen[i])) {
                return Err(invalid(format!("expert {} twice", chosen[i]), "each once in a token's layer".into()));
            }
        }
        self.rounds.push(round);
        self.tokens.extend_from_slice(tokens);
        self.ids.extend_from_slice(ids);
        self.gates.extend_from_slice(gates);
        self.starts.push(self.tokens.len());
        Ok(())
    }

    /// Accesses of one token: layers times experts used.
    pub fn per_token(&self) -> usize {
        self.meta.layers * self.meta.used
    }

    /// Accesses in all.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there is no access.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Which tokens a round read.
    pub fn tokens_of(&self, round: usize) -> std::ops::Range<usize> {
        self.starts[round]..self.starts[round + 1]
    }

    /// The experts of a token in a layer, best first.
    pub fn chosen(&self, token: usize, layer: usize) -> &[u16] {
        let start = (token * self.meta.layers + layer) * self.meta.used;
        &self.ids[start..start + self.meta.used]
    }

    /// The accesses of a round in the order of time: index into `ids`, layer and expert.
    pub fn accesses(&self, round: usize) -> impl Iterator<Item = (usize, usize, u16)> + '_ {
        let (tokens, used) = (self.tokens_of(round), self.meta.used);
        (0..self.meta.layers).flat_map(move |layer| {
            tokens.clone().flat_map(move |token| {
                let start = (token * self.meta.layers + layer) * used;
                (start..start + used).map(move |i| (i, layer, self.ids[i]))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_survive_and_nonsense_becomes_a_gate() {
        for gate in [0, 1, 777, 65534, 65535] {
            assert_eq!(gate_to_fixed(gate_from_fixed(gate)), gate);
        }
        assert_eq!([f32::NAN, -1.0, 2.0, f32::INFINITY].map(gate_to_fixed), [0, 0, 65535, 65535],);
    }
}
