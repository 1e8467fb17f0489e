//! The knobs of the expert cache.

use super::{MIB_MAX, PLAIN};
use crate::knob::{Kind, Knob, Verb};

/// Where tokens are computed and somebody is asked how.
const COMPUTING: &[Verb] = &[Verb::Run, Verb::Serve, Verb::Bench];
/// For `strata.toml`, variables and sweeps; help would grow long with what few people touch.
const TUNING: &[Verb] = &[];

/// More experts than any model has.
const EXPERTS_MAX: u64 = 1 << 24;

/// `experts.policy`
pub static POLICY: Knob = Knob {
    key: "experts.policy",
    flag: "policy",
    env: "STRATA_POLICY",
    kind: Kind::Choice(&["static", "lru", "lfu", "adaptive", "s3-fifo", "saving", "belady", "infinite"]),
    help: "Which experts are resident on the GPU; belady knows the future and is for replays",
    long_help: "What a GPU holds does not change yet while the program runs. With a size (--slots or --vram) a recording \
                (--trace) holds what the cache would do, hits and changes, and nothing is moved. The answer is the same for \
                all policies.",
    verbs: COMPUTING,
    ..PLAIN
};

/// `experts.slots`
pub static SLOTS: Knob = Knob {
    key: "experts.slots",
    flag: "slots",
    env: "STRATA_SLOTS",
    kind: Kind::Int { min: 0, max: EXPERTS_MAX },
    unit: "experts",
    help: "Room for resident experts, as a number of them",
    unset: Some("no expert cache, unless there is --vram"),
    verbs: COMPUTING,
    ..PLAIN
};

/// `experts.vram`
pub static VRAM: Knob = Knob {
    key: "experts.vram",
    flag: "vram",
    env: "STRATA_VRAM",
    kind: Kind::Int { min: 0, max: MIB_MAX },
    unit: "MiB",
    help: "Room for resident experts, as memory, of which each takes what it needs; instead of --slots",
    unset: Some("no expert cache, unless there are --slots"),
    verbs: COMPUTING,
    ..PLAIN
};

/// `experts.scope`
pub static SCOPE: Knob = Knob {
    key: "experts.scope",
    flag: "scope",
    env: "STRATA_SCOPE",
    kind: Kind::Choice(&["global", "per-layer"]),
    help: "Whether the experts of all layers compete for room, or each layer has an equal part",
    verbs: COMPUTING,
    ..PLAIN
};

/// `experts.admission`
pub static ADMISSION: Knob = Knob {
    key: "experts.admission",
    flag: "admission",
    env: "STRATA_ADMISSION",
    kind: Kind::Choice(&["evict-first", "wait-for-copy"]),
    help: "When an expert makes room: before the copy of the one that comes, or when that has landed",
    long_help: "Waiting keeps it usable for longer and takes room for the copies under way.",
    verbs: COMPUTING,
    ..PLAIN
};

/// `experts.copy_rounds`
pub static COPY_ROUNDS: Knob = Knob {
    key: "experts.copy_rounds",
    flag: "copy-rounds",
    env: "STRATA_COPY_ROUNDS",
    kind: Kind::Int { min: 0, max: 65536 },
    unit: "rounds",
    help: "Rounds of decoding that a copy to the GPU is given; 0 = it is waited for",
    verbs: COMPUTING,
    ..PLAIN
};

/// `experts.insert_budget`
pub static INSERT_BUDGET: Knob = Knob {
    key: "experts.insert_budget",
    flag: "insert-budget",
    env: "STRATA_INSERT_BUDGET",
    kind: Kind::Int { min: 0, max: EXPERTS_MAX },
    unit: "experts",
    help: "Copies to the GPU that begin after one round at most",
    unset: Some("as many as the policy wants"),
    verbs: COMPUTING,
    ..PLAIN
};

/// `experts.count_prefill`
pub static COUNT_PREFILL: Knob = Knob {
    key: "experts.count_prefill",
    flag: "count-prefill",
    env: "STRATA_COUNT_PREFILL",
    kind: Kind::Bool,
    help: "Let the experts that a prompt uses count for the policy",
    verbs: TUNING,
    ..PLAIN
};

/// `experts.adapt_every`
pub static ADAPT_EVERY: Knob = Knob {
    key: "experts.adapt_every",
    flag: "adapt-every",
    env: "STRATA_ADAPT_EVERY",
    kind: Kind::Int { min: 1, max: 65536 },
    unit: "rounds",
    help: "Rounds from one adaptation of the adaptive policy to the next, and from decay to decay of lfu",
    verbs: TUNING,
    ..PLAIN
};

/// `experts.adapt_swaps`
pub static ADAPT_SWAPS: Knob = Knob {
    key: "experts.adapt_swaps",
    flag: "adapt-swaps",
    env: "STRATA_ADAPT_SWAPS",
    kind: Kind::Int { min: 0, max: EXPERTS_MAX },
    unit: "experts",
    help: "Experts that the adaptive policy swaps at one adaptation at most",
    verbs: TUNING,
    ..PLAIN
};

/// `experts.adapt_min_use`
pub static ADAPT_MIN_USE: Knob = Knob {
    key: "experts.adapt_min_use",
    flag: "adapt-min-use",
    env: "STRATA_ADAPT_MIN_USE",
    kind: Kind::Float { min: 0.0, max: 1e6 },
    help: "Uses that an expert needs before the adaptive policy brings it in",
    verbs: TUNING,
    ..PLAIN
};

/// `experts.adapt_gain`
pub static ADAPT_GAIN: Knob = Knob {
    key: "experts.adapt_gain",
    flag: "adapt-gain",
    env: "STRATA_ADAPT_GAIN",
    kind: Kind::Float { min: 0.0, max: 1e6 },
    help: "Uses that it needs beyond those of the expert that leaves",
    verbs: TUNING,
    ..PLAIN
};

/// `experts.decay`
pub static DECAY: Knob = Knob {
    key: "experts.decay",
    flag: "decay",
    env: "STRATA_DECAY",
    kind: Kind::Float { min: 0.0, max: 1.0 },
    help: "What the adaptive policy and lfu multiply uses by every --adapt-every rounds; 1 = none is forgotten",
    verbs: TUNING,
    ..PLAIN
};

/// `experts.lfu_remember`
pub static LFU_REMEMBER: Knob = Knob {
    key: "experts.lfu_remember",
    flag: "lfu-remember",
    env: "STRATA_LFU_REMEMBER",
    kind: Kind::Bool,
    help: "Let lfu remember the uses of experts that are not resident",
    verbs: TUNING,
    ..PLAIN
};

/// `experts.bypass`
pub static BYPASS: Knob = Knob {
    key: "experts.bypass",
    flag: "bypass",
    env: "STRATA_BYPASS",
    kind: Kind::Bool,
    help: "Let lfu and belady leave out an expert that is worth less than what would make room for it",
    verbs: TUNING,
    ..PLAIN
};

/// `experts.saving_fast`
pub static SAVING_FAST: Knob = Knob {
    key: "experts.saving_fast",
    flag: "saving-fast",
    env: "STRATA_SAVING_FAST",
    kind: Kind::Float { min: 0.0, max: 1.0 },
    help: "Decay per round of the saving policy's short memory of use",
    verbs: TUNING,
    ..PLAIN
};

/// `experts.saving_slow`
pub static SAVING_SLOW: Knob = Knob {
    key: "experts.saving_slow",
    flag: "saving-slow",
    env: "STRATA_SAVING_SLOW",
    kind: Kind::Float { min: 0.0, max: 1.0 },
    help: "Decay per round of its long memory",
    verbs: TUNING,
    ..PLAIN
};

/// `experts.saving_burst`
pub static SAVING_BURST: Knob = Knob {
    key: "experts.saving_burst",
    flag: "saving-burst",
    env: "STRATA_SAVING_BURST",
    kind: Kind::Float { min: 0.0, max: 1.0 },
    help: "Share of what its short memory sees beyond its long one that is expected to come true",
    verbs: TUNING,
    ..PLAIN
};

/// `experts.saving_horizon`
pub static SAVING_HORIZON: Knob = Knob {
    key: "experts.saving_horizon",
    flag: "saving-horizon",
    env: "STRATA_SAVING_HORIZON",
    kind: Kind::Float { min: 0.0, max: 1e6 },
    unit: "rounds",
    help: "Rounds within which a move of the saving policy must pay for its copy",
    verbs: TUNING,
    ..PLAIN
};

/// `experts.saving_copy`
pub static SAVING_COPY: Knob = Knob {
    key: "experts.saving_copy",
    flag: "saving-copy",
    env: "STRATA_SAVING_COPY",
    kind: Kind::Float { min: 0.0, max: 1e6 },
    help: "Share of a copy's time that the saving policy counts as lost",
    verbs: TUNING,
    ..PLAIN
};

/// `experts.split`
pub static SPLIT: Knob = Knob {
    key: "experts.split",
    flag: "split",
    env: "STRATA_SPLIT",
    kind: Kind::Choice(&["fixed", "bandwidth", "measured"]),
    help: "How missed experts are split between CPU and GPU: by --pcie-share, or balanced by speed or time",
    verbs: TUNING,
    ..PLAIN
};

/// `experts.pcie_share`
pub static PCIE_SHARE: Knob = Knob {
    key: "experts.pcie_share",
    flag: "pcie-share",
    env: "STRATA_PCIE_SHARE",
    kind: Kind::Float { min: 0.0, max: 1.0 },
    help: "Share of a layer's missed experts that a fixed split copies to the GPU, rounded down",
    verbs: TUNING,
    ..PLAIN
};
