//! Words for what is not ours: files of other kinds, and tensor types of other engines.

use crate::error::show_text;
use crate::types::GgmlType;
use std::fmt::Write as _;

/// Says what a file that does not start with `GGUF` seems to be.
pub(crate) fn describe(bytes: &[u8]) -> String {
    let head = bytes.get(..bytes.len().min(64)).unwrap_or_default();
    let hint = if head.is_empty() {
        return "the file is empty (0 bytes): an unfinished download?".into();
    } else if b"GGUF".starts_with(head) {
        return format!("the file ends after {} bytes, inside the GGUF magic: an unfinished download?", head.len());
    } else if head.iter().all(|&b| b == 0) {
        "space reserved for a download that never finished?"
    } else if head.starts_with(b"version https://git-lfs") {
        "a Git LFS pointer: the model itself was not downloaded, run `git lfs pull`"
    } else if is_html(head) {
        "a web page: the download link led to an HTML page, not to the file"
    } else if head.get(8..10) == Some(b"{\"") {
        "a safetensors file: use a GGUF conversion of the model"
    } else if head.starts_with(b"PK\x03\x04") {
        "a zip archive or a PyTorch checkpoint: use a GGUF conversion of the model"
    } else if head.starts_with(&[0x1f, 0x8b]) || head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        "compressed with gzip or zstd: decompress it first"
    } else if [b"lmgg", b"fmgg", b"tjgg"].iter().any(|old| head.starts_with(*old)) {
        "a file of ggml's older formats: convert the model again"
    } else if head.first() == Some(&b'{') {
        "a JSON text: perhaps an error message of the server it was downloaded from"
    } else {
        "another kind of file, a later piece of a split download, or damaged"
    };
    format!("not a GGUF file: it starts with {} ({hint})", show_bytes(bytes))
}

fn is_html(head: &[u8]) -> bool {
    let text = head.trim_ascii_start().to_ascii_lowercase();
    text.starts_with(b"<!doctype") || text.starts_with(b"<html") || text.starts_with(b"<?xml")
}

/// The first eight bytes in hexadecimal, and as text where they are text.
fn show_bytes(bytes: &[u8]) -> String {
    let head = bytes.get(..bytes.len().min(8)).unwrap_or_default();
    let mut out = String::new();
    for (i, b) in head.iter().enumerate() {
        let _ = write!(out, "{}{b:02x}", if i > 0 { " " } else { "" });
    }
    if head.iter().all(|b| b.is_ascii_graphic() || *b == b' ') {
        let _ = write!(out, " \"{}\"", show_text(&String::from_utf8_lossy(head)));
    }
    out
}

/// Largest type id that this table knows of, supported or not.
const NEWEST_KNOWN: u32 = 42;

/// Says what a tensor's unknown type id may mean and what is supported.
pub(crate) fn unknown_tensor_type(tensor: &str, id: u32) -> String {
    let reason = match id {
        9 | 15 => "an intermediate type of ggml that model files do not hold".into(),
        4 | 5 | 31..=33 | 36..=38 => "a type that ggml has removed: convert the model again".into(),
        24..=28 => format!("{}, which this engine does not run", ["I8", "I16", "I32", "I64", "F64"][id as usize - 24]),
        34 => "TQ1_0, which this engine does not run".into(),
        35 => "TQ2_0, which this engine does not run".into(),
        _ if id > NEWEST_KNOWN => "newer than this engine, or the file is damaged".into(),
        _ => "not supported by this engine".to_string(),
    };
    let supported: Vec<&str> = GgmlType::ALL.iter().map(|t| t.name()).collect();
    format!("tensor {tensor} has type id {id} ({reason}); supported types: {}", supported.join(", "))
}
