//! `strata-lab replay`: a trace under policies and sizes of the moment.

use super::output::{note, say};
use crate::replay::{Asked, replay};
use crate::spec::Finder;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::path::PathBuf;

/// What is replayed unless told otherwise: `infinite`, a bound, and `belady`, which knows the future, are always of interest.
const POLICIES: &str = "static,lru,lfu,adaptive,s3-fifo,saving,belady,infinite";

pub(super) const HELP: &str = "\
Beside the policies stands the oracle: Belady's rule with copies that are there at once, which bounds policies that bring in what was \
just missed, as long as a round's experts fit into the room. The policy belady knows the future too, but its copies land as late as the engine's, so it is no bound.

Further settings are axes of the study `cache`, which are named as the engine's settings are: start (popular, cold), part (second-half, \
all), mode (engine, classic), experts.vram (MiB, in place of --slots), experts.scope, experts.admission, experts.insert_budget, experts.copy_rounds and others.

Examples:
  strata-lab replay nano.strace                          # three sizes, every policy, and the oracle
  strata-lab replay nano.strace --slots 32,64,128 --out replay
  strata-lab replay nano.strace --policy lru,belady --set mode=classic --set start=cold";

#[derive(Args)]
pub(super) struct ReplayArgs {
    /// A trace, as `strata trace record` writes it
    trace: PathBuf,
    /// Policies, with commas between
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = POLICIES)]
    policy: Vec<String>,
    /// Experts that there is room for, with commas between [default: an eighth, a quarter and half of all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    slots: Vec<u64>,
    /// Another setting; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// A new folder for summary.md, figures and rows
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.trim().into(), value.trim().into())),
        _ => Err("expected NAME=VALUE".into()),
    }
}

pub(super) fn run(find: Finder, arguments: &ReplayArgs) -> Result<()> {
    if let Some(out) = arguments.out.as_ref().filter(|out| out.exists()) {
        bail!("{} is there already, expected the name of a new folder", out.display());
    }
    let ReplayArgs { trace, policy, slots, set, .. } = arguments;
    let replayed = replay(&Asked { trace, policies: policy, slots, set }, find)?;
    if let Some(out) = &arguments.out {
        let wrong = || format!("cannot write {}", out.display());
        std::fs::create_dir_all(out).with_context(wrong)?;
        for (name, bytes) in &replayed.files {
            std::fs::write(out.join(name), bytes).with_context(wrong)?;
        }
        let names: Vec<&str> = replayed.files.keys().map(String::as_str).collect();
        note(&format!("{}: {}", out.display(), names.join(", ")));
    }
    say(&replayed.text)
}
