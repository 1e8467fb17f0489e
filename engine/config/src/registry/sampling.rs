//! The knobs of drawing tokens.

use super::{ANSWERING, CONTEXT_MAX, PLAIN};
use crate::knob::{Kind, Knob};

/// `sampling.temp`
pub static TEMP: Knob = Knob {
    key: "sampling.temp",
    flag: "temp",
    env: "STRATA_TEMP",
    kind: Kind::Float { min: 0.0, max: 10.0 },
    help: "How freely tokens are drawn; 0 = always the likeliest token",
    long_help: "Logits are divided by this number before a token is drawn. At 0 the answer is the same on every run, \
                and --top-k, --top-p, --min-p and --seed have no effect.",
    model_key: Some("general.sampling.temp"),
    verbs: ANSWERING,
    ..PLAIN
};

/// `sampling.top_k`
pub static TOP_K: Knob = Knob {
    key: "sampling.top_k",
    flag: "top-k",
    env: "STRATA_TOP_K",
    kind: Kind::Int { min: 0, max: 1_000_000 },
    help: "Draw from the K likeliest tokens only; 0 = off",
    model_key: Some("general.sampling.top_k"),
    verbs: ANSWERING,
    ..PLAIN
};

/// `sampling.top_p`
pub static TOP_P: Knob = Knob {
    key: "sampling.top_p",
    flag: "top-p",
    env: "STRATA_TOP_P",
    kind: Kind::Float { min: 0.0, max: 1.0 },
    help: "Draw from the likeliest tokens that together have this probability; 1 = off",
    model_key: Some("general.sampling.top_p"),
    verbs: ANSWERING,
    ..PLAIN
};

/// `sampling.min_p`
pub static MIN_P: Knob = Knob {
    key: "sampling.min_p",
    flag: "min-p",
    env: "STRATA_MIN_P",
    kind: Kind::Float { min: 0.0, max: 1.0 },
    help: "Drop tokens less likely than this share of the likeliest one; 0 = off",
    model_key: Some("general.sampling.min_p"),
    verbs: ANSWERING,
    ..PLAIN
};

/// `sampling.repeat_penalty`
pub static REPEAT_PENALTY: Knob = Knob {
    key: "sampling.repeat_penalty",
    flag: "repeat-penalty",
    env: "STRATA_REPEAT_PENALTY",
    kind: Kind::Float { min: 0.1, max: 10.0 },
    help: "Make recent tokens less likely by this factor; 1 = off",
    model_key: Some("general.sampling.penalty_repeat"),
    verbs: ANSWERING,
    ..PLAIN
};

/// `sampling.repeat_last_n`
pub static REPEAT_LAST_N: Knob = Knob {
    key: "sampling.repeat_last_n",
    flag: "repeat-last-n",
    env: "STRATA_REPEAT_LAST_N",
    kind: Kind::Int { min: 0, max: CONTEXT_MAX },
    unit: "tokens",
    help: "How many recent tokens, prompt included, the repeat penalty looks at; 0 = none",
    model_key: Some("general.sampling.penalty_last_n"),
    verbs: ANSWERING,
    ..PLAIN
};

/// `sampling.presence_penalty`
pub static PRESENCE_PENALTY: Knob = Knob {
    key: "sampling.presence_penalty",
    flag: "presence-penalty",
    env: "STRATA_PRESENCE_PENALTY",
    kind: Kind::Float { min: -2.0, max: 2.0 },
    help: "Subtract this from the logit of every token that the answer holds already; 0 = off",
    verbs: ANSWERING,
    ..PLAIN
};

/// `sampling.frequency_penalty`
pub static FREQUENCY_PENALTY: Knob = Knob {
    key: "sampling.frequency_penalty",
    flag: "frequency-penalty",
    env: "STRATA_FREQUENCY_PENALTY",
    kind: Kind::Float { min: -2.0, max: 2.0 },
    help: "Subtract this from a token\'s logit for each time that the answer holds it; 0 = off",
    verbs: ANSWERING,
    ..PLAIN
};

/// `sampling.seed`
pub static SEED: Knob = Knob {
    key: "sampling.seed",
    flag: "seed",
    env: "STRATA_SEED",
    kind: Kind::Int { min: 0, max: u64::MAX },
    help: "Start of the random numbers; the same seed gives the same answer",
    unset: Some("another one on each run"),
    verbs: ANSWERING,
    ..PLAIN
};

/// `sampling.max_tokens`
pub static MAX_TOKENS: Knob = Knob {
    key: "sampling.max_tokens",
    flag: "max-tokens",
    env: "STRATA_MAX_TOKENS",
    kind: Kind::Int { min: 0, max: CONTEXT_MAX },
    unit: "tokens",
    help: "Longest answer; 0 = until the answer ends or the context is full",
    verbs: ANSWERING,
    ..PLAIN
};
