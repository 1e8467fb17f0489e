//! What is odd about a model file.

use super::{Facts, Kind, key};
use strata_gguf::Gguf;
use strata_model::ARCHITECTURE;

/// Sentences about what a user should know, beyond missing and unknown tensors.
pub(super) fn of(gguf: &Gguf, facts: &Facts) -> Vec<String> {
    let mut notes = Vec::new();
    if !facts.supported {
        notes.push(unsupported(facts.architecture.as_deref()));
        return notes;
    }
    if facts.draft_layer_only {
        notes.push("this is a draft layer without a model: beside its model it is found as mtp.gguf or given with --draft-model".into());
        return notes;
    }
    notes.extend(compress_ratios(gguf, facts));
    if let Some(layers) = &facts.layers {
        if layers.draft == 0 {
            let built_in = crate::builtin::is_nano(gguf);
            let what = if built_in {
                "the draft layer is a file of its own, built in as well"
            } else {
                "there is no draft layer"
            };
            notes.push(what.into());
        }
        if gguf.tensor("per_layer_token_embd.weight").is_some() && layers.ngram.is_empty() {
            notes.push(format!("there is an n-gram table, but key {} names no layer that uses it", key("ple.layers")));
        }
        let attention = layers.ngram.iter().find(|&&i| layers.kinds.get(i) != Some(&Kind::Gdn));
        notes.extend(attention.map(|i| format!("layer {i} uses the n-gram table, but is not a GDN layer")));
    }
    if !facts.chat_template {
        notes.push("there is no chat template".into());
    }
    if gguf.tensor("output.weight").is_none() {
        notes.push("there is no output.weight: the token embedding is the head as well".into());
    }
    notes.extend(vocabulary(gguf, facts));
    notes
}

/// Why the engine does not run an architecture.
pub(crate) fn unsupported(architecture: Option<&str>) -> String {
    match architecture {
        Some(name) if name.starts_with(ARCHITECTURE) => format!(
            "the architecture is {name}, this engine runs {ARCHITECTURE}; the file may need a newer version of the engine"
        ),
        Some(name) => format!("the architecture is {name}, this engine runs {ARCHITECTURE} only"),
        None => format!("the file names no architecture, this engine runs {ARCHITECTURE} only"),
    }
}

/// Some converters write 0 for every layer, which says that attention is dense; the indexers say otherwise.
fn compress_ratios(gguf: &Gguf, facts: &Facts) -> Option<String> {
    let name = key("attention.compress_ratios");
    let ratios = gguf.meta().opt_u64s(&name).ok()??;
    let attention = facts.layers.as_ref()?.kinds.iter().position(|&k| k == Kind::Attention)?;
    let indexer = gguf.tensor(&format!("blk.{attention}.indexer.q_proj.weight")).is_some();
    (indexer && ratios.iter().all(|&r| r == 0)).then(|| {
        format!("key {name} is 0 for every layer though there are indexers, a known fault of a converter: it stands for 4 on attention layers")
    })
}

fn vocabulary(gguf: &Gguf, facts: &Facts) -> Option<String> {
    let embedding = gguf.tensor("token_embd.weight")?;
    match facts.tokenizer.tokens {
        None => Some("there is no list of tokens (key tokenizer.ggml.tokens)".into()),
        Some(tokens) if tokens != embedding.rows() => {
            Some(format!("the tokenizer has {tokens} tokens, but token_embd.weight has {} rows", embedding.rows()))
        }
        Some(_) => None,
    }
}
