//! What is counted, for who asks how things stand.

use crate::backend::{BranchTime, Counters, Degradation, Drafts, RefusalKind, Round, Speed};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use strata_runtime::{Answer, Pace};

/// Answers whose speeds are kept.
const SPEEDS: usize = 32;

/// Rounds whose times are kept.
const ROUNDS: usize = 128;

/// How long to wait before another try, when nothing is known of how long answers take.
const FIRST_WAIT: Duration = Duration::from_secs(5);

/// What was counted since the start.
#[derive(Default)]
pub(super) struct Board {
    pub(super) counters: Counters,
    pub(super) drafts: Drafts,
    speeds: VecDeque<Speed>,
    rounds: VecDeque<Round>,
    /// Seconds of the last answers, from the queue to the end.
    durations: VecDeque<f64>,
    /// By name: how often, and what it means.
    degradations: BTreeMap<String, (u64, String)>,
}

impl Board {
    /// Something was refused, or failed.
    pub(super) fn refused(&mut self, kind: RefusalKind) {
        *self.counters.refused.entry(kind).or_default() += 1;
    }

    /// Something is worse than it could be, once more.
    pub(super) fn degraded(&mut self, name: &str, text: String) {
        let entry = self.degradations.entry(name.to_owned()).or_default();
        *entry = (entry.0 + 1, text);
    }

    /// A pass is over.
    pub(super) fn round(&mut self, pace: Pace) {
        let rest = (pace.seconds - pace.draft_seconds - pace.commit_seconds).max(0.0);
        let branches = [("draft", pace.draft_seconds), ("model", rest), ("commit", pace.commit_seconds)];
        let branches = branches.map(|(name, seconds)| BranchTime { name: name.to_owned(), ms: seconds * 1e3 });
        let round = Round { window: pace.window, committed: pace.committed, branches: branches.into() };
        keep(&mut self.rounds, round, ROUNDS);
    }

    /// An answer is over, `cancelled` or not.
    pub(super) fn answered(&mut self, answer: &Answer, drafts: Drafts, cancelled: bool, took: Duration) {
        let t = &answer.timings;
        self.counters.prompt_tokens += t.prompt_tokens as u64;
        self.counters.cached_tokens += t.cached_tokens as u64;
        self.counters.output_tokens += t.output_tokens as u64;
        self.drafts.proposed += drafts.proposed;
        self.drafts.accepted += drafts.accepted;
        self.drafts.rounds += drafts.rounds;
        if cancelled {
            self.counters.cancelled += 1;
            return;
        }
        keep(&mut self.durations, took.as_secs_f64(), SPEEDS);
        let speed = Speed {
            prompt_tokens: t.prompt_tokens,
            cached_tokens: t.cached_tokens,
            prompt_rate: t.prompt_rate(),
            output_tokens: t.output_tokens,
            output_rate: t.output_rate(),
        };
        keep(&mut self.speeds, speed, SPEEDS);
        let failures = answer.speculation.failures;
        if failures > 0 {
            let text = "the draft layer failed in answers, so its drafts were left out; answers are right, and slower";
            self.degraded("draft_layer_failed", text.to_owned());
        }
    }

    /// How long it may take until one place of a queue with so many before it is free.
    pub(super) fn wait(&self, before: usize, parallel: usize) -> Duration {
        if self.durations.is_empty() {
            return FIRST_WAIT;
        }
        let mean = self.durations.iter().sum::<f64>() / self.durations.len() as f64;
        // One place is free when the next answer is done; whoever comes back then may find it taken, so a little more.
        let seconds = mean * (1.0 + before as f64 / 8.0) / parallel.max(1) as f64;
        Duration::from_secs_f64(seconds.clamp(1.0, 600.0))
    }

    pub(super) fn speeds(&self) -> Vec<Speed> {
        self.speeds.iter().copied().collect()
    }

    pub(super) fn rounds(&self) -> Vec<Round> {
        self.rounds.iter().cloned().collect()
    }

    pub(super) fn degradations(&self) -> impl Iterator<Item = Degradation> {
        let entry = |(name, (count, text)): (&String, &(u64, String))| Degradation {
            name: name.clone(),
            count: *count,
            text: text.clone(),
        };
        self.degradations.iter().map(entry)
    }
}

fn keep<T>(last: &mut VecDeque<T>, item: T, most: usize) {
    if last.len() >= most {
        last.pop_front();
    }
    last.push_back(item);
}
