//! Sums of float products: their order is part of the engine's results.

use crate::isa::{Isa, Level};
use strata_gguf::{GgmlType, quant};

/// Partial sums kept side by side: enough to hide the latency of fused multiply-add, and one per lane of a GPU's warp.
pub(crate) const LANES: usize = 32;

/// Joins partial sums: the upper half is added to the lower until one is left.
#[inline(always)]
pub(crate) fn join<const N: usize>(mut sums: [f32; N]) -> f32 {
    let mut width = N / 2;
    while width > 0 {
        for lane in 0..width {
            sums[lane] += sums[lane + width];
        }
        width /= 2;
    }
    sums[0]
}

/// The dot product of two slices of equal length (the shorter one counts): element i goes to partial sum `i mod 32` by
/// fused multiply-add, in order.
#[inline(always)]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    let n = a.len().min(b.len());
    let mut sums = [0.0f32; LANES];
    accumulate(&mut sums, &a[..n], &b[..n]);
    join(sums)
}

/// `out[r][t] = scale * (row r of the weights) · x[t]` for float weights of type `ty`.
///
/// `rows` holds whole rows of `cols` values; `x` is `[t][cols]`.
pub(crate) fn rows(isa: Isa, ty: GgmlType, rows: &[u8], cols: usize, scale: f32, x: &[f32], out: &mut [f32]) {
    if cols == 0 || x.is_empty() {
        return;
    }
    match isa.level() {
        // SAFETY: an `Isa` above scalar exists only where its features were found.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => return unsafe { crate::x86::floats::rows(ty, rows, cols, scale, x, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => return unsafe { crate::x86::floats::rows_wide(ty, rows, cols, scale, x, out) },
        _ => {}
    }
    let mut values = vec![0.0; cols];
    for (row, out) in rows.chunks_exact(cols * ty.block_bytes()).zip(out.chunks_exact_mut(x.len() / cols)) {
        decode(ty, row, &mut values);
        for (out, x) in out.iter_mut().zip(x.chunks_exact(cols)) {
            *out = dot(&values, x) * scale;
        }
    }
}

/// [`quant::decode`] of as many floats as `out` has room for.
pub(crate) fn decode(ty: GgmlType, bytes: &[u8], out: &mut [f32]) {
    // Callers cut both to the same number of values.
    if quant::decode(ty, bytes, out).is_err() {
        out.fill(0.0);
    }
}

/// The value of a half, without branches, so that several are converted side by side.
#[inline(always)]
pub(crate) fn f16_to_f32(half: u16) -> f32 {
    let (sign, rest) = (u32::from(half & 0x8000) << 16, u32::from(half & 0x7fff));
    // Normal numbers: the exponent's bias grows from 15 to 127. Subnormal ones: an integer times 2^-24.
    let normal = f32::from_bits((rest << 13).wrapping_add(112 << 23));
    let subnormal = rest as f32 * (1.0 / 16_777_216.0);
    let special = f32::from_bits((rest << 13) | 0x7f80_0000);
    let magnitude = if rest < 0x0400 { subnormal } else { normal };
    let magnitude = if rest >= 0x7c00 { special } else { magnitude };
    f32::from_bits(magnitude.to_bits() | sign)
}

/// Adds the products of two slices of equal length to partial sums that begin at lane 0.
#[inline(always)]
fn accumulate(sums: &mut [f32; LANES], a: &[f32], b: &[f32]) {
    let (a, b) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut s = *sums;
    for (x, y) in a.0.iter().zip(b.0) {
        for lane in 0..LANES {
            s[lane] = x[lane].mul_add(y[lane], s[lane]);
        }
    }
    for (lane, (x, y)) in a.1.iter().zip(b.1).enumerate() {
        s[lane] = x.mul_add(*y, s[lane]);
    }
    *sums = s;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(n: usize, f: f32) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * f).sin() * 3.0).collect()
    }

    #[test]
    fn is_close_to_the_sum_in_double_precision() {
        let (a, b) = (wave(1001, 0.7), wave(1001, 0.3));
        let exact: f64 = a.iter().zip(&b).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum();
        assert!((f64::from(dot(&a, &b)) - exact).abs() < 1e-3);
    }

    #[test]
    fn rows_have_the_bits_of_dot_on_every_isa() {
        for cols in [1, 31, 32, 64, 255, 256, 257, 640] {
            let (w, x) = (wave(cols * 3, 0.37), wave(cols * 11, 0.11));
            let f16 = |v: f32| half::f16::from_f32(v).to_bits().to_le_bytes();
            let bf16 = |v: f32| half::bf16::from_f32(v).to_bits().to_le_bytes();
            let forms: [(GgmlType, Vec<u8>); 3] = [
                (GgmlType::F32, w.iter().flat_map(|v| v.to_le_bytes()).collect()),
                (GgmlType::F16, w.iter().flat_map(|&v| f16(v)).collect()),
                (GgmlType::BF16, w.iter().flat_map(|&v| bf16(v)).collect()),
            ];
            for (ty, bytes) in forms {
                let mut w = vec![0.0; cols * 3];
                quant::decode(ty, &bytes, &mut w).unwrap();
                for inputs in [1, 2, 5, 11] {
                    let x = &x[..inputs * cols];
                    let expected: Vec<f32> =
                        w.chunks(cols).flat_map(|w| x.chunks(cols).map(move |x| dot(w, x) * 0.5)).collect();
                    for isa in Isa::available() {
                        let mut out = vec![0.0; 3 * inputs];
                        rows(isa, ty, &bytes, cols, 0.5, x, &mut out);
                        assert_eq!(out, expected, "{isa}, {ty}, {cols} columns, {inputs} inputs");
                    }
                }
            }
        }
    }

    #[test]
    fn every_half_has_its_value() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (f16_to_f32(bits), half::f16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(), "{bits:04x}");
        }
    }
}
