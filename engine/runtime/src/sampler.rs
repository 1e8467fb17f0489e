//! Choosing a token.
//!
//! The order is: a constraint's mask, biases, penalties, temperature, filters (top-k, top-p, min-p), noise. What is masked
//! arrives here as a logit of -infinity, which no step raises and nothing draws. With temperature 0 the largest logit
//! wins, the lowest id among equals. Otherwise each surviving token's logit, divided by the temperature, gets Gumbel
//! noise from a counter-based generator keyed by seed, position and token, and the largest sum wins. That draws
//! exactly from the filtered softmax (Gumbel-max), and the choice at a position depends on the seed, the position and
//! the logits alone: not on how many draws were made before, nor on which positions were computed together.

use std::collections::HashMap;
use strata_model::Candidates;

/// How tokens are chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingParams {
    /// Divides the logits; 0 takes the best token always.
    pub temp: f32,
    /// Keeps this many best tokens; 0 keeps all.
    pub top_k: usize,
    /// Keeps the best tokens that together reach this probability; 1 keeps all.
    pub top_p: f32,
    /// Drops tokens less likely than this share of the best one's probability; 0 drops none.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens seen lately; 1 changes nothing.
    pub repeat_penalty: f32,
    /// How many of the last tokens (prompt included) the repeat penalty looks at.
    pub repeat_last_n: usize,
    /// Taken from the logit of every token that the answer holds already.
    pub presence_penalty: f32,
    /// Taken from a token's logit once for each time that the answer holds it.
    pub frequency_penalty: f32,
    /// Keys the noise.
    pub seed: u64,
    /// Added to the logits of tokens, before all else but a constraint. Several biases of one token add up.
    pub logit_bias: Vec<(u32, f32)>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        SamplingParams {
            temp: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repeat_penalty: 1.0,
            repeat_last_n: 64,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            seed: 0,
            logit_bias: Vec::new(),
        }
    }
}

/// Chooses tokens by fixed parameters.
#[derive(Debug, Clone)]
pub struct Sampler {
    params: SamplingParams,
    bias: HashMap<u32, f32>,
}

impl Sampler {
    /// A sampler with these parameters.
    pub fn new(params: SamplingParams) -> Sampler {
        let mut bias = HashMap::new();
        params.logit_bias.iter().for_each(|&(token, b)| *bias.entry(token).or_default() += b);
        Sampler { params, bias }
    }

    /// The parameters.
    pub fn params(&self) -> &SamplingParams {
        &self.params
    }

    /// The token for the position behind `sequence`, of which the last `answered` tokens are the answer so far.
    pub fn pick(&self, logits: &[f32], sequence: &[u32], answered: usize) -> u32 {
        let p = &self.params;
        let changed = self.changes(|token| logits.get(token as usize).copied(), sequence, answered);
        let logit = |id: usize| changed.get(&(id as u32)).copied().unwrap_or(logits[id]);
        if p.temp <= 0.0 {
            let mut best = (0, f32::NEG_INFINITY);
            for id in 0..logits.len() {
                let l = logit(id);
                if l > best.1 {
                    best = (id, l);
                }
            }
            return best.0 as u32;
        }
        let scaled = (0..logits.len()).map(|id| (id as u32, f64::from(logit(id)) / f64::from(p.temp))).collect();
        let position = sequence.len() as u64;
        let mut best = (0, f64::NEG_INFINITY);
        for (id, l) in self.filter(scaled) {
            let sum = l + gumbel(p.seed, position, id);
            if sum > best.1 || (sum == best.1 && id < best.0) {
                best = (id, sum);
            }
        }
        best.0
    }

    /// Chooses among the draft layer's candidates with the noise of the position that the draft is for, so that it agrees
    /// with the model's choice as often as the two see things alike. Returns an index.
    pub(crate) fn pick_candidate(&self, candidates: &Candidates<'_>, sequence: &[u32], answered: usize) -> usize {
        let (logits, p) = (candidates.logits, &self.params);
        // Tokens ascend, so this is the whole vocabulary in order.
        if candidates.token(logits.len().saturating_sub(1)) as usize + 1 == logits.len() {
            return self.pick(logits, sequence, answered) as usize;
        }
        if p.temp <= 0.0 {
            return candidates.best();
        }
        // Biases, penalties and filters are left to the model: a draft that they would have changed is a wrong guess, no more.
        let position = sequence.len() as u64;
        let noisy = |i: usize| f64::from(logits[i]) / f64::from(p.temp) + gumbel(p.seed, position, candidates.token(i));
        (0..logits.len()).max_by(|&a, &b| noisy(a).total_cmp(&noisy(b))).unwrap_or(0)
    }

    /// The logits of the tokens that biases and penalties touch, as they are then; tokens without a logit are left out.
    pub(crate) fn changes(
        &self,
        logit: impl Fn(u32) -> Option<f32>,
        sequence: &[u32],
        answered: usize,
    ) -> HashMap<u32, f32> {
        let p = &self.params;
        let logit = |token: u32| Some(logit(token)? + self.bias.get(&token).copied().unwrap_or(0.0));
        let biased = self.bias.keys().filter_map(|&token| Some((token, logit(token)?)));
        let mut changed: HashMap<u32, f32> = biased.collect();
        if p.repeat_penalty != 1.0 {
            let recent = &sequence[sequence.len().saturating_sub(p.repeat_last_n)..];
            for &token in recent {
                let Some(l) = logit(token) else { continue };
                changed.insert(token, if l > 0.0 { l / p.repeat_penalty } else { l * p.repeat_penalty });
            }
        }
        if p.presence_penalty != 0.0 || p.frequency_penalty != 0.0 {
            let mut counts: HashMap<u32, u32> = HashMap::new();
            let answer = &sequence[sequence.len().saturating_sub(answered)..];
            answer.iter().for_each(|&t| *counts.entry(t).or_default() += 1);
            for (token, count) in counts {
                let Some(l) = changed.get(&token).copied().or_else(|| logit(token)) else { continue };
                changed.insert(token, l - (p.presence_penalty + p.frequency_penalty * count as f32));
            }
        }
        changed
    }

    /// The tokens that the filters keep, best first where an order was needed.
    pub(crate) fn filter(&self, mut tokens: Vec<(u32, f64)>) -> Vec<(u32, f64)> {
        let p = &self.params;
        let better = |a: &(u32, f64), b: &(u32, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if p.top_k > 0 && p.top_k < tokens.len() {
            tokens.select_nth_unstable_by(p.top_k - 1, better);
            tokens.truncate(p.top_k);
        }
        if p.top_p < 1.0 {
            tokens.sort_unstable_by(better);
            let top = tokens.first().map_or(0.0, |t| t.1);
            let total: f64 = tokens.iter().map(|t| (t.1 - top).exp()).sum();
            let mut reached = 0.0;
            let enough = tokens.iter().position(|t| {
                reached += (t.1 - top).exp() / total;
                reached >= f64::from(p.top_p)
            });
            tokens.truncate(enough.map_or(tokens.len(), |last| last + 1));
        }
        if p.min_p > 0.0 {
            let top = tokens.iter().map(|t| t.1).fold(f64::NEG_INFINITY, f64::max);
            let floor = top + f64::from(p.min_p).ln();
            tokens.retain(|t| t.1 >= floor);
        }
        tokens
    }
}

/// Standard Gumbel noise that is a pure function of its arguments.
pub(crate) fn gumbel(seed: u64, position: u64, token: u32) -> f64 {
    let uniform = uniform(mix(mix(mix(seed) ^ position) ^ u64::from(token)));
    -(-uniform.ln()).ln()
}

/// A number between 0 and 1 by 53 random bits, centred in their cells so that neither 0 nor 1 occurs.
pub(crate) fn uniform(bits: u64) -> f64 {
    ((bits >> 11) as f64 + 0.5) * (1.0 / (1u64 << 53) as f64)
}

/// The output function of SplitMix64 (Steele, Lea and Flood, 2014) on a counter.
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut SamplingParams)) -> Sampler {
        let mut params = SamplingParams::default();
        change(&mut params);
        Sampler::new(params)
    }

    #[test]
    fn greedy_takes_the_lowest_of_equals() {
        assert_eq!(with(|_| ()).pick(&[1.0, 3.0, 3.0, 2.0], &[], 0), 1);
    }

    #[test]
    fn draws_follow_the_softmax() {
        // Chi-square over 4 tokens, 3 degrees of freedom: 16.27 is the 0.1 % point.
        let logits = [0.0, 1.0, -0.5, 2.0];
        for temp in [0.5f32, 1.0, 2.0] {
            let draws = 40_000;
            let mut counts = [0u32; 4];
            for seed in 0..draws {
                let s = with(|p| (p.temp, p.seed) = (temp, seed));
                counts[s.pick(&logits, &[9, 9], 0) as usize] += 1;
            }
            let weights = logits.map(|l| (f64::from(l) / f64::from(temp)).exp());
            let total: f64 = weights.iter().sum();
            let chi: f64 = counts
                .iter()
                .zip(weights)
                .map(|(&n, w)| {
                    let expected = w / total * draws as f64;
                    (f64::from(n) - expected).powi(2) / expected
                })
                .sum();
            assert!(chi < 16.27, "temperature {temp}: {counts:?}, chi-square {chi}");
        }
    }

    #[test]
    fn filters_keep_what_they_say() {
        let kept = |change: fn(&mut SamplingParams)| {
            let mut ids: Vec<u32> =
                with(change).filter(vec![(0, 0.0), (1, 2.0), (2, 1.0), (3, -4.0)]).into_iter().map(|t| t.0).collect();
            ids.sort_unstable();
            ids
        };
        // Their softmax is 0.090, 0.664, 0.244, 0.002.
        assert_eq!(kept(|p| p.top_k = 2), [1, 2]);
        assert_eq!(kept(|p| p.top_p = 0.6), [1]);
        assert_eq!(kept(|p| p.top_p = 0.95), [0, 1, 2]);
        assert_eq!(kept(|p| p.top_p = 0.9), [1, 2]);
        assert_eq!(kept(|p| p.min_p = 0.3), [1, 2]);
        assert_eq!(kept(|_| ()), [0, 1, 2, 3]);
    }

    #[test]
    fn biases_come_before_penalties_and_add_up() {
        let biased = with(|p| p.logit_bias = vec![(1, 2.0), (1, 2.0), (9, 5.0)]);
        assert_eq!(biased.pick(&[3.0, 0.0, 1.0], &[], 0), 1);
        // 4 halved is less than 3.
        let repeat = with(|p| (p.logit_bias, p.repeat_penalty) = (vec![(1, 4.0)], 2.0));
        assert_eq!(repeat.pick(&[3.0, 0.0, 1.0], &[1], 0), 0);
        let never = with(|p| (p.logit_bias, p.temp) = (vec![(1, 100.0)], 0.5));
        let masked = [3.0, f32::NEG_INFINITY, 1.0];
        for seed in 0..200 {
            let drawn = Sampler::new(SamplingParams { seed, ..never.params.clone() }).pick(&masked, &[], 0);
            assert_ne!(drawn, 1, "a masked token, whatever its bias");
        }
        let certain = never.distribution(&[3.0, 0.0, 1.0], &[], 0);
        assert!(certain.iter().any(|&(token, p)| token == 1 && p > 0.999), "{certain:?}");
    }

    #[test]
    fn penalties_touch_the_right_tokens() {
        let repeat = with(|p| (p.repeat_penalty, p.repeat_last_n) = (2.0, 1));
        assert_eq!(repeat.pick(&[3.0, 2.9, -1.0], &[1, 0], 0), 1, "token 0 is the last one and is halved");
        let presence = with(|p| p.presence_penalty = 1.0);
        assert_eq!(presence.pick(&[3.0, 2.9], &[0, 0], 0), 0, "the prompt does not count");
        assert_eq!(presence.pick(&[3.0, 2.9], &[0, 0], 1), 1, "the answer does");
        let frequency = with(|p| p.frequency_penalty = 0.04);
        assert_eq!(frequency.pick(&[3.0, 2.9], &[0, 0], 2), 0);
        assert_eq!(frequency.pick(&[3.0, 2.9], &[0, 0, 0], 3), 1);
    }
}
