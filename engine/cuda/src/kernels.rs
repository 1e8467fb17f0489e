//! The kernels' PTX, and which kernel is in which part of it.

use std::collections::HashMap;
use std::sync::OnceLock;

/// A part of the kernels, translated by the driver when one of them is first wanted.
pub(crate) struct Module {
    /// The source's name.
    pub(crate) name: &'static str,
    /// PTX, with a zero byte at its end, as the driver wants it.
    pub(crate) ptx: &'static str,
}

macro_rules! modules {
    ($($name:literal),* $(,)?) => {
        &[$(Module { name: $name, ptx: concat!(include_str!(concat!("../ptx/", $name, ".ptx")), "\0") }),*]
    };
}

/// All parts.
pub(crate) const MODULES: &[Module] = modules![
    "attention",
    "attention_rows",
    "dense",
    "many_float",
    "many_grid",
    "many_k",
    "many_small",
    "mixers",
    "products",
    "products_float",
    "products_grid",
    "products_k",
    "products_small",
    "rounds",
];

/// The part that has a kernel.
pub(crate) fn home(kernel: &str) -> Option<usize> {
    static HOMES: OnceLock<HashMap<&'static str, usize>> = OnceLock::new();
    let homes = HOMES.get_or_init(|| {
        let names = |(at, module): (usize, &Module)| {
            let lines = module.ptx.lines().filter_map(|line| line.strip_prefix(".visible .entry "));
            lines.map(move |rest| (rest.trim_end_matches('('), at)).collect::<Vec<_>>()
        };
        MODULES.iter().enumerate().flat_map(names).collect()
    });
    homes.get(kernel).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_and_others_are_not() {
        assert_eq!(home("group_norm").map(|m| MODULES[m].name), Some("dense"));
        assert_eq!(home("delta_scan_128").map(|m| MODULES[m].name), Some("mixers"));
        assert_eq!(home("group"), None);
    }

    #[test]
    fn the_ptx_is_for_the_oldest_gpu_and_driver_that_are_asked_for() {
        for module in MODULES {
            assert!(module.ptx.starts_with(".version 8.7\n"), "{}", module.name);
            // Those for many inputs need matrix instructions that Turing has not.
            let oldest = if module.name.starts_with("many_") { "sm_80" } else { "sm_75" };
            assert!(module.ptx.contains(&format!("\n.target {oldest}\n")), "{}", module.name);
        }
    }

    /// What the contract forbids: approximations, flushed subnormals, and fusing that is not written.
    #[test]
    fn no_kernel_rounds_in_a_way_of_its_own() {
        for module in MODULES {
            for line in module.ptx.lines().map(str::trim) {
                for forbidden in [".approx", ".ftz", "mad.f32", "mad.rn.f32", ".full.f32"] {
                    assert!(!line.contains(forbidden), "{}: {line}", module.name);
                }
            }
        }
    }
}
