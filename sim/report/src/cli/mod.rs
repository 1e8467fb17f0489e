//! The command line of `strata-lab`.
//!
//! Results go to files, what is said about them to stderr. An error is one sentence, `error: ...`, and exit code 1; a
//! check that found differences has 1 as well, a run that was stopped 130, and a closed pipe 141 without a word.

mod cost;
mod output;
mod replay;
mod trace;

use crate::promote;
use crate::report;
use crate::result;
use crate::run::{self, Ended, How, Shard};
use crate::spec::{self, Experiment, Finder};
use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use output::{note, say};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs experiments on the simulator and reports what came out
#[derive(Parser)]
#[command(name = "strata-lab", version, disable_help_subcommand = true)]
struct Command {
    /// The project's folder, which holds experiments/ and results/ [default: the nearest above this one]
    #[arg(long, global = true, value_name = "DIR")]
    root: Option<PathBuf>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the experiments, with points and verdicts
    List,
    /// Run an experiment, or go on with one that was stopped
    #[command(after_help = RUN_HELP)]
    Run(RunArgs),
    /// Replay a trace under policies and sizes
    #[command(after_help = replay::HELP)]
    Replay(replay::ReplayArgs),
    /// Join the parts of a run that was shared by several machines
    Merge(MergeArgs),
    /// Make summaries, figures and results/INDEX.md again from the rows that are kept
    Report(ReportArgs),
    /// Write the winning settings of a confirmed experiment into the engine's defaults
    Promote(PromoteArgs),
    /// Fit the cost model's constants to recorded windows, and print what is left
    Fit(cost::FitArgs),
    /// Compare predicted with recorded times on windows held out, and write results/validation/
    Validate(cost::ValidateArgs),
    /// Parquet tables of a trace, and traces from elsewhere
    #[command(subcommand)]
    Trace(trace::TraceVerb),
}

const RUN_HELP: &str = "\
Points that are done are kept below target/experiments as they are done: Ctrl-C, or a crash, loses none of them, and the same command goes \
on. They are put away once the result is written.

Examples:
  strata-lab run 001                     # the experiment whose name begins so
  strata-lab run all
  strata-lab run 002 --shard 3/8         # every eighth point, from the third; then strata-lab merge 002";

#[derive(Args)]
struct RunArgs {
    /// An experiment's name, its number, or `all`
    name: String,
    /// Points evaluated at once; 0 = as many as there are cores
    #[arg(long, default_value_t = 0, value_name = "N")]
    jobs: usize,
    /// Evaluate one of n parts, for another machine to join with `merge`
    #[arg(long, value_name = "i/n")]
    shard: Option<Shard>,
    /// Where points are kept until the result is written [default: target/experiments]
    #[arg(long, value_name = "DIR")]
    parts: Option<PathBuf>,
    /// Begin anew, whatever is kept
    #[arg(long)]
    fresh: bool,
    /// Look at experiments and inputs, and run nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Args)]
struct MergeArgs {
    /// An experiment's name or number
    name: String,
    /// Where the parts lie [default: target/experiments]
    #[arg(long, value_name = "DIR")]
    parts: Option<PathBuf>,
}

#[derive(Args)]
struct ReportArgs {
    /// Write nothing: run the quick experiments again, compare, and fail on a difference
    #[arg(long)]
    check: bool,
}

#[derive(Args)]
struct PromoteArgs {
    /// An experiment's name or number
    name: String,
    /// Print the settings and write nothing
    #[arg(long)]
    dry_run: bool,
}

/// The exit code of a run that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Runs the command line with the studies that `find` knows.
pub fn main(find: Finder) -> ExitCode {
    let command = Command::parse();
    let root = || root(command.root.as_deref());
    let well = |()| ExitCode::SUCCESS;
    let done = match &command.verb {
        Verb::List => root().and_then(|root| list(&root, find)).map(well),
        Verb::Run(arguments) => root().and_then(|root| run_all(&root, find, arguments)),
        Verb::Replay(arguments) => replay::run(find, arguments).map(well),
        Verb::Merge(arguments) => root().and_then(|root| merge(&root, find, arguments)).map(well),
        Verb::Report(arguments) => root().and_then(|root| reported(&root, find, arguments)),
        Verb::Promote(arguments) => root().and_then(|root| promoted(&root, find, arguments)).map(well),
        Verb::Fit(arguments) => cost::fit(arguments).map(well),
        Verb::Validate(arguments) => root().and_then(|root| cost::validate(&root, arguments)).map(well),
        Verb::Trace(verb) => trace::run(verb).map(well),
    };
    match done {
        Ok(code) => code,
        Err(e) => output::failed(&e),
    }
}

/// The folder that holds `experiments/`: the one named, or the nearest above.
fn root(named: Option<&Path>) -> Result<PathBuf> {
    let here = match named {
        Some(dir) => dir.to_owned(),
        None => std::env::current_dir().context("this folder is gone")?,
    };
    let holds = |dir: &&Path| dir.join("experiments").is_dir();
    let found = if named.is_some() { Some(here.as_path()).filter(holds) } else { here.ancestors().find(holds) };
    match found {
        Some(dir) => Ok(dir.to_owned()),
        None => bail!("{} holds no experiments/; --root names the project's folder", here.display()),
    }
}

fn list(root: &Path, find: Finder) -> Result<()> {
    for name in spec::names(root)? {
        let experiment = Experiment::load(root, &name, find)?;
        let verdict = match result::meta::Meta::load(root, &name) {
            Ok(meta) => meta.verdict.to_string(),
            Err(_) => "not run yet".into(),
        };
        say(&format!("{name}: {} ({} points, {verdict})", experiment.title, experiment.points()))?;
    }
    Ok(())
}

fn run_all(root: &Path, find: Finder, arguments: &RunArgs) -> Result<ExitCode> {
    let names = if arguments.name == "all" { spec::names(root)? } else { vec![spec::resolve(root, &arguments.name)?] };
    let experiments = names.iter().map(|n| Experiment::load(root, n, find)).collect::<Result<Vec<_>>>()?;
    run::inputs::require(root, &experiments)?;
    if arguments.dry_run {
        for e in &experiments {
            say(&format!("{}: {} points, {} inputs, all there", e.name, e.points(), e.inputs.len()))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    ctrlc::set_handler(move || {
        // The second time nobody waits for the points under way; what is done is kept in either case.
        if told.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(INTERRUPTED));
        }
    })
    .context("cannot listen for Ctrl-C")?;
    for experiment in &experiments {
        let bar = ProgressBar::new(experiment.points() as u64);
        if let Ok(style) = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} points, {eta} left") {
            bar.set_style(style);
        }
        bar.set_message(experiment.name.clone());
        let progress = |done: usize, all: usize| {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        };
        let how = How {
            jobs: arguments.jobs,
            shard: arguments.shard.unwrap_or(Shard::WHOLE),
            parts: parts(root, arguments.parts.as_deref()),
            fresh: arguments.fresh,
            stop: &stop,
            progress: &progress,
        };
        let ended = run::run(root, experiment, &how);
        bar.finish_and_clear();
        match ended? {
            Ended::Whole(finished) => write(root, experiment, &finished)?,
            Ended::Shard { points, dir } => {
                note(&format!("{}: {points} points are kept in {}", experiment.name, dir.display()))
            }
            Ended::Stopped { done, points } => {
                note(&format!(
                    "{}: stopped with {done} of {points} points done; the same command goes on",
                    experiment.name
                ));
                return Ok(ExitCode::from(INTERRUPTED));
            }
        }
    }
    if arguments.shard.is_none() {
        report::write_index(root, find)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn parts(root: &Path, named: Option<&Path>) -> PathBuf {
    named.map_or_else(|| root.join("target/experiments"), Path::to_owned)
}

/// Writes a result and says what came out.
fn write(root: &Path, experiment: &Experiment, finished: &run::Finished) -> Result<()> {
    let written = result::of_run(root, experiment, finished, result::MOST_BYTES)?;
    let place = format!("results/{}", experiment.name);
    result::put(&root.join(&place), &written.files)?;
    if let Some(full) = &written.full {
        let files = result::Files::from([
            ("rows.csv".to_owned(), full.csv().into_bytes()),
            ("rows.parquet".to_owned(), full.parquet()?),
        ]);
        let dir = root.join("target/experiments").join(&experiment.name).join("all-rows");
        result::put(&dir, &files)?;
        note(&format!("{}: all {} rows lie in {}", experiment.name, full.lines.len(), dir.display()));
    }
    finished.parts.remove()?;
    note(&format!("{}: {}: {}. {place}/summary.md says more", experiment.name, written.verdict, written.why));
    Ok(())
}

fn merge(root: &Path, find: Finder, arguments: &MergeArgs) -> Result<()> {
    let experiment = Experiment::load(root, &spec::resolve(root, &arguments.name)?, find)?;
    let finished = run::merge(root, &experiment, &parts(root, arguments.parts.as_deref()))?;
    write(root, &experiment, &finished)?;
    report::write_index(root, find)
}

fn promoted(root: &Path, find: Finder, arguments: &PromoteArgs) -> Result<()> {
    let name = spec::resolve(root, &arguments.name)?;
    let choices =
        if arguments.dry_run { promote::choices(root, &name, find)?.0 } else { promote::promote(root, &name, find)? };
    for promote::Choice { key, value } in choices {
        say(&format!("{key} = {value}"))?;
    }
    Ok(())
}

fn reported(root: &Path, find: Finder, arguments: &ReportArgs) -> Result<ExitCode> {
    let report = report::report(root, find, arguments.check)?;
    for remark in &report.notes {
        note(&format!("note: {remark}"));
    }
    for difference in &report.differences {
        note(&format!("difference: {difference}"));
    }
    let rerun = if arguments.check { format!(", {} of them run again", report.rerun.len()) } else { String::new() };
    let verb = if arguments.check { "compared" } else { "made again" };
    note(&format!("{} results {verb}{rerun}; {} differences", report.made.len(), report.differences.len()));
    Ok(if report.differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
