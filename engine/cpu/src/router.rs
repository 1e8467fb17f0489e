//! Which experts a token uses, and with what weight.

/// The `ids.len()` largest logits, best first, equal ones by lower index, and their softmax among themselves.
///
/// This equals taking the softmax over all experts, the largest of it, and dividing by their sum: the common factor
/// cancels. `ids` and `weights` have one entry per chosen expert; `logits` must have at least as many.
pub fn top_k(logits: &[f32], ids: &mut [u16], weights: &mut [f32]) {
    let used = ids.len();
    let mut best: Vec<(f32, u16)> = Vec::with_capacity(used + 1);
    for (i, &logit) in logits.iter().enumerate() {
        let full = best.len() == used;
        if full && best.last().is_some_and(|&(worst, _)| logit <= worst) {
            continue;
        }
        let at = best.partition_point(|&(other, _)| other >= logit);
        best.insert(at, (logit, i as u16));
        best.truncate(used);
    }
    let top = best.first().map_or(0.0, |b| b.0);
    let mut sum = 0.0;
    for ((id, weight), &(logit, i)) in ids.iter_mut().zip(weights.iter_mut()).zip(&best) {
        *id = i;
        *weight = crate::math::exp(logit - top);
        sum += *weight;
    }
    weights.iter_mut().for_each(|w| *w /= sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_logits_go_to_the_lower_index() {
        let (mut ids, mut weights) = ([0; 3], [0.0; 3]);
        top_k(&[1.0, 2.0, 2.0, 0.5, 2.0, 1.0], &mut ids, &mut weights);
        assert_eq!(ids, [1, 2, 4]);
        assert_eq!(weights, [1.0 / 3.0; 3]);
    }

    #[test]
    fn weights_are_the_renormalised_softmax() {
        let logits: Vec<f32> = (0..64).map(|i| ((i * 29 % 64) as f32) * 0.11).collect();
        let (mut ids, mut weights) = ([0; 6], [0.0; 6]);
        top_k(&logits, &mut ids, &mut weights);
        let exp: Vec<f64> = logits.iter().map(|&l| f64::from(l).exp()).collect();
        let sum: f64 = ids.iter().map(|&i| exp[usize::from(i)]).sum();
        for (&id, &w) in ids.iter().zip(&weights) {
            assert!((exp[usize::from(id)] / sum - f64::from(w)).abs() < 1e-6);
        }
        assert!(weights.is_sorted_by(|a, b| a >= b));
    }

    #[test]
    fn not_a_number_does_not_panic() {
        let (mut ids, mut weights) = ([0; 2], [0.0; 2]);
        top_k(&[f32::NAN, 1.0, f32::NEG_INFINITY, 3.0], &mut ids, &mut weights);
    }
}
