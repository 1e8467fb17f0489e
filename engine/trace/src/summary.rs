//! What happened in a trace, added up.

use crate::round::{BRANCHES, Branch, DraftSource, Phase};
use crate::trace::Trace;

/// What happened in a trace, added up: rounds, drafts, times.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Summary {
    /// Requests of which there is a round.
    pub requests: usize,
    /// Rounds that happened and are not in the trace.
    pub lost: u64,
    /// Chunks of prompts; `None` without any.
    pub prefill: Option<Part>,
    /// Rounds of answers; `None` without any.
    pub decode: Option<Part>,
    /// What became of drafts, by where they came from; those of which there were none are left out.
    pub drafts: Vec<Drafts>,
    /// Pairs of a layer and an expert that some token used.
    pub used_pairs: usize,
    /// All pairs there are.
    pub pairs: usize,
    /// Share of uses for which the engine's cache held the expert; `None` where that was not recorded.
    pub hit_rate: Option<f64>,
}

/// The rounds of one kind.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Part {
    /// How many.
    pub rounds: usize,
    /// Tokens that they read.
    pub tokens: usize,
    /// Of them those that were kept.
    pub kept: usize,
    /// Their time; 0 where it was not recorded.
    pub seconds: f64,
    /// Kept tokens per second; `None` without times.
    pub tokens_per_second: Option<f64>,
    /// Branches with time or bytes. They may overlap.
    pub branches: Vec<BranchTime>,
}

/// A branch of all rounds of one kind.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct BranchTime {
    /// Which.
    pub branch: Branch,
    /// Its time.
    pub seconds: f64,
    /// What part of the rounds' time that is; `None` without times.
    pub share: Option<f64>,
    /// Bytes that it read or moved.
    pub bytes: u64,
    /// Bytes per second; `None` where one of both is 0.
    pub bytes_per_second: Option<f64>,
}

/// Drafts of one source.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Drafts {
    /// Where they came from.
    pub source: DraftSource,
    /// Rounds with such drafts.
    pub rounds: usize,
    /// Drafts that were verified.
    pub verified: usize,
    /// Of them those that were kept.
    pub accepted: usize,
}

impl Summary {
    /// Adds up a trace.
    pub fn of(trace: &Trace) -> Summary {
        let mut requests: Vec<u32> = trace.rounds.iter().map(|round| round.request).collect();
        requests.sort_unstable();
        requests.dedup();
        let pairs = trace.meta.layers * trace.meta.experts;
        let mut used = vec![false; pairs];
        for chosen in trace.ids.chunks_exact((trace.per_token()).max(1)) {
            for (i, &expert) in chosen.iter().enumerate() {
                used[i / trace.meta.used * trace.meta.experts + usize::from(expert)] = true;
            }
        }
        let sources = [DraftSource::None, DraftSource::Mtp, DraftSource::Lookup, DraftSource::Both, DraftSource::Own];
        let hits = trace.hits.iter().filter(|hit| **hit).count();
        Summary {
            requests: requests.len(),
            lost: trace.lost,
            prefill: Part::of(trace, Phase::Prefill),
            decode: Part::of(trace, Phase::Decode),
            drafts: sources.into_iter().filter_map(|source| Drafts::of(trace, source)).collect(),
            used_pairs: used.iter().filter(|used| **used).count(),
            pairs,
            hit_rate: (!trace.hits.is_empty()).then(|| hits as f64 / trace.hits.len() as f64),
        }
    }

    /// Share of drafts that were accepted; `None` when there were none.
    pub fn acceptance(&self) -> Option<f64> {
        let verified: usize = self.drafts.iter().map(|d| d.verified).sum();
        let accepted: usize = self.drafts.iter().map(|d| d.accepted).sum();
        (verified > 0).then(|| accepted as f64 / verified as f64)
    }
}

impl Part {
    fn of(trace: &Trace, phase: Phase) -> Option<Part> {
        let rounds: Vec<_> = trace.rounds.iter().filter(|round| round.phase == phase).collect();
        if rounds.is_empty() {
            return None;
        }
        let seconds = |nanos: &mut dyn Iterator<Item = u64>| nanos.map(u128::from).sum::<u128>() as f64 / 1e9;
        let total = seconds(&mut rounds.iter().map(|round| round.total_nanos));
        let ratio = |part: f64, whole: f64| (part > 0.0 && whole > 0.0).then(|| part / whole);
        let mut branches = Vec::new();
        for (i, branch) in BRANCHES.into_iter().enumerate() {
            let time = seconds(&mut rounds.iter().map(|round| round.nanos[i]));
            let bytes = rounds.iter().fold(0u64, |sum, round| sum.saturating_add(round.bytes[i]));
            if time > 0.0 || bytes > 0 {
                let (share, bytes_per_second) = (ratio(time, total), ratio(bytes as f64, time));
                branches.push(BranchTime { branch, seconds: time, share, bytes, bytes_per_second });
            }
        }
        let kept = rounds.iter().map(|round| round.committed as usize).sum();
        Some(Part {
            rounds: rounds.len(),
            tokens: rounds.iter().map(|round| round.rows as usize).sum(),
            kept,
            seconds: total,
            tokens_per_second: ratio(kept as f64, total),
            branches,
        })
    }
}

impl Drafts {
    fn of(trace: &Trace, source: DraftSource) -> Option<Drafts> {
        let mut drafts = Drafts { source, rounds: 0, verified: 0, accepted: 0 };
        for (i, round) in trace.rounds.iter().enumerate().filter(|(_, round)| round.source == source) {
            let tokens = &trace.tokens[trace.tokens_of(i)];
            let verified = tokens.iter().filter(|token| token.drafted).count();
            drafts.rounds += usize::from(verified > 0 && round.phase == Phase::Decode);
            drafts.verified += verified;
            drafts.accepted += tokens.iter().filter(|token| token.drafted && token.committed).count();
        }
        (drafts.verified > 0).then_some(drafts)
    }
}
