//! Hardware profiles: the numbers of one machine that a prediction of its speed needs.
//!
//! A profile is a TOML file, one for each machine in `results/hardware`. Every number has its unit in its name and says
//! where it comes from:
//!
//! ```
//! # let text = r#"
//! name = "desk"
//! description = "my PC"
//! [cpu]
//! cores = { value = 6, source = "data sheet" }
//! threads = { value = 6, source = "one for each core" }
//! layer_overhead_us = { value = 12, source = "assumption: none was published" }
//! read_gb_s = [{ threads = 6, value = 43.0, source = "strata bench memory, 2026-11-30" }]
//! # "#;
//! let profile = strata_config::HardwareProfile::from_toml("desk.toml", text)?;
//! assert_eq!(profile.cpu.read_at(6), Some(43.0));
//! assert_eq!(profile.numbers().iter().filter(|n| n.assumed()).count(), 1);
//! # Ok::<(), strata_config::ConfigError>(())
//! ```
//!
//! What a machine has not, or nobody measured, is absent: a machine without a card has no `[gpu]` and no `[link]`, one whose
//! card shares the memory of the CPU no `[link]`. A source that begins with `assumption` marks a number that nobody
//! stated for this machine. GB are 10^9 bytes, everywhere.

mod read;
mod write;

use serde::{Deserialize, Serialize};

/// A number with its origin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sourced<T> {
    /// The number, in the unit that the field's name has.
    pub value: T,
    /// Who measured or stated it, how and when; `assumption: ...` where nobody did.
    pub source: String,
}

/// What holds for one number of threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AtThreads {
    /// Threads of the CPU that take part.
    pub threads: u32,
    /// The number, in the unit that the field's name has.
    pub value: f64,
    /// As [`Sourced::source`].
    pub source: String,
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HardwareProfile {
    /// Short, as experiments name it.
    pub name: String,
    /// The machine in a sentence, and whatever holds for all numbers.
    pub description: String,
    /// The graphics card, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<Gpu>,
    /// What joins it to the memory of the CPU; absent where both have the same memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// The processor and its memory.
    pub cpu: CpuProfile,
    /// The disk that holds the n-gram table, if it was measured or stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssd: Option<Ssd>,
}

/// A graphics card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// Memory that the engine may use, in bytes.
    pub vram_bytes: Sourced<u64>,
    /// What kernels read of it in GB/s.
    pub vram_read_gb_s: Sourced<f64>,
    /// The data sheet's bandwidth in GB/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vram_peak_gb_s: Option<Sourced<f64>>,
    /// Dense matrix products of half precision with single-precision sums, in 10^12 operations a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensor_tflop_s: Option<Sourced<f64>>,
    /// Microseconds of launching a kernel by itself, behind others.
    pub launch_us: Sourced<f64>,
    /// Microseconds until the host knows that the card is done.
    pub sync_us: Sourced<f64>,
    /// Microseconds of a node of a captured graph beyond its work.
    pub graph_node_us: Sourced<f64>,
    /// Microseconds from a running kernel's word to the host, to the answer's arrival in the kernel.
    pub doorbell_us: Sourced<f64>,
}

/// The way from the CPU's memory to the card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// GB/s of copies to the card from pinned memory, in pieces of 256 MiB and more.
    pub h2d_large_gb_s: Sourced<f64>,
    /// The same in pieces of an expert, 1 to 3 MB.
    pub h2d_expert_gb_s: Sourced<f64>,
}

/// A processor and its memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuProfile {
    /// Physical cores, or virtual ones where those are what the system shows.
    pub cores: Sourced<u32>,
    /// Threads that compute experts.
    pub threads: Sourced<u32>,
    /// Microseconds that a layer with any expert on the CPU takes beyond the experts: waking the threads, waiting for the
    /// last. May be 0.
    pub layer_overhead_us: Sourced<f64>,
    /// The slowest thread's speed as a share of the mean, above 0 and at most 1; absent where all are alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowest_thread_share: Option<Sourced<f64>>,
    /// GB/s that so many threads read of memory. Not empty; numbers of threads increase.
    pub read_gb_s: Vec<AtThreads>,
    /// GB/s of memory that so many threads and copies to the card read together. Numbers of threads increase.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_gb_s: Vec<AtThreads>,
    /// How fast weights of a block type are multiplied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<KernelRate>,
}

/// How fast all of the threads multiply weights of a block type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelRate {
    /// The block type, as `IQ3_S`.
    pub ty: String,
    /// Tokens in the window.
    pub tokens: u32,
    /// Threads that share the work.
    pub threads: u32,
    /// GB of weights a second, from memory: no more than memory gives, and less where products are the bound.
    pub gb_s: f64,
    /// 10^9 products with an addition a second; each weight meets every token once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub giga_products_s: Option<f64>,
    /// As [`Sourced::source`].
    pub source: String,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ssd {
    /// GB/s of one long read.
    pub read_gb_s: Sourced<f64>,
    /// Microseconds of 4 KiB from any place, as the engine reads rows of the n-gram table.
    pub read_4k_us: Sourced<f64>,
}

/// What a number may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Finite and above 0.
    Positive,
    /// Finite and at least 0.
    NotNegative,
    /// Above 0 and at most 1.
    Share,
}

/// A number of a profile, for whoever shows or checks all of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Number<'a> {
    /// Where it stands: `cpu.read_gb_s[0]`.
    pub field: String,
    /// Its value.
    pub value: f64,
    /// Its source.
    pub source: &'a str,
    rule: Rule,
}

impl Number<'_> {
    /// Whether nobody measured or stated it for this machine.
    pub fn assumed(&self) -> bool {
        self.source.starts_with("assumption")
    }
}

impl HardwareProfile {
    /// All numbers that are there, in the order of the file, each with its source.
    pub fn numbers(&self) -> Vec<Number<'_>> {
        let mut all = Vec::new();
        let mut add =
            |field: &str, value: f64, source, rule| all.push(Number { field: field.into(), value, source, rule });
        let positive = Rule::Positive;
        if let Some(gpu) = &self.gpu {
            add("gpu.vram_bytes", gpu.vram_bytes.value as f64, &gpu.vram_bytes.source, positive);
            add("gpu.vram_read_gb_s", gpu.vram_read_gb_s.value, &gpu.vram_read_gb_s.source, positive);
            for (field, number) in
                [("gpu.vram_peak_gb_s", &gpu.vram_peak_gb_s), ("gpu.tensor_tflop_s", &gpu.tensor_tflop_s)]
            {
                number.iter().for_each(|n| add(field, n.value, &n.source, positive));
            }
            for (field, number) in [
                ("gpu.launch_us", &gpu.launch_us),
                ("gpu.sync_us", &gpu.sync_us),
                ("gpu.graph_node_us", &gpu.graph_node_us),
                ("gpu.doorbell_us", &gpu.doorbell_us),
            ] {
                add(field, number.value, &number.source, Rule::NotNegative);
            }
        }
        if let Some(link) = &self.link {
            add("link.h2d_large_gb_s", link.h2d_large_gb_s.value, &link.h2d_large_gb_s.source, positive);
            add("link.h2d_expert_gb_s", link.h2d_expert_gb_s.value, &link.h2d_expert_gb_s.source, positive);
        }
        let cpu = &self.cpu;
        add("cpu.cores", cpu.cores.value.into(), &cpu.cores.source, positive);
        add("cpu.threads", cpu.threads.value.into(), &cpu.threads.source, positive);
        let overhead = &cpu.layer_overhead_us;
        add("cpu.layer_overhead_us", overhead.value, &overhead.source, Rule::NotNegative);
        if let Some(share) = &cpu.slowest_thread_share {
            add("cpu.slowest_thread_share", share.value, &share.source, Rule::Share);
        }
        for (list, values) in [("read_gb_s", &cpu.read_gb_s), ("shared_gb_s", &cpu.shared_gb_s)] {
            for (i, at) in values.iter().enumerate() {
                add(&format!("cpu.{list}[{i}].value"), at.value, &at.source, positive);
            }
        }
        for (i, kernel) in cpu.kernels.iter().enumerate() {
            add(&format!("cpu.kernels[{i}].gb_s"), kernel.gb_s, &kernel.source, positive);
            if let Some(products) = kernel.giga_products_s {
                add(&format!("cpu.kernels[{i}].giga_products_s"), products, &kernel.source, positive);
            }
        }
        if let Some(ssd) = &self.ssd {
            add("ssd.read_gb_s", ssd.read_gb_s.value, &ssd.read_gb_s.source, positive);
            add("ssd.read_4k_us", ssd.read_4k_us.value, &ssd.read_4k_us.source, positive);
        }
        all
    }
}

impl CpuProfile {
    /// GB/s that so many threads read: on the line between the measured numbers of threads, below the least in proportion,
    /// above the most no more. `None` for 0 threads.
    pub fn read_at(&self, threads: u32) -> Option<f64> {
        between(&self.read_gb_s, threads)
    }

    /// GB/s that so many threads and copies read together, as [`CpuProfile::read_at`]; `None` too where it is not known.
    pub fn shared_at(&self, threads: u32) -> Option<f64> {
        between(&self.shared_gb_s, threads)
    }

    /// The rate for a block type and a window: that of the largest measured window that is not larger, or of the smallest.
    pub fn kernel(&self, ty: &str, tokens: u32) -> Option<&KernelRate> {
        let these = || self.kernels.iter().filter(|k| k.ty == ty);
        these().filter(|k| k.tokens <= tokens).max_by_key(|k| k.tokens).or_else(|| these().min_by_key(|k| k.tokens))
    }
}

fn between(list: &[AtThreads], threads: u32) -> Option<f64> {
    if threads == 0 {
        return None;
    }
    let above = list.iter().position(|at| at.threads >= threads);
    match above {
        None => list.last().map(|at| at.value),
        Some(0) => list.first().map(|at| at.value * f64::from(threads) / f64::from(at.threads)),
        Some(i) => {
            let (low, high) = (&list[i - 1], &list[i]);
            let part = f64::from(threads - low.threads) / f64::from(high.threads - low.threads);
            Some(low.value + part * (high.value - low.value))
        }
    }
}
