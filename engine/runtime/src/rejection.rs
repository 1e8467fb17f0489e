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
        let changed = self.changes(logit, sequence, answered);
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

#[cfg(test)]
#[path = "../tests/common/chi_square.rs"]
mod chi_square;

#[cfg(test)]
mod tests {
    use super::chi_square::{LEAST, p_value};
    use super::*;
    use crate::sampler::SamplingParams;
    use std::collections::BTreeMap;

    const DRAWS: u64 = 100_000;

    fn logits(token: impl Fn(usize) -> u64, count: usize, spread: f64) -> Vec<f32> {
        (0..count).map(|i| (spread * (uniform(mix(token(i))) - 0.5)) as f32).collect()
    }

    fn with(seed: u64, change: impl FnOnce(&mut SamplingParams)) -> Sampler {
        let mut params = SamplingParams { temp: 1.0, seed, ..SamplingParams::default() };
        change(&mut params);
        Sampler::new(params)
    }

    /// Counts what `token` gives for each sampler, and checks that it has the model's distribution.
    fn follows(
        name: &str,
        logits: &[f32],
        change: &dyn Fn(&mut SamplingParams),
        token: impl Fn(&Sampler, &[u32]) -> u32,
    ) {
        let sequence = [3, 1, 1, 5];
        let expected = with(0, change).distribution(logits, &sequence, 2).into_iter().collect();
        let mut counts = BTreeMap::new();
        for seed in 0..DRAWS {
            *counts.entry(token(&with(seed, change), &sequence)).or_insert(0) += 1;
        }
        let p = p_value(&counts, &expected, DRAWS);
        assert!(p > LEAST, "{name}: p = {p}");
    }

    type Change = (&'static str, fn(&mut SamplingParams));

    const CHANGES: [Change; 7] = [
        ("temperature 1", |_| ()),
        ("temperature 0.4", |p| p.temp = 0.4),
        ("temperature 2.5", |p| p.temp = 2.5),
        ("top-k", |p| p.top_k = 4),
        ("top-p", |p| p.top_p = 0.8),
        ("min-p", |p| (p.temp, p.min_p) = (1.5, 0.2)),
        ("penalties", |p| (p.repeat_penalty, p.presence_penalty, p.top_k) = (1.5, 0.7, 8)),
    ];

    #[test]
    fn tokens_have_the_models_distribution() {
        let model = logits(|i| i as u64, 12, 6.0);
        let other = logits(|i| 1000 + i as u64, 12, 6.0);
        // A sharper layer, a duller one, one of another mind, and the model itself.
        let sharper: Vec<f32> = model.iter().map(|l| 3.0 * l).collect();
        let duller: Vec<f32> = model.iter().map(|l| 0.3 * l).collect();
        for (name, change) in CHANGES {
            for (layer, drafter) in [("sharper", &sharper), ("duller", &duller), ("other", &other), ("same", &model)] {
                follows(&format!("{name}, {layer}"), &model, &change, |sampler, sequence| {
                    let q = sampler.distribution(drafter, sequence, 2);
                    let draft = sampler.draw_draft(&q, sequence.len(), sequence.len()).unwrap();
                    sampler.judge(&model, sequence, 2, draft, Some(&q))
                });
            }
            for draft in [0, 5, 9, 10_000] {
                follows(&format!("{name}, {draft} for certain"), &model, &change, |sampler, sequence| {
                    sampler.judge(&model, sequence, 2, draft, None)
                });
            }
        }
    }

    /// A decoder on logits that are a function of the text, as sessions decode: chains of drafts, and of each round as
    /// many as what was drawn before suggests, dropped drafts included.
    #[test]
    fn texts_have_the_models_distribution() {
        const LENGTH: usize = 5;
        const VOCAB: usize = 3;
        let at = |text: &[u32], who: u64| {
            let key = text.iter().fold(who, |key, &t| mix(key ^ u64::from(t)));
            logits(|i| key.wrapping_add(i as u64), VOCAB, 4.0)
        };
        let mut expected: BTreeMap<Vec<u32>, f64> = BTreeMap::from([(Vec::new(), 1.0)]);
        for _ in 0..LENGTH {
            let grown = expected.iter().flat_map(|(text, share)| {
                let next = with(0, |_| ()).distribution(&at(text, 1), text, 0);
                next.into_iter().map(move |(token, p)| ([&text[..], &[token]].concat(), p * share))
            });
            expected = grown.collect();
        }
        let mut counts = BTreeMap::new();
        for seed in 0..DRAWS {
            let (sampler, mut text, mut most) = (with(seed, |_| ()), Vec::new(), 3);
            while text.len() < LENGTH {
                let (known, mut drafted, mut made) = (text.len(), text.clone(), Vec::new());
                while made.len() < most {
                    let q = sampler.distribution(&at(&drafted, 2), &drafted, 0);
                    let draft = sampler.draw_draft(&q, drafted.len(), known).unwrap();
                    drafted.push(draft);
                    made.push((draft, q));
                }
                most = if made.last().is_some_and(|(draft, _)| *draft == 0) { 1 } else { 3 };
                for row in 0..=made.len() {
                    let logits = at(&text, 1);
                    let token = match made.get(row) {
                        Some((draft, q)) => sampler.judge(&logits, &text, 0, *draft, Some(q)),
                        None => sampler.pick(&logits, &text, 0),
                    };
                    text.push(token);
                    if made.get(row).is_none_or(|(draft, _)| *draft != token) {
                        break;
                    }
                }
            }
            text.truncate(LENGTH);
            *counts.entry(text).or_insert(0) += 1;
        }
        let p = p_value(&counts, &expected, DRAWS);
        assert!(p > LEAST, "p = {p}");
    }

    #[test]
    fn odd_drafts_are_judged_all_the_same() {
        let logits = [0.0, 1.0, f32::NEG_INFINITY, -2.0];
        for seed in 0..1000 {
            let sampler = with(seed, |_| ());
            // A draft that its own distribution does not name, and distributions of nothing.
            assert!(sampler.judge(&logits, &[7], 0, 1, Some(&[(0, 1.0)])) < 4);
            assert!(sampler.judge(&logits, &[7], 0, 1, Some(&[(1, f64::MIN_POSITIVE)])) == 1);
            assert_eq!(sampler.judge(&logits, &[7], 0, 1, Some(&[])), 1, "its quotient is infinite");
            assert_ne!(sampler.judge(&logits, &[7], 0, 2, Some(&[(2, 1.0)])), 2, "the model never says it");
            assert_eq!(sampler.judge(&[f32::NEG_INFINITY; 2], &[7], 0, 1, None), 1, "there is no distribution");
            // A model that is certain, and a layer that is as certain of the same.
            let certain = [-1e30, 1e30];
            assert_eq!(sampler.judge(&certain, &[7], 0, 1, Some(&[(1, 1.0)])), 1);
            assert_eq!(sampler.judge(&certain, &[7], 0, 0, Some(&[(0, 1.0)])), 1);
        }
        assert_eq!(with(5, |p| p.temp = 0.0).judge(&[1.0, 2.0, 0.0], &[7], 0, 0, None), 1, "greedy");
        assert_eq!(with(5, |p| p.temp = 0.0).distribution(&[1.0, 2.0, 0.0], &[7], 0), [(1, 1.0)]);
    }

    #[test]
    fn tokens_are_found_by_their_order() {
        let tokens = [2u32, 3, 7, 11];
        for (i, &token) in tokens.iter().enumerate() {
            assert_eq!(index(4, |i| tokens[i], token), Some(i));
        }
        assert!([0, 5, 12].iter().all(|&token| index(4, |i| tokens[i], token).is_none()));
        assert_eq!(index(0, |_| 0, 0), None);
    }
}
