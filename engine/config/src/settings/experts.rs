//! The settings of the expert cache.

use super::Resolved;
use crate::error::ConfigError;
use crate::registry::*;

/// Which experts are resident on the GPU, and how misses are served.
///
/// What the policies need of it they ask for by name: `strata_policy::cache::CacheParams::from_knobs` takes
/// [`Settings::expert_knob`](crate::Settings::expert_knob).
#[derive(Debug, Clone, PartialEq)]
pub struct Experts {
    /// The name of a policy.
    pub policy: String,
    /// Room as a number of experts; `None` = there is none, or it is given by `vram`.
    pub slots: Option<usize>,
    /// Room in MiB.
    pub vram: Option<usize>,
    /// `global` or `per-layer`.
    pub scope: String,
    /// `evict-first` or `wait-for-copy`.
    pub admission: String,
    /// Round boundaries that a copy takes; 0 = it is waited for.
    pub copy_rounds: usize,
    /// Copies that begin after one round at most; `None` = no limit.
    pub insert_budget: Option<usize>,
    /// Prompts count as use.
    pub count_prefill: bool,
    /// Rounds between adaptations.
    pub adapt_every: usize,
    /// Experts swapped at one adaptation at most.
    pub adapt_swaps: usize,
    /// Least use of an expert that comes in.
    pub adapt_min_use: f32,
    /// How much more it must have been used than what leaves.
    pub adapt_gain: f32,
    /// What uses are multiplied by at each adaptation.
    pub decay: f32,
    /// The use of experts that are not resident is remembered by `lfu`.
    pub lfu_remember: bool,
    /// `lfu` and `belady` may leave a miss out.
    pub bypass: bool,
    /// Decay of the short memory of `saving`.
    pub saving_fast: f32,
    /// Decay of its long memory.
    pub saving_slow: f32,
    /// Share of what its short memory sees that is expected to come true.
    pub saving_burst: f32,
    /// Rounds within which its moves must pay.
    pub saving_horizon: f32,
    /// Share of a copy that it counts as lost.
    pub saving_copy: f32,
    /// `fixed`, `bandwidth` or `measured`.
    pub split: String,
    /// Share of misses that a fixed split copies.
    pub pcie_share: f32,
}

impl Experts {
    pub(super) fn new(values: &Resolved) -> Result<Experts, ConfigError> {
        Ok(Experts {
            policy: values.text(&POLICY)?,
            slots: values.maybe_int(&SLOTS),
            vram: values.maybe_int(&VRAM),
            scope: values.text(&SCOPE)?,
            admission: values.text(&ADMISSION)?,
            copy_rounds: values.int(&COPY_ROUNDS)?,
            insert_budget: values.maybe_int(&INSERT_BUDGET),
            count_prefill: values.truth(&COUNT_PREFILL)?,
            adapt_every: values.int(&ADAPT_EVERY)?,
            adapt_swaps: values.int(&ADAPT_SWAPS)?,
            adapt_min_use: values.float(&ADAPT_MIN_USE)?,
            adapt_gain: values.float(&ADAPT_GAIN)?,
            decay: values.float(&DECAY)?,
            lfu_remember: values.truth(&LFU_REMEMBER)?,
            bypass: values.truth(&BYPASS)?,
            saving_fast: values.float(&SAVING_FAST)?,
            saving_slow: values.float(&SAVING_SLOW)?,
            saving_burst: values.float(&SAVING_BURST)?,
            saving_horizon: values.float(&SAVING_HORIZON)?,
            saving_copy: values.float(&SAVING_COPY)?,
            split: values.text(&SPLIT)?,
            pcie_share: values.float(&PCIE_SHARE)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Layer, Origin, Settings};

    #[test]
    fn every_knob_of_the_experts_reaches_its_field() {
        let file = Layer::from_toml(
            "x.toml",
            "[experts]\npolicy = 'saving'\nslots = 1\nvram = 2\nscope = 'per-layer'\nadmission = 'wait-for-copy'\n\
             copy_rounds = 3\ninsert_budget = 4\ncount_prefill = true\nadapt_every = 5\nadapt_swaps = 6\n\
             adapt_min_use = 7\nadapt_gain = 8\ndecay = 0.5\nlfu_remember = false\nbypass = false\n\
             saving_fast = 0.125\nsaving_slow = 0.25\nsaving_burst = 0.75\nsaving_horizon = 9\nsaving_copy = 10\n\
             split = 'measured'\npcie_share = 0.625\n",
        )
        .unwrap();
        let [flags, env, model] = [Origin::Flag, Origin::Env, Origin::Model].map(Layer::empty);
        let s = Settings::resolve(flags, env, file, model).unwrap();
        let mut given = s.iter().filter(|(knob, _)| knob.section() == "experts");
        assert!(given.all(|(_, v)| v.is_some_and(|(_, origin)| origin == &Origin::File("x.toml".into()))));
        let want = Experts {
            policy: "saving".into(),
            slots: Some(1),
            vram: Some(2),
            scope: "per-layer".into(),
            admission: "wait-for-copy".into(),
            copy_rounds: 3,
            insert_budget: Some(4),
            count_prefill: true,
            adapt_every: 5,
            adapt_swaps: 6,
            adapt_min_use: 7.0,
            adapt_gain: 8.0,
            decay: 0.5,
            lfu_remember: false,
            bypass: false,
            saving_fast: 0.125,
            saving_slow: 0.25,
            saving_burst: 0.75,
            saving_horizon: 9.0,
            saving_copy: 10.0,
            split: "measured".into(),
            pcie_share: 0.625,
        };
        assert_eq!(s.experts, want);
        assert_eq!(s.expert_knob("decay").as_deref(), Some("0.5"));
        assert_eq!(s.expert_knob("ctx"), None);
    }
}
