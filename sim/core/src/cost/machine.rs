//! A machine, as far as the cost model sees it.

use crate::check::{efficiency, invalid, not_negative, positive};
use crate::error::SimError;
use std::collections::BTreeMap;

/// The numbers of one machine. GB is 10^9 bytes.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Short name, as experiments use it.
    pub name: String,
    /// Memory of the graphics card in GB.
    pub vram_gb: f64,
    /// Peak bandwidth of that memory in GB/s.
    pub vram_gb_s: f64,
    /// Dense half-precision matrix speed with single-precision sums in TFLOP/s, of the data sheet.
    pub tensor_tflops: f64,
    /// Copies from pinned memory to the card in GB/s, as measured where a measurement is known.
    pub link_gb_s: f64,
    /// What all workers together read of expert rows in GB/s while nothing else reads.
    pub cpu_gb_s: f64,
    /// What CPU and copies together read of main memory in GB/s; at least `cpu_gb_s`.
    pub dram_gb_s: f64,
    /// Threads that compute experts.
    pub workers: f64,
    /// Speed of the slowest worker as a share of the mean one: a phase ends with its slowest worker. 1 where all are
    /// alike and the work is cut evenly.
    #[serde(default = "one")]
    pub balance: f64,
    /// Microseconds of each layer in which the CPU has any expert, if it is known for this machine; else
    /// [`Constants::wake_us`](super::Constants::wake_us).
    #[serde(default)]
    pub wake_us: Option<f64>,
    /// Where each number comes from, by field.
    #[serde(default)]
    pub sources: BTreeMap<String, String>,
}

fn one() -> f64 {
    1.0
}

impl Machine {
    /// Refuses numbers that cannot be.
    ///
    /// # Errors
    /// A field is zero, negative or no number; the sentence names it.
    pub fn check(&self) -> Result<(), SimError> {
        for (field, value) in [
            ("vram_gb", self.vram_gb),
            ("vram_gb_s", self.vram_gb_s),
            ("tensor_tflops", self.tensor_tflops),
            ("link_gb_s", self.link_gb_s),
            ("cpu_gb_s", self.cpu_gb_s),
            ("dram_gb_s", self.dram_gb_s),
            ("workers", self.workers),
        ] {
            positive(&self.place(field), value)?;
        }
        efficiency(&self.place("balance"), self.balance)?;
        not_negative(&self.place("wake_us"), self.wake_us.unwrap_or(0.0))?;
        if self.dram_gb_s < self.cpu_gb_s {
            let expected = format!("at least its cpu_gb_s, {}", self.cpu_gb_s);
            return Err(invalid(self.place("dram_gb_s"), self.dram_gb_s, expected));
        }
        Ok(())
    }

    fn place(&self, field: &str) -> String {
        format!("machine {}, field {field}", self.name)
    }
}
