//! Synthetic traces: routing made up to given statistics, for questions that no recorded trace answers.
//!
//! A generator cannot show what a model does. It shows what follows from a few statistics, and with them varied one by
//! one, which of them a policy's gain rests on. Nothing that is measured on a synthetic trace is a fact about a model.
//!
//! # The process
//!
//! Each layer ranks its experts, in an order of its own. The expert of rank r is used by a token with a probability in
//! proportion to exp(-t r / experts) / r^s (cut at 0.95). Of a token's experts a share r, counted in whole experts, are those of the token
//! before; they stay, and the others are drawn from experts that the token before did not use. Weights for leaving
//! and coming are such that popularity remains what it should be (`synth/popularity.rs`). A text is about one topic at a
//! time: a topic has the layers' ranking, but for a share of places, whose experts it exchanges among each other. So
//! inside a topic popularity falls as asked, and over a whole trace with several topics it is flatter. A topic ends after
//! any token with the same chance. Requests begin with a topic drawn for each and with nothing to reuse.
//!
//! Windows have a fixed number of rows. Drafts are kept with a given chance each, up to the first that is not. A rejected
//! draft has experts as if it had been the right token, and what follows continues from the last one kept.
//!
//! # The same on every machine
//!
//! The same parameters give the same bytes everywhere: random numbers are whole ones, and what precedes them is made of
//! operations whose rounding IEEE 754 prescribes (`synth/numbers.rs`).

mod fit;
mod generate;
mod numbers;
mod popularity;

pub use fit::{Fitted, Free, Parameter, Target, fit};
pub use numbers::Random;
pub(crate) use popularity::{logarithms, probabilities};

use crate::trace::{Trace, TraceError};

/// What a synthetic trace should be like.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SynthParams {
    /// Layers with routed experts, 1 to 65,535.
    pub layers: usize,
    /// Experts of each layer, 1 to 65,536.
    pub experts: usize,
    /// Experts that each token uses in each layer, 1 to all.
    pub used: usize,
    /// Tokens that are kept, of all requests together.
    pub tokens: usize,
    /// Requests, which share the tokens evenly; 1 to the number of tokens.
    pub requests: usize,
    /// Rows of a round: the last known token and drafts.
    pub window: usize,
    /// Chance of each draft to be kept when all before it were, 0 to 1.
    pub accept: f64,
    /// Exponent s of popularity inside a topic: rank r is used in proportion to 1 / r^s. 0 to 8.
    pub zipf: f64,
    /// Layers' exponents lie evenly from `zipf` less this to `zipf` and this, in a random order of layers; 0 to `zipf`.
    pub zipf_spread: f64,
    /// How popularity falls besides, exponentially: the last rank is used less by a factor of e to the power of this than it
    /// would be by `zipf` alone. 0 to 50; 0 is a plain power law, and with `zipf` 0 the fall is exponential alone.
    pub tail: f64,
    /// Share of a token's experts that are also the previous token's in the same layer, 0 to 1.
    pub reuse: f64,
    /// Topics in the whole trace, 1 to 4,096.
    pub topics: usize,
    /// Mean number of tokens before the topic changes, at least 1.
    pub topic_tokens: f64,
    /// Share of places in the ranking, each as likely, whose experts a topic exchanges: the share of popularity that
    /// moves when the topic changes. 0 to 1.
    pub topic_share: f64,
    /// Bytes of an expert, for the trace's description.
    pub expert_bytes: u64,
    /// Bytes of the weights that every token reads, for the trace's description.
    pub dense_bytes: u64,
    /// Start of the random numbers.
    pub seed: u64,
}

impl Default for SynthParams {
    /// The shape of the published model in Q2_0 (48 layers, 512 experts of 1,382,400 bytes, 10 used, about 3.15 GB of dense
    /// weights); a skew as measured for OLMoE (0.65, layers from 0.45 to 0.84); reuse within the 22 to 45 % that were
    /// published for models of this kind; one topic.
    fn default() -> SynthParams {
        SynthParams {
            layers: 48,
            experts: 512,
            used: 10,
            tokens: 20_000,
            requests: 20,
            window: 1,
            accept: 1.0,
            zipf: 0.65,
            zipf_spread: 0.2,
            tail: 0.0,
            reuse: 0.35,
            topics: 1,
            topic_tokens: 200.0,
            topic_share: 0.0,
            expert_bytes: 1_382_400,
            dense_bytes: 3_150_000_000,
            seed: 1,
        }
    }
}

/// The most topics: their rankings lie in memory.
const TOPICS: usize = 4096;

/// The most accesses of a trace, 8 bytes each or so.
const ACCESSES: u128 = 1 << 32;

/// The most places in all topics' rankings.
const PLACES: u128 = 1 << 28;

impl SynthParams {
    /// Says what cannot be.
    ///
    /// # Errors
    /// A parameter is out of range or not a number, or parameters contradict each other; the first such field is named.
    pub fn check(&self) -> Result<(), TraceError> {
        let whole = |field: &str, found: usize, low: usize, high: usize| {
            let fits = (low..=high).contains(&found);
            refuse_unless(fits, field, &found.to_string(), format!("a whole number from {low} to {high}"))
        };
        let real = |field: &str, found: f64, low: f64, high: f64| {
            // A comparison with NaN is false.
            let fits = found >= low && found <= high;
            refuse_unless(fits, field, &found.to_string(), format!("a number from {low} to {high}"))
        };
        whole("layers", self.layers, 1, usize::from(u16::MAX))?;
        whole("experts", self.experts, 1, usize::from(u16::MAX) + 1)?;
        whole("used", self.used, 1, self.experts)?;
        whole("tokens", self.tokens, 1, u32::MAX as usize)?;
        whole("requests", self.requests, 1, self.tokens)?;
        whole("window", self.window, 1, 4096)?;
        real("accept", self.accept, 0.0, 1.0)?;
        real("zipf", self.zipf, 0.0, 8.0)?;
        real("zipf_spread", self.zipf_spread, 0.0, self.zipf)?;
        real("tail", self.tail, 0.0, 50.0)?;
        real("reuse", self.reuse, 0.0, 1.0)?;
        whole("topics", self.topics, 1, TOPICS)?;
        real("topic_tokens", self.topic_tokens, 1.0, 1e9)?;
        real("topic_share", self.topic_share, 0.0, 1.0)?;
        // Rejected rows come on top, at most the window's for each token kept.
        let rows = if self.accept < 1.0 { self.window } else { 1 };
        let accesses = [self.tokens, rows, self.layers, self.used].map(|n| n as u128).iter().product::<u128>();
        refuse_unless(accesses <= ACCESSES, "tokens", &format!("{accesses} accesses"), format!("at most {ACCESSES}"))?;
        let places = [self.topics, self.layers, self.experts].map(|n| n as u128).iter().product::<u128>();
        refuse_unless(places <= PLACES, "topics", &format!("{places} ranks in all"), format!("at most {PLACES}"))?;
        // What a token does not keep comes from experts that the token before did not use.
        let least = 1.0 - (self.experts - self.used) as f64 / self.used as f64;
        refuse_unless(
            self.reuse >= least,
            "reuse",
            &self.reuse.to_string(),
            format!("at least {least}, since two tokens with {} of {} experts share some", self.used, self.experts),
        )
    }

    /// The trace. No round has times, and tokens have the number 0, since there is no text.
    ///
    /// # Errors
    /// [`SynthParams::check`] refuses the parameters.
    pub fn generate(&self) -> Result<Trace, TraceError> {
        self.check()?;
        generate::generate(self)
    }
}

fn refuse_unless(fits: bool, field: &str, found: &str, expected: String) -> Result<(), TraceError> {
    match fits {
        true => Ok(()),
        false => Err(TraceError::Invalid { place: format!("synthetic trace: {field}"), found: found.into(), expected }),
    }
}
