//! What a measurement was made on, as far as the system tells. What it does not tell is `null`.

use serde::Serialize;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use strata_cpu::Isa;
use strata_cpu::pool::topology::Topology;

/// The parts of a machine that decide how fast it is.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Machine {
    /// The processor's name.
    pub(crate) cpu: Option<String>,
    /// Physical cores that this process may use.
    pub(crate) cores: usize,
    /// Logical CPUs that this process may use.
    pub(crate) logical_cpus: usize,
    /// The instruction sets it has of those that kernels are written for, the fastest last.
    pub(crate) isas: Vec<&'static str>,
    /// The largest cache of a core, which others may share.
    pub(crate) last_level_cache_bytes: Option<u64>,
    /// Memory in all.
    pub(crate) ram_bytes: Option<u64>,
    /// Name and version of the kernel.
    pub(crate) kernel: Option<String>,
    /// When the kernel backs memory with large pages: `always`, `madvise` or `never`.
    pub(crate) transparent_huge_pages: Option<String>,
    /// How the first CPU's clock is governed.
    pub(crate) frequency_governor: Option<String>,
}

/// What changes from one moment to the next.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Moment {
    /// Runnable threads on the machine, averaged over 1, 5 and 15 minutes.
    pub(crate) load_average: Option<[f64; 3]>,
    /// The clock of each CPU in MHz. Virtual machines tell a fixed number.
    pub(crate) clock_mhz: Vec<f64>,
}

/// Memory that this process took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Memory {
    /// The most that was in RAM at once, pages of mapped files included (`VmHWM`).
    pub(crate) peak_resident_bytes: Option<u64>,
    /// What is in RAM now and belongs to no file (`RssAnon`).
    pub(crate) anonymous_bytes: Option<u64>,
}

impl Machine {
    /// The machine described by `proc` and `sys` below `root`.
    pub(crate) fn read(root: &Path) -> Machine {
        let flat = || Topology::flat(std::thread::available_parallelism().map_or(1, std::num::NonZero::get));
        let topology = Topology::read(root).unwrap_or_else(flat);
        let text = |path: &str| std::fs::read_to_string(root.join(path)).ok();
        let line = |path: &str| text(path).map(|t| t.trim().to_owned());
        let kernel = line("proc/sys/kernel/ostype").zip(line("proc/sys/kernel/osrelease"));
        let huge = text("sys/kernel/mm/transparent_hugepage/enabled");
        Machine {
            cpu: text("proc/cpuinfo").and_then(|t| fields(&t, "model name").next().map(str::to_owned)),
            cores: topology.cores.len(),
            logical_cpus: topology.logical(),
            isas: Isa::available().map(Isa::name).collect(),
            last_level_cache_bytes: last_level_cache(root),
            ram_bytes: text("proc/meminfo").and_then(|t| kilobytes(&t, "MemTotal")),
            kernel: kernel.map(|(name, version)| format!("{name} {version}")),
            transparent_huge_pages: huge.as_deref().and_then(chosen).map(str::to_owned),
            frequency_governor: line("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        }
    }
}

impl Moment {
    /// This moment, by `proc` below `root`.
    pub(crate) fn read(root: &Path) -> Moment {
        let text = |path: &str| std::fs::read_to_string(root.join(path)).ok();
        let clocks = text("proc/cpuinfo").unwrap_or_default();
        Moment {
            load_average: text("proc/loadavg").as_deref().and_then(load_average),
            clock_mhz: fields(&clocks, "cpu MHz").filter_map(|v| v.parse().ok()).collect(),
        }
    }

    /// A sentence when others keep the machine so busy that figures are noisy: when of the last minute more than half
    /// of the cores were taken.
    pub(crate) fn noise(&self, cores: usize) -> Option<String> {
        let [minute, ..] = self.load_average?;
        (minute > cores as f64 / 2.0).then(|| {
            format!(
                "the load average was {minute:.2} before the measurement, more than half of the {}: figures are noisy",
                crate::output::count(cores, "core")
            )
        })
    }
}

impl Memory {
    /// What this process took until now.
    pub(crate) fn read() -> Memory {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Memory { peak_resident_bytes: kilobytes(&status, "VmHWM"), anonymous_bytes: kilobytes(&status, "RssAnon") }
    }
}

/// The values of all lines `key : value`.
fn fields<'a>(text: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    })
}

/// Bytes of a line `key: 12 kB`.
fn kilobytes(text: &str, key: &str) -> Option<u64> {
    fields(text, key).next()?.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn load_average(text: &str) -> Option<[f64; 3]> {
    let mut numbers = text.split_whitespace().map_while(|v| v.parse().ok());
    Some([numbers.next()?, numbers.next()?, numbers.next()?])
}

/// The word in brackets: `always [madvise] never`.
fn chosen(text: &str) -> Option<&str> {
    text.split_once('[')?.1.split_once(']').map(|(word, _)| word)
}

/// Bytes of the first CPU's cache of the highest level.
fn last_level_cache(root: &Path) -> Option<u64> {
    let folder = root.join("sys/devices/system/cpu/cpu0/cache");
    let caches = std::fs::read_dir(folder).ok()?.flatten().filter_map(|entry| {
        let text = |name: &str| std::fs::read_to_string(entry.path().join(name)).ok();
        let level: u32 = text("level")?.trim().parse().ok()?;
        Some((level, text("size")?.trim().strip_suffix('K')?.parse::<u64>().ok()? << 10))
    });
    caches.max().map(|(_, bytes)| bytes)
}

/// A moment in UTC, by RFC 3339.
pub(crate) fn date(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    // Days to a date: H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days, for days since 1970.
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (h, m, s) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_machine_is_read_from_its_files() {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("proc/cpuinfo", "processor\t: 0\nmodel name\t: A B 9\ncpu MHz\t\t: 3000.5\n\nmodel name\t: A B 9\n"),
            ("proc/meminfo", "MemTotal:       2048 kB\nMemFree: 1 kB\n"),
            ("proc/loadavg", "1.50 0.25 0.00 1/93 4711\n"),
            ("proc/sys/kernel/ostype", "Linux\n"),
            ("proc/sys/kernel/osrelease", "6.1.0\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("sys/devices/system/cpu/online", "0-1\n"),
            ("sys/devices/system/cpu/cpu0/cache/index0/level", "1\n"),
            ("sys/devices/system/cpu/cpu0/cache/index0/size", "64K\n"),
            ("sys/devices/system/cpu/cpu0/cache/index3/level", "3\n"),
            ("sys/devices/system/cpu/cpu0/cache/index3/size", "32K\n"),
        ] {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let machine = Machine::read(dir.path());
        assert_eq!(machine.cpu.as_deref(), Some("A B 9"));
        assert_eq!((machine.logical_cpus, machine.ram_bytes), (2, Some(2 << 20)));
        assert_eq!(machine.kernel.as_deref(), Some("Linux 6.1.0"));
        assert_eq!(machine.transparent_huge_pages.as_deref(), Some("madvise"));
        assert_eq!((machine.last_level_cache_bytes, machine.frequency_governor), (Some(32 << 10), None));
        let moment = Moment::read(dir.path());
        assert_eq!(moment, Moment { load_average: Some([1.5, 0.25, 0.0]), clock_mhz: vec![3000.5] });
        assert!(moment.noise(2).unwrap().contains("1.50"));
        assert_eq!(moment.noise(3), None);
    }

    #[test]
    fn a_system_that_tells_nothing_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::read(dir.path());
        assert!(machine.cpu.is_none() && machine.ram_bytes.is_none() && machine.cores > 0);
        assert_eq!(Moment::read(dir.path()).noise(1), None);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, want) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (4_102_444_799, "2099-12-31T23:59:59Z"),
        ] {
            assert_eq!(date(UNIX_EPOCH + Duration::from_secs(seconds)), want);
        }
    }
}
