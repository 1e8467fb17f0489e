//! The link to the host's memory: which missed experts it brings.

use super::recording::lock;
use std::sync::Mutex;
use std::time::Duration;
use strata_cuda::Slots;
use strata_policy::split::{BranchTimes, SplitRule, split};

/// Slots for experts that are brought for a layer of a round, and what that takes.
pub(crate) struct Link {
    slots: Slots,
    rule: SplitRule,
    times: Mutex<BranchTimes>,
}

impl Link {
    /// A link that brings an expert in `copy`.
    pub(super) fn new(slots: Slots, rule: SplitRule, copy: Duration) -> Link {
        let copy = nanos(copy);
        // Kernels beside experts: their start, and what unpacks. The CPU's times are those of a slow one until they are known.
        let times = BranchTimes {
            resident: 15_000,
            copy_start: 25_000,
            copy,
            gpu: 1_000,
            cpu_start: 10_000,
            cpu: 2 * copy,
            cpu_token: copy / 2,
        };
        Link { slots, rule, times: Mutex::new(times) }
    }

    pub(super) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Which of the missed experts are brought, given how many tokens use each.
    pub(super) fn split(&self, tokens: &[u32]) -> Vec<bool> {
        let mut to_gpu = Vec::new();
        split(self.rule, tokens, &lock(&self.times), &mut to_gpu);
        to_gpu
    }

    /// Takes note of what the CPU took for its experts.
    pub(super) fn learn(&self, experts: usize, took: Duration) {
        lock(&self.times).learn(u32::try_from(experts).unwrap_or(u32::MAX), nanos(took), 0, 0);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
