//! `strata trace info`: what a trace holds.

use super::{file_arg, open};
use crate::output::{self, Table, note};
use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::json;
use std::path::Path;
use strata_gguf::{show_path, show_text};
use strata_trace::stats::{SHARES, Stats};
use strata_trace::{BranchTime, DraftSource, Meta, Origin, Part, Summary};

const AFTER: &str = "\
Coverage: pairs of a layer and an expert are ranked by how often one half of the requests used them, and tried on the other \
half. It says what an expert cache that never changes could hit. Branches may overlap, and what is not measured has no time.

Examples:
  strata trace info nano.strace
  strata trace info nano.strace --json";

/// The verb's part of the command line.
pub(super) fn command() -> Command {
    Command::new("info")
        .about("What a trace holds: rounds, drafts, experts, times")
        .arg(file_arg())
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON document"))
        .after_help(AFTER)
}

/// Prints what a trace holds.
pub(super) fn run(matches: &ArgMatches) -> Result<()> {
    let (path, opened) = open(matches)?;
    opened.warnings.iter().for_each(|w| note(&format!("warning: {w}")));
    let (meta, summary, stats) = (&opened.trace.meta, Summary::of(&opened.trace), Stats::of(&opened.trace));
    if !matches.get_flag("json") {
        return output::emit(&text(&path, meta, &summary, &stats));
    }
    let coverage = |caught: [f64; SHARES.len()]| {
        SHARES.iter().zip(caught).map(|(pairs, hits)| json!([pairs, hits])).collect::<Vec<_>>()
    };
    output::emit(&serde_json::to_string_pretty(&json!({
        "file": path.to_string_lossy(),
        "warnings": opened.warnings,
        "meta": meta,
        "summary": summary,
        "acceptance": summary.acceptance(),
        "routing": stats,
        // Share of all pairs, and of the uses that they catch.
        "coverage": stats.coverage.map(coverage),
    }))?)
}

/// All of it for people.
fn text(path: &Path, meta: &Meta, summary: &Summary, stats: &Stats) -> String {
    let mut out = format!("{}\n\n", show_path(path));
    let mut facts = Table::new("ll");
    let mut fact = |name: &str, value: String| facts.row([name.to_owned(), value]);
    fact("model", model(meta));
    fact("origin", origin(meta));
    fact(
        "shape",
        format!("{}, {} experts each, {} used", output::count(meta.layers, "layer"), meta.experts, meta.used),
    );
    fact("requests", output::grouped(summary.requests as u64));
    for (name, part) in [("prompts", &summary.prefill), ("answers", &summary.decode)] {
        if let Some(part) = part {
            fact(name, rounds(part));
        }
    }
    if summary.lost > 0 {
        fact("lost", output::count(summary.lost as usize, "round"));
    }
    for drafts in &summary.drafts {
        let share = percent(drafts.accepted as f64 / drafts.verified as f64);
        let name = format!("drafts ({})", source(drafts.source));
        fact(&name, format!("{} of {} accepted ({share})", drafts.accepted, drafts.verified));
    }
    let used = summary.used_pairs as f64 / summary.pairs.max(1) as f64;
    let (pairs, all) = (output::grouped(summary.used_pairs as u64), output::grouped(summary.pairs as u64));
    fact("experts used", format!("{pairs} of {all} ({})", percent(used)));
    if let Some(rate) = summary.hit_rate {
        fact("cache hits", percent(rate));
    }
    if let Some(reuse) = stats.reuse {
        fact("reuse", format!("{} of a token's experts are the previous one's too", percent(reuse)));
    }
    if let Some(coverage) = stats.coverage {
        let caught =
            SHARES.iter().zip(coverage).map(|(pairs, hits)| format!("{} catch {}", percent(*pairs), percent(hits)));
        fact("coverage", caught.collect::<Vec<_>>().join(", "));
    }
    out.push_str(&facts.render(2));
    for (name, part) in [("prompts", &summary.prefill), ("answers", &summary.decode)] {
        if let Some(part) = part.as_ref().filter(|part| part.seconds > 0.0) {
            out.push_str(&format!("\n{name}\n{}", branches(part)));
        }
    }
    out
}

fn model(meta: &Meta) -> String {
    let quant = if meta.model.quant.is_empty() { String::new() } else { format!(", mostly {}", meta.model.quant) };
    show_text(&format!("{}{quant}", meta.model.name))
}

fn origin(meta: &Meta) -> String {
    let how = match meta.origin {
        Origin::Recorded => "recorded",
        Origin::Synthetic => "synthetic",
        Origin::Imported => "imported",
    };
    show_text(&format!("{how} by {}", meta.engine))
}

fn source(source: DraftSource) -> &'static str {
    match source {
        DraftSource::None => "none",
        DraftSource::Mtp => "draft layer",
        DraftSource::Lookup => "lookup",
        DraftSource::Both => "draft layer, then lookup",
        DraftSource::Own => "the caller",
    }
}

fn rounds(part: &Part) -> String {
    let speed = part.tokens_per_second.map_or_else(String::new, |speed| format!(", {speed:.1} tokens/s"));
    let (rounds, kept) = (output::count(part.rounds, "round"), output::grouped(part.kept as u64));
    format!("{kept} of {} kept in {rounds}{speed}", output::count(part.tokens, "token"))
}

fn branches(part: &Part) -> String {
    let mut table = Table::new("lrrrr");
    table.row(["", "seconds", "share", "bytes", "GB/s"]);
    let dash = || "-".to_owned();
    for BranchTime { branch, seconds, share, bytes, bytes_per_second } in &part.branches {
        table.row([
            branch.name().replace('_', " "),
            format!("{seconds:.4}"),
            share.map_or_else(dash, percent),
            if *bytes > 0 { output::bytes(*bytes) } else { dash() },
            bytes_per_second.map_or_else(dash, |rate| format!("{:.2}", rate / 1e9)),
        ]);
    }
    table.row(["all".to_owned(), format!("{:.4}", part.seconds), String::new(), String::new(), String::new()]);
    table.render(2)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
