//! Values of the flags that `bench` has for itself: numbers, lists of numbers, sizes, block types.

use anyhow::Result;
use clap::ArgMatches;
use std::ops::RangeInclusive;
use strata_config::registry::THREADS;
use strata_config::{ConfigError, Origin, Settings};
use strata_gguf::GgmlType;

/// The text given to a flag, or its default.
fn text<'a>(matches: &'a ArgMatches, id: &str) -> &'a str {
    matches.try_get_one::<String>(id).ok().flatten().map_or("", String::as_str)
}

/// The error that `--id` was given something else than what is expected.
fn refuse(id: &str, found: &str, expected: impl Into<String>) -> ConfigError {
    ConfigError::value(format!("--{id}"), found, expected)
}

/// A whole number within bounds.
pub(crate) fn number(matches: &ArgMatches, id: &str, range: RangeInclusive<usize>) -> Result<usize, ConfigError> {
    let text = text(matches, id);
    let found = text.trim().parse().ok().filter(|v| range.contains(v));
    found.ok_or_else(|| refuse(id, text, format!("a whole number from {} to {}", range.start(), range.end())))
}

/// A number of seconds within bounds.
pub(crate) fn seconds(matches: &ArgMatches, id: &str, range: RangeInclusive<f64>) -> Result<f64, ConfigError> {
    let text = text(matches, id);
    let found = text.trim().parse().ok().filter(|v| range.contains(v));
    found.ok_or_else(|| refuse(id, text, format!("a number of seconds from {} to {}", range.start(), range.end())))
}

/// Whole numbers within bounds, with commas between them. One that is given twice counts once.
pub(crate) fn list(matches: &ArgMatches, id: &str, range: RangeInclusive<usize>) -> Result<Vec<usize>, ConfigError> {
    parse_list(text(matches, id), &range).ok_or_else(|| {
        let expected = format!("whole numbers from {} to {}, with commas between them", range.start(), range.end());
        refuse(id, text(matches, id), expected)
    })
}

fn parse_list(text: &str, range: &RangeInclusive<usize>) -> Option<Vec<usize>> {
    let mut values = Vec::new();
    for part in text.split(',') {
        let value = part.trim().parse().ok().filter(|v| range.contains(v))?;
        if !values.contains(&value) {
            values.push(value);
        }
    }
    Some(values)
}

/// Bytes: a whole number that k, M or G may follow, for powers of 1024.
pub(crate) fn size(matches: &ArgMatches, id: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, ConfigError> {
    let Some(text) = matches.get_one::<String>(id) else { return Ok(None) };
    let mib = |bytes: &u64| bytes >> 20;
    let expected = || format!("a size from {}M to {}M, such as 64M or 1G", mib(range.start()).max(1), mib(range.end()));
    let found = parse_size(text).filter(|v| range.contains(v));
    found.map(Some).ok_or_else(|| refuse(id, text, expected()))
}

fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let text = text.strip_suffix("iB").or_else(|| text.strip_suffix('B')).unwrap_or(text);
    let (digits, shift) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 10),
        (at, 'm' | 'M') => (&text[..at], 20),
        (at, 'g' | 'G') => (&text[..at], 30),
        _ => (text, 0),
    };
    digits.trim_end().parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Block types by name, or `all`.
pub(crate) fn types(matches: &ArgMatches, id: &str) -> Result<Vec<GgmlType>, ConfigError> {
    let text = text(matches, id);
    if text.trim().eq_ignore_ascii_case("all") {
        return Ok(GgmlType::ALL.to_vec());
    }
    let mut types = Vec::new();
    for name in text.split(',').map(str::trim) {
        let found = GgmlType::ALL.iter().find(|ty| ty.name().eq_ignore_ascii_case(name)).ok_or_else(|| {
            let names: Vec<&str> = GgmlType::ALL.iter().map(|ty| ty.name()).collect();
            refuse(id, name, format!("all, or some of {} with commas between them", names.join(", ")))
        })?;
        if !types.contains(found) {
            types.push(*found);
        }
    }
    Ok(types)
}

/// Words of a line as a shell cuts it: at white space, but for what stands in quotes or behind a backslash. Inside
/// single quotes a backslash is itself. `None` when a quote is not closed or the line ends with a backslash.
pub(crate) fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().push(chars.next()?),
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

/// How many threads there may be: as many as this process may use logical CPUs.
pub(crate) fn threads_at_most() -> usize {
    let flat = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let root = std::path::Path::new("/");
    strata_cpu::pool::topology::Topology::read(root).map_or_else(flat, |t| t.logical()).max(1)
}

/// Refuses more threads than there are logical CPUs. Other verbs lower the number with a line; figures would then
/// stand under another number than was asked for.
pub(crate) fn threads_fit(settings: &Settings) -> Result<(), ConfigError> {
    let (threads, most) = (settings.engine.threads, threads_at_most());
    if threads <= most {
        return Ok(());
    }
    // The number may be from a variable or a file that was forgotten.
    let name = match settings.origin(&THREADS) {
        Some(Origin::Env) => THREADS.env.to_owned(),
        Some(Origin::File(file)) => format!("{file}: {}", THREADS.key),
        _ => format!("--{}", THREADS.flag),
    };
    let expected = format!("at most {most}, the logical CPUs that this process may use");
    Err(ConfigError::value(name, &threads.to_string(), expected))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_are_numbers_within_bounds() {
        assert_eq!(parse_list("1, 4,64,4", &(1..=64)), Some(vec![1, 4, 64]));
        for bad in ["", ",", "1,", "0", "65", "1;2", "-1", "1.5", "x"] {
            assert_eq!(parse_list(bad, &(1..=64)), None, "{bad}");
        }
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, want) in [("7", 7), ("2k", 2048), ("64M", 64 << 20), ("1GiB", 1 << 30), ("3 MB", 3 << 20)] {
            assert_eq!(parse_size(text), Some(want), "{text}");
        }
        for bad in ["", "M", "1.5G", "-1", "1T", "x", "99999999999999G", "ß", "1é"] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }

    #[test]
    fn words_are_cut_as_a_shell_does() {
        let cut = |line: &str| words(line).unwrap();
        assert_eq!(cut("  decode  --threads 2 "), ["decode", "--threads", "2"]);
        assert_eq!(cut(r#"'a b' "c d"e \ f "" 'x\y' "x\"y""#), ["a b", "c de", " f", "", r"x\y", "x\"y"]);
        assert_eq!(cut(" "), Vec::<String>::new());
        for bad in ["'a", "\"a", "a\\", "\"a\\\""] {
            assert_eq!(words(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn quoted_words_come_back(list in proptest::collection::vec("[^']{0,12}", 0..6)) {
            let line: Vec<String> = list.iter().map(|w| format!("'{w}'")).collect();
            prop_assert_eq!(words(&line.join(" ")), Some(list));
        }

        #[test]
        fn any_text_is_taken_or_refused(text in any::<String>()) {
            let _ = (words(&text), parse_size(&text), parse_list(&text, &(1..=9)));
        }
    }
}
