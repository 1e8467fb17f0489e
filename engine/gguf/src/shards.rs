//! Sets of shards: found from any of them, checked to be complete, and listed for people.
//!
//! Every shard carries `split.count`, `split.no` (from 0; names count from 1) and `split.tensors.count` (of the whole set).
//! Only the first carries anything else. The stem of the names is not in the headers, so a set may be renamed as a whole.

use crate::error::{Error, Result, show_path, show_text};
use crate::file::{Gguf, OneFile, is_draft_layer};
use crate::names::{ShardName, file_name, is_partial, split_extension};
use crate::value::Metadata;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Missing names listed in a message; the rest is counted.
const MAX_LISTED: usize = 64;

/// The files of one model in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelFiles {
    /// The file's name without `.gguf`, or what the names of its shards have in common.
    pub name: String,
    /// The files that are there, in the order of the shards.
    pub paths: Vec<PathBuf>,
    /// Their size together, in bytes.
    pub bytes: u64,
    /// Files the model should have: 1, or the count in the names of its shards.
    pub declared: u64,
    /// Names of the shards that are not there.
    pub missing: Vec<String>,
}

impl ModelFiles {
    /// Whether every file of the model is there.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// Whether it is one file with a draft layer alone, as [`Gguf::is_draft_layer`] has it. Reads its header; a file that
    /// cannot be read is none.
    pub fn is_draft_layer(&self) -> bool {
        let ([path], 1) = (self.paths.as_slice(), self.declared) else { return false };
        OneFile::open(path).is_ok_and(|file| is_draft_layer(file.header.tensors.iter().map(|t| &*t.name)))
    }
}

/// Lists the models in a folder by name: the shards of a set are one model, sorted by name.
///
/// Judged by names alone: files that do not end in `.gguf`, hidden files, unfinished downloads, projectors (`mmproj*`) and
/// importance matrices (`imatrix*`) are left out; folders inside are not searched. Only where shards seem to be missing is a
/// header read, since a whole model may carry the name of a shard.
///
/// # Errors
///
/// When the folder cannot be read.
pub fn models_in(dir: &Path) -> Result<Vec<ModelFiles>> {
    let failed = |source| Error::Io { action: "list", path: dir.to_path_buf(), source };
    let mut models: Vec<(Option<ShardName>, ModelFiles)> = Vec::new();
    let mut sets: HashMap<String, usize> = HashMap::new();
    let mut entries: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        entries.push(entry.map_err(failed)?.path());
    }
    entries.sort();
    for path in entries {
        let name = file_name(&path);
        let Some((stem, _)) = split_extension(&name).filter(|_| is_model_name(&name)) else { continue };
        let Ok(info) = std::fs::metadata(&path) else { continue };
        if !info.is_file() {
            continue;
        }
        let shard = ShardName::parse(&name);
        let key = shard.as_ref().map_or_else(|| name.clone(), |s| s.sibling(1));
        let at = *sets.entry(key).or_insert(models.len());
        if at == models.len() {
            let (name, declared) = shard.as_ref().map_or((stem, 1), |s| (s.stem.as_str(), s.count));
            let model = ModelFiles { name: name.into(), paths: Vec::new(), bytes: 0, declared, missing: Vec::new() };
            models.push((shard, model));
        }
        if let Some((_, model)) = models.get_mut(at) {
            model.paths.push(path);
            model.bytes = model.bytes.saturating_add(info.len());
        }
    }
    Ok(models.into_iter().map(|(shard, model)| find_missing(shard, model)).collect())
}

fn is_model_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    !lower.starts_with('.') && !lower.starts_with("mmproj") && !lower.starts_with("imatrix") && !is_partial(name)
}

fn find_missing(shard: Option<ShardName>, mut model: ModelFiles) -> ModelFiles {
    let Some(shard) = shard else { return model };
    let present: Vec<String> = model.paths.iter().map(|p| file_name(p)).collect();
    model.missing = (1..=shard.count).map(|i| shard.sibling(i)).filter(|name| !present.contains(name)).collect();
    if let ([only], false) = (model.paths.as_slice(), model.missing.is_empty()) {
        let whole = OneFile::open(only).is_ok_and(|f| matches!(Split::of(&f.header.meta), Ok(None)));
        if whole {
            model.declared = 1;
            model.missing.clear();
        }
    }
    model
}

/// The first file of the only model in a folder.
pub(crate) fn only_model_in(dir: &Path) -> Result<PathBuf> {
    let models = models_in(dir)?;
    let invalid = |what| Err(Error::Invalid { file: show_path(dir), what });
    match models.as_slice() {
        [] => invalid("the folder holds no .gguf file (folders inside it are not searched)".into()),
        [model] => match model.paths.first() {
            Some(path) => Ok(path.clone()),
            None => invalid("the folder holds no .gguf file".into()),
        },
        several => {
            // Only now headers are worth reading: a draft layer lies beside its model.
            let models: Vec<&ModelFiles> = several.iter().filter(|m| !m.is_draft_layer()).collect();
            if let [ModelFiles { paths, .. }] = models.as_slice()
                && let Some(path) = paths.first()
            {
                return Ok(path.clone());
            }
            let several = if models.is_empty() { several.iter().collect() } else { models };
            let names: Vec<String> = several.iter().map(|m| show_text(&m.name)).collect();
            invalid(format!("the folder holds {} models, name one of them: {}", names.len(), names.join(", ")))
        }
    }
}

/// The `split.*` keys of a shard.
#[derive(Debug, PartialEq, Eq)]
struct Split {
    /// Number of the shard, from 1 as in names.
    number: u64,
    count: u64,
    /// Tensors in the whole set.
    tensors: Option<u64>,
}

impl Split {
    /// `None` for a whole model.
    fn of(meta: &Metadata) -> Result<Option<Split>> {
        let count = meta.opt_u64("split.count")?.unwrap_or(0);
        if count <= 1 {
            return Ok(None);
        }
        let no = meta.u64("split.no")?;
        if no >= count {
            return Err(meta.invalid(format!("split.no is {no}, expected less than split.count {count}")));
        }
        Ok(Some(Split { number: no + 1, count, tensors: meta.opt_u64("split.tensors.count")? }))
    }
}

/// Finds the other shards of a file's set, if it has one, and opens the model.
pub(crate) fn assemble(given: OneFile) -> Result<Gguf> {
    let Some(split) = Split::of(&given.header.meta)? else {
        return Gguf::from_files(vec![given]);
    };
    let Some(path) = given.path.clone() else {
        let (n, of) = (split.number, split.count);
        return Err(given.invalid(format!("this is shard {n} of {of}: a set of shards opens from files only")));
    };
    if split.count > u64::from(u16::MAX) {
        return Err(given.invalid(format!("split.count is {}, expected at most 65535", split.count)));
    }
    if path.file_name().is_some_and(|n| n.to_str().is_none()) {
        return Err(given
            .invalid("the name of this shard is not valid Unicode, so its siblings cannot be named: rename the set"));
    }
    let dir = path.parent().map(Path::to_path_buf).unwrap_or_default();
    let name = check_name(&given, &path, &dir, &split)?;
    check_present(&given, &dir, &name)?;

    let mut parts = Vec::new();
    let (own_number, mut given) = (split.number, Some(given));
    for number in 1..=split.count {
        let part = match given.take_if(|_| number == own_number) {
            Some(part) => part,
            None => OneFile::open(&dir.join(name.sibling(number)))?,
        };
        check_member(&part, &split, &name, number)?;
        parts.push(part);
    }
    check_total(&parts, &split)?;
    Gguf::from_files(parts)
}

/// The name of a shard must say what its header says, or its siblings cannot be found.
fn check_name(given: &OneFile, path: &Path, dir: &Path, split: &Split) -> Result<ShardName> {
    let short = file_name(path);
    let found = ShardName::parse(&short);
    if let Some(name) = found.as_ref().filter(|n| n.number == split.number && n.count == split.count) {
        return Ok(name.clone());
    }
    let expected = match found {
        Some(name) => name.with(split.number, split.count),
        None => {
            let stem = split_extension(&short).map_or(short.as_str(), |(stem, _)| stem);
            let sibling = shard_names_in(dir).into_iter().find(|n| n.count == split.count);
            sibling
                .map_or_else(|| ShardName::new(stem, split.number, split.count), |n| n.with(split.number, split.count))
        }
    };
    Err(given.invalid(format!(
        "the header says that this is shard {} of {}, so the file's name should be {}: rename it",
        split.number,
        split.count,
        show_text(&expected.to_string())
    )))
}

/// All shards must be there before the first is looked at: one message lists all that are missing.
fn check_present(given: &OneFile, dir: &Path, name: &ShardName) -> Result<()> {
    let missing: Vec<u64> = (1..=name.count).filter(|&i| !dir.join(name.sibling(i)).exists()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut listed: Vec<String> = missing.iter().take(MAX_LISTED).map(|&i| show_text(&name.sibling(i))).collect();
    if missing.len() > MAX_LISTED {
        listed.push(format!("and {} more", missing.len() - MAX_LISTED));
    }
    let mut what = format!(
        "{} of {} shards are present, missing: {}",
        name.count.saturating_sub(missing.len() as u64),
        name.count,
        listed.join(", ")
    );
    let renamed: Vec<String> = shard_names_in(dir)
        .iter()
        .filter(|n| n.count == name.count && !n.same_set(name) && missing.contains(&n.number))
        .map(|n| show_text(&n.to_string()))
        .collect();
    if !renamed.is_empty() {
        what += &format!("; the folder has {}: was it renamed?", renamed.join(", "));
    }
    Err(given.invalid(what))
}

fn check_member(part: &OneFile, set: &Split, name: &ShardName, number: u64) -> Result<()> {
    let meta = &part.header.meta;
    match Split::of(meta)? {
        None => {
            Err(part.invalid(format!("the name says shard {number} of {}, but the file is a whole model", set.count)))
        }
        Some(s) if s.count != set.count => Err(part.invalid(format!(
            "split.count is {}, but {} in other shards of the set: the shards are of different models",
            s.count, set.count
        ))),
        Some(s) if s.number != number => Err(part.invalid(format!(
            "the header says that this is shard {} of {}, so the file's name should be {}: rename it",
            s.number,
            s.count,
            show_text(&name.sibling(s.number))
        ))),
        Some(s) if s.tensors != set.tensors => Err(part.invalid(format!(
            "split.tensors.count is {}, but {} in other shards of the set: the shards are of different models",
            show_count(s.tensors),
            show_count(set.tensors)
        ))),
        Some(_) => Ok(()),
    }
}

fn show_count(count: Option<u64>) -> String {
    count.map_or_else(|| "missing".into(), |n| n.to_string())
}

fn check_total(parts: &[OneFile], split: &Split) -> Result<()> {
    let total: usize = parts.iter().map(|p| p.header.tensors.len()).sum();
    match (split.tensors, parts.first()) {
        (Some(expected), Some(first)) if expected != total as u64 => Err(first.invalid(format!(
            "split.tensors.count is {expected}, but the {} shards hold {total} tensors together",
            parts.len()
        ))),
        _ => Ok(()),
    }
}

/// Names in a folder that have the form of a shard's, sorted.
fn shard_names_in(dir: &Path) -> Vec<ShardName> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut names: Vec<String> = entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort();
    names.iter().filter_map(|n| ShardName::parse(n)).collect()
}
