//! How likely tokens were.

use strata_gguf::Tokenizer;

/// How many of the likeliest tokens can be told.
pub(crate) const MOST: usize = 20;

/// How likely a token of an answer was.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprob {
    /// The token.
    pub id: u32,
    /// Its bytes; for added tokens their literal.
    pub bytes: Vec<u8>,
    /// Natural logarithm of its probability, by the model's logits as they are.
    pub logprob: f32,
    /// The likeliest tokens in its place, the best first: token, bytes, logarithm.
    pub top: Vec<(u32, Vec<u8>, f32)>,
}

impl TokenLogprob {
    /// Of a token by the logits of its place, with so many of the likeliest.
    pub(crate) fn new(tokenizer: &Tokenizer, logits: &[f32], id: u32, most: usize) -> TokenLogprob {
        let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f64 = logits.iter().map(|&l| (f64::from(l) - f64::from(top)).exp()).sum();
        let logprob = |l: f32| (f64::from(l) - f64::from(top) - total.ln()) as f32;
        let bytes = |id: u32| tokenizer.token_bytes(id).unwrap_or_default().to_vec();
        let likeliest = likeliest(logits, most).into_iter().map(|(id, l)| (id, bytes(id), logprob(l)));
        let own = logits.get(id as usize).copied().unwrap_or(f32::NEG_INFINITY);
        TokenLogprob { id, bytes: bytes(id), logprob: logprob(own), top: likeliest.collect() }
    }
}

/// The tokens with the largest logits, the largest first, the lowest id among equals.
fn likeliest(logits: &[f32], most: usize) -> Vec<(u32, f32)> {
    let better = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    let mut all: Vec<(u32, f32)> = (0u32..).zip(logits.iter().copied()).collect();
    if most == 0 {
        return Vec::new();
    }
    if most < all.len() {
        all.select_nth_unstable_by(most - 1, better);
        all.truncate(most);
    }
    all.sort_unstable_by(better);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likeliest_come_in_order() {
        let logits = [0.5, 2.0, -1.0, 2.0, 1.0];
        assert_eq!(likeliest(&logits, 3), [(1, 2.0), (3, 2.0), (4, 1.0)]);
        assert_eq!(likeliest(&logits, 9).len(), 5);
        assert!(likeliest(&logits, 0).is_empty() && likeliest(&[], 3).is_empty());
    }
}
