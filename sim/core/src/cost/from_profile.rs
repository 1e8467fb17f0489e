//! Machines from hardware profiles.

use super::{Constants, Machine};
use crate::check::invalid;
use crate::error::SimError;
use std::collections::BTreeMap;
use strata_config::HardwareProfile;

impl Machine {
    /// The machine of a profile.
    ///
    /// - `vram_gb_s` is what kernels read of VRAM over [`Constants::vram_efficiency`]'s default, so that the model's
    ///   matrix-vector products reach what the profile says they do;
    /// - `link_gb_s` is that of large pieces, which is what the engine's own probe reads and what published links are;
    ///   where the card has the CPU's memory, half of what kernels read, since a copy reads and writes;
    /// - `cpu_gb_s` and `dram_gb_s` are those of the threads that compute experts, the latter no less than the former;
    ///   where nobody knows what CPU and copies read together, it is the former;
    /// - `wake_us` is what a layer with any expert on the CPU takes besides.
    ///
    /// Launches, doorbells and rates by block type are not in it: the model's constants stand for them.
    ///
    /// # Errors
    /// The profile has no card, lacks the speed of matrix products, or a number cannot be.
    pub fn from_profile(profile: &HardwareProfile) -> Result<Machine, SimError> {
        let lacks = |field: &str, expected: &str| {
            invalid(format!("profile {}, field {field}", profile.name), "nothing", expected)
        };
        let gpu =
            profile.gpu.as_ref().ok_or_else(|| lacks("gpu", "a card: without one there is no cache to simulate"))?;
        let tensor = gpu.tensor_tflop_s.as_ref();
        let tensor = tensor.ok_or_else(|| lacks("gpu.tensor_tflop_s", "10^12 operations a second"))?;
        let cpu = &profile.cpu;
        let threads = cpu.threads.value;
        let read = cpu.read_at(threads).ok_or_else(|| lacks("cpu.read_gb_s", "GB/s that the threads read"))?;
        let vram = gpu.vram_read_gb_s.value;
        let mut sources = BTreeMap::new();
        let mut say = |field: &str, source: &str| sources.insert(field.to_owned(), source.to_owned());
        say("vram_gb", &gpu.vram_bytes.source);
        say("vram_gb_s", &gpu.vram_read_gb_s.source);
        say("tensor_tflops", &tensor.source);
        say("workers", &cpu.threads.source);
        say("wake_us", &cpu.layer_overhead_us.source);
        cpu.read_gb_s.last().map(|at| say("cpu_gb_s", &at.source));
        match cpu.shared_gb_s.last() {
            Some(at) => say("dram_gb_s", &at.source),
            None => say("dram_gb_s", "assumption: no more than the CPU alone"),
        };
        match &profile.link {
            Some(link) => say("link_gb_s", &link.h2d_large_gb_s.source),
            None => say("link_gb_s", "assumption: a copy reads and writes the one memory"),
        };
        let machine = Machine {
            name: profile.name.clone(),
            vram_gb: gpu.vram_bytes.value as f64 / 1e9,
            vram_gb_s: vram / Constants::default().vram_efficiency,
            tensor_tflops: tensor.value,
            link_gb_s: profile.link.as_ref().map_or(vram / 2.0, |link| link.h2d_large_gb_s.value),
            cpu_gb_s: read,
            dram_gb_s: cpu.shared_at(threads).unwrap_or(read).max(read),
            workers: f64::from(threads),
            balance: cpu.slowest_thread_share.as_ref().map_or(1.0, |share| share.value),
            wake_us: Some(cpu.layer_overhead_us.value),
            sources,
        };
        machine.check().map(|()| machine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESK: &str = r#"
name = "desk"
description = "a desk"
[gpu]
vram_bytes = { value = 8_000_000_000, source = "s" }
vram_read_gb_s = { value = 340.0, source = "s" }
tensor_tflop_s = { value = 50.0, source = "s" }
launch_us = { value = 4.0, source = "s" }
sync_us = { value = 9.0, source = "s" }
graph_node_us = { value = 0.5, source = "s" }
doorbell_us = { value = 2.0, source = "s" }
[link]
h2d_large_gb_s = { value = 25.0, source = "a probe" }
h2d_expert_gb_s = { value = 22.0, source = "s" }
[cpu]
cores = { value = 8, source = "s" }
threads = { value = 6, source = "s" }
layer_overhead_us = { value = 12.0, source = "s" }
slowest_thread_share = { value = 0.9, source = "s" }
read_gb_s = [{ threads = 4, value = 40.0, source = "s" }, { threads = 8, value = 60.0, source = "s" }]
"#;

    fn machine(text: &str) -> Result<Machine, SimError> {
        Machine::from_profile(&HardwareProfile::from_toml("desk.toml", text).unwrap())
    }

    #[test]
    fn every_number_comes_from_its_field() {
        let m = machine(DESK).unwrap();
        assert_eq!((m.name.as_str(), m.vram_gb, m.vram_gb_s, m.tensor_tflops), ("desk", 8.0, 400.0, 50.0));
        // Six threads lie midway between four and eight; nobody knows what they and copies read together.
        assert_eq!((m.link_gb_s, m.cpu_gb_s, m.dram_gb_s, m.workers), (25.0, 50.0, 50.0, 6.0));
        assert_eq!((m.balance, m.wake_us), (0.9, Some(12.0)));
        assert_eq!(m.sources["link_gb_s"], "a probe");
        let shared = DESK.to_owned() + "shared_gb_s = [{ threads = 6, value = 70.0, source = 's' }]\n";
        assert_eq!(machine(&shared).unwrap().dram_gb_s, 70.0);
    }

    #[test]
    fn one_memory_needs_no_link_and_a_machine_without_a_card_is_refused() {
        let cut = |from: &str, to: &str| {
            let (start, end) = (DESK.find(from).unwrap(), DESK.find(to).unwrap());
            format!("{}{}", &DESK[..start], &DESK[end..])
        };
        assert_eq!(machine(&cut("[link]", "[cpu]")).unwrap().link_gb_s, 170.0);
        let refused = machine(&cut("[gpu]", "[cpu]")).unwrap_err().to_string();
        assert!(refused.starts_with("profile desk, field gpu: found nothing, expected a card"), "{refused}");
        let refused = machine(&cut("tensor_tflop_s", "launch_us")).unwrap_err().to_string();
        assert!(refused.contains("field gpu.tensor_tflop_s: found nothing"), "{refused}");
    }
}
