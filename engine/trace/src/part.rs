//! Files that are not taken for whole while they are not.

use crate::reader::show;
use crate::trace::TraceError;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file that is written under another name, its own with `.part` behind it, until it is whole.
///
/// A program that ends before [`PartFile::finish`] leaves that other file. Of a trace it holds all rounds that were
/// flushed; of everything else it should be [discarded](PartFile::discard).
#[derive(Debug)]
pub struct PartFile {
    out: BufWriter<File>,
    path: PathBuf,
    part: PathBuf,
    replace: bool,
}

impl PartFile {
    /// Begins a file, which may take the place of one that is there if `replace` says so.
    ///
    /// # Errors
    /// There is a file of either name and it may not be replaced, one of them is a folder or a device, or the system
    /// refuses.
    pub fn create(path: &Path, replace: bool) -> Result<PartFile, TraceError> {
        let part = PartFile::part_of(path);
        // A device would be replaced by a file, for everybody who uses it.
        if let Some(other) = [path, &part].into_iter().find(|p| PartFile::is_no_file(p)) {
            return Err(failed(other)(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
        }
        let mut options = fs::OpenOptions::new();
        match replace {
            true => options.write(true).create(true).truncate(true),
            false => options.write(true).create_new(true),
        };
        if !replace && path.symlink_metadata().is_ok() {
            return Err(failed(path)(io::ErrorKind::AlreadyExists.into()));
        }
        let out = BufWriter::new(options.open(&part).map_err(failed(&part))?);
        Ok(PartFile { out, path: path.into(), part, replace })
    }

    /// Whether there is something that is no regular file: a folder, a device, a pipe.
    pub fn is_no_file(path: &Path) -> bool {
        path.metadata().is_ok_and(|m| !m.is_file())
    }

    /// The name of a file until it is whole.
    pub fn part_of(path: &Path) -> PathBuf {
        let mut name: OsString = path.into();
        name.push(".part");
        name.into()
    }

    /// Brings what was written to the disk and gives the file its name.
    ///
    /// # Errors
    /// The system refuses, or a file of that name came up meanwhile that may not be replaced; the other one stays.
    pub fn finish(mut self) -> Result<(), TraceError> {
        self.out.flush().and_then(|()| self.out.get_ref().sync_all()).map_err(failed(&self.part))?;
        if !self.replace && self.path.symlink_metadata().is_ok() {
            return Err(failed(&self.path)(io::ErrorKind::AlreadyExists.into()));
        }
        fs::rename(&self.part, &self.path).map_err(failed(&self.path))
    }

    /// Removes what was written.
    pub fn discard(self) {
        // What cannot be removed is still not taken for whole.
        let _ = fs::remove_file(&self.part);
    }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> TraceError + '_ {
    move |source| TraceError::Io { path: show(path), source }
}

impl Write for PartFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
