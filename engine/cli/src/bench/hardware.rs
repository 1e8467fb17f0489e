//! `strata bench hardware`: the numbers of this machine that predictions need, as a profile.
//!
//! What [`super::memory`] and [`super::kernels`] measure by themselves is measured here too, by the same code: reading by
//! number of threads, products of block types with 1 and 4 tokens. Besides: what waking the workers costs a layer, and a
//! disk, where a file on it is named. A graphics card is not measured: the engine has no part that uses one yet.

use super::kernels::{self, Bench};
use super::machine::date;
use super::report::{Measured, Series, Started, interval};
use super::{GIGA, disk, memory, values, weights};
use crate::exit::Interrupted;
use crate::output::{self, Table};
use crate::{interrupt, load};
use anyhow::{Context, Result, bail};
use clap::ArgMatches;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};
use strata_config::HardwareProfile;
use strata_config::hardware::{AtThreads, CpuProfile, KernelRate, Sourced, Ssd};
use strata_cpu::{Cpu, Isa};
use strata_gguf::{GgmlType, show_path};

/// Tokens of the windows whose products are measured: alone, and a window of speculation.
const WINDOWS: [usize; 2] = [1, 4];

/// Rounds of the pool that a layer's experts take: gate and up, quantising, down.
const ROUNDS: usize = 3;

/// What the rest of a layer takes between two calls of the pool, roughly. Workers wait for the next one awake.
const PAUSE: Duration = Duration::from_micros(200);

/// How often waking is measured.
const WAKES: usize = 200;

/// Everything that was asked for.
struct Asked {
    out: Option<PathBuf>,
    name: String,
    threads: Vec<usize>,
    bytes: Option<u64>,
    repetitions: usize,
    types: Vec<GgmlType>,
    seconds: f64,
    disk: Option<PathBuf>,
}

/// What was measured.
struct Rates {
    reads: Vec<(usize, Series)>,
    wake: Series,
    kernels: Vec<(GgmlType, usize, Series)>,
    disk: Option<(Series, Series)>,
}

/// Measures, and writes or prints the profile.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let mut started = Started::begin("hardware", matches)?;
    let asked = asked(matches, &started)?;
    let cancel = interrupt::handler()?;
    let isa = Isa::detect();
    started.say(&format!("measuring this machine with {isa}; medians with 95 % intervals\n\n"))?;
    let rates = measure(&mut started, &asked, isa, cancel)?;
    let profile = profile(&started, &asked, &rates, isa);
    profile.check()?;
    show(&started, &rates)?;
    let text = profile.to_toml();
    match &asked.out {
        Some(path) => {
            std::fs::write(path, &text).with_context(|| format!("cannot write {}", show_path(path)))?;
            started.say(&format!("\nwritten: {}\n", show_path(path)))?;
        }
        None => started.say(&format!("\n{text}"))?,
    }
    let mut csv = "figure,sample,value\n".to_owned();
    let mut results = Vec::new();
    for series in rates.all() {
        csv.extend(series.samples.iter().enumerate().map(|(i, v)| format!("{},{},{v}\n", series.label, i + 1)));
        results.push(series.with(json!({}))?);
    }
    let settings = json!({
        "threads": asked.threads, "repetitions": asked.repetitions, "seconds": asked.seconds, "isa": isa.name(),
        "types": asked.types.iter().map(|ty| ty.name()).collect::<Vec<_>>(), "tokens": WINDOWS,
        "disk": asked.disk.as_deref().map(show_path), "output": asked.out.as_deref().map(show_path),
    });
    started.finish(Measured { settings, model: json!(null), results, more: json!({ "profile": profile }), csv })
}

/// Reads the flags, and refuses what would only fail at the end.
fn asked(matches: &ArgMatches, started: &Started) -> Result<Asked> {
    let machine = &started.machine;
    let threads = match matches.contains_id("threads") {
        true => {
            let mut threads = values::list(matches, "threads", 1..=values::threads_at_most())?;
            threads.sort_unstable();
            threads
        }
        false => memory::default_threads(machine.cores, machine.logical_cpus),
    };
    let out = matches.get_one::<PathBuf>("output").cloned();
    if let Some(path) = out.as_deref().filter(|path| path.exists() && !matches.get_flag("force")) {
        bail!("{} is there already; --force writes over it", show_path(path));
    }
    let folder = out.as_deref().and_then(Path::parent).filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        bail!("{} is no folder, and the profile should be written there", show_path(folder));
    }
    let stem = out.as_deref().and_then(Path::file_stem).map(|stem| stem.to_string_lossy().into_owned());
    let name = matches.get_one::<String>("name").cloned().or(stem).unwrap_or_else(|| "this-machine".into());
    let disk = matches.get_one::<PathBuf>("disk").cloned();
    disk.as_deref().map(disk::check).transpose()?;
    Ok(Asked {
        out,
        name,
        threads,
        bytes: values::size(matches, "size", memory::sizes(machine))?,
        repetitions: values::number(matches, "repetitions", 1..=10_000)?,
        types: values::types(matches, "types")?,
        seconds: values::seconds(matches, "seconds", 0.01..=60.0)?,
        disk,
    })
}

fn measure(started: &mut Started, asked: &Asked, isa: Isa, cancel: &AtomicBool) -> Result<Rates> {
    let steps = asked.threads.len() + 1 + asked.types.len() * WINDOWS.len() + usize::from(asked.disk.is_some());
    let bar = load::bar("measuring", "figures", started.json);
    bar.set_length(steps as u64);
    let done = |what: String| {
        bar.set_message(what);
        bar.inc(1);
    };
    let result = (|| {
        let bytes = asked.bytes.unwrap_or_else(|| memory::default_size(&started.machine));
        let mut reads = Vec::new();
        for &threads in &asked.threads {
            let cpu = Cpu::new(threads, isa);
            let _pinned = cpu.pool().pin_caller();
            let samples = memory::Buffer::new(&cpu, bytes)?.rates(&cpu, asked.repetitions, cancel);
            interrupted(cancel)?;
            reads.push((threads, Series::new(format!("memory x {threads}"), "GB/s", samples)?));
            done(format!("memory with {}", output::count(threads, "thread")));
        }
        let cpu = Cpu::new(fastest(&reads), isa);
        cpu.pool().notes().iter().for_each(|note| started.note(note));
        let _pinned = cpu.pool().pin_caller();
        let wake = Series::new("waking", "us", wakes(&cpu))?;
        done("waking".into());
        let folder = tempfile::tempdir().context("cannot make a folder for criterion's files")?;
        let bench = Bench { dir: folder.path(), seconds: asked.seconds, cancel };
        let mut kernels = Vec::new();
        for &ty in &asked.types {
            let matrices = weights::matrices(ty, kernels::bytes(&started.machine))?;
            for tokens in WINDOWS {
                kernels.push((ty, tokens, bench.rate(&cpu, ty, tokens, &matrices)?));
                done(format!("{ty} with {}", output::count(tokens, "token")));
            }
        }
        let disk = asked.disk.as_deref().map(|path| disk::measure(path, asked.repetitions, cancel)).transpose()?;
        interrupted(cancel)?;
        Ok(Rates { reads, wake, kernels, disk })
    })();
    bar.finish_and_clear();
    result
}

fn interrupted(cancel: &AtomicBool) -> Result<()> {
    if cancel.load(Ordering::Relaxed) { Err(Interrupted.into()) } else { Ok(()) }
}

/// The number of threads that read fastest; of two that do, the smaller.
fn fastest(reads: &[(usize, Series)]) -> usize {
    let better = |best: (usize, f64), (threads, series): &(usize, Series)| {
        let rate = series.summary.median;
        if rate > best.1 { (*threads, rate) } else { best }
    };
    reads.iter().fold((1, 0.0), better).0
}

/// Microseconds of as many rounds of the pool as a layer's experts take, with a task for each thread that does nothing,
/// each time after a pause.
fn wakes(cpu: &Cpu) -> Vec<f64> {
    let wake = |_| {
        let pause = Instant::now();
        while pause.elapsed() < PAUSE {
            std::hint::spin_loop();
        }
        let start = Instant::now();
        for _ in 0..ROUNDS {
            cpu.pool().run(cpu.pool().threads(), |task| {
                std::hint::black_box(task);
            });
        }
        start.elapsed().as_secs_f64() * 1e6
    };
    (0..=WAKES).map(wake).skip(1).collect()
}

impl Rates {
    fn all(&self) -> impl Iterator<Item = &Series> {
        let disk = self.disk.iter().flat_map(|(read, random)| [read, random]);
        let reads = self.reads.iter().map(|(_, series)| series);
        reads.chain([&self.wake]).chain(self.kernels.iter().map(|(_, _, series)| series)).chain(disk)
    }
}

/// A number for a file: four digits are more than a measurement has.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

fn profile(started: &Started, asked: &Asked, rates: &Rates, isa: Isa) -> HardwareProfile {
    let day = date(SystemTime::now());
    let day = day.split('T').next().unwrap_or_default();
    let by = |what: &str| format!("strata bench hardware {}, {day}: {what}", env!("CARGO_PKG_VERSION"));
    let threads = fastest(&rates.reads);
    let machine = &started.machine;
    let [cpu, kernel] = [&machine.cpu, &machine.kernel].map(|text| text.as_deref().unwrap_or("unknown"));
    let median = |series: &Series| rounded(series.summary.median);
    HardwareProfile {
        name: asked.name.clone(),
        description: format!("{cpu}, {kernel}, measured with {isa}; no graphics card was measured."),
        gpu: None,
        link: None,
        cpu: CpuProfile {
            cores: Sourced { value: machine.cores as u32, source: "the system".into() },
            threads: Sourced { value: threads as u32, source: by("the number that reads memory fastest") },
            layer_overhead_us: Sourced {
                value: median(&rates.wake),
                source: by(&format!("{ROUNDS} empty rounds of {threads} threads, 200 us after the last")),
            },
            slowest_thread_share: None,
            read_gb_s: rates
                .reads
                .iter()
                .map(|(threads, series)| AtThreads {
                    threads: *threads as u32,
                    value: median(series),
                    source: by(&format!("median of {} passes", series.samples.len())),
                })
                .collect(),
            shared_gb_s: Vec::new(),
            kernels: rates
                .kernels
                .iter()
                .map(|(ty, tokens, series)| KernelRate {
                    ty: ty.name().into(),
                    tokens: *tokens as u32,
                    threads: threads as u32,
                    gb_s: median(series),
                    giga_products_s: Some(rounded(kernels::products(*ty, *tokens, series.summary.median))),
                    source: by(&format!("median of {} samples", series.samples.len())),
                })
                .collect(),
        },
        ssd: rates.disk.as_ref().map(|(read, random)| Ssd {
            read_gb_s: Sourced { value: median(read), source: by("from the start of the file of --disk, not cached") },
            read_4k_us: Sourced {
                value: median(random),
                source: by("one at a time from the file of --disk, not cached"),
            },
        }),
    }
}

fn show(started: &Started, rates: &Rates) -> Result<()> {
    let mut table = Table::new("lrrl");
    table.row(["figure", "median", "interval", "unit"]);
    for series in rates.all() {
        let digits = if series.summary.median < 10.0 { 3 } else { 2 };
        let median = format!("{:.digits$}", series.summary.median);
        table.row([series.label.clone(), median, interval(&series.summary, digits), series.unit.to_owned()]);
    }
    started.say(&table.render(0))
}

/// GB/s of so many bytes in this time.
pub(crate) fn gb_s(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64().max(1e-9) / GIGA
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_number_of_threads_is_the_smallest_that_is() {
        let series = |rate| Series::new("x", "GB/s", vec![rate]).unwrap();
        assert_eq!(fastest(&[(1, series(1.0)), (2, series(2.0)), (4, series(2.0))]), 2);
        assert_eq!(fastest(&[(8, series(1.0))]), 8);
    }

    #[test]
    fn numbers_have_four_digits() {
        assert_eq!([1234.56, 0.123_456, 12.0].map(rounded), [1235.0, 0.1235, 12.0]);
    }
}
