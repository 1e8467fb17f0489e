//! Every knob there is.
//!
//! A knob is added here, given a default in `defaults.toml` (or words for what its absence means), and given a field in
//! [`crate::Settings`]. Flags, files, variables, help and sweeps follow.

use crate::knob::{Kind, Knob, Verb};

mod device;
mod experts;
mod sampling;
mod server;

pub use device::*;
pub use experts::*;
pub use sampling::*;
pub use server::*;

/// Longest context that may be asked for. The published model is trained to 262,144 tokens; the room above is for
/// models trained further.
const CONTEXT_MAX: u64 = 1 << 20;

/// More memory or disk than any machine has.
const MIB_MAX: u64 = 1 << 30;

const EVERYWHERE: &[Verb] = &[Verb::Run, Verb::Serve, Verb::Bench];
/// A measurement takes its model as an argument, and says itself how much is read and written.
const ANSWERING: &[Verb] = &[Verb::Run, Verb::Serve];

/// What most knobs have in common.
const PLAIN: Knob = Knob {
    key: "",
    flag: "",
    short: None,
    env: "",
    kind: Kind::Text,
    unit: "",
    help: "",
    long_help: "",
    unset: None,
    model_key: None,
    secret: false,
    verbs: EVERYWHERE,
};

/// `engine.model`
pub static MODEL: Knob = Knob {
    key: "engine.model",
    flag: "model",
    short: Some('m'),
    env: "STRATA_MODEL",
    kind: Kind::Path,
    help: "The model: a .gguf file, any shard of a set, or the folder of one model",
    unset: Some("nano, built in"),
    verbs: ANSWERING,
    ..PLAIN
};

/// `engine.ctx`
pub static CTX: Knob = Knob {
    key: "engine.ctx",
    flag: "ctx",
    env: "STRATA_CTX",
    kind: Kind::Int { min: 0, max: CONTEXT_MAX },
    unit: "tokens",
    help: "Room for the prompt and the answer together; 0 = the context the model was trained with",
    long_help: "Memory for the context grows with the conversation. A value above the context the model was \
                trained with is lowered to it, with a line that says so.",
    verbs: ANSWERING,
    ..PLAIN
};

/// `engine.threads`
pub static THREADS: Knob = Knob {
    key: "engine.threads",
    flag: "threads",
    env: "STRATA_THREADS",
    kind: Kind::Int { min: 0, max: 1024 },
    help: "CPU threads that compute; 0 = one for each physical core",
    long_help: "The answer is the same for every number of threads.",
    ..PLAIN
};

/// `engine.isa`
pub static ISA: Knob = Knob {
    key: "engine.isa",
    flag: "isa",
    env: "STRATA_ISA",
    kind: Kind::Choice(&["auto", "scalar", "avx2", "avx512"]),
    help: "Instructions that the CPU kernels use; auto = the fastest that the processor has",
    long_help: "The answer is the same for all of them.",
    ..PLAIN
};

/// `engine.prefill_chunk`
pub static PREFILL_CHUNK: Knob = Knob {
    key: "engine.prefill_chunk",
    flag: "prefill-chunk",
    env: "STRATA_PREFILL_CHUNK",
    kind: Kind::Int { min: 0, max: 16_384 },
    unit: "tokens",
    help: "Prompt tokens read in one pass; 0 = 256 on the CPU, on a GPU as many as are of use and have room",
    long_help: "Larger passes read each expert less often and need more memory; on a GPU, experts make room for the time of a \
                prompt. The answer is the same for every size.",
    ..PLAIN
};

/// `cache.checkpoint_every`
pub static CHECKPOINT_EVERY: Knob = Knob {
    key: "cache.checkpoint_every",
    flag: "checkpoint-every",
    env: "STRATA_CHECKPOINT_EVERY",
    kind: Kind::Int { min: 0, max: CONTEXT_MAX },
    unit: "tokens",
    help: "Tokens of a long prompt between checkpoints; 0 = none inside a prompt",
    long_help: "A prompt that differs from what was read before is read again from the last checkpoint before the \
                difference. Checkpoints where questions and answers start are taken besides.",
    verbs: ANSWERING,
    ..PLAIN
};

/// `cache.checkpoints`
pub static CHECKPOINTS: Knob = Knob {
    key: "cache.checkpoints",
    flag: "checkpoints",
    env: "STRATA_CHECKPOINTS",
    kind: Kind::Int { min: 0, max: 4096 },
    help: "Checkpoints of a conversation at most; 0 = none",
    long_help: "The oldest go first, but the one behind the system message stays. The answer is the same for every \
                number.",
    verbs: ANSWERING,
    ..PLAIN
};

/// `cache.checkpoint_ram`
pub static CHECKPOINT_RAM: Knob = Knob {
    key: "cache.checkpoint_ram",
    flag: "checkpoint-ram",
    env: "STRATA_CHECKPOINT_RAM",
    kind: Kind::Int { min: 0, max: MIB_MAX },
    unit: "MiB",
    help: "Memory for the checkpoints of a conversation; the latest is kept in any case",
    verbs: ANSWERING,
    ..PLAIN
};

/// `cache.conversations`
pub static CONVERSATIONS: Knob = Knob {
    key: "cache.conversations",
    flag: "conversations",
    env: "STRATA_CONVERSATIONS",
    kind: Kind::Int { min: 1, max: 4096 },
    help: "Conversations kept in memory at most",
    long_help: "The one used longest ago goes first.",
    verbs: &[Verb::Serve],
    ..PLAIN
};

/// `cache.conversation_ram`
pub static CONVERSATION_RAM: Knob = Knob {
    key: "cache.conversation_ram",
    flag: "conversation-ram",
    env: "STRATA_CONVERSATION_RAM",
    kind: Kind::Int { min: 0, max: MIB_MAX },
    unit: "MiB",
    help: "Memory for all conversations together; the one that is answered goes on in any case",
    verbs: &[Verb::Serve],
    ..PLAIN
};

/// `cache.park`
pub static PARK: Knob = Knob {
    key: "cache.park",
    flag: "park",
    env: "STRATA_PARK",
    kind: Kind::Path,
    help: "Folder in which the conversation is kept when you leave, for --resume",
    long_help: "It is kept with all that the model has read of it, so that going on reads nothing again: on the \
                published model 55 KB for each token and 0.2 to 0.5 GB besides.",
    unset: Some("none, nothing is kept"),
    verbs: &[Verb::Run],
    ..PLAIN
};

/// `cache.park_disk`
pub static PARK_DISK: Knob = Knob {
    key: "cache.park_disk",
    flag: "park-disk",
    env: "STRATA_PARK_DISK",
    kind: Kind::Int { min: 0, max: MIB_MAX },
    unit: "MiB",
    help: "Room for the conversations in that folder; beyond it the oldest are removed",
    verbs: &[Verb::Run],
    ..PLAIN
};

/// `speculation.spec`
pub static SPEC: Knob = Knob {
    key: "speculation.spec",
    flag: "spec",
    env: "STRATA_SPEC",
    kind: Kind::IntOrAuto { min: 0, max: 15 },
    help: "Drafts of each round of decoding; auto = as many as are worth their time; 0 = none",
    long_help: "Drafts are guesses at the next tokens, of which several are verified in one pass. The answer is the same \
                with and without them.",
    ..PLAIN
};

/// `speculation.draft`
pub static DRAFT: Knob = Knob {
    key: "speculation.draft",
    flag: "draft",
    env: "STRATA_DRAFT",
    kind: Kind::Choice(&["both", "mtp", "lookup", "none"]),
    help: "Where drafts come from: the draft layer (mtp), earlier places of the text (lookup), or both",
    ..PLAIN
};

/// `speculation.draft_floor`
pub static DRAFT_FLOOR: Knob = Knob {
    key: "speculation.draft_floor",
    flag: "draft-floor",
    env: "STRATA_DRAFT_FLOOR",
    kind: Kind::Float { min: 0.0, max: 1.0 },
    help: "The draft layer's guesses of less probability end a round's drafts; 0 = none do",
    ..PLAIN
};

/// `speculation.draft_model`
pub static DRAFT_MODEL: Knob = Knob {
    key: "speculation.draft_model",
    flag: "draft-model",
    env: "STRATA_DRAFT_MODEL",
    kind: Kind::Path,
    help: "The draft layer: a .gguf of `strata pack mtp`, or the original checkpoint's file or folder",
    unset: Some("the model file's own, or mtp.gguf beside it"),
    ..PLAIN
};

/// `speculation.draft_norm`
pub static DRAFT_NORM: Knob = Knob {
    key: "speculation.draft_norm",
    flag: "draft-norm",
    env: "STRATA_DRAFT_NORM",
    kind: Kind::Choice(&["auto", "whole", "per-stream"]),
    help: "How the draft layer norms its input: one mean over all streams, or one for each; auto = tries both",
    long_help: "Published engines differ in it. The right one has more drafts accepted; answers are the same.",
    ..PLAIN
};

/// `speculation.spec_sampling`
pub static SPEC_SAMPLING: Knob = Knob {
    key: "speculation.spec_sampling",
    flag: "spec-sampling",
    env: "STRATA_SPEC_SAMPLING",
    kind: Kind::Choice(&["noise", "reject"]),
    help: "How drafts are verified at temperatures above 0: by shared noise, or by rejection sampling",
    long_help: "With shared noise the answer is the same for every number of drafts. With rejection sampling it depends \
                on them, but how likely each answer is does not.",
    ..PLAIN
};

/// `chat.system`
pub static SYSTEM: Knob = Knob {
    key: "chat.system",
    flag: "system",
    env: "STRATA_SYSTEM",
    kind: Kind::Text,
    help: "Instructions that stand before the conversation",
    unset: Some("none"),
    verbs: &[Verb::Run],
    ..PLAIN
};

/// `chat.think`
pub static THINK: Knob = Knob {
    key: "chat.think",
    flag: "think",
    env: "STRATA_THINK",
    kind: Kind::Bool,
    help: "Let the model think before it answers",
    unset: Some("as the model's chat template has it"),
    verbs: ANSWERING,
    ..PLAIN
};

/// All knobs, in the order of help and of `strata config show`.
pub static KNOBS: &[&Knob] = &[
    &MODEL,
    &CTX,
    &THREADS,
    &ISA,
    &PREFILL_CHUNK,
    &DEVICE,
    &VRAM_BUDGET,
    &EXPERT_PROFILE,
    &POLICY,
    &SLOTS,
    &VRAM,
    &SCOPE,
    &ADMISSION,
    &COPY_ROUNDS,
    &INSERT_BUDGET,
    &COUNT_PREFILL,
    &ADAPT_EVERY,
    &ADAPT_SWAPS,
    &ADAPT_MIN_USE,
    &ADAPT_GAIN,
    &DECAY,
    &LFU_REMEMBER,
    &BYPASS,
    &SAVING_FAST,
    &SAVING_SLOW,
    &SAVING_BURST,
    &SAVING_HORIZON,
    &SAVING_COPY,
    &SPLIT,
    &PCIE_SHARE,
    &CHECKPOINT_EVERY,
    &CHECKPOINTS,
    &CHECKPOINT_RAM,
    &CONVERSATIONS,
    &CONVERSATION_RAM,
    &PARK,
    &PARK_DISK,
    &SPEC,
    &DRAFT,
    &DRAFT_FLOOR,
    &DRAFT_MODEL,
    &DRAFT_NORM,
    &SPEC_SAMPLING,
    &TEMP,
    &TOP_K,
    &TOP_P,
    &MIN_P,
    &REPEAT_PENALTY,
    &REPEAT_LAST_N,
    &PRESENCE_PENALTY,
    &FREQUENCY_PENALTY,
    &SEED,
    &MAX_TOKENS,
    &SYSTEM,
    &THINK,
    &HOST,
    &PORT,
    &API_KEY,
    &INSECURE,
    &ALLOW_HOST,
    &ALLOW_ORIGIN,
    &MODEL_NAME,
    &PARALLEL,
    &QUEUE,
    &BODY_LIMIT,
    &GRACE,
    &STUCK,
    &TRACE,
    &MCP,
    &LAB,
];

/// The knob with this TOML key.
pub fn find(key: &str) -> Option<&'static Knob> {
    KNOBS.iter().copied().find(|k| k.key == key)
}

/// The knobs that a verb shows.
pub fn shown_by(verb: Verb) -> impl Iterator<Item = &'static Knob> {
    KNOBS.iter().copied().filter(move |k| k.verbs.contains(&verb))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_follow_one_rule() {
        let mut seen = HashSet::new();
        for k in KNOBS {
            assert_eq!(k.key.split('.').count(), 2, "{}: a key is section.name", k.key);
            assert_eq!(k.flag, k.name().replace('_', "-"), "{}", k.key);
            assert_eq!(k.env, format!("STRATA_{}", k.name().to_uppercase()), "{}", k.key);
            assert!(seen.insert(k.flag), "two knobs are called --{}", k.flag);
            // `--no-x` is taken by the Bool knob x.
            assert!(!k.flag.starts_with("no-"), "{}", k.key);
            if let Some(key) = k.model_key {
                assert!(seen.insert(key), "two knobs read {key}");
            }
        }
    }

    #[test]
    fn help_is_one_line_without_a_full_stop() {
        for k in KNOBS {
            assert!(!k.help.is_empty() && !k.help.ends_with('.') && !k.help.contains('\n'), "{}", k.key);
            assert!(k.help.len() <= 100, "{}: {} characters", k.key, k.help.len());
            // A knob without a verb is for tuning, and has something to be tuned from.
            assert!(!k.verbs.is_empty() || k.unset.is_none(), "{}", k.key);
        }
    }

    #[test]
    fn ranges_are_not_empty() {
        for k in KNOBS {
            match k.kind {
                Kind::Int { min, max } | Kind::IntOrAuto { min, max } => assert!(min < max, "{}", k.key),
                Kind::Float { min, max } => assert!(min < max && min.is_finite() && max.is_finite(), "{}", k.key),
                Kind::Choice(words) => assert!(words.len() > 1, "{}", k.key),
                Kind::Bool | Kind::Text | Kind::Path | Kind::Bytes | Kind::Device => {}
            }
        }
    }
}
