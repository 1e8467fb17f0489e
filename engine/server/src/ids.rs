//! Names for answers, calls and requests.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A name that no other has: the prefix and 24 hexadecimal digits.
pub(crate) fn id(prefix: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}{:016x}{:08x}", random(count), random(!count) as u32)
}

/// A seed for one answer.
pub(crate) fn seed() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(1 << 32);
    // Short enough to be typed again, and exact in any JSON reader.
    random(COUNT.fetch_add(1, Ordering::Relaxed)) >> 32
}

/// The standard library keys its hashers with random bits from the system.
fn random(count: u64) -> u64 {
    static KEYS: OnceLock<RandomState> = OnceLock::new();
    KEYS.get_or_init(RandomState::new).hash_one(count)
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ() {
        let names: std::collections::HashSet<String> = (0..1000).map(|_| id("x-")).collect();
        assert_eq!(names.len(), 1000);
        assert!(names.iter().all(|n| n.len() == 26 && n.starts_with("x-")));
    }
}
