//! Tags that hold a name.

/// Longest name of a function or parameter.
const NAME: usize = 256;

/// What the beginning of a text is, seen as a tag with a name.
pub(super) enum Tag {
    /// The tag, its name, and how long it is.
    Named(String, usize),
    /// It may become one.
    Open,
    /// It is something else.
    No,
}

pub(super) fn tag(text: &str, open: &str) -> Tag {
    let Some(rest) = text.strip_prefix(open) else {
        return if open.starts_with(text) { Tag::Open } else { Tag::No };
    };
    let end = rest.find(['>', '\n', '<']);
    match end.map(|at| (at, rest.as_bytes().get(at))) {
        Some((at, Some(b'>'))) if at > 0 => Tag::Named(rest[..at].trim().to_owned(), open.len() + at + 1),
        None if rest.len() <= NAME => Tag::Open,
        _ => Tag::No,
    }
}
