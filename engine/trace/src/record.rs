//! One round with all that belongs to it.

use crate::limits::{self, invalid};
use crate::meta::Meta;
use crate::round::{BRANCHES, LayerTimes, Move, Round, Token};
use crate::trace::TraceError;
use std::ops::Range;

/// A round with its tokens, their experts, and what else was recorded of it.
///
/// What may be left out is there in all rounds of a trace or in none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Record<'a> {
    /// The round.
    pub round: Round,
    /// Its tokens, [`Round::rows`] of them.
    pub tokens: &'a [Token],
    /// Experts, `[rows][layers][used]`, best first.
    pub ids: &'a [u16],
    /// Router weights in units of 1 / 65,535, `[rows][layers][used]`.
    pub gates: &'a [u16],
    /// Times, `[layers]`.
    pub layer_times: Option<&'a [LayerTimes]>,
    /// Whether the engine's cache held the expert, `[rows][layers][used]`.
    pub hits: Option<&'a [bool]>,
    /// What the engine's cache changed behind the round.
    pub moves: Option<&'a [Move]>,
}

/// Where the accesses of a round's rows lie in `[rows][layers][used]`, and their layers, in the order of time: by layer,
/// then row, then routing order.
pub(crate) fn in_time(rows: Range<usize>, meta: &Meta) -> impl Iterator<Item = (usize, usize)> + use<> {
    let (layers, used) = (meta.layers, meta.used);
    (0..layers).flat_map(move |layer| {
        rows.clone().flat_map(move |row| {
            let start = (row * layers + layer) * used;
            (start..start + used).map(move |i| (i, layer))
        })
    })
}

impl Record<'_> {
    /// The accesses in the order of time: index into [`Record::ids`], layer and expert.
    pub fn accesses(&self, meta: &Meta) -> impl Iterator<Item = (usize, usize, u16)> + '_ {
        in_time(0..self.tokens.len(), meta).map(|(i, layer)| (i, layer, self.ids[i]))
    }

    /// Whether this can be a round of a trace with this `meta`. `place` says where it stands, such as a file and a line.
    ///
    /// # Errors
    /// A length does not match, an expert is out of range or twice in a token's layer, tokens are marked as kept that are
    /// not the round's first ones, or a number is larger than any that was ever measured.
    pub fn check(&self, meta: &Meta, place: &str) -> Result<(), TraceError> {
        let round = &self.round;
        let place = format!("{place}: round {} of request {}", round.round, round.request);
        let rows = self.tokens.len();
        if rows != round.rows as usize || !(1..=limits::ROWS).contains(&rows) {
            let expected = format!("its {} rows, 1 to {} of them", round.rows, limits::ROWS);
            return Err(invalid(place, format!("{rows} tokens"), expected));
        }
        if round.committed > round.rows {
            return Err(invalid(place, format!("{} rows kept", round.committed), format!("at most its {rows}")));
        }
        for (row, token) in self.tokens.iter().enumerate() {
            let kept = row < round.committed as usize;
            if token.committed != kept {
                let says = |kept| if kept { "kept" } else { "not kept" };
                let found = format!("token {row} marked as {}", says(token.committed));
                return Err(invalid(place, found, format!("{}: the first {} are", says(kept), round.committed)));
            }
        }
        self.check_numbers(&place)?;
        self.check_experts(meta, &place)?;
        self.check_moves(meta, &place)
    }

    fn check_numbers(&self, place: &str) -> Result<(), TraceError> {
        let round = &self.round;
        let at_most = |field: &str, found: u64, most: u64| match found <= most {
            true => Ok(()),
            false => Err(invalid(format!("{place}, {field}"), found.to_string(), format!("at most {most}"))),
        };
        at_most("total_nanos", round.total_nanos, limits::NANOS)?;
        for (i, branch) in BRANCHES.iter().enumerate() {
            at_most(&format!("nanos of {branch}"), round.nanos[i], limits::NANOS)?;
            at_most(&format!("bytes of {branch}"), round.bytes[i], limits::BYTES)?;
        }
        for (layer, times) in self.layer_times.unwrap_or_default().iter().enumerate() {
            for (column, nanos) in times.columns() {
                at_most(&format!("layer {layer}, {column}"), nanos, limits::NANOS)?;
            }
        }
        Ok(())
    }

    fn check_experts(&self, meta: &Meta, place: &str) -> Result<(), TraceError> {
        let accesses = self.tokens.len() * meta.layers * meta.used;
        let lengths = [
            ("experts", self.ids.len(), accesses),
            ("router weights", self.gates.len(), accesses),
            ("hits", self.hits.map_or(accesses, <[bool]>::len), accesses),
            ("layers with times", self.layer_times.map_or(meta.layers, <[LayerTimes]>::len), meta.layers),
        ];
        for (what, found, expected) in lengths {
            if found != expected {
                return Err(invalid(place, format!("{found} {what}"), expected.to_string()));
            }
        }
        for (i, chosen) in self.ids.chunks_exact(meta.used.max(1)).enumerate() {
            let here = || format!("{place}, token {}, layer {}", i / meta.layers, i % meta.layers);
            for (at, &id) in chosen.iter().enumerate() {
                if usize::from(id) >= meta.experts {
                    return Err(invalid(here(), format!("expert {id}"), format!("one below {}", meta.experts)));
                }
                if chosen[..at].contains(&id) {
                    return Err(invalid(here(), format!("expert {id} twice"), "each once in a token's layer"));
                }
            }
        }
        Ok(())
    }

    fn check_moves(&self, meta: &Meta, place: &str) -> Result<(), TraceError> {
        for (i, moved) in self.moves.unwrap_or_default().iter().enumerate() {
            let here = || format!("{place}, move {i}");
            let came = moved.came.map(|expert| (moved.layer, expert));
            if came.is_none() && moved.left.is_none() {
                return Err(invalid(here(), "nothing that came or left", "at least one of both"));
            }
            for (layer, expert) in [Some((moved.layer, 0)), came, moved.left].into_iter().flatten() {
                if usize::from(layer) >= meta.layers || usize::from(expert) >= meta.experts {
                    let expected = format!("layers below {} and experts below {}", meta.layers, meta.experts);
                    return Err(invalid(here(), format!("expert {expert} of layer {layer}"), expected));
                }
            }
        }
        Ok(())
    }
}
