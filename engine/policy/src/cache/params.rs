//! How a cache is set up: which rule, how much room, and when residency changes.

use super::error::CacheError;
use serde::{Deserialize, Serialize};

/// How it is decided what is resident.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "policy", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Rule {
    /// What the start ranking put in stays; empty slots take what is used first.
    Static,
    /// The least recently used expert makes room.
    Lru,
    /// The least frequently used expert makes room.
    Lfu {
        /// What use counts are multiplied by every `every` rounds; 1 = counts are never forgotten.
        decay: f32,
        /// Counted rounds between two decays.
        every: u32,
        /// Counts outlive residency; otherwise they start anew with each insertion, as libCacheSim's do.
        remember: bool,
        /// An expert used less often than what would have to leave for it is not inserted.
        bypass: bool,
    },
    /// The original engine's rule: every few rounds the most used experts that are missing replace the least used ones
    /// of their layer.
    Adaptive {
        /// Counted rounds between two adaptations.
        every: u32,
        /// Experts that come in at one adaptation at most, over all layers.
        swaps: u32,
        /// The least use of an expert that comes in.
        min_use: f32,
        /// How much more it must have been used than the one that leaves.
        gain: f32,
        /// What use counts are multiplied by after each adaptation.
        decay: f32,
    },
    /// S3-FIFO: a small queue on probation before the main one, and a list of what left it.
    S3Fifo,
    /// Ours: what is expected to save most time for its bytes, moved where that pays for the copy.
    Saving {
        /// Decay per round of the estimate that follows bursts.
        fast: f32,
        /// Decay per round of the estimate that follows popularity.
        slow: f32,
        /// Share of what the fast estimate sees beyond the slow one that is expected to come true.
        burst: f32,
        /// Rounds over which a move must pay for its copy.
        horizon: f32,
        /// Share of a copy's time that is counted as lost; the rest hides behind other work.
        copy: f32,
    },
    /// Knows the future: what is used again last makes room.
    Belady {
        /// An expert that is used again later than what would have to leave for it is not inserted.
        bypass: bool,
    },
    /// Room for everything, at once and without a budget: only the first use misses.
    Infinite,
}

impl Rule {
    /// The word for the rule in settings.
    pub fn name(&self) -> &'static str {
        match self {
            Rule::Static => "static",
            Rule::Lru => "lru",
            Rule::Lfu { .. } => "lfu",
            Rule::Adaptive { .. } => "adaptive",
            Rule::S3Fifo => "s3-fifo",
            Rule::Saving { .. } => "saving",
            Rule::Belady { .. } => "belady",
            Rule::Infinite => "infinite",
        }
    }

    /// Whether a running engine can follow the rule, which does not know the future.
    pub fn is_causal(&self) -> bool {
        !matches!(self, Rule::Belady { .. })
    }

    /// LFU as libCacheSim has it: counts since insertion, never forgotten.
    pub fn plain_lfu() -> Rule {
        Rule::Lfu { decay: 1.0, every: 1, remember: false, bypass: false }
    }

    /// The original engine's rule with its published settings.
    pub fn original() -> Rule {
        Rule::Adaptive { every: 4, swaps: 96, min_use: 2.0, gain: 1.5, decay: 0.7 }
    }

    /// Our rule with the values of `defaults.toml`, whose comments say where they come from.
    pub fn saving() -> Rule {
        Rule::Saving { fast: 0.5, slow: 0.995, burst: 0.0, horizon: 32.0, copy: 0.5 }
    }
}

/// Room for experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Capacity {
    /// That many experts, of whatever size.
    Slots(usize),
    /// That many bytes; each expert takes what its layer's experts take.
    Bytes(u64),
}

/// Who competes for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The experts of all layers.
    Global,
    /// The experts of a layer. The capacity is dealt out evenly, what is left over to the first layers.
    PerLayer,
}

/// When a victim stops being resident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Admission {
    /// When the newcomer's copy begins: the copy goes into the victim's slot.
    EvictFirst,
    /// When the newcomer has landed. Takes room for the copies under way beside the capacity.
    WaitForCopy,
}

/// All about a cache but the model's shape and the start.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheParams {
    /// How it is decided what is resident.
    pub rule: Rule,
    /// Room.
    pub capacity: Capacity,
    /// Who competes for it.
    pub scope: Scope,
    /// When a victim stops being resident.
    pub admission: Admission,
    /// Round boundaries from the one at which a copy begins to the one at which the newcomer is resident; 0 = the same.
    pub copy_rounds: u32,
    /// Copies that begin at one boundary at most; `None` = no limit.
    pub insert_budget: Option<u32>,
    /// Whether a prompt's rounds count as use and let residency change. In the original engine they do not.
    pub count_prefill: bool,
}

impl CacheParams {
    /// A rule and its room, and for the rest what the original engine does: one pool, a victim leaves first, and a copy
    /// that began after a round is there for the round after next, having run beside the next.
    pub fn new(rule: Rule, capacity: Capacity) -> CacheParams {
        CacheParams {
            rule,
            capacity,
            scope: Scope::Global,
            admission: Admission::EvictFirst,
            copy_rounds: 1,
            insert_budget: None,
            count_prefill: false,
        }
    }

    /// Checks that an engine can run the rule, while it decodes.
    ///
    /// # Errors
    /// The rule knows the future.
    pub fn must_be_causal(&self) -> Result<(), CacheError> {
        if self.rule.is_causal() {
            return Ok(());
        }
        let expected = "a policy that does not know the future; replays can have it";
        Err(CacheError::invalid("policy", self.rule.name(), expected))
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// One is out of its range; named as in settings.
    pub fn check(&self) -> Result<(), CacheError> {
        let number = |place: &str, value: f32, max: f32| {
            // A NaN is in no range.
            if (0.0..=max).contains(&value) {
                return Ok(());
            }
            Err(CacheError::invalid(place, value.to_string(), format!("a number from 0 to {max}")))
        };
        let rounds = |value: u32| {
            let error = || CacheError::invalid("adapt_every", "0", "at least 1 round");
            (value > 0).then_some(()).ok_or_else(error)
        };
        match self.rule {
            Rule::Lfu { decay, every, .. } => {
                number("decay", decay, 1.0)?;
                rounds(every)?;
            }
            Rule::Adaptive { every, min_use, gain, decay, .. } => {
                rounds(every)?;
                number("adapt_min_use", min_use, 1e6)?;
                number("adapt_gain", gain, 1e6)?;
                number("decay", decay, 1.0)?;
            }
            Rule::Saving { fast, slow, burst, horizon, copy } => {
                number("saving_fast", fast, 1.0)?;
                number("saving_slow", slow, 1.0)?;
                number("saving_burst", burst, 1.0)?;
                number("saving_horizon", horizon, 1e6)?;
                number("saving_copy", copy, 1e6)?;
            }
            Rule::Static | Rule::Lru | Rule::S3Fifo | Rule::Belady { .. } | Rule::Infinite => {}
        }
        if self.copy_rounds > 1 << 16 {
            return Err(CacheError::invalid("copy_rounds", self.copy_rounds.to_string(), "at most 65536 rounds"));
        }
        Ok(())
    }
}
