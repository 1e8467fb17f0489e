//! `strata inspect`: what a model file holds.

use super::{file_arg, file_of};
use crate::builtin;
use crate::facts::{Experts, Facts, Layers, Part};
use crate::output::{self, Table};
use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::Value as Json;

/// Missing tensors that are named for people; JSON has all.
const NAMED: usize = 10;

/// The verb's part of the command line.
pub(crate) fn command() -> Command {
    Command::new("inspect")
        .about("Show what a model file holds: dimensions, sizes, what is missing or odd")
        .arg(file_arg())
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON; its keys stay as they are"))
        .after_help(
            "Only headers are read. GB = 10^9 bytes; M = 10^6 and B = 10^9 weights.\n\nExamples:\n  \
             strata inspect model.gguf\n  strata inspect model-00001-of-00004.gguf --json",
        )
}

/// Prints the facts.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let gguf = builtin::open_model(Some(&file_of(matches)))?;
    let facts = Facts::of(&gguf);
    if matches.get_flag("json") {
        return output::emit(&serde_json::to_string_pretty(&facts)?);
    }
    output::emit(&for_people(&facts))
}

/// The facts as aligned text.
fn for_people(facts: &Facts) -> String {
    let mut out = format!("{}\n\n", facts.path);
    out.push_str(&head(facts).render(2));
    if let Some(layers) = &facts.layers {
        section(&mut out, "layers", &layer_table(layers));
    }
    for group in &facts.dimensions {
        let mut table = Table::new("ll");
        for item in &group.items {
            table.row([item.label.to_string(), dimension(&item.value)]);
        }
        section(&mut out, group.title, &table);
    }
    if facts.supported {
        section(&mut out, "parts", &part_table(facts));
    }
    section(&mut out, "types", &type_table(facts));
    out.push_str("\nGB = 10^9 bytes; M = 10^6, B = 10^9 weights\n");
    let notes = notes(facts);
    if !notes.is_empty() {
        out.push_str("\nnotes\n");
        notes.iter().for_each(|n| out.push_str(&format!("  - {n}\n")));
    }
    out
}

fn section(out: &mut String, title: &str, table: &Table) {
    out.push_str(&format!("\n{title}\n{}", table.render(2)));
}

fn head(facts: &Facts) -> Table {
    let mut table = Table::new("ll");
    let unknown = || "(none)".to_string();
    table.row(["architecture".into(), facts.architecture.clone().unwrap_or_else(unknown)]);
    table.row(["name".into(), facts.name.clone().unwrap_or_else(unknown)]);
    if let Some(label) = &facts.size_label {
        table.row(["size label", label]);
    }
    let files = output::count(facts.files.len(), "file");
    table.row([
        "size".into(),
        format!("{} in {files}, GGUF version {}", output::bytes(facts.file_bytes), facts.gguf_version),
    ]);
    if let [_, _, ..] = facts.files.as_slice() {
        for file in &facts.files {
            let tensors = output::count(file.tensors, "tensor");
            table.row([String::new(), format!("{}: {}, {tensors}", file.name, output::bytes(file.bytes))]);
        }
    }
    let found = output::count(facts.tensors.found, "tensor");
    let expected = facts.tensors.expected.map_or_else(String::new, |n| {
        let present = n - facts.tensors.missing.len();
        format!(", {} of {} required ones present", output::grouped(present as u64), output::grouped(n as u64))
    });
    table.row(["tensors".into(), format!("{found}{expected}")]);
    table.row(["weights".into(), parameters(facts)]);
    if let Some(expert) = &facts.sizes.expert {
        table.row(["one expert".into(), expert_size(expert)]);
    }
    table.row(["tokenizer".into(), tokenizer(facts)]);
    table.row(["chat template", if facts.chat_template { "yes" } else { "no" }]);
    table
}

fn parameters(facts: &Facts) -> String {
    let total = output::weights(facts.sizes.parameters);
    match (facts.sizes.active_parameters, facts.sizes.active_expert_parameters) {
        (Some(active), Some(experts)) => format!(
            "{total}; {} of them used for each token, {} in routed experts",
            output::weights(active),
            output::weights(experts)
        ),
        _ => total,
    }
}

fn expert_size(expert: &Experts) -> String {
    let mean = output::bytes(expert.mean_bytes.round() as u64);
    if expert.min_bytes == expert.max_bytes {
        return format!("{mean} in every layer");
    }
    format!(
        "{} (layer {}) to {} (layer {}), {mean} on average",
        output::bytes(expert.min_bytes),
        expert.min_layer,
        output::bytes(expert.max_bytes),
        expert.max_layer
    )
}

fn tokenizer(facts: &Facts) -> String {
    let t = &facts.tokenizer;
    let Some(tokens) = t.tokens else { return "(none)".into() };
    let mut text = output::count(tokens as usize, "token");
    text.extend(t.merges.map(|n| format!(", {}", output::count(n as usize, "merge"))));
    text.extend(t.model.as_ref().map(|m| format!(", model {m}")));
    text.extend(t.pre.as_ref().map(|p| format!(", pre {p}")));
    text.extend(t.eos_token_id.map(|id| format!(", EOS {id}")));
    text
}

fn layer_table(layers: &Layers) -> Table {
    let mut table = Table::new("ll");
    // A draft layer alone has none of those before it.
    if layers.kinds.is_empty() && layers.draft > 0 {
        table.row(["draft".into(), layers.draft.to_string()]);
        table.row([
            "for a model of".into(),
            if layers.trunk == 0 { "(unknown)".into() } else { layers.trunk.to_string() },
        ]);
        return table;
    }
    table.row(["total".into(), layers.trunk.to_string()]);
    table.row(["GDN".into(), layers.gdn.to_string()]);
    let every = layers.attention_interval.map_or_else(
        || if layers.attention > 0 { " (not evenly spaced)".into() } else { String::new() },
        |n| format!(" (every {n})"),
    );
    table.row(["attention".into(), format!("{}{every}", layers.attention)]);
    table.row(["draft".into(), layers.draft.to_string()]);
    let ngram: Vec<String> = layers.ngram.iter().map(ToString::to_string).collect();
    table.row(["n-gram at".into(), if ngram.is_empty() { "(none)".into() } else { ngram.join(", ") }]);
    table
}

/// Whole numbers get separators, lists stand in brackets.
fn dimension(value: &Json) -> String {
    match value {
        Json::Array(items) => format!("[{}]", items.iter().map(Json::to_string).collect::<Vec<_>>().join(", ")),
        // A float that is whole, such as the rope base, needs no decimals.
        Json::Number(n) => match n.as_u64().or_else(|| n.as_f64().filter(|v| v.fract() == 0.0).map(|v| v as u64)) {
            Some(whole) => output::grouped(whole),
            None => n.to_string(),
        },
        other => other.to_string(),
    }
}

fn part_table(facts: &Facts) -> Table {
    let mut table = Table::new("lrrrr");
    table.row(["", "tensors", "weights", "bytes", "share"]);
    for part in &facts.sizes.parts {
        let name = match part.part {
            Part::Dense => "dense",
            Part::Experts => "experts",
            Part::NgramTable => "n-gram table",
            Part::EmbeddingHead => "embedding and head",
            Part::DraftLayer => "draft layer",
            Part::Other => "other",
        };
        let share = part.size.bytes as f64 * 100.0 / facts.sizes.tensor_bytes.max(1) as f64;
        table.row([
            name.to_string(),
            output::grouped(part.size.tensors as u64),
            output::weights(part.size.parameters),
            output::bytes(part.size.bytes),
            format!("{share:.1} %"),
        ]);
    }
    table.row([
        "total".to_string(),
        output::grouped(facts.tensors.found as u64),
        output::weights(facts.sizes.parameters),
        output::bytes(facts.sizes.tensor_bytes),
        String::new(),
    ]);
    table
}

fn type_table(facts: &Facts) -> Table {
    let mut table = Table::new("lrrrr");
    table.row(["", "tensors", "weights", "bytes", "bits/weight"]);
    for ty in &facts.sizes.types {
        table.row([
            ty.ty.to_string(),
            output::grouped(ty.size.tensors as u64),
            output::weights(ty.size.parameters),
            output::bytes(ty.size.bytes),
            format!("{:.4}", ty.bits_per_weight),
        ]);
    }
    table
}

fn notes(facts: &Facts) -> Vec<String> {
    let mut notes = Vec::new();
    let missing = &facts.tensors.missing;
    if !missing.is_empty() {
        let named: Vec<&str> = missing.iter().take(NAMED).map(String::as_str).collect();
        let more = missing.len().checked_sub(NAMED).filter(|n| *n > 0);
        let more = more.map_or_else(String::new, |n| format!(" and {n} more"));
        notes.push(format!("missing {}: {}{more}", output::count(missing.len(), "tensor"), named.join(", ")));
    }
    notes.extend(facts.tensors.unknown.sentence());
    notes.extend(facts.notes.iter().cloned());
    notes
}
