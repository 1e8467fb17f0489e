//! The window policy: where a round's drafts come from and how many rows its window has.
//!
//! A round verifies a window of `T` rows: the last committed token and `T - 1` drafts. It commits the drafts up to the
//! first rejected one and one token more, so between 1 and `T` tokens, and takes `cost(T)` seconds. Drafts come from the
//! draft layer (MTP), each by one more step that takes time, or from [prompt lookup](crate::lookup), which takes none.
//!
//! # What is maximised
//!
//! Over many rounds, tokens per second are `E[tokens] / E[seconds]` of a round (the renewal-reward theorem). The policy
//! that maximises a ratio also maximises `E[tokens] - r E[seconds]`, where `r` is the best ratio itself; and iterating
//! `r <- E[tokens] / E[seconds]` of the best policy under `r` converges to it (Dinkelbach). With `a_i` the probability
//! that draft `i` is accepted if those before it were, and `R_k = a_1 ... a_k`:
//!
//! - a further draft row is worth `R_k` tokens and costs `cost(k + 1) - cost(k)` seconds, so a draft that was made is
//!   verified if the sum of `R_i - r (cost(i + 1) - cost(i))` over it and what follows is above 0;
//! - a further step of the draft layer is worth the expectation of that over the confidence it may report, less `r`
//!   times the seconds of the step. The chain goes on while the best number of further steps is worth more than 0, and
//!   more than lookup's drafts in their place;
//! - lookup replaces the draft layer if `max_m (1 + R_1 + ... + R_m) / cost(m + 1)` is above `r`, the rule of the original
//!   engine without its margin of 3 %; and lookup's drafts follow the draft layer's where the two agree so far.
//!
//! `r` is the rate under the present estimates, not a running mean: a stretch of text has its tokens, and time saved in
//! one that copies is not a reason to draft less in the next one.
//!
//! # What is estimated
//!
//! - `cost(T)` and the draft layer's steps from the seconds that the caller measured (`cost.rs`);
//! - the draft layer's acceptance by the confidence it reported and by position, lookup's by the length of the match
//!   (`acceptance.rs`). Drafts that were not verified count as well, as far as the committed tokens tell. Counts decay,
//!   and a run of rejections that the estimates make very unlikely has them decay at once (`rate.rs`).
//!
//! With no evidence chains are short: a round has at most one draft more than first drafts were seen before.
//!
//! # Finding out
//!
//! A size whose cost is uncertain (never measured, or not lately) is taken at one standard deviation below its estimate if
//! that would make a better round possible. While drafts are not worth their cost, one is made now and then, later each
//! time, and compared with the next token; its row is verified only if it is worth it. Both are paid from a credit that
//! grows by [`Settings::probe_share`] of all seconds, which bounds what can be lost.
//!
//! # A round
//!
//! ```
//! use strata_policy::window::{Match, Offer, Outcome, Policy, Round, Settings};
//!
//! let mut policy = Policy::new(Settings::default());
//! let found = Some(Match { length: 9, drafts: 7 });
//! let plan = policy.plan(Offer { lookup: found, mtp: true, remaining: 100 });
//! let mut probabilities = Vec::new();
//! // `agreeing` is the match while the drafts made so far are its first ones.
//! let agreeing = found;
//! while policy.go_on(&plan, &probabilities, agreeing) {
//!     probabilities.push(0.9); // one step of the draft layer
//! }
//! let window = policy.window(&plan, &probabilities, agreeing);
//! // Verify window.rows() rows and commit; measure both; compare both kinds of drafts with what was committed.
//! policy.record(&Round {
//!     plan,
//!     window,
//!     accepted: window.drafts(),
//!     probabilities: &probabilities,
//!     mtp_agreed: probabilities.len(),
//!     lookup: found.map(|found| Outcome { found, agreed: window.drafts(), confirmed: probabilities.len() }),
//!     seconds_verify: 0.030,
//!     seconds_draft: 0.001,
//! });
//! ```

mod acceptance;
mod cost;
mod policy;
mod probe;
mod rate;
mod value;

use serde::{Deserialize, Serialize};

pub use policy::Policy;

/// The most rows a window may have.
pub const MAX_ROWS: usize = 16;

/// Where drafts may come from, or came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// From nowhere: plain decoding.
    None,
    /// From the draft layer.
    Mtp,
    /// From prompt lookup.
    Lookup,
    /// From both.
    #[default]
    Both,
}

impl Source {
    /// Whether this includes the draft layer.
    pub fn mtp(self) -> bool {
        matches!(self, Source::Mtp | Source::Both)
    }

    /// Whether this includes prompt lookup.
    pub fn lookup(self) -> bool {
        matches!(self, Source::Lookup | Source::Both)
    }
}

/// How the policy decides.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Where drafts may come from.
    pub source: Source,
    /// Drafts of every round, or none to decide by their worth. With both sources, lookup's are taken where there is a
    /// match and the draft layer's elsewhere.
    pub fixed: Option<usize>,
    /// The most rows of a window, from 1 to [`MAX_ROWS`]; other values are taken as the nearer of the two. The original
    /// engine's longest window has 8.
    pub max_rows: usize,
    /// Drafts of the draft layer below this probability end the chain and are not verified. 0 leaves it to their worth;
    /// the original engine's floor is 0.5.
    pub confidence_floor: f32,
    /// Share of all seconds that probes may lose, from 0 to 0.1.
    pub probe_share: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { source: Source::Both, fixed: None, max_rows: 8, confidence_floor: 0.0, probe_share: 0.01 }
    }
}

/// What prompt lookup found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Match {
    /// Tokens that agree with the end of the text.
    pub length: usize,
    /// Drafts that follow them.
    pub drafts: usize,
}

/// What a round may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// What prompt lookup found.
    pub lookup: Option<Match>,
    /// Whether the draft layer can draft now.
    pub mtp: bool,
    /// Tokens that may still be committed; a window of `T` rows commits up to `T`.
    pub remaining: usize,
}

/// A reason to do something other than what seems best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Probe {
    /// Make one draft to see whether drafts are accepted again.
    Draft,
    /// Take a window of this many rows to be cheaper than estimated.
    Cost(usize),
}

/// What a round sets out to do.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The most steps of the draft layer.
    pub steps: usize,
    /// Drafts of lookup that the window takes if the draft layer makes none.
    pub lookup: usize,
    /// The most rows the window may have.
    pub rows: usize,
    /// Tokens per second that drafts have to be worth.
    pub rate: f64,
    /// What the round finds out.
    pub probe: Option<Probe>,
}

/// The drafts of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Window {
    /// Leading drafts that are the draft layer's first ones.
    pub mtp: usize,
    /// Drafts behind them that are lookup's, from its draft number `mtp` (from 0) on.
    pub lookup: usize,
}

impl Window {
    /// Number of drafts.
    pub fn drafts(&self) -> usize {
        self.mtp.saturating_add(self.lookup)
    }

    /// Number of rows: the drafts and the last committed token.
    pub fn rows(&self) -> usize {
        self.drafts().saturating_add(1)
    }

    /// Where the drafts came from.
    pub fn source(&self) -> Source {
        match (self.mtp > 0, self.lookup > 0) {
            (false, false) => Source::None,
            (true, false) => Source::Mtp,
            (false, true) => Source::Lookup,
            (true, true) => Source::Both,
        }
    }
}

/// What became of a lookup proposal, whether it was used or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The proposal.
    pub found: Match,
    /// Its leading drafts that agree with the tokens committed in this round.
    pub agreed: usize,
    /// Its leading drafts that agree with the draft layer's.
    pub confirmed: usize,
}

/// A round as it went.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Round<'a> {
    /// What [`Policy::plan`] said.
    pub plan: Plan,
    /// The window that was verified.
    pub window: Window,
    /// Drafts accepted; one token more was committed.
    pub accepted: usize,
    /// The draft layer's probability of each draft it made, with those that were not verified.
    pub probabilities: &'a [f32],
    /// Leading drafts of the draft layer that agree with the tokens committed in this round ([`agreement`]).
    pub mtp_agreed: usize,
    /// What became of lookup's proposal, if there was one.
    pub lookup: Option<Outcome>,
    /// Seconds of the round but for the drafts.
    pub seconds_verify: f64,
    /// Seconds of all steps of the draft layer.
    pub seconds_draft: f64,
}

/// How many leading drafts agree with the tokens that were committed.
pub fn agreement(drafts: &[u32], committed: &[u32]) -> usize {
    drafts.iter().zip(committed).take_while(|(d, c)| d == c).count()
}
