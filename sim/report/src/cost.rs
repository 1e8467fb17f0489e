//! The cost model's constants fitted to recorded windows, and its predictions validated on windows held out.

use crate::result::Files;
use crate::spec::listed;
use anyhow::{Result, bail};
use std::path::PathBuf;
use strata_sim::cost::Constants;
use strata_sim::fit::{Case, Fitted, cases, cases_of, fit, free_constants, recorded_machines_of, recorded_of};
use strata_sim::input::text;
use strata_sim::validate::{PLANS, Plan, Report, report_csv, report_markdown};

/// Recorded windows and the machines they were recorded on, in place of the built-in ones.
#[derive(Debug, Clone)]
pub struct Recordings {
    /// CSV with the columns of `sim/core/data/branch-times.csv`.
    pub windows: PathBuf,
    /// TOML in the form of `sim/core/data/branch-machines.toml`.
    pub machines: PathBuf,
}

/// The seed of the validations' intervals.
const SEED: u64 = 1;

fn windows(recordings: Option<&Recordings>, backend: &str) -> Result<Vec<Case>> {
    let Some(recordings) = recordings else { return Ok(cases(backend)?) };
    let windows = recorded_of(&recordings.windows.display().to_string(), &text(&recordings.windows)?)?;
    let machines = recorded_machines_of(&recordings.machines.display().to_string(), &text(&recordings.machines)?)?;
    Ok(cases_of(windows, &machines, backend)?)
}

/// Fits constants to the windows of a backend, of one machine if it is named. All free constants are fitted when none is
/// named.
///
/// # Errors
/// A constant is not known, there are too few windows, or a file cannot be used.
pub fn fitted(
    recordings: Option<&Recordings>,
    backend: &str,
    machine: Option<&str>,
    constants: &[String],
) -> Result<Fitted> {
    let all = free_constants();
    if let Some(unknown) = constants.iter().find(|c| !all.iter().any(|p| p.name == **c)) {
        let known: Vec<&str> = all.iter().map(|p| p.name.as_str()).collect();
        bail!("found constant {unknown:?}, expected some of: {}", listed(&known));
    }
    let free: Vec<_> = all.into_iter().filter(|p| constants.is_empty() || constants.contains(&p.name)).collect();
    let mut windows = windows(recordings, backend)?;
    if let Some(machine) = machine {
        let mut known: Vec<String> = windows.iter().map(|c| c.machine.name.clone()).collect();
        known.dedup();
        windows.retain(|c| c.machine.name == machine);
        if windows.is_empty() {
            bail!("found no window of machine {machine:?}, expected one of: {}", listed(&known));
        }
    }
    Ok(fit(&windows, &Constants::default(), &free)?)
}

/// Constants as the TOML that the studies' input `constants` takes.
///
/// # Errors
/// A constant is no number, which a fit rules out.
pub fn constants_toml(constants: &Constants) -> Result<String> {
    #[derive(serde::Serialize)]
    struct File<'a> {
        round: &'a Constants,
    }
    Ok(toml::to_string(&File { round: constants })?)
}

/// The plans of this name, or all.
///
/// # Errors
/// There is none.
pub fn plans(name: &str) -> Result<Vec<&'static Plan>> {
    let found: Vec<_> = PLANS.iter().filter(|p| name == "all" || p.name == name).collect();
    if found.is_empty() {
        let known: Vec<_> = PLANS.iter().map(|p| p.name).collect();
        bail!("validation {name:?} is not known; there are: {}", listed(&known));
    }
    Ok(found)
}

/// What a validation writes into `results/validation/NAME/`.
///
/// # Errors
/// There are too few windows, or a file cannot be used.
pub fn validated(recordings: Option<&Recordings>, plan: &Plan) -> Result<(Report, Files)> {
    let report = plan.run(&windows(recordings, plan.backend)?, &Constants::default(), SEED)?;
    let summary = format!(
        "# {}\n\nMade by `strata-lab validate {}`. Windows are recordings of the original engine and its forks, or of the \
         machine named. Intervals are 95 % bootstraps.\n\n{}",
        plan.name,
        plan.name,
        report_markdown(&report)
    );
    let files = Files::from([
        ("summary.md".to_owned(), summary.into_bytes()),
        ("rows.csv".to_owned(), report_csv(&report).into_bytes()),
    ]);
    Ok((report, files))
}
