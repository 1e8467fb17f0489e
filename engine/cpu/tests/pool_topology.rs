//! Thread counts and places on machines that this one is not, described as Linux would describe them.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use strata_cpu::pool::plan::Plan;
use strata_cpu::pool::topology::{Topology, parse_list};

/// A machine as files below a folder.
struct Machine(tempfile::TempDir);

impl Machine {
    /// Cores as (socket, logical CPUs, highest clock in MHz).
    fn new(cores: &[(usize, Vec<usize>, usize)]) -> Machine {
        let machine = Machine(tempfile::tempdir().unwrap());
        let mut all = Vec::new();
        for (number, (socket, cpus, clock)) in cores.iter().enumerate() {
            for cpu in cpus {
                machine.cpu(*cpu, "topology/physical_package_id", &socket.to_string());
                machine.cpu(*cpu, "topology/core_id", &number.to_string());
                machine.cpu(*cpu, "topology/thread_siblings_list", &list(cpus));
                machine.cpu(*cpu, "cpufreq/cpuinfo_max_freq", &(clock * 1000).to_string());
            }
            all.extend(cpus);
        }
        machine.write("sys/devices/system/cpu/online", &list(&all));
        machine.allow(&list(&all));
        machine.write("proc/self/cgroup", "0::/\n");
        machine
    }

    /// `n` equal cores of one thread.
    fn plain(n: usize) -> Machine {
        Machine::new(&(0..n).map(|i| (0, vec![i], 4000)).collect::<Vec<_>>())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
    }

    fn cpu(&self, cpu: usize, file: &str, text: &str) {
        self.write(&format!("sys/devices/system/cpu/cpu{cpu}/{file}"), text);
    }

    fn allow(&self, cpus: &str) {
        let status = format!("Name:\tstrata\nCpus_allowed:\tff\nCpus_allowed_list:\t{cpus}\nMems_allowed:\t1");
        self.write("proc/thread-self/status", &status);
    }

    fn nodes(&self, cpus: &[&str]) {
        self.write("sys/devices/system/node/online", &list(&(0..cpus.len()).collect::<Vec<_>>()));
        for (node, cpus) in cpus.iter().enumerate() {
            self.write(&format!("sys/devices/system/node/node{node}/cpulist"), cpus);
        }
    }

    fn topology(&self) -> Topology {
        Topology::read(self.path()).unwrap()
    }

    fn plan(&self, threads: usize) -> Plan {
        Plan::new(&self.topology(), threads)
    }
}

fn list(cpus: &[usize]) -> String {
    cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

#[test]
fn lists() {
    assert_eq!(parse_list("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
    assert_eq!(parse_list("5"), [5]);
    assert_eq!(parse_list("\n"), [0; 0]);
    assert_eq!(parse_list("3-1,x,2-,7, 9 "), [7, 9]);
    // A damaged list must not fill the memory.
    assert!(parse_list("0-18446744073709551615").len() < 100_000);
}

#[test]
fn eight_fast_and_twelve_slow_cores_without_smt() {
    let cores: Vec<_> = (0..20).map(|i| (0, vec![i], if i < 8 { 5500 } else { 4600 })).collect();
    let by_clock = Machine::new(&cores);
    // The same told by the kinds of performance counters, where clocks say nothing.
    let by_kind = Machine::plain(20);
    by_kind.write("sys/devices/cpu_core/cpus", "0-7");
    by_kind.write("sys/devices/cpu_atom/cpus", "8-19");
    for machine in [by_clock, by_kind] {
        let plan = machine.plan(0);
        assert_eq!(plan.places, (0..8).map(|i| vec![i]).collect::<Vec<_>>());
        assert!(plan.notes[0].contains("12 slower cores"), "{:?}", plan.notes);
        // Who asks for more gets slow ones too, after the fast.
        let plan = machine.plan(10);
        assert_eq!(plan.places[8..], [[8], [9]]);
        assert!(plan.notes.is_empty());
    }
}

#[test]
fn eight_fast_cores_with_smt_and_sixteen_slow() {
    let fast = (0..8).map(|i| (0, vec![2 * i, 2 * i + 1], if i < 2 { 6000 } else { 5700 }));
    let slow = (16..32).map(|i| (0, vec![i], 4400));
    let machine = Machine::new(&fast.chain(slow).collect::<Vec<_>>());
    assert_eq!(machine.topology().logical(), 32);
    assert_eq!(machine.plan(0).places, (0..8).map(|i| vec![2 * i, 2 * i + 1]).collect::<Vec<_>>());
    // Every core has a thread before any has two.
    let places = machine.plan(25).places;
    assert_eq!(places[23..], [vec![31], vec![0, 1]]);
    assert_eq!(machine.plan(99).places.len(), 32);
}

#[test]
fn big_and_little_cores_by_capacity() {
    let machine = Machine::plain(8);
    for cpu in 0..8 {
        machine.cpu(cpu, "cpu_capacity", ["325", "325", "325", "325", "870", "870", "870", "1024"][cpu]);
    }
    assert_eq!(machine.plan(0).places, [[4], [5], [6], [7]]);
}

#[test]
fn six_cores_and_twelve_threads() {
    let machine = Machine::new(&(0..6).map(|i| (0, vec![i, i + 6], 4650)).collect::<Vec<_>>());
    let plan = machine.plan(0);
    assert_eq!(plan.places, (0..6).map(|i| vec![i, i + 6]).collect::<Vec<_>>());
    assert!(plan.notes.is_empty(), "{:?}", plan.notes);
    assert_eq!(machine.plan(12).places.len(), 12);
}

#[test]
fn two_sockets_of_64_cores_with_smt() {
    let cores: Vec<_> = (0..128).map(|i| (i / 64, vec![i, i + 128], 3700)).collect();
    let machine = Machine::new(&cores);
    machine.nodes(&["0-63,128-191", "64-127,192-255"]);
    let plan = machine.plan(0);
    assert_eq!(plan.places, (0..64).map(|i| vec![i, i + 128]).collect::<Vec<_>>());
    assert!(plan.notes[0].contains("64 cores of the others"), "{:?}", plan.notes);
    let plan = machine.plan(256);
    assert_eq!((plan.places.len(), &plan.places[255]), (256, &vec![127, 255]));
    let plan = machine.plan(1000);
    assert_eq!(plan.places.len(), 256);
    assert!(plan.notes[0].contains("256 instead of 1000"), "{:?}", plan.notes);
    // Confined to a part of both, the socket with more cores is chosen.
    machine.allow("60-70");
    assert_eq!(machine.plan(0).places, (64..71).map(|i| vec![i]).collect::<Vec<_>>());
}

#[test]
fn sockets_that_share_their_memory_are_one() {
    // A virtual machine that claims a socket for each of its CPUs, without and with two memory nodes.
    let machine = Machine::new(&(0..16).map(|i| (i, vec![i], 3000)).collect::<Vec<_>>());
    assert_eq!(machine.plan(0).places.len(), 16);
    machine.nodes(&["0-7", "8-15"]);
    assert_eq!(machine.plan(0).places.len(), 8);
    // One socket divided into four nodes is one socket.
    let machine = Machine::plain(16);
    machine.nodes(&["0-3", "4-7", "8-11", "12-15"]);
    assert_eq!(machine.plan(0).places.len(), 16);
}

#[test]
fn one_cpu() {
    let machine = Machine::plain(1);
    assert_eq!(machine.plan(0), Plan { places: vec![vec![0]], notes: Vec::new() });
    let plan = machine.plan(8);
    assert_eq!(plan.places.len(), 1);
    assert!(plan.notes[0].contains("1 instead of 8"), "{:?}", plan.notes);
}

#[test]
fn an_affinity_mask_of_three_cpus() {
    let machine = Machine::plain(8);
    machine.allow("2,5-6");
    assert_eq!(machine.plan(0).places, [[2], [5], [6]]);
    assert_eq!(machine.plan(8).places.len(), 3);
    // Two of the three share a core.
    let machine = Machine::new(&(0..4).map(|i| (0, vec![2 * i, 2 * i + 1], 4000)).collect::<Vec<_>>());
    machine.allow("2-4");
    assert_eq!(machine.plan(0).places, [vec![2, 3], vec![4]]);
    assert_eq!(machine.plan(3).places, [vec![2, 3], vec![4], vec![2, 3]]);
    // Masks name CPUs that are not there.
    machine.allow("0-511");
    assert_eq!(machine.topology().logical(), 8);
}

#[test]
fn confined_to_slow_cores() {
    let machine = Machine::plain(12);
    machine.write("sys/devices/cpu_core/cpus", "0-3");
    machine.allow("6-9");
    let plan = machine.plan(0);
    assert_eq!((plan.places.len(), plan.notes.len()), (4, 0));
}

fn limited_to_2_5(machine: &Machine) {
    assert_eq!(machine.topology().quota, Some(2.5));
    let plan = machine.plan(0);
    assert_eq!(plan.places.len(), 2);
    assert!(plan.notes[0].contains("2 instead of 16") && plan.notes[0].contains("2.5 CPUs"), "{:?}", plan.notes);
    // What is asked for is given, with a warning.
    let plan = machine.plan(4);
    assert_eq!(plan.places.len(), 4);
    assert!(plan.notes[0].contains("2.5 CPUs"), "{:?}", plan.notes);
}

#[test]
fn a_quota_of_2_5_cpus() {
    let inside = Machine::plain(16);
    inside.write("sys/fs/cgroup/cpu.max", "250000 100000");
    limited_to_2_5(&inside);

    // The limit is on a group around ours, which has a larger one.
    let nested = Machine::plain(16);
    nested.write("proc/self/cgroup", "0::/system.slice/strata.service");
    nested.write("sys/fs/cgroup/system.slice/cpu.max", "125000 50000");
    nested.write("sys/fs/cgroup/system.slice/strata.service/cpu.max", "800000 100000");
    limited_to_2_5(&nested);

    // Version 1, mounted together with another controller; the path is the host's.
    let old = Machine::plain(16);
    old.write("proc/self/cgroup", "9:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/docker/abc");
    let mount = "31 23 0:28 /docker/abc /sys/fs/cgroup/both rw,relatime master:9 - cgroup cgroup rw,cpu,cpuacct";
    old.write("proc/self/mountinfo", mount);
    old.write("sys/fs/cgroup/both/cpu.cfs_quota_us", "250000");
    old.write("sys/fs/cgroup/both/cpu.cfs_period_us", "100000");
    limited_to_2_5(&old);
}

#[test]
fn no_quota_and_a_very_small_one() {
    let machine = Machine::plain(4);
    machine.write("sys/fs/cgroup/cpu.max", "max 100000");
    assert_eq!(machine.topology().quota, None);
    machine.write("sys/fs/cgroup/cpu.max", "50000 100000");
    assert_eq!(machine.plan(0).places.len(), 1);
    machine.write("proc/self/cgroup", "3:cpu:/");
    machine.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
    machine.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
    assert_eq!(machine.topology().quota, None);
    assert_eq!(machine.plan(0).places.len(), 4);
}

#[test]
fn files_that_are_missing() {
    let machine = Machine(tempfile::tempdir().unwrap());
    assert_eq!(Topology::read(machine.path()), None);
    machine.write("sys/devices/system/cpu/online", "0-2");
    assert_eq!(machine.topology(), Topology::flat(3));
    let machine = Machine(tempfile::tempdir().unwrap());
    machine.allow("1");
    assert_eq!(machine.plan(0).places, [[1]]);
}
