//! Which missed experts of a layer go over PCIe: the engine's own rule, on the times of the layer as the model has them.

use crate::check::{invalid, not_negative, share};
use crate::error::SimError;
use strata_policy::split::{BranchTimes, MOST_COPIES, SplitRule, split};

/// Experts that are staged at most for one layer and window.
pub const STAGING_EXPERTS: f64 = MOST_COPIES as f64;

/// A rule that divides the missed experts of a layer between CPU and PCIe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Split {
    /// [`SplitRule::Fixed`] with this share.
    Fixed(f64),
    /// [`SplitRule::Bandwidth`]: an expert takes the CPU what its bytes take, whatever its products cost.
    Bandwidth,
    /// [`SplitRule::Measured`]: the times of the branches as the model has them.
    Measured,
    /// This many experts in every layer, or all that there are: what a recording says was copied.
    Count(f64),
}

/// More misses than a layer has; kept, so that a number of misses is a length.
const MOST_MISSES: f64 = 65_536.0;

impl Split {
    /// The rule of this name, with the share for `fixed`.
    ///
    /// # Errors
    /// The name is not known, or the share is not from 0 to 1.
    pub fn of(name: &str, fixed: f64) -> Result<Split, SimError> {
        match name {
            "fixed" => share("split, fixed share", fixed).map(|()| Split::Fixed(fixed)),
            "bandwidth" => Ok(Split::Bandwidth),
            "measured" => Ok(Split::Measured),
            _ => Err(invalid("split", name, "fixed, bandwidth or measured")),
        }
    }

    /// How many of `misses` experts are copied in a layer with these times; of a number that is not whole, the whole part is split.
    ///
    /// # Errors
    /// The number of misses is negative or no number, or the share is not from 0 to 1.
    pub fn copied(self, misses: f64, times: &BranchTimes) -> Result<f64, SimError> {
        not_negative("distinct misses of a layer", misses)?;
        let rule = match self {
            Split::Count(count) => {
                not_negative("experts copied", count)?;
                return Ok(count.min(misses));
            }
            Split::Fixed(fixed) => {
                share("split, fixed share", fixed)?;
                SplitRule::fixed(fixed as f32)
            }
            Split::Bandwidth => SplitRule::Bandwidth,
            Split::Measured => SplitRule::Measured,
        };
        // The model's experts take as long for one row as for several, so that rows need not be told apart.
        let rows = [1; 64];
        let n = misses.min(MOST_MISSES) as usize;
        let mut to_gpu = Vec::with_capacity(n);
        let copied = match rows.get(..n) {
            Some(rows) => split(rule, rows, times, &mut to_gpu),
            None => split(rule, &vec![1; n], times, &mut to_gpu),
        };
        Ok(copied as f64)
    }
}

/// Whole nanoseconds.
pub(super) fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}
