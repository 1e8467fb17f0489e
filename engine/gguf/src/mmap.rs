//! Where a file's bytes live: a mapping, the program's own image, or memory.
//!
//! The only module of the crate that may hold `unsafe`: mapping a file is unsafe by nature, everything above it works on
//! plain slices.

use crate::error::{Error, Result};
use std::fs::File;
use std::path::Path;

/// The bytes of one file, read-only for as long as any tensor refers to them.
pub(crate) enum Backing {
    /// A private read-only mapping; pages are read from the disk when first touched. With the open file, to ask for its
    /// length.
    Mapped(memmap2::Mmap, File),
    /// Bytes linked into the program: the built-in model.
    Static(&'static [u8]),
    /// Bytes in memory: tests, fuzzing, files that arrive over a pipe.
    Owned(Vec<u8>),
    /// A copy in memory of its own, in huge pages where the system has them.
    Copied(memmap2::MmapMut),
}

impl Backing {
    /// Maps a whole regular file. Empty files are the caller's to refuse: they cannot be mapped on every system.
    pub(crate) fn map(path: &Path, file: File) -> Result<Backing> {
        // SAFETY: the mapping is private and read-only, so this process cannot change the bytes behind a `&[u8]`. What
        // remains is another process that truncates the file while it is mapped: touching a page beyond the new end
        // then raises SIGBUS, which ends the process and cannot be turned into an error. Every reader of mapped model
        // files carries that risk; a truncation that happened before the open is found there, because each tensor's
        // range is checked against the mapping's length, and one between two pieces of work by `Watch`. Another process overwriting bytes in place changes weights,
        // not lengths or offsets: those were copied out and checked at open and are never read from the mapping again.
        let map = unsafe { memmap2::Mmap::map(&file) };
        match map {
            Ok(map) => Ok(Backing::Mapped(map, file)),
            Err(source) => Err(Error::Io { action: "map", path: path.to_path_buf(), source }),
        }
    }

    /// Anonymous memory of so many bytes, which `fill` gives its contents. Huge pages are asked for: reading all over a large
    /// model would otherwise spend its time on looking pages up.
    pub(crate) fn copied(len: usize, fill: impl FnOnce(&mut [u8])) -> std::io::Result<Backing> {
        let mut map = memmap2::MmapMut::map_anon(len)?;
        // A system without them says no, and small pages do.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        fill(&mut map);
        Ok(Backing::Copied(map))
    }

    /// Whether the bytes are those of a file, whatever becomes of it.
    pub(crate) fn is_mapped(&self) -> bool {
        matches!(self, Backing::Mapped(..))
    }

    /// Bytes that the mapped file has now; `None` if there is none, or the system does not say.
    pub(crate) fn file_bytes(&self) -> Option<u64> {
        match self {
            Backing::Mapped(_, file) => file.metadata().ok().map(|info| info.len()),
            Backing::Static(_) | Backing::Owned(_) | Backing::Copied(_) => None,
        }
    }

    /// All bytes of the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Backing::Mapped(map, _) => map,
            Backing::Static(bytes) => bytes,
            Backing::Owned(bytes) => bytes,
            Backing::Copied(map) => map,
        }
    }

    /// Asks the system to start reading a range; returns at once. Ranges are cut to the file, and a refusal is ignored:
    /// the pages are then read when touched, as they would be without the call.
    pub(crate) fn prefetch(&self, offset: usize, len: usize) {
        #[cfg(unix)]
        if let Backing::Mapped(map, _) = self {
            let len = len.min(map.len().saturating_sub(offset));
            if len > 0 {
                let _ = map.advise_range(memmap2::Advice::WillNeed, offset, len);
            }
        }
        #[cfg(not(unix))]
        let _ = (offset, len);
    }
}

impl std::fmt::Debug for Backing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self {
            Backing::Mapped(..) => "Mapped",
            Backing::Static(_) => "Static",
            Backing::Owned(_) => "Owned",
            Backing::Copied(_) => "Copied",
        };
        write!(f, "{kind}({} bytes)", self.bytes().len())
    }
}
