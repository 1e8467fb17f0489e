//! Exponential, logistic and their kin, from nothing but exactly rounded operations.
//!
//! A system's own `expf` differs from version to version and from the GPU's; these functions use only addition,
//! multiplication, division, fused multiply-add and integer operations, each of which IEEE 754 defines to the last bit.
//! They are written so that the compiler can run several values side by side.

/// `log2(e)`.
const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// `ln(2)` in two parts: the first has so few bits that `n * LN2_HIGH` is exact for every exponent n.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// Adding it leaves the nearest integer in the low bits: 1.5 * 2^23.
const ROUND: f32 = 12_582_912.0;

/// `e^x`. Beyond 89 it is infinity, below -104 it is zero; NaN stays NaN.
///
/// `x = n ln 2 + r` with `|r| <= ln(2)/2`; the Taylor series of `e^r` to the seventh power, which is within 1 ulp there;
/// then the exponent is raised by n, in two steps so that subnormal results round once.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let x = if x < -104.0 { -104.0 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    let t = x.mul_add(LOG2_E, ROUND);
    let n = t - ROUND;
    let r = n.mul_add(-LN2_HIGH, x);
    let r = n.mul_add(-LN2_LOW, r);
    let p = 1.0f32 / 5040.0;
    let p = p.mul_add(r, 1.0 / 720.0);
    let p = p.mul_add(r, 1.0 / 120.0);
    let p = p.mul_add(r, 1.0 / 24.0);
    let p = p.mul_add(r, 1.0 / 6.0);
    let p = p.mul_add(r, 0.5);
    let p = p.mul_add(r, 1.0);
    let p = p.mul_add(r, 1.0);
    // t's low bits hold n; for NaN they hold anything, and p is NaN.
    let n = (t.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let half = n >> 1;
    p * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// `2^n` for n from -126 to 127.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// The logistic function, `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `x * sigmoid(x)`.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// `ln(1 + e^x)`, as `max(x, 0) + ln(1 + e^-|x|)`, which neither overflows nor cancels.
///
/// `ln(1 + t) = 2 atanh(t / (2 + t))`, whose argument is at most 1/3 here: seven terms of the series suffice.
#[inline(always)]
pub fn softplus(x: f32) -> f32 {
    let t = exp(-x.abs());
    let s = t / (2.0 + t);
    let z = s * s;
    let p = 1.0f32 / 15.0;
    let p = p.mul_add(z, 1.0 / 13.0);
    let p = p.mul_add(z, 1.0 / 11.0);
    let p = p.mul_add(z, 1.0 / 9.0);
    let p = p.mul_add(z, 1.0 / 7.0);
    let p = p.mul_add(z, 1.0 / 5.0);
    let p = p.mul_add(z, 1.0 / 3.0);
    let p = p.mul_add(z, 1.0);
    let positive = if x > 0.0 { x } else { 0.0 };
    let positive = if x.is_nan() { x } else { positive };
    (2.0 * s).mul_add(p, positive)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distance in units of the last place of `y`.
    fn ulps(x: f32, y: f64) -> f64 {
        let nearest = y as f32;
        let ulp = f64::from(f32::from_bits(nearest.abs().to_bits() + 1)) - f64::from(nearest.abs());
        (f64::from(x) - y).abs() / ulp
    }

    fn worst(range: (f32, f32), f: fn(f32) -> f32, exact: fn(f64) -> f64) -> f64 {
        let steps = 1_000_003;
        (0..=steps)
            .map(|i| range.0 + (range.1 - range.0) * i as f32 / steps as f32)
            .map(|x| ulps(f(x), exact(f64::from(x))))
            .fold(0.0, f64::max)
    }

    #[test]
    fn exp_is_within_two_ulps() {
        assert!(worst((-87.0, 88.7), exp, f64::exp) < 2.0);
        assert!(worst((-103.0, -87.0), exp, f64::exp) < 2.0, "subnormal results");
    }

    #[test]
    fn softplus_and_sigmoid_are_close() {
        assert!(worst((-80.0, 80.0), softplus, |x| x.max(0.0) + (-x.abs()).exp().ln_1p()) < 4.0);
        assert!(worst((-80.0, 80.0), sigmoid, |x| 1.0 / (1.0 + (-x).exp())) < 4.0);
    }

    #[test]
    fn extremes() {
        assert_eq!((exp(0.0), exp(-0.0)), (1.0, 1.0));
        assert_eq!((exp(f32::INFINITY), exp(1e30)), (f32::INFINITY, f32::INFINITY));
        assert_eq!((exp(f32::NEG_INFINITY), exp(-1e30)), (0.0, 0.0));
        assert!(exp(f32::NAN).is_nan() && sigmoid(f32::NAN).is_nan() && softplus(f32::NAN).is_nan());
        assert_eq!((sigmoid(f32::INFINITY), sigmoid(f32::NEG_INFINITY)), (1.0, 0.0));
        assert_eq!((softplus(f32::NEG_INFINITY), softplus(f32::INFINITY)), (0.0, f32::INFINITY));
        assert_eq!(silu(0.0), 0.0);
    }
}
