//! A trace in memory.

use crate::limits::invalid;
use crate::meta::Meta;
use crate::record::{Record, in_time};
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
    /// Rounds that happened and are not here, because they could not be written in time.
    pub lost: u64,
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
            lost: 0,
            starts: vec![0],
        }
    }

    /// Adds a round with its tokens and their experts and weights, `[rows][layers][used]`.
    ///
    /// # Errors
    /// See [`Record::check`]; or rounds before it have parts that this one lacks.
    pub fn push(&mut self, round: Round, tokens: &[Token], ids: &[u16], gates: &[u16]) -> Result<(), TraceError> {
        self.push_record(&Record { round, tokens, ids, gates, layer_times: None, hits: None, moves: None })
    }

    /// Adds a round with all that was recorded of it.
    ///
    /// # Errors
    /// See [`Record::check`]; or one of this round and those before it has a part that the other lacks.
    pub fn push_record(&mut self, record: &Record<'_>) -> Result<(), TraceError> {
        record.check(&self.meta, "the trace")?;
        self.add(record, "the trace")
    }

    /// Adds a round that was checked; `place` is where it is from.
    pub(crate) fn add(&mut self, record: &Record<'_>, place: &str) -> Result<(), TraceError> {
        if !self.rounds.is_empty() {
            let parts = [
                ("times of layers", !self.layer_times.is_empty(), record.layer_times.is_some()),
                ("hits", !self.hits.is_empty(), record.hits.is_some()),
                ("moves", !self.move_ends.is_empty(), record.moves.is_some()),
            ];
            for (what, before, now) in parts {
                if before != now {
                    let says = |has| if has { format!("with {what}") } else { format!("without {what}") };
                    let found = format!("round {} {}", self.rounds.len(), says(now));
                    return Err(invalid(place, found, format!("{}, as those before it", says(before))));
                }
            }
        }
        if let Some(moves) = record.moves {
            let most = || invalid(place, "more moves than are counted", "below 2^32 in all");
            let end = u32::try_from(self.moves.len() + moves.len()).ok().ok_or_else(most)?;
            self.move_ends.push(end);
            self.moves.extend_from_slice(moves);
        }
        self.rounds.push(record.round);
        self.tokens.extend_from_slice(record.tokens);
        self.ids.extend_from_slice(record.ids);
        self.gates.extend_from_slice(record.gates);
        self.layer_times.extend_from_slice(record.layer_times.unwrap_or_default());
        self.hits.extend_from_slice(record.hits.unwrap_or_default());
        self.starts.push(self.tokens.len());
        Ok(())
    }

    /// A round with all that was recorded of it.
    pub fn record(&self, round: usize) -> Record<'_> {
        let (tokens, layers) = (self.tokens_of(round), self.meta.layers);
        let accesses = tokens.start * self.per_token()..tokens.end * self.per_token();
        let moves = || {
            let end = |round: usize| self.move_ends.get(round).map(|&end| end as usize);
            let start = round.checked_sub(1).map_or(Some(0), end);
            self.moves.get(start?..end(round)?)
        };
        Record {
            round: self.rounds[round],
            tokens: &self.tokens[tokens],
            ids: &self.ids[accesses.clone()],
            gates: &self.gates[accesses.clone()],
            layer_times: self.layer_times.get(round * layers..(round + 1) * layers),
            hits: self.hits.get(accesses),
            moves: moves(),
        }
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
        in_time(self.tokens_of(round), &self.meta).map(|(i, layer)| (i, layer, self.ids[i]))
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
