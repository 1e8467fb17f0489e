//! What a replay starts from.

use super::accesses::{Accesses, RoundSpan};
use crate::error::SimError;
use strata_policy::cache::{Costs, Key, Shape, resident};
use strata_trace::Meta;

/// The state before the first round. The default is a cold cache.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StartState {
    /// Experts to fill the cache with, best first.
    pub ranking: Vec<Key>,
    /// What misses and copies cost, for the rule that weighs them; `None` = in proportion to size.
    pub costs: Option<Costs>,
}

impl StartState {
    /// A cache filled in this order.
    pub fn ranked(ranking: Vec<Key>) -> StartState {
        StartState { ranking, costs: None }
    }

    /// What a trace says that its cache held before the first round.
    ///
    /// # Errors
    /// The trace's header is no model's.
    pub fn recorded(meta: &Meta) -> Result<StartState, SimError> {
        let shape = Shape::new(meta.layers, meta.experts, meta.expert_bytes.clone())?;
        Ok(StartState::ranked(resident(meta, &shape)))
    }
}

/// The experts that rounds of a trace use, the most used first; of those used equally often the lower key first. What
/// they do not use is not in it.
///
/// `learn` says by number and span which rounds count. Whoever ranks by the rounds that are then replayed knows the
/// answers beforehand: leave out the request that is replayed, or hold a part out.
pub fn popularity(accesses: &Accesses, learn: impl Fn(usize, &RoundSpan) -> bool) -> Vec<Key> {
    let mut uses = vec![0u64; accesses.shape().keys()];
    for (i, _) in accesses.rounds().iter().enumerate().filter(|(i, span)| learn(*i, span)) {
        for &key in accesses.round(i) {
            uses[key as usize] += 1;
        }
    }
    let mut ranking: Vec<Key> = (0..uses.len() as Key).filter(|&key| uses[key as usize] > 0).collect();
    ranking.sort_by_key(|&key| (std::cmp::Reverse(uses[key as usize]), key));
    ranking
}

/// Reads a ranking: a line for each expert, best first, with its layer and its number in the layer, apart by spaces.
/// What follows a `#` is a comment.
///
/// # Errors
/// A line holds something else, an expert that the model does not have, or one that was named before; `file` and the
/// line are named.
pub fn ranking_from_text(file: &str, text: &str, shape: &Shape) -> Result<Vec<Key>, SimError> {
    let mut ranking = Vec::new();
    let mut line_of = vec![0; shape.keys()];
    for (i, line) in text.lines().enumerate() {
        let invalid = |found: String, expected: String| SimError::Invalid {
            place: format!("{file} line {}", i + 1),
            found,
            expected,
        };
        let content = line.split('#').next().unwrap_or("");
        let numbers: Vec<Option<usize>> = content.split_whitespace().map(|word| word.parse().ok()).collect();
        let (layer, expert) = match numbers[..] {
            [] => continue,
            [Some(layer), Some(expert)] => (layer, expert),
            _ => return Err(invalid(format!("{:?}", content.trim()), "a layer and an expert".into())),
        };
        if layer >= shape.layers() || expert >= shape.experts() {
            let expected = format!("a layer below {} and an expert below {}", shape.layers(), shape.experts());
            return Err(invalid(format!("layer {layer}, expert {expert}"), expected));
        }
        let key = shape.key(layer, expert);
        let before = std::mem::replace(&mut line_of[key as usize], i + 1);
        if before > 0 {
            let expected = format!("each expert once, and it stands in line {before}");
            return Err(invalid(format!("layer {layer}, expert {expert} again"), expected));
        }
        ranking.push(key);
    }
    Ok(ranking)
}
