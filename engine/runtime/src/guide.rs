//! What decides about the next token besides the model: thinking and its budget, and the constraint on the answer.
//!
//! All of it is a function of the tokens so far. The decode loop asks for each row after the tokens before it are
//! chosen, so drafts change nothing: a row that is looked at has only drafts before it that were chosen.

use crate::constraint::{Allowed, Follower};
use crate::engine::Engine;
use crate::error::Result;
use crate::params::GenerateParams;
use strata_model::Ops;

/// What a token is in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// It opens the thinking.
    Opens,
    /// It is thought.
    Thought,
    /// It closes the thinking.
    Closes,
    /// It is said.
    Said,
    /// It is said, and ends the thinking before it.
    SaidAtOnce,
}

/// What the next token can be.
pub(crate) enum Rule {
    /// Any.
    Free,
    /// This one.
    Only(u32),
    /// Some.
    Among(Allowed),
}

/// What decides about an answer's tokens besides the model.
pub(crate) struct Guide {
    /// The tokens that open and close thinking.
    think: Option<(u32, u32)>,
    /// The token that opens a call of a tool.
    call: Option<u32>,
    thinking: bool,
    /// Whether something was said that can be seen.
    said: bool,
    thinking_tokens: usize,
    budget: Option<usize>,
    follower: Option<Follower>,
    over: bool,
}

impl Guide {
    /// The guide of an answer to this prompt.
    ///
    /// # Errors
    /// A parameter cannot be obeyed.
    pub(crate) fn new<O: Ops>(engine: &Engine<O>, prompt: &[u32], params: &GenerateParams) -> Result<Guide> {
        let follower = params.prepare(engine)?;
        let think = engine.think_ids();
        let thinking = think.is_some_and(|(open, close)| {
            prompt.iter().rev().find(|&&t| t == open || t == close).is_some_and(|&t| t == open)
                && !prompt.iter().rev().take_while(|&&t| t != open).any(|t| engine.stop_ids().contains(t))
        });
        Ok(Guide {
            think,
            call: engine.call_id(),
            thinking,
            said: false,
            thinking_tokens: 0,
            budget: params.think_budget,
            follower,
            over: false,
        })
    }

    /// Whether the model thinks now.
    pub(crate) fn thinking(&self) -> bool {
        self.thinking
    }

    /// Tokens of thinking so far, those that open and close it not counted.
    pub(crate) fn thinking_tokens(&self) -> usize {
        self.thinking_tokens
    }

    /// Whether the answer must be of some form.
    pub(crate) fn constrained(&self) -> bool {
        self.follower.is_some()
    }

    /// Whether the answer is whole, so that nothing can follow.
    pub(crate) fn over(&self) -> bool {
        self.over
    }

    /// What the next token can be.
    ///
    /// # Errors
    /// The constraint cannot be followed any further.
    pub(crate) fn rule(&mut self) -> Result<Rule> {
        if let (true, Some((_, close))) = (self.thinking, self.think) {
            if self.budget.is_some_and(|budget| self.thinking_tokens >= budget) {
                return Ok(Rule::Only(close));
            }
            // Who ends the answer while thinking has not answered.
            return Ok(self.follower.as_ref().map_or(Rule::Free, |f| Rule::Among(f.not_yet())));
        }
        match &mut self.follower {
            Some(follower) => Ok(Rule::Among(follower.allowed()?)),
            None => Ok(Rule::Free),
        }
    }

    /// Takes the next token, which does not end the answer; `blank` if nothing of it can be seen.
    ///
    /// # Errors
    /// The constraint cannot be followed any further.
    pub(crate) fn advance(&mut self, token: u32, blank: bool) -> Result<Part> {
        if let Some((open, close)) = self.think {
            if self.thinking && token == close {
                self.thinking = false;
                self.follower.iter_mut().for_each(Follower::begin_behind_thinking);
                return Ok(Part::Closes);
            }
            // Models that call a tool in the middle of a thought mean the call.
            if self.thinking && Some(token) == self.call && self.follower.is_none() {
                (self.thinking, self.said) = (false, true);
                return Ok(Part::SaidAtOnce);
            }
            if self.thinking {
                self.thinking_tokens += 1;
                return Ok(Part::Thought);
            }
            if token == open && !self.said && self.follower.is_none() {
                self.thinking = true;
                return Ok(Part::Opens);
            }
        }
        self.said |= !blank;
        if let Some(follower) = &mut self.follower {
            self.over = follower.advance(token)?;
        }
        Ok(Part::Said)
    }
}
