//! Names of model files: `stem.gguf`, or `stem-00001-of-00003.gguf` for one shard of a set.

use std::path::Path;

/// The parts of a shard's name. Names count from 1; the header's `split.no` counts from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShardName {
    pub(crate) stem: String,
    /// Number of the shard, from 1.
    pub(crate) number: u64,
    /// Shards in the set.
    pub(crate) count: u64,
    /// The extension as spelled, with its dot.
    extension: String,
}

impl ShardName {
    /// Splits a file name; `None` when it does not have the form of a shard's.
    pub(crate) fn parse(name: &str) -> Option<ShardName> {
        let (rest, extension) = split_extension(name)?;
        let (rest, count) = five_digits(rest)?;
        let (rest, number) = five_digits(rest.strip_suffix("-of-")?)?;
        let stem = rest.strip_suffix('-')?;
        let valid = !stem.is_empty() && (1..=count).contains(&number);
        valid.then(|| ShardName { stem: stem.into(), number, count, extension: extension.into() })
    }

    /// The name of another shard of the same set.
    pub(crate) fn sibling(&self, number: u64) -> String {
        format!("{}-{number:05}-of-{:05}{}", self.stem, self.count, self.extension)
    }

    /// The same name with other numbers.
    pub(crate) fn with(&self, number: u64, count: u64) -> ShardName {
        ShardName { number, count, ..self.clone() }
    }

    /// A shard's name made from a stem.
    pub(crate) fn new(stem: &str, number: u64, count: u64) -> ShardName {
        ShardName { stem: stem.into(), number, count, extension: ".gguf".into() }
    }

    /// Whether two names belong to one set.
    pub(crate) fn same_set(&self, other: &ShardName) -> bool {
        self.stem == other.stem && self.count == other.count && self.extension == other.extension
    }
}

impl std::fmt::Display for ShardName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.sibling(self.number))
    }
}

fn five_digits(text: &str) -> Option<(&str, u64)> {
    let at = text.len().checked_sub(5)?;
    let (rest, digits) = (text.get(..at)?, text.get(at..)?);
    digits.bytes().all(|b| b.is_ascii_digit()).then_some(())?;
    Some((rest, digits.parse().ok()?))
}

/// Splits `.gguf`, in any case, off a name.
pub(crate) fn split_extension(name: &str) -> Option<(&str, &str)> {
    let at = name.len().checked_sub(5)?;
    let (stem, extension) = (name.get(..at)?, name.get(at..)?);
    (extension.eq_ignore_ascii_case(".gguf") && !stem.is_empty()).then_some((stem, extension))
}

/// The last part of a path as text, for messages and patterns.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Whether a name is that of an unfinished download or of one piece of a cut file: `x.gguf.part`, `x.gguf.part1of2`.
pub(crate) fn is_partial(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [".part", ".crdownload", ".incomplete", ".download", ".aria2", ".tmp"].iter().any(|mark| {
        name.rfind(mark)
            .and_then(|at| name.get(at + mark.len()..))
            .is_some_and(|rest| rest.is_empty() || rest.bytes().all(|b| b.is_ascii_digit() || b"of-_.".contains(&b)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_names_split_and_join() {
        let name = ShardName::parse("a-b-00002-of-00013.gguf").unwrap();
        assert_eq!((name.stem.as_str(), name.number, name.count), ("a-b", 2, 13));
        assert_eq!(name.sibling(13), "a-b-00013-of-00013.gguf");
        assert_eq!(name.to_string(), "a-b-00002-of-00013.gguf");
        for no in [
            "a.gguf",
            "a-2-of-3.gguf",
            "-00001-of-00002.gguf",
            "a-00003-of-00002.gguf",
            "a-00000-of-00002.gguf",
            "é.gguf",
            "a-00001-of-00002.bin",
        ] {
            assert_eq!(ShardName::parse(no), None, "{no}");
        }
    }

    #[test]
    fn partial_downloads_are_known_by_name() {
        for yes in ["m.gguf.part", "m.gguf.part1of2", "m.GGUF.crdownload", "a.part.b.part", "abc.incomplete"] {
            assert!(is_partial(yes), "{yes}");
        }
        for no in ["m.gguf", "m.particle.gguf", "m-part.gguf"] {
            assert!(!is_partial(no), "{no}");
        }
    }
}
