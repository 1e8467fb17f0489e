//! What an engine recorded of its cache, against the replay.

use super::accesses::Accesses;
use super::run::cache;
use super::start::StartState;
use crate::error::SimError;
use std::fmt;
use strata_policy::cache::CacheParams;
use strata_trace::{Move, Trace};

/// The first place where a recording and its replay part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// An access.
    Hit {
        /// Request and round in it.
        round: (u32, u32),
        /// Number of the access in the trace, in the order of time.
        access: usize,
        /// Position of the token in its sequence.
        position: u32,
        /// Layer and expert.
        expert: (usize, u16),
        /// Whether the engine had it; the replay says the opposite.
        recorded: bool,
    },
    /// A change of what is resident; `None` = there was no further one.
    Move {
        /// Request and round in it.
        round: (u32, u32),
        /// Number of the change in its round.
        number: usize,
        /// What the engine recorded.
        recorded: Option<Move>,
        /// What the replay has.
        replayed: Option<Move>,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Hit { round: (request, round), access, position, expert: (layer, expert), recorded } => {
                let (was, is) = if *recorded { ("a hit", "a miss") } else { ("a miss", "a hit") };
                write!(
                    f,
                    "request {request}, round {round}, token at {position}, layer {layer}, expert {expert} (access \
                     {access}): {was} in the recording, {is} in the replay"
                )
            }
            Difference::Move { round: (request, round), number, recorded, replayed } => write!(
                f,
                "request {request}, round {round}, change {number}: {} in the recording, {} in the replay",
                MoveText(*recorded),
                MoveText(*replayed)
            ),
        }
    }
}

struct MoveText(Option<Move>);

impl fmt::Display for MoveText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Move { layer, came, left }) = self.0 else { return f.write_str("none") };
        match came {
            Some(expert) => write!(f, "layer {layer} expert {expert} came")?,
            None => f.write_str("nothing came")?,
        }
        match left {
            Some((layer, expert)) => write!(f, " and layer {layer} expert {expert} left"),
            None => f.write_str(" and nothing left"),
        }
    }
}

/// Replays a recording under the cache that made it, and returns the first difference, if there is one.
///
/// # Errors
/// The trace holds no hits, or as many as it should not; or the cache cannot be made.
pub fn check(trace: &Trace, params: &CacheParams, start: &StartState) -> Result<Option<Difference>, SimError> {
    let invalid =
        |place: &str, found: String, expected: String| SimError::Invalid { place: place.into(), found, expected };
    if trace.hits.len() != trace.len() {
        let expected = format!("one for each of {} accesses", trace.len());
        return Err(invalid("hits", format!("{} recorded hits and misses", trace.hits.len()), expected));
    }
    if !trace.move_ends.is_empty() && trace.move_ends.len() != trace.rounds.len() {
        let expected = format!("those of {} rounds", trace.rounds.len());
        return Err(invalid("moves", format!("changes of {} rounds", trace.move_ends.len()), expected));
    }
    let accesses = Accesses::from_trace(trace)?;
    let mut cache = cache(&accesses, params, start)?;
    let (mut hits, mut access, mut moves) = (Vec::new(), 0, 0);
    for (i, round) in trace.rounds.iter().enumerate() {
        hits.clear();
        let name = (round.request, round.round);
        let changes = cache.round(round.phase, accesses.round(i), &mut hits).iter();
        let replayed = changes.map(|change| change.to_move(accesses.shape()));
        let per_token = trace.per_token().max(1);
        for ((at, layer, expert), &hit) in trace.accesses(i).zip(&hits) {
            if trace.hits[at] != hit {
                let position = trace.tokens[at / per_token].position;
                let expert = (layer, expert);
                return Ok(Some(Difference::Hit { round: name, access, position, expert, recorded: !hit }));
            }
            access += 1;
        }
        let Some(&end) = trace.move_ends.get(i) else { continue };
        let recorded = trace.moves.get(moves..end as usize).ok_or_else(|| {
            let expected = format!("a number from {moves} to {}", trace.moves.len());
            invalid("moves", format!("round {i} ending at change {end}"), expected)
        })?;
        moves = end as usize;
        let mut recorded = recorded.iter().copied();
        let mut replayed = replayed;
        for number in 0.. {
            let pair = (recorded.next(), replayed.next());
            match pair {
                (None, None) => break,
                (recorded, replayed) if recorded != replayed => {
                    return Ok(Some(Difference::Move { round: name, number, recorded, replayed }));
                }
                _ => {}
            }
        }
    }
    Ok(None)
}
