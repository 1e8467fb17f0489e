//! Writes GGUF files and sets of shards: for tests, tools and conversions.

use crate::encode::{put_meta, put_str};
use crate::error::{Error, Result, show_path, show_text};
use crate::file::Gguf;
use crate::header::{self, check_shape};
use crate::names::ShardName;
use crate::quant;
use crate::tensor::Tensor;
use crate::types::GgmlType;
use crate::value::{Metadata, Value};
use std::collections::HashSet;
use std::fs::File;
use std::io::{Cursor, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A GGUF file in the making, of version 3. Metadata and tensors are written in the order in which they were added.
///
/// ```
/// use strata_gguf::{GgmlType, Gguf, Value, Writer};
///
/// # fn main() -> strata_gguf::Result<()> {
/// let mut writer = Writer::new();
/// writer.meta("general.architecture", Value::String("qwen4exp".into()))?;
/// writer.tensor("output.weight", &[2, 1], GgmlType::F32, vec![0; 8])?;
/// let model = Gguf::from_bytes("example", writer.to_bytes()?)?;
/// assert_eq!(model.require("output.weight")?.dims(), [2, 1]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Writer {
    meta: Metadata,
    tensors: Vec<Entry>,
    names: HashSet<String>,
}

#[derive(Debug)]
struct Entry {
    name: String,
    dims: Vec<u64>,
    ty: GgmlType,
    bytes: u64,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Bytes(Vec<u8>),
    Tensor(Tensor),
    /// Decoded and encoded again, in another type, when it is written.
    Converted(Tensor, GgmlType),
    Zeros,
}

/// Values converted, or bytes written, at a time.
const PIECE: usize = 1 << 20;

impl Default for Writer {
    fn default() -> Self {
        Writer::new()
    }
}

impl Writer {
    /// A file with no metadata and no tensors.
    pub fn new() -> Writer {
        Writer { meta: Metadata::new("new GGUF file"), tensors: Vec::new(), names: HashSet::new() }
    }

    /// A copy of an open model without its `split.*` keys. Tensor data is not read before it is written.
    ///
    /// # Errors
    ///
    /// None for a model that opened: its keys and tensors were checked by the same rules.
    pub fn copy_of(model: &Gguf) -> Result<Writer> {
        let mut writer = Writer::new();
        for (key, value) in model.meta().iter().filter(|(key, _)| !key.starts_with("split.")) {
            writer.meta(key, value.clone())?;
        }
        for t in model.tensors() {
            writer.add(t.name(), t.dims(), t.ty(), Source::Tensor(t.clone()))?;
        }
        Ok(writer)
    }

    /// Adds a metadata entry.
    ///
    /// # Errors
    ///
    /// When the key is empty, longer than 65535 bytes, or there already.
    pub fn meta(&mut self, key: &str, value: Value) -> Result<&mut Self> {
        self.check_name("metadata key", key)?;
        if !self.meta.insert(key, value) {
            return Err(self.meta.invalid(format!("metadata key {} was added before", show_text(key))));
        }
        Ok(self)
    }

    /// Sets the alignment of tensor data in bytes (32 if this is not called), by adding its key `general.alignment`.
    ///
    /// # Errors
    ///
    /// When it is not a power of two between 8 and 65536, or was set before.
    pub fn alignment(&mut self, bytes: u32) -> Result<&mut Self> {
        self.meta("general.alignment", Value::U32(bytes))?;
        header::alignment_of(&self.meta)?;
        Ok(self)
    }

    /// Adds a tensor with its data: `dims` in ggml's order, rows without padding.
    ///
    /// # Errors
    ///
    /// When the name was used before, the dimensions do not suit the type, or `data` is not as long as they say.
    pub fn tensor(&mut self, name: &str, dims: &[u64], ty: GgmlType, data: Vec<u8>) -> Result<&mut Self> {
        self.add(name, dims, ty, Source::Bytes(data))
    }

    /// Adds a tensor of zero bytes, which takes no space on file systems with sparse files.
    ///
    /// # Errors
    ///
    /// As [`Writer::tensor`].
    pub fn zeros(&mut self, name: &str, dims: &[u64], ty: GgmlType) -> Result<&mut Self> {
        self.add(name, dims, ty, Source::Zeros)
    }

    /// Adds a tensor under a name of its own, converted to a type when it is written, a piece at a time. Its values must
    /// be finite, before and after; what is wrong with them is said then, with the name that the tensor has itself.
    ///
    /// # Errors
    ///
    /// When the name was used before, or the type has no encoder or cannot hold rows of this length.
    pub fn converted(&mut self, name: &str, tensor: &Tensor, ty: GgmlType) -> Result<&mut Self> {
        if tensor.ty() != ty && !quant::can_encode(ty) {
            return Err(self.meta.invalid(format!("tensor {} cannot be written as {ty}", show_text(name))));
        }
        self.add(name, tensor.dims(), ty, Source::Converted(tensor.clone(), ty))
    }

    fn add(&mut self, name: &str, dims: &[u64], ty: GgmlType, source: Source) -> Result<&mut Self> {
        self.check_name("tensor name", name)?;
        let (_, bytes) = check_shape(name, dims, ty).map_err(|what| self.meta.invalid(what))?;
        let given = match &source {
            Source::Bytes(data) => data.len() as u64,
            Source::Tensor(tensor) => tensor.bytes(),
            Source::Zeros | Source::Converted(..) => bytes,
        };
        if given != bytes {
            let shown = show_text(name);
            return Err(self.meta.invalid(format!("tensor {shown} needs {bytes} bytes of data, {given} were given")));
        }
        if !self.names.insert(name.to_string()) {
            return Err(self.meta.invalid(format!("tensor {} was added before", show_text(name))));
        }
        self.tensors.push(Entry { name: name.into(), dims: dims.to_vec(), ty, bytes, source });
        Ok(self)
    }

    fn check_name(&self, what: &str, name: &str) -> Result<()> {
        if name.is_empty() || name.len() > 65535 {
            return Err(self.meta.invalid(format!("a {what} of {} bytes, expected 1 to 65535", name.len())));
        }
        Ok(())
    }

    /// The file's bytes.
    ///
    /// # Errors
    ///
    /// When the file would be too large for memory or for the format's 64-bit offsets.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let plan = self.plan(&self.meta, &self.tensors)?;
        let total = usize::try_from(plan.total).map_err(|_| self.meta.invalid("too large for memory"))?;
        let mut out = Cursor::new(vec![0; total]);
        plan.emit(&mut out, &mut |_| ()).map_err(|source| Error::Io {
            action: "write",
            path: "memory".into(),
            source,
        })?;
        Ok(out.into_inner())
    }

    /// Writes the file. It appears under its name when it is complete; until then it is `NAME.part`.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        self.write_with(path, &mut |_| ())
    }

    /// [`Writer::write`], telling `progress` after each piece how many bytes of [`Writer::data_bytes`] it was.
    ///
    /// # Errors
    ///
    /// When the file cannot be written, something that is no regular file has its name, or a converted tensor holds a
    /// value that is not finite or that its new type cannot hold.
    pub fn write_with(&self, path: &Path, progress: &mut dyn FnMut(u64)) -> Result<()> {
        self.plan(&self.meta, &self.tensors)?.write(path, progress)
    }

    /// Bytes of all tensors together.
    pub fn data_bytes(&self) -> u64 {
        self.tensors.iter().fold(0, |sum, t| sum.saturating_add(t.bytes))
    }

    /// Writes `shards` files named `STEM-00001-of-0000N.gguf` and so on, and returns their paths. The tensors are cut into
    /// runs of about the same count; metadata goes into the first file.
    ///
    /// # Errors
    ///
    /// When `shards` is 0 or a file cannot be written.
    pub fn write_split(&self, dir: &Path, stem: &str, shards: u16) -> Result<Vec<PathBuf>> {
        let count = usize::from(shards);
        if count == 0 {
            return Err(self.meta.invalid("cannot be split into 0 shards"));
        }
        let total = self.tensors.len();
        let all = i32::try_from(total).map_err(|_| self.meta.invalid("too many tensors for split.tensors.count"))?;
        let mut paths = Vec::with_capacity(count);
        for number in 0..shards {
            let mut meta = Metadata::new(self.meta.file());
            let first = number == 0;
            for (key, value) in self.meta.iter().filter(|(key, _)| first || *key == "general.alignment") {
                meta.insert(key, value.clone());
            }
            meta.insert("split.no", Value::U16(number));
            meta.insert("split.count", Value::U16(shards));
            meta.insert("split.tensors.count", Value::I32(all));
            let at = |i: usize| total * i / count;
            let run = self.tensors.get(at(usize::from(number))..at(usize::from(number) + 1)).unwrap_or_default();
            let path = dir.join(ShardName::new(stem, u64::from(number) + 1, u64::from(shards)).to_string());
            self.plan(&meta, run)?.write(&path, &mut |_| ())?;
            paths.push(path);
        }
        Ok(paths)
    }

    /// Lays out one file.
    fn plan<'a>(&self, meta: &Metadata, tensors: &'a [Entry]) -> Result<Plan<'a>> {
        let too_large = || self.meta.invalid("too large for 64-bit offsets");
        let alignment = header::alignment_of(meta)?;
        let pad = |n: u64| n.checked_next_multiple_of(alignment).ok_or_else(too_large);
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        out.extend((tensors.len() as u64).to_le_bytes());
        out.extend((meta.iter().count() as u64).to_le_bytes());
        for (key, value) in meta.iter() {
            put_meta(&mut out, key, value);
        }
        let mut offset = 0u64;
        let mut placed = Vec::with_capacity(tensors.len());
        for t in tensors {
            put_str(&mut out, &t.name);
            out.extend((t.dims.len() as u32).to_le_bytes());
            t.dims.iter().for_each(|d| out.extend(d.to_le_bytes()));
            out.extend(t.ty.id().to_le_bytes());
            out.extend(offset.to_le_bytes());
            placed.push((offset, &t.source));
            offset = pad(offset.checked_add(t.bytes).ok_or_else(too_large)?)?;
        }
        let data = pad(out.len() as u64)?;
        for (at, _) in &mut placed {
            *at = at.checked_add(data).ok_or_else(too_large)?;
        }
        Ok(Plan { header: out, placed, total: data.checked_add(offset).ok_or_else(too_large)? })
    }
}

/// One file, laid out.
struct Plan<'a> {
    header: Vec<u8>,
    /// Absolute positions and what goes there.
    placed: Vec<(u64, &'a Source)>,
    /// Bytes of the file, padding behind the last tensor included.
    total: u64,
}

impl Plan<'_> {
    /// Writes everything but zeros, which are there already or are holes.
    fn emit(&self, out: &mut (impl Write + Seek), progress: &mut dyn FnMut(u64)) -> std::io::Result<()> {
        out.write_all(&self.header)?;
        for (at, source) in &self.placed {
            let data = match source {
                Source::Bytes(data) => data,
                Source::Tensor(tensor) => tensor.data(),
                Source::Converted(tensor, ty) => {
                    out.seek(SeekFrom::Start(*at))?;
                    convert(tensor, *ty, out, progress)?;
                    continue;
                }
                Source::Zeros => continue,
            };
            out.seek(SeekFrom::Start(*at))?;
            for piece in data.chunks(PIECE) {
                out.write_all(piece)?;
                progress(piece.len() as u64);
            }
        }
        out.flush()
    }

    /// The file may be one that is mapped as the source of the copy: it is replaced, never truncated. What is no regular
    /// file (a link, a pipe, a device) is not replaced: nobody means that.
    fn write(&self, path: &Path, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let part = unfinished(path);
        for path in [path, &part] {
            if path.symlink_metadata().is_ok_and(|found| !found.is_file()) {
                let what = "not a regular file, so it is not replaced".to_owned();
                return Err(Error::Invalid { file: show_path(path), what });
            }
        }
        let failed = |source| Error::Io { action: "write", path: path.to_path_buf(), source };
        let mut file = File::create(&part).map_err(failed)?;
        let written = file.set_len(self.total).and_then(|()| self.emit(&mut file, progress));
        if let Err(e) = written.and_then(|()| std::fs::rename(&part, path)) {
            let _ = std::fs::remove_file(&part);
            return Err(failed(e));
        }
        Ok(())
    }
}

/// What a file is called until it is complete.
fn unfinished(path: &Path) -> PathBuf {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    part.into()
}

/// Writes a tensor in another type, or in its own, some rows at a time. All of it must be finite.
fn convert(tensor: &Tensor, ty: GgmlType, out: &mut impl Write, progress: &mut dyn FnMut(u64)) -> std::io::Result<()> {
    let failed = |e: String| std::io::Error::other(format!("tensor {}: {e}", show_text(tensor.name())));
    let too_long = || failed("a row is too large for memory".into());
    let (row_len, row_bytes) = usize::try_from(tensor.row_len())
        .ok()
        .zip(usize::try_from(tensor.row_bytes()).ok())
        .filter(|&(_, bytes)| bytes > 0)
        .ok_or_else(too_long)?;
    let rows = (PIECE / row_len.max(1)).max(1);
    let mut values = Vec::new();
    for (number, piece) in tensor.data().chunks(rows.checked_mul(row_bytes).ok_or_else(too_long)?).enumerate() {
        values.resize(piece.len() / row_bytes * row_len, 0.0);
        quant::decode(tensor.ty(), piece, &mut values).map_err(|e| failed(e.to_string()))?;
        let value = |at: usize| format!("value {} is {}", number * rows * row_len + at, values[at]);
        if let Some(at) = values.iter().position(|v| !v.is_finite()) {
            return Err(failed(format!("{}, expected finite numbers", value(at))));
        }
        if tensor.ty() == ty {
            out.write_all(piece)?;
            progress(piece.len() as u64);
            continue;
        }
        let cannot = |at: usize| failed(format!("{}, which {ty} cannot hold", value(at)));
        let blocks = quant::encode(ty, &values).map_err(|e| match e {
            quant::EncodeError::OutOfRange { index, .. } => cannot(index),
            e => failed(e.to_string()),
        })?;
        // Types without a scale take what is too large for an infinity.
        let blocks_of_one = ty.block_values() == 1;
        if blocks_of_one && quant::nonfinite_blocks(ty, &blocks).map_err(|e| failed(e.to_string()))? > 0 {
            let largest = (0..values.len()).max_by(|&a, &b| values[a].abs().total_cmp(&values[b].abs()));
            return Err(cannot(largest.unwrap_or(0)));
        }
        out.write_all(&blocks)?;
        progress(blocks.len() as u64);
    }
    Ok(())
}
