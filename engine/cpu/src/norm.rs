//! Root-mean-square and length normalisation.

/// `y = x / sqrt(mean(x²) + eps) * gamma`, the mean taken over each group of `x.len() / groups` values apart.
pub fn rms(x: &[f32], gamma: &[f32], groups: usize, eps: f32, y: &mut [f32]) {
    let width = x.len() / groups.max(1);
    if width == 0 {
        return;
    }
    for ((x, g), y) in x.chunks_exact(width).zip(gamma.chunks_exact(width)).zip(y.chunks_exact_mut(width)) {
        let scale = 1.0 / (crate::dot(x, x) / width as f32 + eps).sqrt();
        for i in 0..width {
            y[i] = x[i] * scale * g[i];
        }
    }
}

/// [`rms`] in place with one `gamma` for every head of `gamma.len()` values.
pub fn rms_heads(x: &mut [f32], gamma: &[f32], eps: f32) {
    for head in x.chunks_exact_mut(gamma.len()) {
        let scale = 1.0 / (crate::dot(head, head) / gamma.len() as f32 + eps).sqrt();
        for (v, g) in head.iter_mut().zip(gamma) {
            *v = *v * scale * g;
        }
    }
}

/// `x / sqrt(sum(x²) + eps) * factor` in place. The sum, not the mean, takes `eps`.
pub fn l2(x: &mut [f32], eps: f32, factor: f32) {
    let scale = factor / (crate::dot(x, x) + eps).sqrt();
    x.iter_mut().for_each(|v| *v *= scale);
}
