//! Numbers that come out alike on every machine: random ones, logarithms and powers.
//!
//! IEEE 754 prescribes the last bit of additions, multiplications and divisions, not that of logarithms and powers,
//! which each platform's library rounds in its own way. So those are made of the former here, in a fixed order.

/// The generator SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The numbers that begin at `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// 64 random bits.
    #[expect(clippy::should_implement_trait, reason = "the numbers never end, so there is nothing to be optional")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, or 0 for 0. The bias is below `n` / 2^64.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// Yes, with a chance given in units of 2^-32.
    pub(crate) fn chance(&mut self, of: u64) -> bool {
        self.next() >> 32 < of
    }

    /// Any order of the elements, each as likely.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

/// A chance from 0 to 1 in units of 2^-32, for [`Random::chance`].
pub(crate) fn chance_of(probability: f64) -> u64 {
    (probability.clamp(0.0, 1.0) * 4_294_967_296.0) as u64
}

/// The natural logarithm of a finite number of at least 1, within 2^-50 of its size or so.
pub(crate) fn ln(x: f64) -> f64 {
    let (mut x, mut halvings) = (x, 0u32);
    while x > 4.0 / 3.0 {
        x *= 0.5;
        halvings += 1;
    }
    // ln x = 2 artanh((x - 1) / (x + 1)), whose argument lies within 1/5 of 0.
    let y = (x - 1.0) / (x + 1.0);
    let square = y * y;
    let mut sum = 0.0;
    for n in (0..14).rev() {
        sum = sum * square + 1.0 / f64::from(2 * n + 1);
    }
    2.0 * y * sum + f64::from(halvings) * std::f64::consts::LN_2
}

/// e to the power of a finite number.
pub(crate) fn exp(x: f64) -> f64 {
    let whole = (x * std::f64::consts::LOG2_E).floor().clamp(-1000.0, 1000.0);
    let rest = x - whole * std::f64::consts::LN_2;
    let mut sum = 1.0;
    for n in (1..=20).rev() {
        sum = 1.0 + sum * rest / f64::from(n);
    }
    let factor = if whole < 0.0 { 0.5 } else { 2.0 };
    (0..whole.abs() as u32).fold(sum, |v, _| v * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_and_powers_are_those_of_the_library_but_for_the_last_bits() {
        for i in 1..70_000 {
            let x = f64::from(i);
            assert!((ln(x) - x.ln()).abs() <= 1e-14 * x.ln().max(1.0), "{x}");
        }
        for i in -2000..200 {
            let x = f64::from(i) * 0.0431;
            assert!((exp(x) / x.exp() - 1.0).abs() < 1e-13, "{x}");
        }
    }

    #[test]
    fn random_numbers_are_those_of_the_published_generator() {
        // The first outputs for seed 1234567, as other implementations list them.
        let mut random = Random::new(1_234_567);
        let want = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(want.map(|_| random.next()), want);
    }

    #[test]
    fn chances_are_kept() {
        let mut random = Random::new(3);
        let hits = (0..100_000).filter(|_| random.chance(chance_of(0.3))).count();
        assert!((29_000..31_000).contains(&hits), "{hits}");
        assert!(random.chance(chance_of(1.0)) && !random.chance(chance_of(0.0)));
    }
}
