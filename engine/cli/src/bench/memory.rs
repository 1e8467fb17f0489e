//! `strata bench memory`: how fast threads can read memory.

use super::machine::Machine;
use super::report::{Measured, Series, Started, interval};
use super::{GIGA, values};
use crate::exit::Interrupted;
use crate::output::{self, Table};
use crate::{interrupt, load};
use anyhow::{Context, Result};
use clap::ArgMatches;
use serde_json::json;
use std::hint::black_box;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use strata_cpu::{Cpu, Isa, memory};

/// The smallest buffer by default, and how many times the last-level cache it holds at least: what is left of one pass
/// in the cache must not matter to the next.
const LEAST: u64 = 256 << 20;
const CACHES: u64 = 4;

/// The smallest buffer that may be asked for: smaller ones measure how work is handed out.
const SMALLEST: u64 = 1 << 20;

/// The largest where the system does not say how much memory there is.
const LARGEST: u64 = 1 << 40;

/// Passes over the buffer for the ceiling that kernels are compared with.
const CEILING_PASSES: usize = 9;

/// Memory that is read, in RAM and in no cache.
pub(crate) struct Buffer(Vec<u64>);

impl Buffer {
    /// A buffer of so many bytes, every page of it written.
    ///
    /// # Errors
    /// The system does not give that much.
    pub(crate) fn new(cpu: &Cpu, bytes: u64) -> Result<Buffer> {
        let len = (bytes / 8) as usize;
        // Asked for first and given back, since a vector of zeros, whose pages the threads are the first to touch, ends
        // the program when it gets none.
        let room = Vec::<u64>::new().try_reserve_exact(len);
        room.ok().with_context(|| format!("the system does not give {} of memory", output::bytes(bytes)))?;
        let mut words = vec![0u64; len];
        memory::touch(cpu, &mut words);
        Ok(Buffer(words))
    }

    /// GB/s of each of `passes` passes, after one that is not counted; fewer when it is cancelled.
    pub(crate) fn rates(&self, cpu: &Cpu, passes: usize, cancel: &AtomicBool) -> Vec<f64> {
        let pass = |_| {
            let start = Instant::now();
            black_box(memory::read(cpu, black_box(&self.0)));
            size_of_val(self.0.as_slice()) as f64 / start.elapsed().as_secs_f64() / GIGA
        };
        (0..=passes).map(pass).skip(1).take_while(|_| !cancel.load(Ordering::Relaxed)).collect()
    }
}

/// The rates that kernels are compared with.
pub(crate) fn ceiling(cpu: &Cpu, machine: &Machine, cancel: &AtomicBool) -> Result<Vec<f64>> {
    Ok(Buffer::new(cpu, default_size(machine))?.rates(cpu, CEILING_PASSES, cancel))
}

/// Bytes of a buffer that may be asked for.
pub(crate) fn sizes(machine: &Machine) -> RangeInclusive<u64> {
    // Three quarters of memory leave room for the rest of the system.
    SMALLEST..=machine.ram_bytes.map_or(LARGEST, |ram| ram / 4 * 3).max(SMALLEST)
}

/// Bytes of the buffer when nobody says: more than caches hold, and no more than a quarter of memory.
pub(crate) fn default_size(machine: &Machine) -> u64 {
    let wanted = LEAST.max(machine.last_level_cache_bytes.unwrap_or(0).saturating_mul(CACHES));
    machine.ram_bytes.map_or(wanted, |ram| wanted.min(ram / 4)).max(SMALLEST)
}

/// 1, 2, 4 and so on, one for each core, and one for each logical CPU.
pub(crate) fn default_threads(cores: usize, logical: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = (0..).map(|i| 1 << i).take_while(|&n| n < cores).collect();
    counts.push(cores);
    if logical > cores {
        counts.push(logical);
    }
    counts
}

/// Measures and prints a line for each number of threads.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let threads = match matches.contains_id("threads") {
        true => Some(values::list(matches, "threads", 1..=values::threads_at_most())?),
        false => None,
    };
    let repetitions = values::number(matches, "repetitions", 1..=10_000)?;
    let machine = Machine::read(std::path::Path::new("/"));
    let size = values::size(matches, "size", sizes(&machine))?;
    let mut started = Started::begin("memory", matches)?;
    let cancel = interrupt::handler()?;

    let threads = threads.unwrap_or_else(|| default_threads(machine.cores, machine.logical_cpus));
    let bytes = size.unwrap_or_else(|| default_size(&machine));
    if machine.last_level_cache_bytes.is_some_and(|cache| bytes < 2 * cache) {
        started.note("less than twice the last-level cache is read, so that these are figures of caches in part");
    }
    let isa = Isa::detect();
    started.say(&format!(
        "reading {} {repetitions} times, with {isa}; GB/s, medians with 95 % intervals\n\n",
        output::bytes(bytes)
    ))?;
    let bar = load::bar("reading", "numbers of threads", false);
    bar.set_length(threads.len() as u64);
    let mut series = Vec::new();
    for &count in &threads {
        bar.set_position(series.len() as u64);
        let cpu = Cpu::new(count, isa);
        cpu.pool().notes().iter().for_each(|note| started.note(note));
        let _pinned = cpu.pool().pin_caller();
        let samples = Buffer::new(&cpu, bytes)?.rates(&cpu, repetitions, cancel);
        if samples.len() < repetitions {
            bar.finish_and_clear();
            return Err(Interrupted.into());
        }
        let plural = if count == 1 { "" } else { "s" };
        series.push((count, Series::new(format!("{count} thread{plural}"), "GB/s", samples)?));
    }
    bar.finish_and_clear();

    let mut table = Table::new("rrr");
    table.row(["threads", "GB/s", "interval"]);
    let mut csv = "threads,repetition,gb_per_second\n".to_owned();
    let mut results = Vec::new();
    for (count, s) in &series {
        table.row([count.to_string(), format!("{:.2}", s.summary.median), interval(&s.summary, 2)]);
        csv.extend(s.samples.iter().enumerate().map(|(i, v)| format!("{count},{},{v}\n", i + 1)));
        results.push(s.with(json!({ "threads": count }))?);
    }
    started.say(&table.render(0))?;
    let settings =
        json!({ "threads": threads, "bytes": bytes, "repetitions": repetitions, "warm_up": 1, "isa": isa.name() });
    started.finish(Measured { settings, model: json!(null), results, more: json!(null), csv })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_counts_double_and_end_with_all() {
        assert_eq!(default_threads(1, 1), [1]);
        assert_eq!(default_threads(2, 2), [1, 2]);
        assert_eq!(default_threads(6, 12), [1, 2, 4, 6, 12]);
        assert_eq!(default_threads(8, 8), [1, 2, 4, 8]);
    }
}
