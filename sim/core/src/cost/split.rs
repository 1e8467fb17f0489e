//! Which missed experts of a layer go over PCIe.

use crate::check::{invalid, not_negative, share};
use crate::error::SimError;

/// Experts that the original engine stages at most for one layer and window.
pub const STAGING_EXPERTS: f64 = 16.0;

/// A rule that divides the missed experts of a layer between CPU and PCIe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Split {
    /// This share over PCIe, rounded down to 1/256 and then to whole experts, as the original engine does: with one
    /// miss nothing is copied whatever the share below 1.
    Fraction(f64),
    /// The share that bandwidths alone suggest, link / (link + cpu), rounded to whole experts.
    Bandwidth,
    /// The number of experts with which the layer's branches take least time.
    Time,
    /// This many experts in every layer, or all that there are: what a recording says was copied.
    Count(f64),
}

impl Split {
    /// The rule of this name, with the share for `fraction`.
    ///
    /// # Errors
    /// The name is not known, or the share is not from 0 to 1.
    pub fn of(name: &str, fraction: f64) -> Result<Split, SimError> {
        match name {
            "fraction" => share("split fraction", fraction).map(|()| Split::Fraction(fraction)),
            "bandwidth" => Ok(Split::Bandwidth),
            "time" => Ok(Split::Time),
            _ => Err(invalid("split", name, "fraction, bandwidth or time")),
        }
    }

    /// How many of `misses` experts are copied; `time_with(copied)` is the time of the layer with that many.
    ///
    /// # Errors
    /// The number of misses is negative or no number, or the share is not from 0 to 1.
    pub fn copied(
        self,
        misses: f64,
        link_gb_s: f64,
        cpu_gb_s: f64,
        time_with: impl Fn(f64) -> f64,
    ) -> Result<f64, SimError> {
        not_negative("distinct misses of a layer", misses)?;
        let most = misses.min(STAGING_EXPERTS);
        Ok(match self {
            Split::Fraction(f) => {
                share("split fraction", f)?;
                (misses * (f * 256.0).floor() / 256.0).floor().min(most)
            }
            Split::Bandwidth => (misses * link_gb_s / (link_gb_s + cpu_gb_s)).round().min(most.floor()),
            Split::Count(count) => {
                not_negative("experts copied", count)?;
                count.min(misses)
            }
            Split::Time => {
                let (mut best, mut least) = (0.0, time_with(0.0));
                let mut copied = 1.0;
                while copied <= most {
                    let time = time_with(copied);
                    if time < least {
                        (best, least) = (copied, time);
                    }
                    copied += 1.0;
                }
                best
            }
        })
    }
}
