//! Does what the header promises lie in the file, and nothing else beside it?

use crate::error::{Error, Result, show_text};
use crate::header::{Header, TensorInfo};

/// Zeros up to this many bytes behind the data are padding to a page or a disk cluster, not a sign of damage.
const MAX_PADDING: u64 = 65536;

/// Refuses a file that another GGUF file was appended to. Split sets are often joined that way; it is found before
/// anything else is said about the set, whose names would otherwise take the blame.
pub(crate) fn check_not_joined(file: &str, header: &Header, bytes: &[u8]) -> Result<()> {
    let end = data_end(header);
    let padded = end.checked_next_multiple_of(header.alignment).unwrap_or(end);
    if !starts_gguf(bytes, end) && !starts_gguf(bytes, padded) {
        return Ok(());
    }
    Err(invalid(
        file,
        format!(
            "a second GGUF file begins at byte {}: shards were concatenated (`cat`, `copy /b`), which does not work \
             because each has a header of its own. Keep the shards as separate files named like \
             model-00001-of-00002.gguf in one folder and open the first, or merge them with `llama-gguf-split --merge`",
            if starts_gguf(bytes, end) { end } else { padded }
        ),
    ))
}

fn starts_gguf(bytes: &[u8], at: u64) -> bool {
    usize::try_from(at).ok().and_then(|at| bytes.get(at..)).is_some_and(|rest| rest.starts_with(b"GGUF"))
}

/// Checks every tensor's range against the file. `short` is the file's own name without its folder.
///
/// Overlapping tensors are refused: no writer makes them, so they mean damaged offsets. Gaps are allowed, as packers leave
/// some; bytes behind the last tensor are not, because a header whose tensor count is too small looks like that.
///
/// Returns what deserves a warning.
pub(crate) fn check(file: &str, short: &str, header: &Header, bytes: &[u8]) -> Result<Option<String>> {
    let len = bytes.len() as u64;
    if let Some(t) = header.tensors.iter().find(|t| t.offset.saturating_add(t.bytes) > len) {
        return Err(invalid(
            file,
            format!(
                "first tensor out of bounds {} in {short}: needs {} bytes, file has {len}: an incomplete download or copy",
                show_text(&t.name),
                t.offset.saturating_add(t.bytes)
            ),
        ));
    }
    let mut order: Vec<&TensorInfo> = header.tensors.iter().collect();
    order.sort_by_key(|t| t.offset);
    for (a, b) in order.iter().zip(order.iter().skip(1)) {
        if a.offset.saturating_add(a.bytes) > b.offset {
            let names = format!("{} and {}", show_text(&a.name), show_text(&b.name));
            return Err(invalid(file, format!("tensors {names} overlap at byte {}: the header is damaged", b.offset)));
        }
    }
    let data = header.end.checked_next_multiple_of(header.alignment).unwrap_or(len).min(len);
    if !all_zero(bytes, header.end, data) {
        return Err(invalid(
            file,
            format!(
                "bytes other than 0 follow the last of {} tensors in the header: its tensor count is wrong, or the file is damaged",
                header.tensors.len()
            ),
        ));
    }
    let end = data_end(header);
    let padded = end.checked_next_multiple_of(header.alignment).unwrap_or(end);
    if len <= padded {
        return Ok(None);
    }
    let extra = len - end;
    if extra <= MAX_PADDING && all_zero(bytes, end, len) {
        return Ok(Some(format!("{short} has {extra} zero bytes behind its last tensor")));
    }
    Err(invalid(
        file,
        format!(
            "extra data: {extra} bytes follow the last of {} tensors: the header's tensor count is wrong, or something was appended",
            header.tensors.len()
        ),
    ))
}

/// First byte behind the header and all tensors.
fn data_end(header: &Header) -> u64 {
    header.tensors.iter().map(|t| t.offset.saturating_add(t.bytes)).fold(header.end, u64::max)
}

fn all_zero(bytes: &[u8], from: u64, to: u64) -> bool {
    let range = usize::try_from(from).ok().zip(usize::try_from(to).ok());
    range.and_then(|(a, b)| bytes.get(a..b)).is_none_or(|r| r.iter().all(|&b| b == 0))
}

fn invalid(file: &str, what: String) -> Error {
    Error::Invalid { file: file.to_string(), what }
}
