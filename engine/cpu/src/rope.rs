//! Rotary position embedding on the first dimensions of each head.

use crate::isa::{Isa, per_isa};

/// The rotation frequencies of one model: pair `i` of `n_rot / 2` turns by `base^(-2i / n_rot)` per position.
///
/// Text has one position per token, so the model's three position axes coincide and its sections drop out.
#[derive(Debug, Clone)]
pub struct Rope {
    frequencies: Vec<f64>,
}

/// Cosines and sines of one position.
#[derive(Debug, Clone)]
pub struct Rotation {
    cos_sin: Vec<(f32, f32)>,
}

impl Rope {
    /// Frequencies for `n_rot` rotated dimensions (even) and a base such as 1e7.
    pub fn new(n_rot: usize, base: f32) -> Rope {
        let frequencies = (0..n_rot / 2).map(|i| f64::from(base).powf(-2.0 * i as f64 / n_rot as f64)).collect();
        Rope { frequencies }
    }

    /// The rotation at a position. Angles are formed in f64: f32 loses 0.01 rad near position 262,143.
    pub fn at(&self, position: usize) -> Rotation {
        let turn = |f: &f64| {
            let (sin, cos) = (f * position as f64).sin_cos();
            (cos as f32, sin as f32)
        };
        Rotation { cos_sin: self.frequencies.iter().map(turn).collect() }
    }
}

impl Rotation {
    /// The cosine and the sine of each rotated pair.
    pub fn cos_sin(&self) -> &[(f32, f32)] {
        &self.cos_sin
    }

    /// Rotates the first dimensions of every head of `head_dim` values in place; dimension `i` pairs with
    /// `i + n_rot / 2`.
    pub fn apply(&self, isa: Isa, x: &mut [f32], head_dim: usize) {
        rotate(isa, &self.cos_sin, x, head_dim);
    }
}

per_isa! {
    fn rotate(isa: Isa, cos_sin: &[(f32, f32)], x: &mut [f32], head_dim: usize) {
        let half = cos_sin.len();
        for head in x.chunks_exact_mut(head_dim) {
            for (i, &(cos, sin)) in cos_sin.iter().enumerate() {
                let (a, b) = (head[i], head[i + half]);
                head[i] = a.mul_add(cos, -(b * sin));
                head[i + half] = b.mul_add(cos, a * sin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_zero_changes_nothing_and_the_tail_is_never_touched() {
        let rope = Rope::new(4, 1e7);
        let x: Vec<f32> = (0..16).map(|i| i as f32).collect();
        let mut y = x.clone();
        rope.at(0).apply(Isa::detect(), &mut y, 8);
        assert_eq!(x, y);
        rope.at(5).apply(Isa::detect(), &mut y, 8);
        assert_ne!(x[..4], y[..4]);
        assert_eq!(x[4..8], y[4..8]);
        assert_eq!(x[12..], y[12..]);
    }
}
