//! What an answer depends on besides the prompt.

use crate::constraint::{Constraint, Follower};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::logprobs::MOST;
use crate::sampler::SamplingParams;
use strata_model::Ops;

/// What an answer depends on besides the prompt.
#[derive(Debug, Clone, Default)]
pub struct GenerateParams {
    /// How tokens are chosen.
    pub sampling: SamplingParams,
    /// Tokens of the answer at most; 0 is no limit but the context.
    pub max_tokens: usize,
    /// Goes on past the tokens that end an answer. Where there is a constraint they come only when it is met, and end
    /// the answer all the same.
    pub ignore_stop: bool,
    /// Shows control tokens as text, and thinking too.
    pub show_control: bool,
    /// Texts that end the answer and are no part of it, wherever tokens begin and end. They are looked for in what is
    /// answered, not in what is thought.
    pub stop: Vec<String>,
    /// What the answer must be. An answer that comes to its own end is of that form; one that is cut by a limit is the
    /// beginning of such a text.
    pub constraint: Option<Constraint>,
    /// Tokens of thinking at most; then it is closed.
    pub think_budget: Option<usize>,
    /// Tells how likely each token of the answer was, and so many of the likeliest ones, at most 20. It is the model's
    /// own opinion: before a constraint, biases, penalties and the temperature.
    pub logprobs: Option<usize>,
}

impl GenerateParams {
    /// Whether all of it can be obeyed.
    ///
    /// # Errors
    /// A parameter cannot be obeyed: [`Error::BadParameter`] names it, [`Error::BadConstraint`] says why it cannot be
    /// followed.
    pub fn check<O: Ops>(&self, engine: &Engine<O>) -> Result<()> {
        self.prepare(engine).map(drop)
    }

    /// Checks everything, and makes ready what follows the constraint.
    pub(crate) fn prepare<O: Ops>(&self, engine: &Engine<O>) -> Result<Option<Follower>> {
        let refuse = |name, why| Err(Error::BadParameter { name, why });
        if self.stop.iter().any(String::is_empty) {
            return refuse("stop", "a stop text is empty, expected at least one character".to_owned());
        }
        if let Some(n) = self.logprobs.filter(|&n| n > MOST) {
            return refuse("logprobs", format!("the {n} likeliest tokens are asked for, at most {MOST} can be told"));
        }
        let vocab = engine.model().config().vocab;
        if let Some((id, bias)) =
            self.sampling.logit_bias.iter().find(|(id, b)| *id as usize >= vocab || !b.is_finite())
        {
            let expected = format!("expected a token below {vocab} and a finite number");
            return refuse("logit_bias", format!("token {id} is given the bias {bias}, {expected}"));
        }
        self.constraint.as_ref().map(|c| engine.grammars()?.follow(c)).transpose()
    }
}
