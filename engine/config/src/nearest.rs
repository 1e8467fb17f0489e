//! The nearest name, for "did you mean".

use crate::registry;

/// The candidate that takes the fewest edits, if they are few for a name of this length.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let most = (name.chars().count() / 4).max(1);
    candidates.map(|c| (edits(name, c), c)).filter(|&(n, _)| n <= most).min_by_key(|&(n, _)| n).map(|(_, c)| c)
}

/// The TOML key that was probably meant: the same name in another section, else a key that is nearly the same.
pub(crate) fn nearest_key(key: &str) -> Option<&'static str> {
    let key = key.replace('-', "_").to_lowercase();
    let name = key.rsplit('.').next().unwrap_or(&key);
    let knobs = registry::KNOBS.iter();
    knobs
        .clone()
        .find(|k| k.name() == name)
        .map(|k| k.key)
        .or_else(|| nearest(&key, knobs.clone().map(|k| k.key)))
        .or_else(|| {
            nearest(name, knobs.clone().map(|k| k.name()))
                .and_then(|n| knobs.clone().find(|k| k.name() == n))
                .map(|k| k.key)
        })
}

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let width = b.len() + 1;
    let mut cost: Vec<usize> = (0..width).collect();
    cost.resize(width * (a.len() + 1), 0);
    for i in 1..=a.len() {
        cost[i * width] = i;
        for j in 1..width {
            let (here, up) = (i * width + j, (i - 1) * width + j);
            let differs = usize::from(a[i - 1] != b[j - 1]);
            cost[here] = (cost[up] + 1).min(cost[here - 1] + 1).min(cost[up - 1] + differs);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                cost[here] = cost[here].min(cost[up - width - 2] + 1);
            }
        }
    }
    cost.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (a, b, n) in [("", "", 0), ("", "ab", 2), ("temp", "tmep", 1), ("top_k", "top_p", 1), ("seed", "sed", 1)] {
            assert_eq!((edits(a, b), edits(b, a)), (n, n), "{a} {b}");
        }
    }

    #[test]
    fn only_near_names_are_offered() {
        assert_eq!(nearest("tmep", ["temp", "seed"].into_iter()), Some("temp"));
        assert_eq!(nearest("colour", ["temp", "seed"].into_iter()), None);
        assert_eq!(nearest_key("engine.context"), None);
        assert_eq!(nearest_key("engine.thread"), Some("engine.threads"));
        assert_eq!(nearest_key("seeed"), Some("sampling.seed"));
        assert_eq!(nearest_key(""), None);
    }
}
