//! The watchdog: tells when an answer does not get on, and lets those go who left while they waited.

use super::Shared;
use super::desk::stuck_text;
use std::sync::PoisonError;
use std::time::Duration;
use strata_runtime::Ops;

/// Looks around until the engine has ended.
pub(super) fn watch<O: Ops>(shared: &Shared<O>) {
    let after = shared.options.stuck_after;
    let tick = (after / 4).clamp(Duration::from_millis(5), Duration::from_millis(500));
    let mut desk = shared.desk();
    while !desk.ended {
        let news: Vec<String> =
            desk.running.iter().filter(|running| running.stuck(after)).map(|running| stuck_text(running)).collect();
        drop(desk);
        news.iter().for_each(|line| shared.log(line));
        shared.sweep();
        desk = shared.desk();
        if !desk.ended {
            desk = shared.bell.wait_timeout(desk, tick).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
