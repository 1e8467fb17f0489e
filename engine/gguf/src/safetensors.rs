//! Safetensors: the form in which model makers publish weights, one file or a set with an index.
//!
//! Here only to be turned into GGUF or into tensors of the engine; the format's own checks (ranges that follow each
//! other without gaps, shapes that fit their ranges, a header within bounds) are those of the `safetensors` crate. The
//! bytes are mapped, and a tensor is a range of the mapping, as in a GGUF file.

use crate::error::{Error, Result, show_path, show_text};
use crate::header::{TensorInfo, check_shape};
use crate::mmap::Backing;
use crate::names::file_name;
use crate::tensor::Tensor;
use crate::types::GgmlType;
use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors as Format};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the name of an index of shards ends in.
const INDEX: &str = ".safetensors.index.json";
/// What the name of a file ends in.
const EXTENSION: &str = ".safetensors";
/// Bytes of an index at most: ten times that of the largest published models.
const MAX_INDEX_BYTES: u64 = 64 << 20;

/// Open safetensors files: names, types and shapes of their tensors, gathered from all files.
#[derive(Debug)]
pub struct SafeTensors {
    name: String,
    entries: BTreeMap<String, Entry>,
    backings: Vec<Arc<Backing>>,
    files: Vec<PathBuf>,
}

#[derive(Debug)]
struct Entry {
    file: usize,
    dtype: Dtype,
    /// As in the file: the last dimension is contiguous.
    shape: Vec<u64>,
    /// Absolute position in the file, in bytes.
    offset: u64,
    bytes: u64,
}

impl SafeTensors {
    /// Opens a file, a set by its `*.safetensors.index.json`, or a folder that holds either. Only tensors whose names
    /// start with `prefix` are taken, and of a set with an index only the files that hold such tensors are opened, so
    /// the others need not be there.
    ///
    /// # Errors
    ///
    /// When a file cannot be opened, is cut short or damaged, or the index names a file that is not there. Each
    /// sentence names the file.
    pub fn open(path: &Path, prefix: &str) -> Result<SafeTensors> {
        let info = std::fs::metadata(path).map_err(|e| cannot("open", path, e))?;
        let paths = if info.is_dir() {
            files_in(path, prefix)?
        } else if file_name(path).ends_with(INDEX) {
            files_of_index(path, prefix)?
        } else {
            vec![path.to_path_buf()]
        };
        let mut all = SafeTensors::empty(show_path(path));
        for path in paths {
            let shown = show_path(&path);
            let info = std::fs::metadata(&path).map_err(|e| cannot("open", &path, e))?;
            if !info.is_file() {
                return Err(Error::Invalid { file: shown, what: "not a regular file".into() });
            }
            let file = File::open(&path).map_err(|e| cannot("open", &path, e))?;
            let backing = if info.len() == 0 { Backing::Static(&[]) } else { Backing::map(&path, file)? };
            all.add(&shown, backing, prefix)?;
            all.files.push(path);
        }
        Ok(all)
    }

    /// Opens one file that is in memory. `name` stands for the file in messages.
    ///
    /// # Errors
    ///
    /// As [`SafeTensors::open`].
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<SafeTensors> {
        let name = show_text(name);
        let mut all = SafeTensors::empty(name.clone());
        all.add(&name, Backing::Owned(bytes), "")?;
        Ok(all)
    }

    fn empty(name: String) -> SafeTensors {
        SafeTensors { name, entries: BTreeMap::new(), backings: Vec::new(), files: Vec::new() }
    }

    fn add(&mut self, shown: &str, backing: Backing, prefix: &str) -> Result<()> {
        let invalid = |what: String| Error::Invalid { file: shown.into(), what };
        let (header, metadata) = read_header(backing.bytes()).map_err(invalid)?;
        let start = 8 + header as u64;
        for (name, info) in metadata.tensors() {
            if !name.starts_with(prefix) {
                continue;
            }
            let (from, to) = info.data_offsets;
            let entry = Entry {
                file: self.backings.len(),
                dtype: info.dtype,
                shape: info.shape.iter().map(|&d| d as u64).collect(),
                offset: start.saturating_add(from as u64),
                bytes: (to as u64).saturating_sub(from as u64),
            };
            if self.entries.contains_key(&name) {
                return Err(invalid(format!("tensor {} is in another file of the set too", show_text(&name))));
            }
            self.entries.insert(name, entry);
        }
        self.backings.push(Arc::new(backing));
        Ok(())
    }

    /// The name for messages: the path as given, invisible characters escaped.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The files that were opened; none for bytes in memory.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The tensor of this name, its dimensions in ggml's order: the reverse of the file's.
    ///
    /// # Errors
    ///
    /// When there is none, or it is not of type F32, F16 or BF16, or has more than four dimensions.
    pub fn require(&self, name: &str) -> Result<Tensor> {
        let shown = show_text(name);
        let entry = self.entries.get(name).ok_or_else(|| self.invalid(format!("tensor {shown} is missing")))?;
        let ty = match entry.dtype {
            Dtype::F32 => GgmlType::F32,
            Dtype::F16 => GgmlType::F16,
            Dtype::BF16 => GgmlType::BF16,
            other => {
                return Err(self.invalid(format!("tensor {shown} is of type {other:?}, expected F32, F16 or BF16")));
            }
        };
        let mut dims: Vec<u64> = entry.shape.iter().rev().copied().collect();
        if dims.is_empty() {
            dims.push(1);
        }
        let (row_bytes, bytes) = check_shape(name, &dims, ty).map_err(|what| self.invalid(what))?;
        let out = || self.invalid(format!("tensor {shown} needs {bytes} bytes, {} are given to it", entry.bytes));
        let info = TensorInfo { name: name.into(), dims, ty, row_bytes, bytes, offset: entry.offset };
        let backing = self.backings.get(entry.file).filter(|_| bytes == entry.bytes).ok_or_else(out)?;
        Tensor::new(info, backing, entry.file).ok_or_else(out)
    }

    /// An error about these files.
    pub fn invalid(&self, what: impl Into<String>) -> Error {
        Error::Invalid { file: self.name.clone(), what: what.into() }
    }
}

/// The header's length in bytes and what it says, or what is wrong with it.
fn read_header(bytes: &[u8]) -> Result<(usize, safetensors::tensor::Metadata), String> {
    let len = bytes.len();
    let Some((&claim, rest)) = bytes.split_first_chunk::<8>() else {
        return Err(format!("the file has {len} bytes, expected at least the 8 of a safetensors header's length"));
    };
    if claim.starts_with(b"GGUF") {
        return Err("a GGUF file, expected safetensors".into());
    }
    let claim = u64::from_le_bytes(claim);
    if claim > rest.len() as u64 {
        return Err(format!(
            "the header claims {claim} bytes, but {} are left in the file: an incomplete download, or not a safetensors file",
            rest.len()
        ));
    }
    Format::read_metadata(bytes).map_err(|e| match e {
        SafeTensorError::MetadataIncompleteBuffer => format!(
            "the tensors of the header end elsewhere than the file, which has {len} bytes: an incomplete download, or a damaged header"
        ),
        SafeTensorError::HeaderTooLarge => format!("the header claims {claim} bytes, more than any model has: it is damaged"),
        e => format!("the header is damaged: {}", show_text(&e.to_string())),
    })
}

/// The files of a folder: those of its index, or every one.
fn files_in(dir: &Path, prefix: &str) -> Result<Vec<PathBuf>> {
    let failed = |e| cannot("list", dir, e);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        names.push(file_name(&entry.map_err(failed)?.path()));
    }
    names.sort();
    let ending = |end: &str| names.iter().filter(|n| n.ends_with(end) && !n.starts_with('.')).collect::<Vec<_>>();
    let invalid = |what| Err(Error::Invalid { file: show_path(dir), what });
    match (ending(INDEX).as_slice(), ending(EXTENSION).as_slice()) {
        ([], []) => invalid(format!("the folder holds no {EXTENSION} file")),
        ([], files) => Ok(files.iter().map(|n| dir.join(n)).collect()),
        ([index], _) => files_of_index(&dir.join(index), prefix),
        (several, _) => invalid(format!("the folder holds {} indices of safetensors, name one of them", several.len())),
    }
}

/// The files that hold tensors of this prefix, by an index.
fn files_of_index(index: &Path, prefix: &str) -> Result<Vec<PathBuf>> {
    let failed = |e| cannot("read", index, e);
    let invalid = |what: String| Error::Invalid { file: show_path(index), what };
    let len = std::fs::metadata(index).map_err(failed)?.len();
    if len > MAX_INDEX_BYTES {
        return Err(invalid(format!("{len} bytes, expected an index of at most {MAX_INDEX_BYTES}")));
    }
    let text = std::fs::read(index).map_err(failed)?;
    let json: serde_json::Value = serde_json::from_slice(&text).map_err(|e| invalid(format!("not JSON: {e}")))?;
    let Some(map) = json.get("weight_map").and_then(serde_json::Value::as_object) else {
        return Err(invalid("no \"weight_map\" object, expected the index of a set of safetensors".into()));
    };
    let mut files = BTreeSet::new();
    for (tensor, file) in map.iter().filter(|(tensor, _)| tensor.starts_with(prefix)) {
        // Only names: an index must not lead out of its folder.
        let file = file.as_str().filter(|f| Path::new(f).file_name().is_some_and(|n| n == *f)).ok_or_else(|| {
            invalid(format!(
                "the file of tensor {} is {}, expected a name",
                show_text(tensor),
                show_text(&file.to_string())
            ))
        })?;
        files.insert(index.with_file_name(file));
    }
    match files.is_empty() {
        true => Err(invalid(format!("lists no tensor whose name starts with {}", show_text(prefix)))),
        false => Ok(files.into_iter().collect()),
    }
}

fn cannot(action: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::Io { action, path: path.to_path_buf(), source }
}
