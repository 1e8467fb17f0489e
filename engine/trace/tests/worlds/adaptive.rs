//! The published adaptive rule in its plainest form, for figures that were published of it.
//!
//! Every 4 rounds each layer pairs its most used missing experts (used at least 2.0) with its least used resident ones. A
//! pair whose difference is at least 1.5 may be exchanged, the largest differences over all layers first and at most 96;
//! then all use is multiplied by 0.7.

use strata_trace::Trace;

/// Hits, 0 to 1, of all rows of these rounds, when `resident` (`[layers][experts]`) is what is there at first and at most
/// `swaps` pairs are exchanged at a time.
pub(crate) fn adaptive(
    trace: &Trace,
    rounds: impl Iterator<Item = usize>,
    mut resident: Vec<bool>,
    swaps: usize,
) -> f64 {
    let experts = trace.meta.experts;
    let mut usage = vec![0.0f64; resident.len()];
    let (mut hits, mut uses) = (0u64, 0u64);
    for (count, round) in rounds.enumerate() {
        for (_, layer, expert) in trace.accesses(round) {
            let pair = layer * experts + usize::from(expert);
            uses += 1;
            hits += u64::from(resident[pair]);
            usage[pair] += 1.0;
        }
        if count % 4 == 3 {
            adapt(&mut resident, &usage, experts, swaps);
            usage.iter_mut().for_each(|usage| *usage *= 0.7);
        }
    }
    hits as f64 / uses as f64
}

fn adapt(resident: &mut [bool], usage: &[f64], experts: usize, swaps: usize) {
    let mut gains = Vec::new();
    for layer in 0..resident.len() / experts {
        let pairs = layer * experts..(layer + 1) * experts;
        let mut missing: Vec<usize> = pairs.clone().filter(|p| !resident[*p] && usage[*p] >= 2.0).collect();
        let mut there: Vec<usize> = pairs.filter(|p| resident[*p]).collect();
        missing.sort_by(|a, b| usage[*b].total_cmp(&usage[*a]));
        there.sort_by(|a, b| usage[*a].total_cmp(&usage[*b]));
        for (new, old) in missing.iter().zip(&there) {
            let gain = usage[*new] - usage[*old];
            if gain >= 1.5 {
                gains.push((gain, *new, *old));
            }
        }
    }
    gains.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (_, new, old) in gains.into_iter().take(swaps) {
        (resident[new], resident[old]) = (true, false);
    }
}
