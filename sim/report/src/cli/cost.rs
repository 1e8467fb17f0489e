//! `strata-lab fit` and `strata-lab validate`.

use super::output::{note, say};
use super::trace::begin;
use crate::cost::{self, Recordings};
use crate::result;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::io::Write;
use std::path::{Path, PathBuf};
use strata_sim::validate::fit_markdown;

#[derive(Args)]
pub(super) struct FitArgs {
    #[command(flatten)]
    recordings: RecordingArgs,
    /// Windows of this backend: cuda or sycl
    #[arg(long, default_value = "cuda")]
    backend: String,
    /// Windows of this machine alone
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,
    /// The constants to fit; all that are free when none is named
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    constants: Vec<String>,
    /// Write the constants to this file, an input of the studies
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace a file that is there
    #[arg(long, requires = "out")]
    force: bool,
}

#[derive(Args)]
pub(super) struct ValidateArgs {
    /// A validation's name, or `all`
    #[arg(default_value = "all")]
    name: String,
    #[command(flatten)]
    recordings: RecordingArgs,
}

#[derive(Args)]
struct RecordingArgs {
    /// Recorded windows in place of the built-in ones: CSV like sim/core/data/branch-times.csv
    #[arg(long, value_name = "CSV", requires = "machines")]
    windows: Option<PathBuf>,
    /// The machines of those windows: TOML like sim/core/data/branch-machines.toml
    #[arg(long, value_name = "TOML", requires = "windows")]
    machines: Option<PathBuf>,
}

impl RecordingArgs {
    fn recordings(&self) -> Result<Option<Recordings>> {
        match (&self.windows, &self.machines) {
            (Some(windows), Some(machines)) => {
                Ok(Some(Recordings { windows: windows.clone(), machines: machines.clone() }))
            }
            (None, None) => Ok(None),
            _ => bail!("--windows and --machines go together"),
        }
    }
}

pub(super) fn fit(arguments: &FitArgs) -> Result<()> {
    let recordings = arguments.recordings.recordings()?;
    let machine = arguments.machine.as_deref();
    let fitted = cost::fitted(recordings.as_ref(), &arguments.backend, machine, &arguments.constants)?;
    if let Some(path) = &arguments.out {
        let text = cost::constants_toml(&fitted.constants)?;
        let mut file = begin(path, arguments.force)?;
        file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
        file.finish()?;
        note(&format!("the constants lie in {}", path.display()));
    }
    say(&fit_markdown(&fitted))
}

pub(super) fn validate(root: &Path, arguments: &ValidateArgs) -> Result<()> {
    let recordings = arguments.recordings.recordings()?;
    for plan in cost::plans(&arguments.name)? {
        let (report, files) = cost::validated(recordings.as_ref(), plan)?;
        let place = format!("results/validation/{}", plan.name);
        result::put(&root.join(&place), &files)?;
        let quality: Vec<String> =
            report.quality.iter().map(|q| format!("{} {:.1} %", q.metric, q.mape.value * 100.0)).collect();
        note(&format!("{}: mean error {}. {place}/summary.md says more", plan.name, quality.join(", ")));
    }
    Ok(())
}
