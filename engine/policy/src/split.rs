//! Which branch serves each missed expert of a layer: the CPU, where it lies, or the GPU, copied over PCIe.
//!
//! Both branches work at once and the layer waits for the later one, so the best split has them finish together. Three
//! rules, from the simplest to ours:
//!
//! - [`SplitRule::Fixed`]: the original engine's. Of `n` distinct misses `floor(n * num / 256)` are copied, the last in
//!   order of first appearance. The rounding is part of it: with one miss nothing is ever copied, and with a share of
//!   0.2 nothing is below five.
//! - [`SplitRule::Bandwidth`]: FreeToken's q*, `B_pcie / (B_pcie + B_cpu)`, in whole experts: as many copies as make the
//!   later of `copies * copy` and `rest * cpu` earliest. It knows no fixed costs and takes all experts for equal.
//! - [`SplitRule::Measured`]: from measured times of the layer's branches, with what the GPU has to do anyway, what each
//!   branch takes to start, and how many tokens share an expert. An expert that many tokens share takes the CPU longer
//!   and the link no longer, so those are copied first.
//!
//! Everything is in whole nanoseconds and handed in, so that a replay of the same times decides alike.

use serde::{Deserialize, Serialize};

/// Experts of a layer that can be copied for one round: the original engine's staging slots.
pub const MOST_COPIES: usize = 16;

/// Denominator of [`SplitRule::Fixed`].
pub const SHARES: u32 = 256;

/// How misses are split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "split", rename_all = "kebab-case", deny_unknown_fields)]
pub enum SplitRule {
    /// A fixed share is copied.
    Fixed {
        /// Of 256; more counts as 256.
        num: u32,
    },
    /// Balanced by bandwidths.
    Bandwidth,
    /// Balanced by the measured times of the layer's branches.
    Measured,
}

impl SplitRule {
    /// The fixed rule for a share from 0 to 1, as the original engine rounds it down to 256ths.
    pub fn fixed(share: f32) -> SplitRule {
        // Not a number becomes 0.
        SplitRule::Fixed { num: (share.clamp(0.0, 1.0) * SHARES as f32) as u32 }
    }
}

/// What the branches of one layer take, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BranchTimes {
    /// The GPU with the experts that are resident, before it can turn to copied ones.
    pub resident: u64,
    /// From the decision to a copy's first byte.
    pub copy_start: u64,
    /// The copy of an expert.
    pub copy: u64,
    /// The GPU with an expert that was copied.
    pub gpu: u64,
    /// From the decision to the CPU's first expert, and from its last to the GPU that waits for it.
    pub cpu_start: u64,
    /// The CPU with an expert that one token uses.
    pub cpu: u64,
    /// The CPU with each further token of an expert.
    pub cpu_token: u64,
}

impl BranchTimes {
    /// When the GPU is done, if it is given `copies` experts beside the resident ones.
    pub fn gpu_done(&self, copies: usize) -> u64 {
        if copies == 0 {
            return self.resident;
        }
        let n = copies as u64;
        let copied = self.copy_start.saturating_add(self.copy.saturating_mul(n));
        self.resident.max(copied).saturating_add(self.gpu.saturating_mul(n))
    }

    /// When the CPU is done with `experts` experts that `tokens` tokens use in all.
    pub fn cpu_done(&self, experts: usize, tokens: u64) -> u64 {
        if experts == 0 {
            return 0;
        }
        let n = experts as u64;
        let further = self.cpu_token.saturating_mul(tokens.saturating_sub(n));
        self.cpu_start.saturating_add(self.cpu.saturating_mul(n)).saturating_add(further)
    }

    /// Replaces the times of an expert by what was measured in a round, moving an eighth of the way: a single round
    /// that was disturbed does not turn the split over, and a change of the machine is followed within some rounds.
    ///
    /// `cpu_nanos` and `copy_nanos` are those of the whole branch, for as many experts as are given with them; a branch
    /// without experts teaches nothing.
    pub fn learn(&mut self, cpu_experts: u32, cpu_nanos: u64, copies: u32, copy_nanos: u64) {
        let toward = |old: u64, total: u64, start: u64, n: u32| {
            let Some(each) = total.saturating_sub(start).checked_div(u64::from(n)) else { return old };
            old - old / 8 + each / 8
        };
        self.cpu = toward(self.cpu, cpu_nanos, self.cpu_start, cpu_experts);
        self.copy = toward(self.copy, copy_nanos, self.copy_start, copies);
    }
}

/// Splits the distinct misses of a layer.
///
/// `tokens` says how many tokens of the window use each of them, in order of first appearance by token and then by
/// routing. `to_gpu` is emptied and then says for each whether it is copied. Returns how many are.
pub fn split(rule: SplitRule, tokens: &[u32], times: &BranchTimes, to_gpu: &mut Vec<bool>) -> usize {
    let n = tokens.len();
    let most = n.min(MOST_COPIES);
    to_gpu.clear();
    to_gpu.resize(n, false);
    let copies = match rule {
        SplitRule::Fixed { num } => most.min(n * num.min(SHARES) as usize / SHARES as usize),
        SplitRule::Bandwidth => {
            let done = |m: usize| {
                let (copied, rest) = (times.copy.saturating_mul(m as u64), times.cpu.saturating_mul((n - m) as u64));
                copied.max(rest)
            };
            best(most, done)
        }
        SplitRule::Measured => return by_measured(tokens, times, to_gpu, most),
    };
    to_gpu[n - copies..].fill(true);
    copies
}

/// The least number of copies that is done earliest.
fn best(most: usize, done: impl Fn(usize) -> u64) -> usize {
    (0..=most).min_by_key(|&m| (done(m), m)).unwrap_or(0)
}

fn by_measured(tokens: &[u32], times: &BranchTimes, to_gpu: &mut [bool], most: usize) -> usize {
    // Which experts are copied: those that most tokens share; of these the last in order of appearance.
    let mut order: Vec<usize> = (0..tokens.len()).collect();
    order.sort_unstable_by_key(|&i| std::cmp::Reverse((tokens[i], i)));
    let all: u64 = tokens.iter().map(|&t| u64::from(t)).sum();
    let mut rest = vec![all];
    for (m, &i) in order.iter().take(most).enumerate() {
        rest.push(rest[m] - u64::from(tokens[i]));
    }
    let copies = best(most, |m| times.gpu_done(m).max(times.cpu_done(tokens.len() - m, rest[m])));
    for &i in &order[..copies] {
        to_gpu[i] = true;
    }
    copies
}

/// The share that the original engine takes on a link of this speed, given the one it would take on a fast link: none
/// below 4 GB/s, all of it from 20 GB/s, and in proportion between, at least 0.05.
pub fn share_for_link(share: f32, gigabytes_per_second: f32) -> f32 {
    if gigabytes_per_second >= 20.0 {
        share
    } else if gigabytes_per_second >= 4.0 {
        share.min((share * gigabytes_per_second / 26.0).max(0.05))
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fixed(n: usize, share: f32) -> Vec<bool> {
        let mut to_gpu = Vec::new();
        split(SplitRule::fixed(share), &vec![1; n], &BranchTimes::default(), &mut to_gpu);
        to_gpu
    }

    #[test]
    fn a_fixed_share_is_rounded_down_and_takes_the_last_misses() {
        // 0.2 is 51 of 256.
        assert_eq!(fixed(5, 0.2), [false; 5]);
        assert_eq!(fixed(6, 0.2), [false, false, false, false, false, true]);
        assert_eq!(fixed(1, 0.99), [false]);
        assert_eq!(fixed(1, 1.0), [true]);
        assert_eq!(fixed(4, 0.55), [false, false, true, true]);
        assert_eq!(fixed(40, 1.0).iter().filter(|&&gpu| gpu).count(), MOST_COPIES);
        assert_eq!(fixed(3, f32::NAN), [false; 3]);
    }

    #[test]
    fn the_original_shares_for_slower_links_are_met() {
        // Logged by the original engine: link speed and share, of 0.55.
        for (link, share) in [(57.9, 0.55), (18.5, 0.39), (6.9, 0.15), (5.8, 0.12), (3.9, 0.0)] {
            assert!((share_for_link(0.55, link) - share).abs() < 0.005, "{link}: {}", share_for_link(0.55, link));
        }
    }

    #[test]
    fn bandwidths_are_balanced_in_whole_experts() {
        let times = BranchTimes { copy: 2, cpu: 1, ..BranchTimes::default() };
        let mut to_gpu = Vec::new();
        // q* is 1/3.
        assert_eq!(split(SplitRule::Bandwidth, &[1; 9], &times, &mut to_gpu), 3);
        assert_eq!(to_gpu[6..], [true; 3]);
        // One copy takes as long as two on the CPU.
        assert_eq!(split(SplitRule::Bandwidth, &[1; 2], &times, &mut to_gpu), 0);
        assert_eq!(split(SplitRule::Bandwidth, &[], &times, &mut to_gpu), 0);
    }

    #[test]
    fn experts_that_many_tokens_share_are_copied_first() {
        let times = BranchTimes { copy: 10, cpu: 4, cpu_token: 4, ..BranchTimes::default() };
        let mut to_gpu = Vec::new();
        assert_eq!(split(SplitRule::Measured, &[1, 3, 1, 1], &times, &mut to_gpu), 1);
        assert_eq!(to_gpu, [false, true, false, false]);
    }

    #[test]
    fn times_follow_what_is_measured() {
        let mut times = BranchTimes { cpu: 800, copy: 800, cpu_start: 100, ..BranchTimes::default() };
        times.learn(2, 100 + 2 * 1600, 0, 12345);
        assert_eq!((times.cpu, times.copy), (900, 800));
        for _ in 0..100 {
            times.learn(0, 0, 4, 400);
        }
        assert!(times.copy < 110, "{}", times.copy);
    }

    proptest! {
        #[test]
        fn no_other_split_of_a_layer_is_done_earlier(
            tokens in prop::collection::vec(1u32..5, 0..9),
            (resident, copy_start, copy, gpu) in (0u64..50, 0u64..20, 0u64..30, 0u64..5),
            (cpu_start, cpu, cpu_token) in (0u64..20, 0u64..30, 0u64..30),
        ) {
            let times = BranchTimes { resident, copy_start, copy, gpu, cpu_start, cpu, cpu_token };
            let done = |to_gpu: &dyn Fn(usize) -> bool| {
                let on_cpu = (0..tokens.len()).filter(|&i| !to_gpu(i));
                let (experts, sum) = on_cpu.fold((0, 0), |(n, sum), i| (n + 1, sum + u64::from(tokens[i])));
                times.gpu_done(tokens.len() - experts).max(times.cpu_done(experts, sum))
            };
            let mut to_gpu = Vec::new();
            let copies = split(SplitRule::Measured, &tokens, &times, &mut to_gpu);
            prop_assert_eq!(copies, to_gpu.iter().filter(|&&gpu| gpu).count());
            let ours = done(&|i| to_gpu[i]);
            for other in 0u32..1 << tokens.len() {
                prop_assert!(ours <= done(&|i| other >> i & 1 == 1));
            }
        }
    }
}
