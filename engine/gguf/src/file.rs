//! Opens a model: one file, a set of shards, a folder, or bytes.

use crate::error::{Error, Result, show_path, show_text};
use crate::header::{self, Header};
use crate::layout;
use crate::mmap::Backing;
use crate::names::{file_name, is_partial};
use crate::shards;
use crate::tensor::Tensor;
use crate::value::Metadata;
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open model: its metadata and its tensors, gathered from all its files.
#[derive(Debug)]
pub struct Gguf {
    name: String,
    version: u32,
    meta: Metadata,
    files: Vec<ShardInfo>,
    tensors: Vec<Tensor>,
    index: HashMap<Arc<str>, usize>,
    warnings: Vec<String>,
}

/// One file of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardInfo {
    /// Where the file is; `None` for bytes in memory.
    pub path: Option<PathBuf>,
    /// The file's name without its folder, for messages.
    pub name: String,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Size of its header in bytes: magic, metadata and the table of tensors.
    pub header_bytes: u64,
    /// Tensors in this file.
    pub tensors: usize,
}

/// One file with its header read and nothing else checked.
pub(crate) struct OneFile {
    /// The name for messages: the path as given, invisible characters escaped.
    pub(crate) name: String,
    pub(crate) path: Option<PathBuf>,
    pub(crate) backing: Arc<Backing>,
    pub(crate) header: Header,
}

/// Whether tensors of these names are a draft layer without a model.
pub(crate) fn is_draft_layer<'a>(names: impl Iterator<Item = &'a str>) -> bool {
    let mut drafts = false;
    for name in names {
        if name == "token_embd.weight" {
            return false;
        }
        drafts |= name.starts_with("blk.") && name.contains(".nextn.");
    }
    drafts
}

impl Gguf {
    /// Opens a model by any of: its file, any shard of its set, or a folder that holds one model and nothing that could be
    /// taken for a second. A draft layer alone (see [`Gguf::is_draft_layer`]) is not taken for one beside a model.
    ///
    /// Files are mapped, not read: opening touches the pages of the headers only.
    ///
    /// # Errors
    ///
    /// When a path cannot be opened, a shard is missing, a header breaks the format, or a tensor's bytes do not lie inside
    /// its file. The message names the file and the tensor or key.
    pub fn open(path: &Path) -> Result<Gguf> {
        let info = std::fs::metadata(path).map_err(|e| cannot_open(path, e))?;
        if info.is_dir() {
            return Gguf::open(&shards::only_model_in(path)?);
        }
        shards::assemble(OneFile::open(path)?)
    }

    /// Opens a model that is part of the program. `name` stands for the file in messages.
    ///
    /// # Errors
    ///
    /// As [`Gguf::open`]; a shard of a set is refused, as its siblings cannot be found.
    pub fn from_static(name: &str, bytes: &'static [u8]) -> Result<Gguf> {
        shards::assemble(OneFile::new(show_text(name), None, Backing::Static(bytes))?)
    }

    /// Opens a model that is in memory. `name` stands for the file in messages.
    ///
    /// # Errors
    ///
    /// As [`Gguf::from_static`].
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Gguf> {
        shards::assemble(OneFile::new(show_text(name), None, Backing::Owned(bytes))?)
    }

    /// A model put together from tensors of other files. `meta` brings the name for messages.
    ///
    /// # Errors
    ///
    /// When two tensors have one name.
    pub fn from_tensors(meta: Metadata, tensors: Vec<Tensor>) -> Result<Gguf> {
        let (name, version) = (meta.file().to_owned(), 3);
        let (files, warnings) = (Vec::new(), Vec::new());
        let mut index = HashMap::new();
        for (i, tensor) in tensors.iter().enumerate() {
            if index.insert(tensor.shared_name(), i).is_some() {
                let what = format!("two tensors are named {}", show_text(tensor.name()));
                return Err(Error::Invalid { file: name, what });
            }
        }
        Ok(Gguf { name, version, meta, files, tensors, index, warnings })
    }

    /// Puts the files of a model together, in the order of their shards; the first brings the metadata.
    pub(crate) fn from_files(parts: Vec<OneFile>) -> Result<Gguf> {
        let mut gguf = Gguf {
            name: String::new(),
            version: 0,
            meta: Metadata::default(),
            files: Vec::with_capacity(parts.len()),
            tensors: Vec::new(),
            index: HashMap::new(),
            warnings: Vec::new(),
        };
        for (number, part) in parts.into_iter().enumerate() {
            gguf.add(number, part)?;
        }
        Ok(gguf)
    }

    fn add(&mut self, number: usize, part: OneFile) -> Result<()> {
        let short = part.short_name();
        let bytes = part.backing.bytes();
        self.warnings.extend(layout::check(&part.name, &short, &part.header, bytes)?);
        self.files.push(ShardInfo {
            name: short,
            bytes: bytes.len() as u64,
            header_bytes: part.header.end,
            tensors: part.header.tensors.len(),
            path: part.path,
        });
        for info in part.header.tensors {
            let shown = show_text(&info.name);
            let invalid = |what: String| Error::Invalid { file: part.name.clone(), what };
            let tensor = Tensor::new(info, &part.backing, number)
                .ok_or_else(|| invalid(format!("tensor {shown} is out of bounds")))?;
            if let Some(&other) = self.index.get(tensor.name()) {
                let at = |i: usize| self.files.get(i).map_or("?", |f| f.name.as_str());
                let first = self.tensors.get(other).map_or("?", |t| at(t.file()));
                return Err(invalid(format!("tensor {shown} is in two files: {first} and {}", at(number))));
            }
            self.index.insert(tensor.shared_name(), self.tensors.len());
            self.tensors.push(tensor);
        }
        if number == 0 {
            self.name = part.name;
            self.version = part.header.version;
            self.meta = part.header.meta;
        }
        Ok(())
    }

    /// The metadata: that of the only file, or of the first shard.
    pub fn meta(&self) -> &Metadata {
        &self.meta
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.index.get(name).and_then(|&i| self.tensors.get(i))
    }

    /// The tensor of this name.
    ///
    /// # Errors
    ///
    /// When the model has no such tensor. Files shorter than they should be were refused when they were opened, so a tensor
    /// that is not here was never written.
    pub fn require(&self, name: &str) -> Result<&Tensor> {
        self.tensor(name).ok_or_else(|| self.invalid(format!("tensor {} is missing", show_text(name))))
    }

    /// Whether this is a draft layer alone: tensors for the prediction of further tokens (`blk.N.nextn.*`), and no
    /// embedding, which every model has.
    pub fn is_draft_layer(&self) -> bool {
        is_draft_layer(self.tensors.iter().map(Tensor::name))
    }

    /// All tensors, in the order of the files and of their headers.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The files of the model, in the order of its shards.
    pub fn files(&self) -> &[ShardInfo] {
        &self.files
    }

    /// The version of the format, 2 or 3; that of the first shard.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// What was odd and yet harmless, a sentence each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The name for messages: the path of the first file as given, invisible characters escaped.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// An error about this model.
    pub fn invalid(&self, what: impl Into<String>) -> Error {
        Error::Invalid { file: self.name.clone(), what: what.into() }
    }
}

impl OneFile {
    /// Maps a file and reads its header.
    pub(crate) fn open(path: &Path) -> Result<OneFile> {
        // Asked before opening: opening a named pipe waits for a writer.
        let info = std::fs::metadata(path).map_err(|e| cannot_open(path, e))?;
        let name = show_path(path);
        if !info.is_file() {
            return Err(Error::Invalid { file: name, what: "not a regular file".into() });
        }
        let file = File::open(path).map_err(|e| cannot_open(path, e))?;
        // An empty file cannot be mapped on every system; the parser has the sentence for it.
        let backing = if info.len() == 0 { Backing::Static(&[]) } else { Backing::map(path, file)? };
        OneFile::new(name, Some(path.to_path_buf()), backing).map_err(|e| match e {
            Error::Invalid { file, what } if is_partial(&file) => Error::Invalid {
                what: format!("{what} (by its name, the file is an unfinished download or one piece of a cut file)"),
                file,
            },
            e => e,
        })
    }

    fn new(name: String, path: Option<PathBuf>, backing: Backing) -> Result<OneFile> {
        let header = header::parse(backing.bytes(), &name)?;
        layout::check_not_joined(&name, &header, backing.bytes())?;
        Ok(OneFile { name, path, backing: Arc::new(backing), header })
    }

    /// The file's name without its folder.
    pub(crate) fn short_name(&self) -> String {
        self.path.as_deref().map_or_else(|| self.name.clone(), |p| show_text(&file_name(p)))
    }

    /// An error about this file.
    pub(crate) fn invalid(&self, what: impl Into<String>) -> Error {
        Error::Invalid { file: self.name.clone(), what: what.into() }
    }
}

/// A path that does not open. Pasted paths may hold a character that no screen shows; then that is the likely reason.
fn cannot_open(path: &Path, source: std::io::Error) -> Error {
    let text = path.to_string_lossy();
    let hidden: Vec<String> = text
        .chars()
        .filter(|c| show_text(c.encode_utf8(&mut [0; 4])).len() > c.len_utf8())
        .map(|c| format!("U+{:04X}", u32::from(c)))
        .collect();
    if hidden.is_empty() {
        return Error::Io { action: "open", path: path.to_path_buf(), source };
    }
    let what = format!(
        "cannot open this path: {source}; it holds invisible characters ({}), often copied along with a path: type it anew",
        hidden.join(", ")
    );
    Error::Invalid { file: show_path(path), what }
}
