//! Which layer is of which kind.

use super::{keep, key, number};
use serde::Serialize;
use strata_gguf::Gguf;

/// Blocks that a header may claim; the published model has 49. Guards against a number that is not a layer count.
const MOST_BLOCKS: u64 = 4096;

/// How a layer looks back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Gated delta net: a state of constant size.
    Gdn,
    /// Attention over all earlier tokens or those an indexer picks.
    Attention,
}

/// The layers of the model.
#[derive(Debug, Serialize)]
pub(crate) struct Layers {
    /// Without draft layers, and for a draft layer alone those that come before it, of which the file has none.
    pub(crate) trunk: usize,
    pub(crate) draft: usize,
    pub(crate) gdn: usize,
    pub(crate) attention: usize,
    /// Every how many layers attention comes; `None` when it is irregular.
    pub(crate) attention_interval: Option<usize>,
    /// The kinds of the trunk's layers, in order.
    pub(crate) kinds: Vec<Kind>,
    /// Layers that look up the n-gram table.
    pub(crate) ngram: Vec<usize>,
}

impl Layers {
    /// `None` when the header does not say how many layers there are.
    pub(super) fn of(gguf: &Gguf, notes: &mut Vec<String>) -> Option<Layers> {
        let meta = gguf.meta();
        let Some(blocks) = number(meta, &key("block_count"), notes) else {
            notes.push(format!("key {} is missing", key("block_count")));
            return None;
        };
        if blocks > MOST_BLOCKS {
            notes.push(format!("key {} is {blocks}, expected at most {MOST_BLOCKS}", key("block_count")));
            return None;
        }
        let mut draft = number(meta, &key("nextn_predict_layers"), notes).unwrap_or(0);
        if draft > blocks {
            notes.push(format!("key {} is {draft}, more than all {blocks} blocks", key("nextn_predict_layers")));
            draft = 0;
        }
        let trunk = (blocks - draft) as usize;
        // A draft layer alone says how many layers come before it, and has none of them.
        let here = if gguf.is_draft_layer() { 0 } else { trunk };
        let declared = declared_kinds(gguf, here, notes);
        let mut kinds = Vec::with_capacity(here);
        let mut differing = Vec::new();
        for (i, declared) in declared.into_iter().enumerate() {
            let found = kind_by_tensors(gguf, i);
            if found.is_some_and(|kind| kind != declared) {
                differing.push(i.to_string());
            }
            kinds.push(found.unwrap_or(declared));
        }
        if !differing.is_empty() {
            notes.push(format!("tensors and metadata disagree on the kind of layers {}", differing.join(", ")));
        }
        let ngram = keep(meta.opt_u64s(&key("ple.layers")), notes).unwrap_or_default();
        let attention = kinds.iter().filter(|&&k| k == Kind::Attention).count();
        Some(Layers {
            trunk,
            draft: draft as usize,
            gdn: kinds.len() - attention,
            attention,
            attention_interval: interval(&kinds),
            kinds,
            ngram: ngram.into_iter().filter_map(|i| usize::try_from(i).ok()).collect(),
        })
    }
}

/// The kinds by the header: a list if there is one, else every n-th layer.
fn declared_kinds(gguf: &Gguf, trunk: usize, notes: &mut Vec<String>) -> Vec<Kind> {
    let of = |attention| if attention { Kind::Attention } else { Kind::Gdn };
    let list = keep(gguf.meta().opt_bools(&key("attention.recurrent_layers")), notes);
    let every = number(gguf.meta(), &key("full_attention_interval"), notes).unwrap_or(0) as usize;
    (0..trunk)
        .map(|i| match list.and_then(|l| l.get(i)) {
            Some(&recurrent) => of(!recurrent),
            None => of(every > 0 && (i + 1).is_multiple_of(every)),
        })
        .collect()
}

/// The kind by what is stored for the layer; `None` when tensors of both kinds or of none are there.
fn kind_by_tensors(gguf: &Gguf, layer: usize) -> Option<Kind> {
    let has = |names: &[&str]| names.iter().any(|n| gguf.tensor(&format!("blk.{layer}.{n}")).is_some());
    match (has(&["attn_q.weight", "attn_output.weight"]), has(&["attn_qkv.weight", "ssm_out.weight", "ssm_a"])) {
        (true, false) => Some(Kind::Attention),
        (false, true) => Some(Kind::Gdn),
        _ => None,
    }
}

/// n when exactly the layers n-1, 2n-1, ... are attention.
fn interval(kinds: &[Kind]) -> Option<usize> {
    let n = kinds.iter().position(|&k| k == Kind::Attention)? + 1;
    kinds.iter().enumerate().all(|(i, &k)| (k == Kind::Attention) == (i + 1).is_multiple_of(n)).then_some(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals() {
        use Kind::{Attention as A, Gdn as G};
        assert_eq!(interval(&[G, G, A, G, G, A]), Some(3));
        assert_eq!(interval(&[G, G, A, G, G, A, G]), Some(3));
        assert_eq!(interval(&[G, A, A]), None);
        assert_eq!(interval(&[G, G]), None);
        assert_eq!(interval(&[A, A]), Some(1));
    }
}
