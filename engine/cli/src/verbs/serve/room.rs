//! Whether a model fits into memory beside the one that answers.

use crate::device::ram::available;
use crate::output;

/// Refuses a model of so many bytes if it does not fit. Where the system does not say how much is free, it is tried.
///
/// # Errors
/// It does not, as a sentence.
pub(super) fn enough(needed: u64) -> Result<(), String> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    fits(needed, available(&meminfo))
}

fn fits(needed: u64, available: Option<u64>) -> Result<(), String> {
    match available {
        Some(free) if free < needed => Err(format!(
            "it takes {} and {} of memory are free beside the model that answers; stop that one first and start with this",
            output::bytes(needed),
            output::bytes(free)
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_both_sizes() {
        let meminfo = "MemTotal:       65636744 kB\nMemFree:         1 kB\nMemAvailable:   20000000 kB\n";
        assert_eq!(available(meminfo), Some(20_480_000_000));
        assert_eq!(fits(20_480_000_000, available(meminfo)), Ok(()));
        let refused = fits(48_000_000_000, available(meminfo)).unwrap_err();
        assert!(refused.starts_with("it takes 48.00 GB and 20.48 GB of memory are free"), "{refused}");
    }

    #[test]
    fn what_is_not_known_is_tried() {
        assert_eq!(available("MemAvailable: many kB"), None);
        assert_eq!(fits(u64::MAX, None), Ok(()));
    }
}
