//! Functions of single values, and the sums that join streams and branches.

use crate::Cpu;
use crate::dot::dot;
use crate::isa::per_isa;
use crate::math::{sigmoid, silu};
use std::sync::atomic::{AtomicUsize, Ordering};

per_isa! {
    /// `silu(x / divisor)` in place.
    pub fn silu_scaled(isa: Isa, x: &mut [f32], divisor: f32) {
        for v in x {
            *v = silu(*v / divisor);
        }
    }
}

per_isa! {
    /// `2 * sigmoid(x / divisor)` in place: the weight of a block's output in each stream.
    pub fn inject_weights(isa: Isa, x: &mut [f32], divisor: f32) {
        for v in x {
            *v = 2.0 * sigmoid(*v / divisor);
        }
    }
}

per_isa! {
    /// `out[i] = mean over streams s of sigmoid(gate[s][i]) * n[s][i]`, streams added in order by fused multiply-add.
    pub fn mix_streams(isa: Isa, gate: &[f32], n: &[f32], streams: usize, out: &mut [f32]) {
        let width = out.len();
        out.fill(0.0);
        for (gate, n) in gate.chunks_exact(width).zip(n.chunks_exact(width)) {
            for i in 0..width {
                out[i] = sigmoid(gate[i]).mul_add(n[i], out[i]);
            }
        }
        for o in out {
            *o /= streams as f32;
        }
    }
}

per_isa! {
    /// `r[s] += a[s] * y` for each stream s of `y.len()` values.
    pub fn add_to_streams(isa: Isa, r: &mut [f32], a: &[f32], y: &[f32]) {
        for (stream, &weight) in r.chunks_exact_mut(y.len()).zip(a) {
            for i in 0..y.len() {
                stream[i] = weight.mul_add(y[i], stream[i]);
            }
        }
    }
}

/// Values worth looking through on another thread.
const LOOKED_AT: usize = 32 * 1024;

/// Index of the first value that is NaN or of a magnitude beyond `largest`.
pub fn first_beyond(cpu: &Cpu, x: &[f32], largest: f32) -> Option<usize> {
    let first = AtomicUsize::new(usize::MAX);
    cpu.pool().each(x.chunks(LOOKED_AT).enumerate().collect(), |(i, x)| {
        if let Some(at) = first_beyond_in(cpu.isa(), x, largest) {
            first.fetch_min(i * LOOKED_AT + at, Ordering::Relaxed);
        }
    });
    Some(first.into_inner()).filter(|&at| at < x.len())
}

per_isa! {
    fn first_beyond_in(isa: Isa, x: &[f32], largest: f32) -> Option<usize> {
        // Counting lets several values be compared side by side; the place is looked for only when there is one.
        let fine = |v: &f32| v.abs() <= largest;
        let beyond = x.iter().map(|v| u32::from(!fine(v))).sum::<u32>();
        if beyond == 0 { None } else { x.iter().position(|v| !fine(v)) }
    }
}

per_isa! {
    /// `gate[i] = silu(gate[i]) * up[i]` in place.
    pub fn swiglu(isa: Isa, gate: &mut [f32], up: &[f32]) {
        for (g, &u) in gate.iter_mut().zip(up) {
            *g = silu(*g) * u;
        }
    }
}

per_isa! {
    /// The n-gram module's gate: for each stream, the signed square root of the scaled dot product of key and query
    /// decides how much of the value enters: `out[s] = sigmoid(sqrt±(k[s]·q[s] / sqrt(width))) * v`.
    pub fn ngram_gate(isa: Isa, k: &[f32], q: &[f32], v: &[f32], out: &mut [f32]) {
        let width = v.len();
        for ((k, q), out) in k.chunks_exact(width).zip(q.chunks_exact(width)).zip(out.chunks_exact_mut(width)) {
            let s = dot(k, q) / (width as f32).sqrt();
            // The floor under the root and sign(0) = 0 are the trained module's: a zero score gives the gate 0.5.
            let root = (if s.abs() < 1e-6 { 1e-6 } else { s.abs() }).sqrt();
            let gate = sigmoid(if s == 0.0 { 0.0 } else { root.copysign(s) });
            for i in 0..width {
                out[i] = gate * v[i];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    #[test]
    fn a_zero_score_opens_the_ngram_gate_halfway() {
        let mut out = [0.0; 2];
        ngram_gate(Isa::SCALAR, &[1.0, -1.0], &[1.0, 1.0], &[4.0, 6.0], &mut out);
        assert_eq!(out, [2.0, 3.0]);
    }

    #[test]
    fn the_first_value_beyond_is_found() {
        let cpu = Cpu::exactly(3, Isa::detect());
        let mut x = vec![-1.0; 5 * LOOKED_AT + 3];
        assert_eq!(first_beyond(&cpu, &x, 1.0), None);
        for at in [x.len() - 1, 3 * LOOKED_AT, 17] {
            x[at] = if at == 17 { f32::NAN } else { -2.0 };
            assert_eq!(first_beyond(&cpu, &x, 1.0), Some(at));
        }
        assert_eq!(first_beyond(&cpu, &[], 1.0), None);
    }

    #[test]
    fn every_isa_gives_the_same_bits() {
        let wave = |n: usize, f: f32| -> Vec<f32> { (0..n).map(|i| (i as f32 * f).sin() * 9.0).collect() };
        let (a, b, c) = (wave(148, 0.3), wave(148, 0.7), wave(37, 1.1));
        let run = |isa| {
            let (mut x, mut y, mut z, mut g) = (a.clone(), a.clone(), a.clone(), a.clone());
            let (mut mixed, mut gated) = (vec![0.0; 37], vec![0.0; 148]);
            silu_scaled(isa, &mut x, 4.0);
            inject_weights(isa, &mut y, 4.0);
            add_to_streams(isa, &mut z, &c[..4], &c);
            swiglu(isa, &mut g, &b);
            mix_streams(isa, &a, &b, 4, &mut mixed);
            ngram_gate(isa, &a, &b, &c, &mut gated);
            [x, y, z, g, mixed, gated].concat().iter().map(|v| v.to_bits()).collect::<Vec<_>>()
        };
        let scalar = run(Isa::SCALAR);
        Isa::available().for_each(|isa| assert!(run(isa) == scalar, "{isa}"));
    }
}
