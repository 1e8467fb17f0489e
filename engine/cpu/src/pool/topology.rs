//! The processors this process may use, as Linux describes them under `/proc` and `/sys`.
//!
//! Pure: everything is read below a folder that is given, so that tests describe machines they do not run on. What
//! is missing (containers hide files) means the plain thing: one socket, one thread a core, cores all alike, no limit.

use super::quota;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// CPU numbers above this are taken for damage.
const MAX_CPUS: usize = 1 << 16;

/// A core counts as slow below this share of the fastest one's `cpu_capacity`. Favoured cores of one kind differ by
/// a few percent; small cores reach two thirds at most.
const SLOW_CAPACITY: f64 = 0.75;

/// The same for the highest clock, where kinds differ less: 0.84 on an Intel 265K, 0.91 and more between fast cores.
const SLOW_CLOCK: f64 = 0.87;

/// A physical core, with those of its logical CPUs that this process may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Core {
    /// Its socket, or what else has memory of its own (see `sockets`).
    pub socket: usize,
    /// Whether it is of the machine's fast kind; true for all cores where there is one kind only.
    pub fast: bool,
    /// Its logical CPUs, ascending.
    pub cpus: Vec<usize>,
}

/// The processors this process may use.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    /// Cores with at least one usable CPU, in order of their first.
    pub cores: Vec<Core>,
    /// CPU time a control group allows, in CPUs.
    pub quota: Option<f64>,
}

impl Topology {
    /// Reads `proc` and `sys` below `root` (`/` on a running system); `None` when they do not even list the CPUs.
    pub fn read(root: &Path) -> Option<Topology> {
        let cpus = usable(root)?;
        let slow = slow_cpus(root, &cpus);
        let mut cores: BTreeMap<usize, Core> = BTreeMap::new();
        for (&cpu, socket) in cpus.iter().zip(sockets(root, &cpus)) {
            // The first of the CPUs that share a core names it; core numbers repeat between dies and sockets.
            let core = cpu_text(root, cpu, "topology/thread_siblings_list")
                .and_then(|text| parse_list(&text).first().copied())
                .unwrap_or(cpu);
            let fast = !slow.contains(&cpu);
            let core = cores.entry(core).or_insert(Core { socket, fast, cpus: Vec::new() });
            core.fast &= fast;
            core.cpus.push(cpu);
        }
        let mut cores: Vec<Core> = cores.into_values().collect();
        cores.sort_by(|a, b| a.cpus.cmp(&b.cpus));
        Some(Topology { cores, quota: quota::read(root) })
    }

    /// `cpus` cores of one kind about which nothing else is known.
    pub fn flat(cpus: usize) -> Topology {
        let core = |cpu| Core { socket: 0, fast: true, cpus: vec![cpu] };
        Topology { cores: (0..cpus.max(1)).map(core).collect(), quota: None }
    }

    /// Logical CPUs this process may use.
    pub fn logical(&self) -> usize {
        self.cores.iter().map(|core| core.cpus.len()).sum()
    }
}

/// CPUs that are online and allowed to the calling thread, ascending.
fn usable(root: &Path) -> Option<Vec<usize>> {
    let online = text(root, "sys/devices/system/cpu/online").map(|text| parse_list(&text)).filter(|l| !l.is_empty());
    let status = text(root, "proc/thread-self/status").or_else(|| text(root, "proc/self/status"));
    let allowed = status
        .as_deref()
        .and_then(|status| status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")))
        .map(parse_list)
        .filter(|list| !list.is_empty());
    match (online, allowed) {
        (Some(online), Some(allowed)) => {
            let both: Vec<usize> = allowed.into_iter().filter(|cpu| online.binary_search(cpu).is_ok()).collect();
            if both.is_empty() { Some(online) } else { Some(both) }
        }
        (online, allowed) => online.or(allowed),
    }
}

/// The socket of each CPU. What counts is whose memory is near, so where all memory is one node there is one socket
/// (virtual machines often claim a socket for every CPU), and where sockets outnumber the nodes, a node is one.
fn sockets(root: &Path, cpus: &[usize]) -> Vec<usize> {
    let packages: Vec<usize> =
        cpus.iter().map(|&cpu| cpu_number(root, cpu, "topology/physical_package_id").unwrap_or(0)).collect();
    let online = text(root, "sys/devices/system/node/online").map(|text| parse_list(&text)).unwrap_or_default();
    let list = |node: usize| text(root, &format!("sys/devices/system/node/node{node}/cpulist"));
    let mut node_of = BTreeMap::new();
    for node in online {
        node_of.extend(parse_list(&list(node).unwrap_or_default()).into_iter().map(|cpu| (cpu, node)));
    }
    let nodes: Vec<usize> = cpus.iter().map(|cpu| node_of.get(cpu).copied().unwrap_or(0)).collect();
    let distinct = |ids: &[usize]| ids.iter().collect::<BTreeSet<_>>().len();
    match distinct(&nodes) {
        0 | 1 => vec![0; cpus.len()],
        n if distinct(&packages) > n => nodes,
        _ => packages,
    }
}

/// Those of `cpus` that belong to slower cores of a hybrid machine. Only usable cores are compared: whoever is
/// confined to slow ones works with all of them.
fn slow_cpus(root: &Path, cpus: &[usize]) -> Vec<usize> {
    // Intel's own word, where the kernel has performance counters for two kinds.
    let big = text(root, "sys/devices/cpu_core/cpus").map(|text| parse_list(&text)).filter(|list| !list.is_empty());
    if let Some(big) = big {
        return all_or_none(cpus, |cpu| big.binary_search(&cpu).is_err());
    }
    for (file, share) in [("cpu_capacity", SLOW_CAPACITY), ("cpufreq/cpuinfo_max_freq", SLOW_CLOCK)] {
        let values: BTreeMap<usize, usize> =
            cpus.iter().filter_map(|&cpu| Some((cpu, cpu_number(root, cpu, file)?))).collect();
        let limit = values.values().max().map_or(0.0, |&max| max as f64 * share);
        let slow = all_or_none(cpus, |cpu| values.get(&cpu).is_some_and(|&value| (value as f64) < limit));
        if !slow.is_empty() {
            return slow;
        }
    }
    Vec::new()
}

/// The CPUs that are slow; none if all are.
fn all_or_none(cpus: &[usize], slow: impl Fn(usize) -> bool) -> Vec<usize> {
    let found: Vec<usize> = cpus.iter().copied().filter(|&cpu| slow(cpu)).collect();
    if found.len() == cpus.len() { Vec::new() } else { found }
}

/// The numbers of a list such as `0-3,8,10-11`, ascending. Parts that are not understood are passed over.
pub fn parse_list(list: &str) -> Vec<usize> {
    let mut numbers = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<usize>(), last.trim().parse::<usize>()) {
            numbers.extend(first..=last.min(MAX_CPUS));
        }
    }
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn text(root: &Path, path: &str) -> Option<String> {
    std::fs::read_to_string(root.join(path)).ok()
}

fn cpu_text(root: &Path, cpu: usize, file: &str) -> Option<String> {
    text(root, &format!("sys/devices/system/cpu/cpu{cpu}/{file}"))
}

fn cpu_number(root: &Path, cpu: usize, file: &str) -> Option<usize> {
    cpu_text(root, cpu, file)?.trim().parse().ok()
}
