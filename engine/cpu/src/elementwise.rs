//! Functions of single values, and the sums that join streams and branches.

/// The logistic function.
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// `x * sigmoid(x)`.
pub fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// `ln(1 + e^x)`; beyond 20 it equals `x` in f32.
pub fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// `silu(x / divisor)` in place.
pub fn silu_scaled(x: &mut [f32], divisor: f32) {
    x.iter_mut().for_each(|v| *v = silu(*v / divisor));
}

/// `2 * sigmoid(x / divisor)` in place: the weight of a block's output in each stream.
pub fn inject_weights(x: &mut [f32], divisor: f32) {
    x.iter_mut().for_each(|v| *v = 2.0 * sigmoid(*v / divisor));
}

/// `out[i] = mean over streams s of sigmoid(gate[s][i]) * n[s][i]`.
pub fn mix_streams(gate: &[f32], n: &[f32], streams: usize, out: &mut [f32]) {
    let width = out.len();
    for (i, o) in out.iter_mut().enumerate() {
        let mut sum = 0.0;
        for s in 0..streams {
            sum += sigmoid(gate[s * width + i]) * n[s * width + i];
        }
        *o = sum / streams as f32;
    }
}

/// `r[s] += a[s] * y` for each stream s of `y.len()` values.
pub fn add_to_streams(r: &mut [f32], a: &[f32], y: &[f32]) {
    for (stream, &weight) in r.chunks_exact_mut(y.len()).zip(a) {
        for (r, &y) in stream.iter_mut().zip(y) {
            *r += weight * y;
        }
    }
}

/// `gate[i] = silu(gate[i]) * up[i]` in place.
pub fn swiglu(gate: &mut [f32], up: &[f32]) {
    for (g, &u) in gate.iter_mut().zip(up) {
        *g = silu(*g) * u;
    }
}

/// The n-gram module's gate: for each stream, the signed square root of the scaled dot product of key and query
/// decides how much of the value enters: `out[s] = sigmoid(sqrt±(k[s]·q[s] / sqrt(width))) * v`.
pub fn ngram_gate(k: &[f32], q: &[f32], v: &[f32], out: &mut [f32]) {
    let width = v.len();
    for ((k, q), out) in k.chunks_exact(width).zip(q.chunks_exact(width)).zip(out.chunks_exact_mut(width)) {
        let s = crate::dot(k, q) / (width as f32).sqrt();
        // The floor under the root and sign(0) = 0 are the trained module's: a zero score gives the gate 0.5.
        let sign = if s == 0.0 { s } else { s.signum() };
        let gate = sigmoid(sign * s.abs().max(1e-6).sqrt());
        for (o, &v) in out.iter_mut().zip(v) {
            *o = gate * v;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn softplus_joins_its_branches() {
        assert!((softplus(20.0) - softplus(20.001)).abs() < 2e-3);
        assert_eq!(softplus(30.0), 30.0);
        assert!((softplus(0.0) - std::f32::consts::LN_2).abs() < 1e-7);
        assert!(softplus(-100.0) >= 0.0);
    }

    #[test]
    fn sigmoid_saturates_without_nan() {
        assert_eq!(sigmoid(-200.0), 0.0);
        assert_eq!(sigmoid(200.0), 1.0);
        assert_eq!(silu(-200.0), 0.0);
    }

    #[test]
    fn a_zero_score_opens_the_ngram_gate_halfway() {
        let mut out = [0.0; 2];
        ngram_gate(&[1.0, -1.0], &[1.0, 1.0], &[4.0, 6.0], &mut out);
        assert_eq!(out, [2.0, 3.0]);
    }
}
