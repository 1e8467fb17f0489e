//! The knobs of what computes.

use super::PLAIN;
use crate::knob::{Kind, Knob};

/// `engine.device`
pub static DEVICE: Knob = Knob {
    key: "engine.device",
    flag: "device",
    env: "STRATA_DEVICE",
    kind: Kind::Device,
    help: "What computes; auto = an NVIDIA GPU if there is one that can and has room, else the CPU",
    long_help: "A GPU needs compute capability 7.5 (Turing, 2018) and driver 570 or newer. It holds the dense weights and as \
                many experts as there is room for; the CPU computes the others. The answer is the same for all of them. \
                `strata plan` says beforehand what would lie where.",
    ..PLAIN
};

/// `engine.vram_budget`
pub static VRAM_BUDGET: Knob = Knob {
    key: "engine.vram_budget",
    flag: "vram-budget",
    env: "STRATA_VRAM_BUDGET",
    kind: Kind::Bytes,
    help: "Memory of the GPU to plan with, as 12GiB, of which 5 % stay free",
    unset: Some("what is free, of which 512 MiB or 5 % stay so, whichever is more"),
    ..PLAIN
};

/// `engine.expert_profile`
pub static EXPERT_PROFILE: Knob = Knob {
    key: "engine.expert_profile",
    flag: "expert-profile",
    env: "STRATA_EXPERT_PROFILE",
    kind: Kind::Path,
    help: "How often experts are used, of `strata trace profile`: the GPU holds those used most",
    unset: Some("none: it holds equally many of each layer"),
    ..PLAIN
};
