//! Verifying drafts by rejection sampling (Leviathan, Kalman and Matias, 2023; Chen et al., 2023), the alternative to
//! shared noise.
//!
//! A draft d that was drawn from a distribution q is accepted with probability min(1, p(d) / q(d)), where p is what the
//! model says at its position; otherwise the token is drawn from max(0, p - q), normalised. Either way it has the
//! distribution p. Drafts that were not drawn at all (lookup's) are point masses: q(d) = 1. Behind the last draft the
//! token is drawn from p.
//!
//! The text then depends on windows and drafts, but its distribution does not, on two conditions. What is drawn must be
//! independent: drafts, verdicts and tokens each have noise of their own, and the drafts of each round as well, because
//! a position that is drafted again must not get a draft that was seen before. And whether a draft is verified must not
//! depend on the draft itself, only on what comes before it: those that pass a selection are no longer drawn from q.

use crate::sampler::{Sampler, gumbel, mix, uniform};
use strata_model::Candidates;

/// How drafts are verified when tokens are drawn at random; at temperature 0 there is no difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SpecSampling {
    /// The model and the draft layer draw with the same noise; a draft is accepted where they draw the same. The text is
    /// the same with and without drafts.
    #[default]
    Noise,
    /// Rejection sampling. The text depends on windows and drafts, its distribution does not.
    Reject,
}

/// Probabilities by token, tokens ascending; those that are not named have none.
pub(crate) type Probabilities = Vec<(u32, f64)>;

/// Keys of the noise of drafts and of verdicts: any constants that differ.
const DRAFTS: u64 = 0x6472_6166_7473_2e2e;
const VERDICTS: u64 = 0x7665_7264_6963_7473;

impl Sampler {
    /// What [`pick`](Sampler::pick) draws from: probabilities by token, tokens ascending. Those that are not named have
    /// none.
    pub fn distribution(&self, logits: &[f32], sequence: &[u32], answered: usize) -> Vec<(u32, f64)> {
        if self.params().temp <= 0.0 {
            return vec![(self.pick(logits, sequence, answered), 1.0)];
        }
        self.over(logits.len(), |i| i as u32, logits, sequence, answered)
    }

    /// The token for the position behind `sequence`, given a draft for it, by rejection sampling. `q` is what the draft
    /// was drawn from, tokens ascending; without it the draft counts as certain.
    ///
    /// Over all seeds the token has the model's [`distribution`](Sampler::distribution) if the draft was drawn from `q`.
    pub fn judge(
        &self,
        logits: &[f32],
        sequence: &[u32],
        answered: usize,
        draft: u32,
        q: Option<&[(u32, f64)]>,
    ) -> u32 {
        let params = self.params();
        if params.temp <= 0.0 {
            return self.pick(logits, sequence, answered);
        }
        let p = self.distribution(logits, sequence, answered);
        let drafted = |token: u32| q.map_or(f64::from(u8::from(token == draft)), |q| probability(q, token));
        let position = sequence.len() as u64;
        // A product instead of the quotient: q may be 0 here, where a caller's draft was not drawn from its q.
        if uniform(mix(mix(params.seed ^ VERDICTS) ^ position)) * drafted(draft) < probability(&p, draft) {
            return draft;
        }
        let residual = p.iter().map(|&(token, share)| (token, share - drafted(token)));
        // With p = q but for rounding there is nothing left over.
        let token = draw(residual, params.seed, position);
        token.or_else(|| draw(p.iter().copied(), params.seed, position)).unwrap_or(draft)
    }

    /// Draws one of the draft layer's candidates, in the round that began with `known` tokens. Returns its index and
    /// what it was drawn from.
    pub(crate) fn draw_candidate(
        &self,
        candidates: &Candidates<'_>,
        sequence: &[u32],
        answered: usize,
        known: usize,
    ) -> (usize, Probabilities) {
        let logits = candidates.logits;
        let q = self.over(logits.len(), |i| candidates.token(i), logits, sequence, answered);
        let token = self.draw_draft(&q, sequence.len(), known);
        (token.and_then(|token| index(logits.len(), |i| candidates.token(i), token)).unwrap_or(0), q)
    }

    /// A draft for `position`, made when `known` tokens were known.
    fn draw_draft(&self, q: &[(u32, f64)], position: usize, known: usize) -> Option<u32> {
        let seed = mix(mix(self.params().seed ^ DRAFTS) ^ known as u64);
        draw(q.iter().copied(), seed, position as u64)
    }

    /// The distribution over these tokens, which ascend, by their logits.
    fn over(
        &self,
        count: usize,
        token: impl Fn(usize) -> u32,
        logits: &[f32],
        sequence: &[u32],
        answered: usize,
    ) -> Probabilities {
        let logit = |id: u32| logits.get(index(count, &token, id)?).copied();
        let changed = self.penalties(logit, sequence, answered);
        let temp = f64::from(self.params().temp);
        let scaled = logits.iter().enumerate().map(|(i, &l)| {
            let id = token(i);
            (id, f64::from(changed.get(&id).copied().unwrap_or(l)) / temp)
        });
        let mut kept = self.filter(scaled.collect());
        let top = kept.iter().map(|t| t.1).fold(f64::NEG_INFINITY, f64::max);
        // What is no number compares as false, here and in `draw`, and is left out.
        kept.iter_mut().for_each(|t| t.1 = (t.1 - top).exp());
        kept.retain(|t| t.1 > 0.0);
        let total: f64 = kept.iter().map(|t| t.1).sum();
        kept.iter_mut().for_each(|t| t.1 /= total);
        kept.sort_unstable_by_key(|t| t.0);
        kept
    }
}

/// Where a token stands among `count` ascending ones.
fn index(count: usize, token: impl Fn(usize) -> u32, id: u32) -> Option<usize> {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        match token(middle).cmp(&id) {
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Equal => return Some(middle),
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    None
}

fn probability(of: &[(u32, f64)], token: u32) -> f64 {
    index(of.len(), |i| of[i].0, token).map_or(0.0, |i| of[i].1)
}

/// Draws a token in proportion to these weights, with the noise of a position; `None` if none is above 0.
fn draw(weights: impl Iterator<Item = (u32, f64)>, seed: u64, position: u64) -> Option<u32> {
    let noisy = |(token, weight): (u32, f64)| (token, weight.ln() + gumbel(seed, position, token));
    weights.filter(|w| w.1 > 0.0).map(noisy).max_by(|a, b| a.1.total_cmp(&b.1)).map(|best| best.0)
}
