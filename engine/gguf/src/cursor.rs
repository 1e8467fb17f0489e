//! Reads little-endian fields from bytes whose lengths are not to be trusted.

use crate::error::{Error, Result};

/// No published header comes near this (the largest vocabularies give some 20 MB). The limit bounds what a hostile
/// header inside a huge file can make the reader allocate.
const MAX_HEADER_BYTES: usize = 512 << 20;

/// Longest metadata key or tensor name, in bytes; ggml's limit for keys.
const MAX_NAME_BYTES: u64 = 65535;

/// A position in a file's bytes. Every read first checks that the bytes are there.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    pos: usize,
    file: &'a str,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8], file: &'a str) -> Self {
        Cursor { bytes, pos: 0, file }
    }

    /// Bytes read so far.
    pub(crate) fn pos(&self) -> usize {
        self.pos
    }

    /// An error about this file.
    pub(crate) fn invalid(&self, what: impl Into<String>) -> Error {
        Error::Invalid { file: self.file.to_string(), what: what.into() }
    }

    fn remaining(&self) -> usize {
        self.bytes.len().saturating_sub(self.pos)
    }

    /// Fails unless `count` things of at least `each` bytes can follow. Called before anything is allocated for them.
    pub(crate) fn expect(&self, count: u64, each: u64, what: &dyn Fn() -> String) -> Result<()> {
        let left = self.remaining();
        let need = count.checked_mul(each);
        if need.is_none_or(|n| n > left as u64) {
            let need = need.map_or_else(|| "more than 2^64".to_string(), |n| n.to_string());
            return Err(self.invalid(format!(
                "{} at byte {} needs {need} bytes, but {left} are left in the file: an incomplete download, or a damaged header",
                what(),
                self.pos
            )));
        }
        if need.is_some_and(|n| n > MAX_HEADER_BYTES.saturating_sub(self.pos) as u64) {
            return Err(self.invalid(format!(
                "{} at byte {} makes the header larger than {} MiB: it is damaged",
                what(),
                self.pos,
                MAX_HEADER_BYTES >> 20
            )));
        }
        Ok(())
    }

    /// The next `len` bytes.
    pub(crate) fn take(&mut self, len: u64, what: &dyn Fn() -> String) -> Result<&'a [u8]> {
        self.expect(len, 1, what)?;
        let end = usize::try_from(len).ok().and_then(|n| self.pos.checked_add(n));
        match end.and_then(|end| Some((end, self.bytes.get(self.pos..end)?))) {
            Some((end, taken)) => {
                self.pos = end;
                Ok(taken)
            }
            None => Err(self.invalid(format!("{} at byte {} does not fit in memory", what(), self.pos))),
        }
    }

    fn array<const N: usize>(&mut self, what: &dyn Fn() -> String) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64, what)?);
        Ok(out)
    }

    pub(crate) fn u8(&mut self, what: &dyn Fn() -> String) -> Result<u8> {
        self.array(what).map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self, what: &dyn Fn() -> String) -> Result<u16> {
        self.array(what).map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self, what: &dyn Fn() -> String) -> Result<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, what: &dyn Fn() -> String) -> Result<u64> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A length-prefixed string that must be UTF-8.
    pub(crate) fn string(&mut self, what: &dyn Fn() -> String) -> Result<&'a str> {
        let len = self.u64(&|| format!("the length of {}", what()))?;
        self.text(len, what)
    }

    /// A length-prefixed key or tensor name: UTF-8, not empty, at most 65535 bytes. `what` says which one it is.
    pub(crate) fn name(&mut self, what: &dyn Fn() -> String) -> Result<&'a str> {
        let len = self.u64(&|| format!("the length of {}", what()))?;
        if len == 0 {
            return Err(self.invalid(format!("{} is empty", what())));
        }
        if len > MAX_NAME_BYTES {
            return Err(self.invalid(format!(
                "{} at byte {} claims {len} bytes, and at most {MAX_NAME_BYTES} are allowed: the header is damaged",
                what(),
                self.pos
            )));
        }
        self.text(len, what)
    }

    fn text(&mut self, len: u64, what: &dyn Fn() -> String) -> Result<&'a str> {
        let start = self.pos;
        let bytes = self.take(len, what)?;
        std::str::from_utf8(bytes)
            .map_err(|e| self.invalid(format!("{} is not valid UTF-8 (at byte {})", what(), start + e.valid_up_to())))
    }
}
