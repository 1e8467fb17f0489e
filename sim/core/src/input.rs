//! Texts that a person names: profiles, worlds, tables, experiments. A wrong path must not be read without end.

use crate::check::invalid;
use crate::error::SimError;
use std::fs::{File, metadata};
use std::io::{self, Read};
use std::path::Path;

/// Bytes of a text at most; the largest that are in use hold some 10 kB.
pub const MOST_BYTES: u64 = 16 << 20;

/// The text of a file.
///
/// # Errors
/// It cannot be read, is no regular file, is larger than [`MOST_BYTES`], or is no UTF-8.
pub fn text(path: &Path) -> Result<String, SimError> {
    let place = || path.display().to_string();
    let io = |source| SimError::Io { path: place(), source };
    let about = metadata(path).map_err(io)?;
    // Opening a pipe waits for a writer, and a device may have no end.
    if !about.is_file() {
        let found = if about.is_dir() { "a folder" } else { "a device or a pipe" };
        return Err(invalid(place(), found, "a file"));
    }
    let mut bytes = Vec::new();
    if about.len() <= MOST_BYTES {
        // One more than may be: some files grow, or do not say how long they are.
        File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes)).map_err(io)?;
    }
    if about.len().max(bytes.len() as u64) > MOST_BYTES {
        return Err(invalid(place(), "a larger file", format!("a text of at most {} MiB", MOST_BYTES >> 20)));
    }
    String::from_utf8(bytes).map_err(|e| io(io::Error::new(io::ErrorKind::InvalidData, e.utf8_error())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(path: &Path) -> String {
        text(path).unwrap_err().to_string()
    }

    #[test]
    fn what_has_no_end_or_is_no_text_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.toml");
        assert!(matches!(text(&path), Err(SimError::Io { .. })));
        std::fs::write(&path, "a = 1\n").unwrap();
        assert_eq!(text(&path).unwrap(), "a = 1\n");
        std::fs::write(&path, [b'a', 0xff]).unwrap();
        assert!(refused(&path).contains("invalid utf-8"), "{}", refused(&path));
        File::create(&path).unwrap().set_len(MOST_BYTES + 1).unwrap();
        assert!(refused(&path).ends_with("a.toml: found a larger file, expected a text of at most 16 MiB"));
        File::create(&path).unwrap().set_len(MOST_BYTES).unwrap();
        assert_eq!(text(&path).unwrap().len() as u64, MOST_BYTES);
        assert!(refused(dir.path()).ends_with("found a folder, expected a file"));
    }

    #[cfg(unix)]
    #[test]
    fn a_link_to_a_device_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("endless.toml");
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(refused(&path).ends_with("endless.toml: found a device or a pipe, expected a file"));
    }
}
