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

/// The compute capability from on which a kernel may be started before the one ahead of it has ended.
pub(crate) const OVERLAPPING: (i32, i32) = (9, 0);

/// The text for processors from [`OVERLAPPING`] on: what older ones lack is behind a comment's mark in it.
pub(crate) fn uncovered(ptx: &str) -> String {
    let ptx = ["sm_75", "sm_80"]
        .into_iter()
        .fold(ptx.to_owned(), |ptx, old| ptx.replacen(&format!("\n.target {old}\n"), "\n.target sm_90\n", 1));
    ptx.replace("// sm_90: ", "")
}

/// Where kernels say that those behind them may be started.
pub(crate) const BEGINS: &str = "// sm_90: griddepcontrol.launch_dependents;";

/// The kernels of a text, in order.
pub(crate) fn entries(ptx: &str) -> impl Iterator<Item = &str> {
    ptx.lines().filter_map(|line| line.strip_prefix(".visible .entry ")).map(|rest| rest.trim_end_matches('('))
}

/// The part that has a kernel.
pub(crate) fn home(kernel: &str) -> Option<usize> {
    static HOMES: OnceLock<HashMap<&'static str, usize>> = OnceLock::new();
    let homes = HOMES.get_or_init(|| {
        let names =
            |(at, module): (usize, &Module)| entries(module.ptx).map(move |name| (name, at)).collect::<Vec<_>>();
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

    /// A kernel that did not wait might end before those ahead of it, and those behind it would not wait for them.
    #[test]
    fn every_kernel_waits_for_those_ahead_before_it_reads() {
        for module in MODULES {
            for entry in module.ptx.split(".visible .entry ").skip(1) {
                let name = entry.lines().next().unwrap_or_default();
                let before: Vec<&str> = entry.lines().take_while(|l| *l != "// sm_90: griddepcontrol.wait;").collect();
                assert!(before.len() < entry.lines().count(), "{name} of {} does not wait", module.name);
                // These read weights before, and take care that nothing else is.
                if name.starts_with("mul_") || name.starts_with("mix_") {
                    continue;
                }
                for access in ["ld.global", "ld.volatile", "st.", "atom.", "red.", "ret;", "ldu."] {
                    let found = before.iter().find(|line| line.split(' ').any(|word| word.starts_with(access)));
                    assert_eq!(found, None, "{name} of {}", module.name);
                }
            }
        }
    }

    #[test]
    fn nothing_stays_covered() {
        for module in MODULES {
            let text = uncovered(module.ptx);
            assert!(text.contains("\n.target sm_90\n") && !text.contains("//"), "{}", module.name);
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
