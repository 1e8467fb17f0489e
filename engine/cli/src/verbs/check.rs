//! `strata check`: whether a model file is whole.

mod weights;

use super::{file_arg, file_of};
use crate::builtin;
use crate::facts::{Facts, unsupported};
use crate::output;
use anyhow::{Result, bail};
use clap::{Arg, ArgAction, ArgMatches, Command};
use strata_gguf::{ChatTemplate, Gguf, Tokenizer};
use strata_model::CpuOps;

/// Findings of one kind that are printed; the rest is counted.
const PRINTED: usize = 100;

/// The verb's part of the command line.
pub(crate) fn command() -> Command {
    Command::new("check")
        .about("Check that a model file is whole: shards, tensors and, on request, every weight")
        .arg(file_arg())
        .arg(
            Arg::new("weights")
                .long("weights")
                .action(ArgAction::SetTrue)
                .help("Read all weights and list those that are NaN or infinite; reads the whole file"),
        )
        .after_help(
            "Exits with 1 when something is wrong.\n\nExamples:\n  strata check model.gguf\n  \
             strata check model-00001-of-00004.gguf --weights",
        )
}

/// What a check looks at.
struct Model<'a> {
    gguf: &'a Gguf,
    facts: &'a Facts,
}

/// What a check has to say.
struct Report {
    /// What was looked at, for the line of a check that found nothing.
    good: String,
    /// A sentence for each problem.
    problems: Vec<String>,
}

/// A check's name and what it does.
type Check = (&'static str, fn(&Model<'_>) -> Result<Report>);

/// Checks that need headers only. Opening the file has checked more by then: that every shard is there, that headers
/// keep to the format, and that each tensor lies inside its file.
const CHECKS: &[Check] = &[
    ("architecture", architecture),
    ("files", files),
    ("tensors", tensors),
    ("model", loads),
    ("tokenizer", tokenizer),
];

/// Checks of the weights themselves.
const WEIGHT_CHECKS: &[Check] = &[("weights", weights::finite)];

/// Runs the checks and fails when one finds a problem.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let gguf = builtin::open_model(Some(&file_of(matches)))?;
    let facts = Facts::of(&gguf);
    let model = Model { gguf: &gguf, facts: &facts };
    let deep = if matches.get_flag("weights") { WEIGHT_CHECKS } else { &[] };
    let mut problems = 0;
    for (name, check) in CHECKS.iter().chain(deep) {
        let report = check(&model)?;
        problems += report.problems.len();
        if report.problems.is_empty() {
            output::emit(&format!("ok    {name}: {}", report.good))?;
        }
        for problem in report.problems.iter().take(PRINTED) {
            output::emit(&format!("FAIL  {name}: {problem}"))?;
        }
        if let Some(more @ 1..) = report.problems.len().checked_sub(PRINTED) {
            output::emit(&format!("FAIL  {name}: and {more} more"))?;
        }
    }
    let notes = facts.tensors.unknown.sentence().into_iter();
    if facts.supported {
        notes.chain(facts.notes.iter().cloned()).try_for_each(|n| output::emit(&format!("note  {n}")))?;
    }
    if problems > 0 {
        bail!("{}: {} found", gguf.name(), output::count(problems, "problem"));
    }
    Ok(())
}

/// Whether the engine can make sense of its dimensions and shapes.
fn loads(model: &Model<'_>) -> Result<Report> {
    if !model.facts.supported || !model.facts.tensors.missing.is_empty() {
        return Ok(Report { good: "not tried, for the reasons above".into(), problems: Vec::new() });
    }
    if model.facts.draft_layer_only {
        let problems = strata_model::check_draft_layer(model.gguf).err().iter().map(ToString::to_string).collect();
        return Ok(Report { good: "a draft layer; its shapes agree, its model will be asked too".into(), problems });
    }
    let loaded = strata_model::Model::load(model.gguf, CpuOps::new(1).without_reading(), &mut |_| ());
    let problems = loaded.err().iter().map(ToString::to_string).collect();
    Ok(Report { good: "dimensions and shapes agree".into(), problems })
}

/// Whether text can go in and come out.
fn tokenizer(model: &Model<'_>) -> Result<Report> {
    if model.facts.draft_layer_only {
        return Ok(Report { good: "none, a draft layer has its model's".into(), problems: Vec::new() });
    }
    let meta = model.gguf.meta();
    let template = meta.get("tokenizer.chat_template").map(|_| ChatTemplate::from_metadata(meta));
    let (good, mut problems) = match Tokenizer::from_metadata(meta) {
        Ok(t) => (output::count(t.vocab_size(), "token"), t.warnings().to_vec()),
        Err(e) => (String::new(), vec![e.to_string()]),
    };
    problems.extend(template.into_iter().filter_map(Result::err).map(|e| e.to_string()));
    Ok(Report { good, problems })
}

fn architecture(model: &Model<'_>) -> Result<Report> {
    let architecture = model.facts.architecture.as_deref();
    let problems = if model.facts.supported { Vec::new() } else { vec![unsupported(architecture)] };
    Ok(Report { good: architecture.unwrap_or_default().into(), problems })
}

fn files(model: &Model<'_>) -> Result<Report> {
    let n = model.facts.files.len();
    let shards = format!("{n} of {}", output::count(n, "shard"));
    let good = format!("{shards} present, {}", output::bytes(model.facts.file_bytes));
    Ok(Report { good, problems: Vec::new() })
}

fn tensors(model: &Model<'_>) -> Result<Report> {
    let tensors = &model.facts.tensors;
    let problems = tensors.missing.iter().map(|name| format!("tensor {name} is missing")).collect();
    let good = match tensors.expected {
        Some(n) => format!("all {} required ones present", output::grouped(n as u64)),
        None => format!("{}, none of them required", output::count(tensors.found, "tensor")),
    };
    Ok(Report { good, problems })
}
