//! Recorded decode windows.

use crate::check::{invalid, positive};
use crate::cost::Machine;
use crate::error::SimError;
use crate::presets::parse;

const ROWS: &str = include_str!("../../data/branch-times.csv");
const MACHINES: &str = include_str!("../../data/branch-machines.toml");

/// A recorded window: the mean of many. What was not published, or not as a plain number, is `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// Its number in the source.
    pub row: String,
    /// Its machine.
    pub machine: String,
    /// Tokens read before, as written: a number or a word.
    pub context: String,
    /// Hits of look-ups in percent.
    pub hit_pct: Option<f64>,
    /// Rows of the window.
    pub rows: Option<f64>,
    /// Tokens kept.
    pub tokens: Option<f64>,
    /// The whole window in ms.
    pub window_ms: Option<f64>,
    /// Waiting for the GPU in ms.
    pub wait_gpu_ms: Option<f64>,
    /// Experts on the CPU in ms.
    pub cpu_pool_ms: Option<f64>,
    /// Drafts in ms.
    pub draft_ms: Option<f64>,
    /// Distinct experts of the CPU for each layer.
    pub cpu_experts: Option<f64>,
    /// Routed entries of the CPU for each layer.
    pub cpu_entries: Option<f64>,
    /// Routed entries of resident experts for each layer.
    pub vram_entries: Option<f64>,
    /// Experts copied for each layer.
    pub copied: Option<f64>,
    /// What was special about it.
    pub flags: String,
}

impl Recorded {
    /// Rows of the window: as recorded, or a tenth of all routed entries.
    pub fn window_rows(&self, used: f64) -> Option<f64> {
        self.rows.or_else(|| {
            if let (Some(resident), Some(hit), None) = (self.vram_entries, self.hit_pct, self.cpu_entries) {
                return Some((resident / (hit / 100.0) / used).max(1.0)).filter(|rows| rows.is_finite());
            }
            let (cpu, experts) = (self.cpu_entries?, self.cpu_experts?);
            // The engine's rate leaves copied experts out; these have as many entries each as the CPU's.
            let hit = self.hit_pct? / 100.0;
            let resident = self.vram_entries.unwrap_or(cpu * hit / (1.0 - hit));
            let copied = if experts > 0.0 { self.copied.unwrap_or(0.0) * cpu / experts } else { 0.0 };
            Some(((resident + cpu + copied) / used).max(1.0))
        })
    }

    /// Tokens kept in a second.
    pub fn tokens_per_s(&self) -> Option<f64> {
        Some(1e3 * self.tokens? / self.window_ms?)
    }
}

/// A machine of the recorded windows.
#[derive(Debug, Clone, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedMachine {
    /// Its code in the source.
    pub name: String,
    /// `cuda` or `sycl`: what starting work on the GPU costs differs.
    pub backend: String,
    /// Peak bandwidth of a card's memory in GB/s.
    pub vram_gb_s: f64,
    /// Copies to a card in GB/s.
    pub link_gb_s: f64,
    /// Threads that compute experts.
    pub workers: f64,
    /// What the CPU reads of main memory in GB/s, if anyone states it.
    pub cpu_gb_s: Option<f64>,
    /// Rows of its windows at most, where every window had the same limit: a chain of drafts that ended early has a
    /// step more than it has drafts.
    pub window: Option<f64>,
    /// The model file.
    pub model: String,
    /// Waiting was measured for the first half of the layers.
    #[serde(default)]
    pub first_card_only: bool,
}

/// More than any main memory: the CPU is bound by arithmetic alone.
const UNBOUND_GB_S: f64 = 1e6;

impl RecordedMachine {
    /// The machine as the cost model takes it. What decoding does not look at is filled with 1.
    pub fn machine(&self) -> Machine {
        let cpu = self.cpu_gb_s.unwrap_or(UNBOUND_GB_S);
        Machine {
            name: self.name.clone(),
            vram_gb: 1.0,
            vram_gb_s: self.vram_gb_s,
            tensor_tflops: 1.0,
            link_gb_s: self.link_gb_s,
            cpu_gb_s: cpu,
            // Nobody states it; the CPU's bandwidth is measured, the sum of both is not.
            dram_gb_s: UNBOUND_GB_S.max(cpu),
            workers: self.workers,
            balance: 1.0,
            wake_us: None,
            sources: Default::default(),
        }
    }
}

/// The recorded windows.
///
/// # Errors
/// The built-in file is damaged.
pub fn recorded() -> Result<Vec<Recorded>, SimError> {
    recorded_of("branch-times.csv", ROWS)
}

/// The recorded windows of a file of the same columns, in any order; `place` names it in errors.
///
/// # Errors
/// A column is missing, a line has another number of fields, or a duration is negative.
pub fn recorded_of(place: &str, text: &str) -> Result<Vec<Recorded>, SimError> {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
    let header = reader.headers().map_err(|e| invalid(place, e, "a header"))?.clone();
    let column = |name: &str| {
        let found = header.iter().position(|h| h == name);
        found.ok_or_else(|| invalid(place, format!("no column {name}"), "it"))
    };
    let names = [
        "row",
        "machine",
        "ctx",
        "flags",
        "hit_pct",
        "avg_T",
        "tok_per_window",
        "window_ms",
        "wait_gpu_ms",
        "cpu_pool_ms",
        "draft_ms",
        "cpu_experts",
        "cpu_entries",
        "vram_entries",
        "pcie_experts",
    ];
    let columns = names.iter().map(|name| column(name)).collect::<Result<Vec<_>, _>>()?;
    let mut rows = Vec::new();
    for line in reader.records() {
        let line = line.map_err(|e| invalid(place, e, format!("{} fields", header.len())))?;
        let text = |i: usize| line.get(columns[i]).unwrap_or_default().to_owned();
        let number = |i: usize| -> Result<Option<f64>, SimError> {
            let Ok(value) = text(i).parse::<f64>() else { return Ok(None) };
            let at = line.position().map_or(0, csv::Position::line);
            let wrong = || invalid(format!("{place} line {at}, field {}", names[i]), value, "a finite number from 0");
            if value.is_finite() && value >= 0.0 { Ok(Some(value)) } else { Err(wrong()) }
        };
        rows.push(Recorded {
            row: text(0),
            machine: text(1),
            context: text(2),
            flags: text(3),
            hit_pct: number(4)?,
            rows: number(5)?,
            tokens: number(6)?,
            window_ms: number(7)?,
            wait_gpu_ms: number(8)?,
            cpu_pool_ms: number(9)?,
            draft_ms: number(10)?,
            cpu_experts: number(11)?,
            cpu_entries: number(12)?,
            vram_entries: number(13)?,
            copied: number(14)?,
        });
    }
    Ok(rows)
}

/// The machines of the recorded windows that state what the fit needs.
///
/// # Errors
/// The built-in file is damaged.
pub fn recorded_machines() -> Result<Vec<RecordedMachine>, SimError> {
    recorded_machines_of("branch-machines.toml", MACHINES)
}

/// The machines of a file of the same form; `place` names it in errors.
///
/// # Errors
/// It is no such file, or a number cannot be.
pub fn recorded_machines_of(place: &str, text: &str) -> Result<Vec<RecordedMachine>, SimError> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        machine: Vec<RecordedMachine>,
    }
    let file: File = parse(place, text)?;
    for m in &file.machine {
        m.machine().check()?;
        if let Some(cpu) = m.cpu_gb_s {
            positive(&format!("machine {}, field cpu_gb_s", m.name), cpu)?;
        }
        if m.backend != "cuda" && m.backend != "sycl" {
            return Err(invalid(format!("machine {}, field backend", m.name), &m.backend, "cuda or sycl"));
        }
    }
    Ok(file.machine)
}
