//! Whether the files behind tensors are still whole.

use crate::error::{Error, Result};
use crate::file::Gguf;
use crate::mmap::Backing;
use std::sync::Arc;

/// The files that a model's tensors are in, kept to be looked at again.
///
/// A file that is cut while it is mapped takes weights away, and touching them ends the process. A look before each piece
/// of work finds that out while nothing was touched. A file that was deleted, or replaced by another of its name, is
/// still whole for who has it open.
#[derive(Debug, Clone, Default)]
pub struct Watch(Vec<(String, Arc<Backing>)>);

impl Watch {
    /// The files of a model.
    pub fn of(gguf: &Gguf) -> Watch {
        let mut files: Vec<(String, Arc<Backing>)> = Vec::new();
        for tensor in gguf.tensors() {
            let backing = tensor.backing();
            if backing.is_mapped() && !files.iter().any(|(_, known)| Arc::ptr_eq(known, backing)) {
                let name = gguf.files().get(tensor.file()).map_or(gguf.name(), |file| &file.name);
                files.push((name.to_owned(), Arc::clone(backing)));
            }
        }
        Watch(files)
    }

    /// These files and those of another model.
    pub fn and(mut self, other: Watch) -> Watch {
        self.0.extend(other.0);
        self
    }

    /// Looks at each file. It asks the system and reads nothing.
    ///
    /// # Errors
    ///
    /// When a file is shorter than when it was opened.
    pub fn check(&self) -> Result<()> {
        for (name, backing) in &self.0 {
            let was = backing.bytes().len() as u64;
            if let Some(now) = backing.file_bytes().filter(|&now| now < was) {
                let what = format!(
                    "the file has {now} bytes and had {was} when it was opened, so weights are gone: start again with a \
                     whole file"
                );
                return Err(Error::Invalid { file: name.clone(), what });
            }
        }
        Ok(())
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::{GgmlType, Writer};

    #[test]
    fn a_cut_file_is_found_and_a_deleted_one_is_whole() {
        let mut writer = Writer::new();
        writer.tensor("a", &[64], GgmlType::F32, vec![1; 256]).unwrap();
        let bytes = writer.to_bytes().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cut.gguf");
        std::fs::write(&path, &bytes).unwrap();
        let watch = Watch::default().and(Watch::of(&Gguf::open(&path).unwrap()));
        assert_eq!(watch.0.len(), 1);
        watch.check().unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(100).unwrap();
        let error = watch.check().unwrap_err().to_string();
        assert!(error.starts_with("cut.gguf: the file has 100 bytes and had "), "{error}");
        std::fs::write(&path, &bytes).unwrap();
        watch.check().unwrap();
        std::fs::remove_file(&path).unwrap();
        watch.check().unwrap();
        assert!(Watch::of(&Gguf::from_bytes("memory", bytes).unwrap()).0.is_empty());
    }
}
