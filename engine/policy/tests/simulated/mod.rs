//! A simulated engine: costs, acceptance and confidence are parameters, chance is a seeded generator.

use strata_policy::window::{Match, Offer, Outcome, Policy, Round, Settings, Source};

/// The original engine's prior cost shape, and shapes that differ from it.
pub(crate) const USUAL: [f64; 8] = [1.0, 1.35, 1.7, 2.05, 2.45, 2.85, 3.25, 3.6];
pub(crate) const FLAT: [f64; 8] = [1.0, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.35];
pub(crate) const STEEP: [f64; 8] = [1.0, 1.7, 2.4, 3.1, 3.8, 4.5, 5.2, 5.9];
pub(crate) const STAIRS: [f64; 8] = [1.0, 1.6, 1.65, 1.7, 2.6, 2.65, 2.7, 2.75];
pub(crate) const SHAPES: [(&str, [f64; 8]); 4] =
    [("usual", USUAL), ("flat", FLAT), ("steep", STEEP), ("stairs", STAIRS)];

/// SplitMix64.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// What the draft layer's probabilities say.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Confidence {
    /// The same whatever happens.
    Constant(f32),
    /// Anything, without regard to what happens.
    Noise,
    /// The probability of being accepted.
    Honest,
}

#[derive(Clone, Copy)]
pub(crate) struct World {
    /// Relative cost of windows; one row takes 20 ms.
    pub(crate) shape: [f64; 8],
    /// Relative cost of a draft step.
    pub(crate) step: f64,
    /// Acceptance of the draft layer's drafts, each given those before it.
    pub(crate) mtp: f64,
    pub(crate) confidence: Confidence,
    /// How often lookup finds a match of this length, and the acceptance of its drafts.
    pub(crate) matches: f64,
    pub(crate) length: usize,
    pub(crate) lookup: f64,
    /// Whether a proposal of lookup is right or wrong as a whole.
    pub(crate) whole: bool,
}

pub(crate) const WORLD: World = World {
    shape: USUAL,
    step: 0.05,
    mtp: 0.7,
    confidence: Confidence::Constant(0.8),
    matches: 0.0,
    length: 10,
    lookup: 0.0,
    whole: false,
};

#[derive(Default, Clone, Debug, PartialEq)]
pub(crate) struct Sum {
    pub(crate) rounds: usize,
    pub(crate) tokens: f64,
    /// In windows of one row.
    pub(crate) cost: f64,
    pub(crate) rows: [usize; 9],
    pub(crate) steps: usize,
}

impl Sum {
    pub(crate) fn rate(&self) -> f64 {
        self.tokens / self.cost
    }
}

impl World {
    /// Tokens per cost of the best fixed number of drafts of the draft layer, without regard to confidence.
    pub(crate) fn best_fixed(&self) -> f64 {
        let rate = |a: f64, step: f64, k: usize| {
            let tokens: f64 = (0..=k as i32).map(|i| a.powi(i)).sum();
            tokens / (self.shape[k] + step * k as f64)
        };
        (0..8).map(|k| rate(self.mtp, self.step, k)).fold(0.0, f64::max)
    }

    /// Runs rounds and adds them up; `each` sees every round.
    pub(crate) fn run_with(
        &self,
        policy: &mut Policy,
        chance: &mut Chance,
        rounds: usize,
        mut each: impl FnMut(&Round<'_>),
    ) -> Sum {
        let mut sum = Sum::default();
        for _ in 0..rounds {
            // What the round would show of each source, drawn whether it is used or not.
            let mut draws: Vec<(f32, bool, bool)> = (0..16).map(|_| self.draw(chance)).collect();
            if self.whole {
                let right = draws[0].2;
                draws.iter_mut().for_each(|draw| draw.2 = right);
            }
            let found = (chance.unit() < self.matches).then_some(Match { length: self.length, drafts: 7 });
            let noise = 0.9 + 0.2 * chance.unit();
            let agrees = |i: usize| draws[i].1 && draws[i].2;

            let plan = policy.plan(Offer { lookup: found, mtp: true, remaining: 1000 });
            let mut probabilities = Vec::new();
            let mut agreeing = found;
            while policy.go_on(&plan, &probabilities, agreeing) {
                agreeing = agreeing.filter(|_| agrees(probabilities.len()));
                probabilities.push(draws[probabilities.len()].0);
            }
            let window = policy.window(&plan, &probabilities, agreeing);
            let right = |i: usize| if i < window.mtp { draws[i].1 } else { draws[i].2 };
            let accepted = (0..window.drafts()).take_while(|&i| right(i)).count();
            let leading = |limit: usize, f: &dyn Fn(usize) -> bool| (0..limit).take_while(|&i| f(i)).count();
            let committed = accepted + 1;
            let lookup = found.map(|found| Outcome {
                found,
                agreed: leading(found.drafts.min(committed), &|i| draws[i].2),
                confirmed: leading(probabilities.len(), &agrees),
            });
            let verify = self.shape[window.drafts()];
            let draft = self.step * probabilities.len() as f64;
            let round = Round {
                plan,
                window,
                accepted,
                probabilities: &probabilities,
                mtp_agreed: leading(probabilities.len().min(committed), &|i| draws[i].1),
                lookup,
                seconds_verify: 0.020 * verify * noise,
                seconds_draft: 0.020 * draft * noise,
            };
            each(&round);
            policy.record(&round);
            sum.rounds += 1;
            sum.tokens += committed as f64;
            sum.cost += verify + draft;
            sum.rows[window.rows()] += 1;
            sum.steps += probabilities.len();
        }
        sum
    }

    pub(crate) fn run(&self, policy: &mut Policy, chance: &mut Chance, rounds: usize) -> Sum {
        self.run_with(policy, chance, rounds, |_| ())
    }

    /// A fresh policy that may use `source`, run from its first round.
    pub(crate) fn fresh(&self, source: Source, seed: u64, rounds: usize) -> Sum {
        let mut policy = Policy::new(Settings { source, ..Settings::default() });
        self.run(&mut policy, &mut Chance(seed), rounds)
    }

    fn draw(&self, chance: &mut Chance) -> (f32, bool, bool) {
        // A power of a uniform number with the mean that is asked for.
        let likely = if self.mtp > 0.0 { chance.unit().powf((1.0 - self.mtp) / self.mtp) } else { 0.0 };
        let (p, a) = match self.confidence {
            Confidence::Constant(p) => (p, self.mtp),
            Confidence::Noise => (chance.unit() as f32, self.mtp),
            Confidence::Honest => (likely as f32, likely),
        };
        (p, chance.unit() < a, chance.unit() < self.lookup)
    }
}
