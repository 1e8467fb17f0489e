//! The keys that give the model its shape, in groups that belong together.

use super::key;
use serde::Serializer;
use serde::ser::SerializeMap;
use serde_json::{Map, Value as Json, json};
use strata_gguf::{ArrayValue, Gguf, Value};

/// Keys that belong together.
#[derive(Debug)]
pub(crate) struct Group {
    /// The name in JSON.
    pub(crate) id: &'static str,
    /// The name for people.
    pub(crate) title: &'static str,
    pub(crate) items: Vec<Dimension>,
}

/// One key.
#[derive(Debug)]
pub(crate) struct Dimension {
    /// The name in JSON.
    pub(crate) id: &'static str,
    /// The name for people.
    pub(crate) label: &'static str,
    pub(crate) value: Json,
}

type Row = (&'static str, &'static str, &'static str);

/// Groups: JSON name, title, and for each key its JSON name, label and the key itself.
const GROUPS: &[(&str, &str, &[Row])] = &[
    (
        "model",
        "model",
        &[
            ("block_count", "blocks", "block_count"),
            ("draft_blocks", "of which draft", "nextn_predict_layers"),
            ("context_length", "trained context", "context_length"),
            ("embedding_length", "hidden", "embedding_length"),
            ("streams", "streams", "hyper_connection.count"),
            ("stream_rank", "mixer rank", "hyper_connection.low_rank"),
            ("norm_epsilon", "norm epsilon", "attention.layer_norm_rms_epsilon"),
        ],
    ),
    (
        "experts",
        "experts",
        &[
            ("count", "in each layer", "expert_count"),
            ("used", "used per token", "expert_used_count"),
            ("width", "width", "expert_feed_forward_length"),
            ("shared_width", "shared width", "expert_shared_feed_forward_length"),
        ],
    ),
    (
        "attention",
        "attention",
        &[
            ("heads", "heads", "attention.head_count"),
            ("kv_heads", "KV heads", "attention.head_count_kv"),
            ("key_length", "key length", "attention.key_length"),
            ("value_length", "value length", "attention.value_length"),
            ("rope_dimensions", "rotated", "rope.dimension_count"),
            ("rope_sections", "sections", "rope.dimension_sections"),
            ("rope_base", "rope base", "rope.freq_base"),
        ],
    ),
    (
        "indexer",
        "indexer",
        &[
            ("heads", "heads", "attention.indexer.head_count"),
            ("key_length", "key length", "attention.indexer.key_length"),
            ("top_k", "token budget", "attention.indexer.top_k"),
        ],
    ),
    (
        "gdn",
        "GDN",
        &[
            ("key_heads", "key heads", "ssm.group_count"),
            ("value_heads", "value heads", "ssm.time_step_rank"),
            ("head_length", "head length", "ssm.state_size"),
            ("inner_size", "inner size", "ssm.inner_size"),
            ("conv_kernel", "conv taps", "ssm.conv_kernel"),
        ],
    ),
    (
        "ngram",
        "n-gram table",
        &[
            ("layers", "layers", "ple.layers"),
            ("size", "longest n-gram", "ple.ngram_size"),
            ("heads_per_ngram", "heads per n", "ple.heads_per_ngram"),
            ("row_length", "row length", "embedding_length_per_layer_input"),
            ("conv_kernel", "conv taps", "ple.conv_kernel"),
            ("eos_token_id", "reset token", "ple.eos_token_id"),
        ],
    ),
];

/// The groups that the file has anything of.
pub(super) fn of(gguf: &Gguf, notes: &mut Vec<String>) -> Vec<Group> {
    let meta = gguf.meta();
    let groups = GROUPS.iter().map(|&(id, title, rows)| {
        let items = rows.iter().filter_map(|&(id, label, name)| {
            let key = key(name);
            let value = as_json(meta.get(&key)?);
            if value.is_null() {
                notes.push(format!("key {key} is not a number or a list of numbers"));
                return None;
            }
            Some(Dimension { id, label, value })
        });
        let items = items.chain(derived(id, gguf)).collect();
        Group { id, title, items }
    });
    groups.filter(|g| !g.items.is_empty()).collect()
}

/// What no key says by itself: sizes of tables, and the block size of the layers that have one.
fn derived(group: &str, gguf: &Gguf) -> Option<Dimension> {
    let rows = |name: &str| gguf.tensor(name).map(|t| json!(t.rows()));
    match group {
        "model" => Some(Dimension { id: "vocabulary", label: "vocabulary", value: rows("token_embd.weight")? }),
        "ngram" => Some(Dimension { id: "rows", label: "rows", value: rows("per_layer_token_embd.weight")? }),
        "indexer" => {
            let ratios = gguf.meta().opt_u64s(&key("attention.compress_ratios")).ok()??;
            Some(Dimension { id: "block", label: "block", value: json!(ratios.into_iter().max()?) })
        }
        _ => None,
    }
}

/// Numbers and lists of numbers; `null` for what no dimension can be.
fn as_json(value: &Value) -> Json {
    match value {
        // Through text, so that an f32 keeps its shortest form.
        Value::F32(v) => serde_json::from_str(&format!("{v:e}")).unwrap_or(Json::Null),
        Value::F64(v) => json!(v),
        Value::Array(ArrayValue::I32(v)) => json!(v),
        Value::Array(a) => a.to_u64s().map_or(Json::Null, |v| json!(v)),
        other => other.as_u64().map_or(Json::Null, |v| json!(v)),
    }
}

/// Serialises groups as an object of objects.
pub(super) fn as_map<S: Serializer>(groups: &[Group], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(groups.len()))?;
    for group in groups {
        let items: Map<String, Json> = group.items.iter().map(|d| (d.id.into(), d.value.clone())).collect();
        map.serialize_entry(group.id, &items)?;
    }
    map.end()
}
