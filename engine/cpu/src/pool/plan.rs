//! How many threads work, and where.
//!
//! Left to itself the pool takes one thread per physical core, since two threads of a core share the units and the
//! memory path that the kernels saturate, and of the cores
//!
//! - only the fast ones of a hybrid machine: a phase ends with its last piece, and the slow cores finish last (on
//!   8 fast and 16 slow cores 15 threads were reported 28 % slower than 4);
//! - only one socket's: memory of the other is reached through the link between them, and so is every shared word
//!   (using one of two Xeons was reported about 20 % faster);
//! - no more than the CPU quota, rounded down: a group that has used its share stops for the rest of the period
//!   (mostly 100 ms), and a phase with it.

use super::topology::{Core, Topology};

/// The threads of a pool, the calling one included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// For each thread the logical CPUs of its core. The first is the calling thread's.
    pub places: Vec<Vec<usize>>,
    /// What the user should know about the choice, a sentence each.
    pub notes: Vec<String>,
}

impl Plan {
    /// A plan for `threads` threads (0: as many as should be fastest), at most one per logical CPU.
    pub fn new(topology: &Topology, threads: usize) -> Plan {
        let mut notes = Vec::new();
        let ranked = ranked(&topology.cores);
        let count = match threads {
            0 => default_count(topology, &ranked, &mut notes),
            n => asked_count(topology, n, &mut notes),
        };
        Plan { places: places(&ranked, count), notes }
    }
}

/// The socket with most fast cores.
fn home(cores: &[Core]) -> usize {
    let fast = |socket: usize| cores.iter().filter(|core| core.fast && core.socket == socket).count();
    cores.iter().map(|core| core.socket).max_by_key(|&socket| (fast(socket), std::cmp::Reverse(socket))).unwrap_or(0)
}

/// Cores, the preferred first, and how many of them the default takes.
fn ranked(cores: &[Core]) -> (Vec<&Core>, usize) {
    let home = home(cores);
    let rank = |core: &Core| (!core.fast, core.socket != home, core.socket);
    let mut ranked: Vec<&Core> = cores.iter().collect();
    ranked.sort_by_key(|core| rank(core));
    let preferred = cores.iter().filter(|core| core.fast && core.socket == home).count();
    (ranked, preferred)
}

fn default_count(topology: &Topology, (cores, preferred): &(Vec<&Core>, usize), notes: &mut Vec<String>) -> usize {
    let slow = cores.iter().filter(|core| !core.fast).count();
    if slow > 0 {
        notes.push(format!("threads: fast cores only; the {slow} slower cores would finish every phase last"));
    }
    let far = cores.len() - slow - preferred;
    if far > 0 {
        notes.push(format!("threads: one socket only; {far} cores of the others would wait for its memory"));
    }
    let most = (*preferred).max(1);
    match topology.quota {
        Some(quota) if quota < most as f64 => {
            let count = (quota as usize).max(1);
            notes.push(format!("threads: {count} instead of {most}, as the control group allows {quota:.1} CPUs"));
            count
        }
        _ => most,
    }
}

fn asked_count(topology: &Topology, asked: usize, notes: &mut Vec<String>) -> usize {
    let logical = topology.logical().max(1);
    if asked > logical {
        notes.push(format!("threads: {logical} instead of {asked}, as this process may use {logical} logical CPUs"));
    }
    let count = asked.min(logical);
    if let Some(quota) = topology.quota.filter(|&quota| quota < count as f64) {
        notes.push(format!("threads: {count} threads will stop and go, as the control group allows {quota:.1} CPUs"));
    }
    count
}

/// A core for each thread; cores get a second thread only when all have one.
fn places((cores, _): &(Vec<&Core>, usize), count: usize) -> Vec<Vec<usize>> {
    let deepest = cores.iter().map(|core| core.cpus.len()).max().unwrap_or(0);
    let rounds = (0..deepest).flat_map(|round| cores.iter().filter(move |core| core.cpus.len() > round));
    rounds.take(count).map(|core| core.cpus.clone()).collect()
}
