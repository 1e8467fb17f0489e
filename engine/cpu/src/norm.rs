//! Root-mean-square and length normalisation.

use crate::dot::dot;
use crate::isa::per_isa;

per_isa! {
    /// `y = x / sqrt(mean(x²) + eps) * gamma`, the mean taken over each group of `x.len() / groups` values apart.
    pub fn rms(isa: Isa, x: &[f32], gamma: &[f32], groups: usize, eps: f32, y: &mut [f32]) {
        let width = x.len() / groups.max(1);
        if width == 0 {
            return;
        }
        for ((x, g), y) in x.chunks_exact(width).zip(gamma.chunks_exact(width)).zip(y.chunks_exact_mut(width)) {
            let scale = 1.0 / (dot(x, x) / width as f32 + eps).sqrt();
            for i in 0..width {
                y[i] = x[i] * scale * g[i];
            }
        }
    }
}

per_isa! {
    /// [`rms`] in place with one `gamma` for every head of `gamma.len()` values.
    pub fn rms_heads(isa: Isa, x: &mut [f32], gamma: &[f32], eps: f32) {
        for head in x.chunks_exact_mut(gamma.len()) {
            let scale = 1.0 / (dot(head, head) / gamma.len() as f32 + eps).sqrt();
            for (v, g) in head.iter_mut().zip(gamma) {
                *v = *v * scale * g;
            }
        }
    }
}

per_isa! {
    /// `x / sqrt(sum(x²) + eps) * factor` in place for every head of `dim` values. The sum, not the mean, takes `eps`.
    pub fn l2_heads(isa: Isa, x: &mut [f32], dim: usize, eps: f32, factor: f32) {
        for head in x.chunks_exact_mut(dim) {
            let scale = factor / (dot(head, head) + eps).sqrt();
            for v in head {
                *v *= scale;
            }
        }
    }
}
