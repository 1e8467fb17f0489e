//! What is held out, and what is fitted to the rest.

use super::{Quality, quality};
use crate::check::invalid;
use crate::cost::Constants;
use crate::error::SimError;
use crate::fit::{Case, Parameter, Residual, cross_validated, free_constants};

/// What one held-out group is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// All windows of a machine: do constants carry over to a machine that nobody measured?
    Machine,
    /// All windows of a machine at one context: is a machine that was measured once predicted in other settings?
    Context,
    /// One window.
    Row,
}

/// A validation: which windows, which constants are fitted, which windows are held out together.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Its name, that of a folder.
    pub name: &'static str,
    /// What it asks.
    pub question: &'static str,
    /// `cuda` or `sycl`.
    pub backend: &'static str,
    /// The machine, or all of the backend.
    pub machine: Option<&'static str>,
    /// What is held out together.
    pub group: Group,
    /// The constants that are fitted to the others; the rest have their defaults.
    pub parameters: &'static [&'static str],
}

const ONE: &str = "Is a machine predicted in settings in which it was not measured?";

/// The validations on the recorded windows of the original engine and its forks.
pub const PLANS: &[Plan] = &[
    Plan {
        name: "across-machines",
        question: "Do constants carry over to a machine that nobody measured?",
        backend: "cuda",
        machine: None,
        group: Group::Machine,
        parameters: &["node_us", "row_us", "wake_us", "nested_ns", "codebook_ns", "step_ms", "other_ms"],
    },
    Plan {
        name: "4090x2",
        question: ONE,
        backend: "cuda",
        machine: Some("4090x2"),
        group: Group::Context,
        parameters: &["node_us", "wake_us", "nested_ns", "step_ms", "other_ms"],
    },
    Plan {
        name: "3080x2",
        question: ONE,
        backend: "cuda",
        machine: Some("3080x2"),
        group: Group::Row,
        parameters: &["node_us", "row_us", "nested_ns", "other_ms"],
    },
    Plan {
        name: "A3000",
        question: ONE,
        backend: "cuda",
        machine: Some("A3000"),
        group: Group::Row,
        parameters: &["node_us", "codebook_ns", "step_ms", "other_ms"],
    },
    Plan {
        name: "B70x2",
        question: ONE,
        backend: "sycl",
        machine: Some("B70x2"),
        group: Group::Row,
        parameters: &["node_us", "row_us", "step_ms", "other_ms"],
    },
];

/// What came of a validation.
#[derive(Debug, Clone)]
pub struct Report {
    /// Its plan.
    pub plan: Plan,
    /// Windows used.
    pub windows: usize,
    /// Held-out predictions, by group.
    pub held_out: Vec<(String, Vec<Residual>)>,
    /// How good they are.
    pub quality: Vec<Quality>,
}

impl Plan {
    /// Whether a window belongs to it. Builds whose waiting covers the first card only are taken where all windows of
    /// the machine are of that kind.
    pub fn takes(&self, case: &Case) -> bool {
        let split = case.recorded.flags.split(';').any(|flag| flag == "split1");
        let whole = !split || case.machine.first_card_only;
        case.machine.backend == self.backend && whole && self.machine.is_none_or(|name| name == case.machine.name)
    }

    /// The constants that are fitted, with their bounds.
    ///
    /// # Errors
    /// A name is that of no free constant.
    pub fn free(&self) -> Result<Vec<Parameter>, SimError> {
        let all = free_constants();
        let named = |name: &&str| {
            let found = all.iter().find(|p| p.name == *name).cloned();
            found.ok_or_else(|| invalid(format!("plan {}, constant", self.name), name, "a free constant"))
        };
        self.parameters.iter().map(named).collect()
    }

    /// Leaves out each group in turn and predicts it from the others.
    ///
    /// # Errors
    /// A number of a window cannot be, or there are too few windows.
    pub fn run(&self, cases: &[Case], base: &Constants, seed: u64) -> Result<Report, SimError> {
        let cases: Vec<Case> = cases.iter().filter(|case| self.takes(case)).cloned().collect();
        let held_out = cross_validated(&cases, base, &self.free()?, |case| match self.group {
            Group::Machine => case.recorded.machine.clone(),
            Group::Context => case.recorded.context.clone(),
            Group::Row => case.recorded.row.clone(),
        })?;
        if held_out.is_empty() {
            let expected = "a group whose rest has as many measurements as there are constants";
            return Err(invalid(format!("plan {}", self.name), format!("{} windows", cases.len()), expected));
        }
        Ok(Report { plan: self.clone(), windows: cases.len(), quality: quality(&held_out, seed)?, held_out })
    }
}
