//! `strata bench kernels`: how near products with weights come to the speed of memory.
//!
//! The criterion library takes the samples, each a few calls long, and this file reads them back from the folder that
//! criterion writes. Each call multiplies the next of many matrices, so that weights come from memory as they do when a
//! model writes: it reads each of its weights once for a token.

use super::machine::Machine;
use super::report::{Measured, Series, Started, interval};
use super::{GIGA, memory, silence, values, weights};
use crate::exit::Interrupted;
use crate::output::{self, Table};
use crate::{flags, interrupt, load};
use anyhow::{Context, Result, bail};
use clap::ArgMatches;
use criterion::{BenchmarkId, Criterion, SamplingMode};
use serde_json::{Value, json};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strata_cpu::{Cpu, Matrix};
use strata_gguf::{GgmlType, show_path};

/// Samples of each figure.
const SAMPLES: usize = 15;

/// How much longer measuring takes than warming up.
const WARM_UPS: f64 = 3.0;

/// Resamplings for criterion's own estimates; it warns of 1000 and fewer. They lie beside the samples; our interval is
/// our own.
const RESAMPLES: usize = 2000;

/// Bytes of the matrices of one type: twice the last-level cache, within these bounds.
const BYTES: std::ops::RangeInclusive<u64> = 64 << 20..=1 << 30;

/// Tokens in a window, at most.
const LONGEST: usize = 4096;

/// What criterion leaves of a benchmark, as far as we need it.
#[derive(serde::Deserialize)]
struct Saved {
    /// Calls in each sample.
    iters: Vec<f64>,
    /// Nanoseconds of each sample.
    times: Vec<f64>,
}

/// What criterion writes to, and how long it may take.
pub(crate) struct Bench<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) seconds: f64,
    pub(crate) cancel: &'a AtomicBool,
}

/// Samples of one type with one window.
struct Cell {
    ty: GgmlType,
    tokens: usize,
    /// GB/s of weights.
    rate: Series,
}

impl Cell {
    /// Billions of multiplications with an addition per second: each weight meets every token once.
    fn products(&self) -> f64 {
        products(self.ty, self.tokens, self.rate.summary.median)
    }
}

/// Billions of multiplications with an addition per second at so many GB/s of weights.
pub(crate) fn products(ty: GgmlType, tokens: usize, rate: f64) -> f64 {
    rate * 8.0 / ty.bits_per_value() * tokens as f64
}

/// Bytes of the matrices of a type on this machine.
pub(crate) fn bytes(machine: &Machine) -> u64 {
    let cache = machine.last_level_cache_bytes.unwrap_or(0);
    cache.saturating_mul(2).clamp(*BYTES.start(), *BYTES.end())
}

/// Measures every type with every window and prints a table.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let settings = flags::settings(matches, None)?;
    let types = values::types(matches, "types")?;
    let tokens = values::list(matches, "tokens", 1..=LONGEST)?;
    let seconds = values::seconds(matches, "seconds", 0.01..=60.0)?;
    values::threads_fit(&settings)?;
    let isa = load::isa(&settings)?;
    let mut started = Started::begin("kernels", matches)?;
    settings.warnings().iter().for_each(|warning| started.note(warning));
    let cancel = interrupt::handler()?;
    let (dir, _temporary) = folder(&started)?;

    let cpu = Cpu::new(settings.engine.threads, isa);
    cpu.pool().notes().iter().for_each(|note| started.note(note));
    let _pinned = cpu.pool().pin_caller();
    let threads = cpu.pool().threads();
    let bytes = bytes(&started.machine);

    // Before and after, since what else runs may come and go.
    let mut ceiling = memory::ceiling(&cpu, &started.machine, cancel)?;
    let bench = Bench { dir: &dir, seconds, cancel };
    let bar = load::bar("measuring", "kernels", false);
    bar.set_length((types.len() * tokens.len()) as u64);
    let mut cells = Vec::new();
    for &ty in &types {
        let matrices = weights::matrices(ty, bytes)?;
        for &tokens in &tokens {
            bar.set_message(format!("measuring {ty} with {}", output::count(tokens, "token")));
            bar.set_position(cells.len() as u64);
            let rate = bench.rate(&cpu, ty, tokens, &matrices);
            if rate.is_err() {
                bar.finish_and_clear();
            }
            cells.push(Cell { ty, tokens, rate: rate? });
        }
    }
    bar.finish_and_clear();
    ceiling.extend(memory::ceiling(&cpu, &started.machine, cancel)?);
    let ceiling = Series::new("memory", "GB/s", ceiling)?;

    show(&started, &cells, &ceiling, &format!("{}, {isa}", output::count(threads, "thread")))?;
    let settings = json!({
        "threads": threads, "isa": isa.name(), "types": types.iter().map(|ty| ty.name()).collect::<Vec<_>>(),
        "tokens": tokens, "seconds": seconds, "rows": weights::ROWS, "cols": weights::COLS, "bytes_per_type": bytes,
        "criterion": started.folder().is_some().then_some(CRITERION),
    });
    let results = cells.iter().map(|cell| object(cell, &ceiling)).collect::<Result<_>>()?;
    let more = json!({ "ceiling": ceiling });
    started.finish(Measured { settings, model: json!(null), results, more, csv: csv(&cells, &ceiling) })
}

/// The folder below `--out` with criterion's own files.
const CRITERION: &str = "criterion";

/// Criterion's folder, and what removes it at the end if it is nobody's.
fn folder(started: &Started) -> Result<(PathBuf, Option<tempfile::TempDir>)> {
    match started.folder() {
        Some(dir) => {
            let dir = dir.join(CRITERION);
            std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", show_path(&dir)))?;
            Ok((dir, None))
        }
        None => {
            let dir = tempfile::tempdir().context("cannot make a folder for criterion's files")?;
            Ok((dir.path().to_owned(), Some(dir)))
        }
    }
}

impl Bench<'_> {
    /// GB/s of weights of a type in products with so many tokens, each with the next of these matrices.
    ///
    /// # Errors
    /// It was interrupted, or criterion failed.
    pub(crate) fn rate(&self, cpu: &Cpu, ty: GgmlType, tokens: usize, matrices: &[Matrix]) -> Result<Series> {
        let (x, mut y) = (weights::activations(tokens), vec![0.0; tokens * weights::ROWS]);
        let mut next = matrices.iter().cycle();
        let samples = self.samples(ty, tokens, || {
            if let Some(matrix) = next.next() {
                matrix.mul(cpu, &x, &mut y);
            }
        });
        if self.cancel.load(Ordering::Relaxed) {
            return Err(Interrupted.into());
        }
        let read = (weights::COLS * weights::ROWS) as f64 * ty.bits_per_value() / 8.0;
        let rates = samples?.iter().map(|seconds| read / seconds / GIGA).collect();
        Series::new(format!("{ty} x {tokens}"), "GB/s", rates)
    }

    /// Seconds of a call, for each sample. After a cancellation calls do nothing, so that criterion is soon done.
    fn samples(&self, ty: GgmlType, tokens: usize, mut call: impl FnMut()) -> Result<Vec<f64>> {
        let measuring = Duration::from_secs_f64(self.seconds);
        silence::quietly(&self.dir.join("log.txt"), || {
            let mut criterion = Criterion::default()
                .without_plots()
                .output_directory(self.dir)
                .nresamples(RESAMPLES)
                .sample_size(SAMPLES)
                .warm_up_time(measuring.div_f64(WARM_UPS))
                .measurement_time(measuring);
            let mut group = criterion.benchmark_group(ty.name());
            // Samples of one length: with lengths that grow, a median of rates would weigh short ones as much as long.
            group.sampling_mode(SamplingMode::Flat);
            let measured = catch_unwind(AssertUnwindSafe(|| {
                group.bench_function(BenchmarkId::from_parameter(tokens), |bencher| {
                    bencher.iter(|| {
                        if !self.cancel.load(Ordering::Relaxed) {
                            call();
                        }
                    });
                });
            }));
            match measured {
                Ok(()) => group.finish(),
                // Its end prints a line. When that panics too, on a full disk, the second panic would end the program.
                Err(panic) => {
                    std::mem::forget(group);
                    resume_unwind(panic);
                }
            }
        })?;
        let path = self.dir.join(ty.name()).join(tokens.to_string()).join("new/sample.json");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("criterion left no samples in {}", show_path(&path)))?;
        seconds(&text).with_context(|| show_path(&path))
    }
}

/// The samples of criterion's `sample.json`, in seconds of a call.
fn seconds(text: &str) -> Result<Vec<f64>> {
    let saved: Saved = serde_json::from_str(text)?;
    let seconds: Vec<f64> = saved.times.iter().zip(&saved.iters).map(|(ns, calls)| ns / calls / 1e9).collect();
    if seconds.is_empty() || seconds.iter().any(|s| !s.is_finite() || *s <= 0.0) {
        bail!("the samples are no times");
    }
    Ok(seconds)
}

/// What is known about a figure.
fn object(cell: &Cell, ceiling: &Series) -> Result<Value> {
    cell.rate.with(json!({
        "type": cell.ty.name(),
        "tokens": cell.tokens,
        "bits_per_weight": cell.ty.bits_per_value(),
        "products_per_second": cell.products() * GIGA,
        "share_of_ceiling": cell.rate.summary.median / ceiling.summary.median,
    }))
}

fn show(started: &Started, cells: &[Cell], ceiling: &Series, what: &str) -> Result<()> {
    started.say(&format!(
        "{what}; memory is read at {:.2} GB/s, 95 % interval {}\n\n",
        ceiling.summary.median,
        interval(&ceiling.summary, 2)
    ))?;
    let mut table = Table::new("lrrrrr");
    table.row(["type", "tokens", "GB/s of weights", "interval", "G products/s", "of the ceiling"]);
    for cell in cells {
        let median = cell.rate.summary.median;
        table.row([
            cell.ty.name().to_owned(),
            cell.tokens.to_string(),
            format!("{median:.3}"),
            interval(&cell.rate.summary, 3),
            format!("{:.1}", cell.products()),
            format!("{:.0} %", 100.0 * median / ceiling.summary.median),
        ]);
    }
    started.say(&table.render(0))
}

fn csv(cells: &[Cell], ceiling: &Series) -> String {
    let mut csv = "type,tokens,sample,gb_per_second\n".to_owned();
    csv.extend(ceiling.samples.iter().enumerate().map(|(i, v)| format!("memory,,{},{v}\n", i + 1)));
    for cell in cells {
        let line = |(i, v): (usize, &f64)| format!("{},{},{},{v}\n", cell.ty, cell.tokens, i + 1);
        csv.extend(cell.rate.samples.iter().enumerate().map(line));
    }
    csv
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn criterions_samples_are_read_back() {
        let read = |text: &str| seconds(text).ok();
        let text = r#"{"sampling_mode":"Flat","iters":[2.0,2.0],"times":[2000.0,3000.0]}"#;
        assert_eq!(read(text), Some(vec![1e-6, 1.5e-6]));
        for bad in ["", "{}", r#"{"iters":[],"times":[]}"#, r#"{"iters":[0.0],"times":[1.0]}"#] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn products_follow_from_bytes() {
        let rate = Series::new("x", "GB/s", vec![1.0]).unwrap();
        // A GB of Q8_0 is 32/34 billion weights.
        let cell = Cell { ty: GgmlType::Q8_0, tokens: 4, rate };
        assert!((cell.products() - 4.0 * 32.0 / 34.0).abs() < 1e-12);
    }
}
