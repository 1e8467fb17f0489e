//! The one dot product: its order of additions is part of the engine's results.

/// Partial sums kept side by side. Fixed, because it decides the order of additions.
pub(crate) const LANES: usize = 16;

/// Partial sums of a dot product that is fed piece by piece.
///
/// Element `i` of a piece goes to lane `i mod 16`; lanes are joined by a fixed tree at the end. Every piece but the
/// last must be a multiple of 16 long for the result to equal that of one long piece.
#[derive(Clone, Copy)]
pub(crate) struct Sums([f32; LANES]);

impl Sums {
    pub(crate) const ZERO: Sums = Sums([0.0; LANES]);

    /// Adds the products of two pieces of equal length.
    #[inline(always)]
    pub(crate) fn add(&mut self, a: &[f32], b: &[f32]) {
        let (a_whole, a_rest) = a.as_chunks::<LANES>();
        let (b_whole, b_rest) = b.as_chunks::<LANES>();
        for (x, y) in a_whole.iter().zip(b_whole) {
            for lane in 0..LANES {
                self.0[lane] += x[lane] * y[lane];
            }
        }
        for (lane, (x, y)) in a_rest.iter().zip(b_rest).enumerate() {
            self.0[lane] += x * y;
        }
    }

    /// The sum of the lanes: halves added pairwise until one is left.
    #[inline(always)]
    pub(crate) fn total(self) -> f32 {
        let mut s = self.0;
        let mut width = LANES / 2;
        while width > 0 {
            for lane in 0..width {
                s[lane] += s[lane + width];
            }
            width /= 2;
        }
        s[0]
    }
}

/// The dot product of two slices; the shorter length counts.
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    let n = a.len().min(b.len());
    let mut sums = Sums::ZERO;
    sums.add(&a[..n], &b[..n]);
    sums.total()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_whole_lanes_give_the_bits_of_one_piece() {
        let a: Vec<f32> = (0..300).map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.173).collect();
        let b: Vec<f32> = (0..300).map(|i| ((i * 53 % 97) as f32 - 48.0) * 0.091).collect();
        let mut sums = Sums::ZERO;
        for piece in [0..64, 64..256, 256..300] {
            sums.add(&a[piece.clone()], &b[piece]);
        }
        assert_eq!(sums.total().to_bits(), dot(&a, &b).to_bits());
    }

    #[test]
    fn is_close_to_the_sum_in_double_precision() {
        let a: Vec<f32> = (0..1001).map(|i| (i as f32 * 0.7).sin()).collect();
        let b: Vec<f32> = (0..1001).map(|i| (i as f32 * 0.3).cos()).collect();
        let exact: f64 = a.iter().zip(&b).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum();
        assert!((f64::from(dot(&a, &b)) - exact).abs() < 1e-4);
    }
}
