//! Running the binary, finding the shared models, and writing changed copies of them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use strata_gguf::{GgmlType, Gguf, Value, Writer};

/// The folder of shared models: `STRATA_SHARED`, or `../shared` beside the workspace. `None`, with a line, without it.
pub(crate) fn shared() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let dir = std::env::var_os("STRATA_SHARED").map_or_else(beside, PathBuf::from);
    if dir.join("nano").is_dir() {
        return Some(dir);
    }
    eprintln!("skipped: no shared models in {} (STRATA_SHARED names another folder)", dir.display());
    None
}

/// The small random model.
pub(crate) fn tiny() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/data/tiny/tiny-qwen4exp.gguf")
}

/// The built-in model as a file.
pub(crate) fn nano() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("model/nano-IQ3_S.gguf")
}

/// The binary, with a fixed width of help, without settings of whoever runs the tests, in a folder without a strata.toml.
pub(crate) fn strata(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strata"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("STRATA_") {
            command.env_remove(name);
        }
    }
    command.args(args).env("COLUMNS", "100").stdin(Stdio::null()).current_dir(env!("CARGO_TARGET_TMPDIR"));
    command
}

/// What a run left behind.
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs the binary to its end.
pub(crate) fn run(args: &[&str]) -> Run {
    finish(strata(args).output().unwrap())
}

/// The output as text. A panic is a failure in any test.
pub(crate) fn finish(output: Output) -> Run {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let run = Run { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) };
    assert!(!run.err.contains("panicked"), "{}", run.err);
    run
}

/// A model that can be changed and written.
pub(crate) struct Model {
    pub(crate) meta: Vec<(String, Value)>,
    pub(crate) tensors: Vec<Stored>,
}

/// A tensor to write.
#[derive(Clone)]
pub(crate) struct Stored {
    pub(crate) name: String,
    pub(crate) dims: Vec<u64>,
    pub(crate) ty: GgmlType,
    pub(crate) data: Vec<u8>,
}

impl Model {
    pub(crate) fn read(path: &Path) -> Model {
        let gguf = Gguf::open(path).unwrap();
        let stored = |t: &strata_gguf::Tensor| Stored {
            name: t.name().into(),
            dims: t.dims().to_vec(),
            ty: t.ty(),
            data: t.data().to_vec(),
        };
        Model {
            meta: gguf.meta().iter().map(|(k, v)| (k.into(), v.clone())).collect(),
            tensors: gguf.tensors().iter().map(stored).collect(),
        }
    }

    /// Gives a key a value, in place of the one it has or at the end.
    pub(crate) fn set(&mut self, key: &str, value: Value) {
        match self.meta.iter_mut().find(|(k, _)| k == key) {
            Some((_, old)) => *old = value,
            None => self.meta.push((key.into(), value)),
        }
    }

    pub(crate) fn tensor(&mut self, name: &str) -> &mut Stored {
        self.tensors.iter_mut().find(|t| t.name == name).unwrap()
    }

    pub(crate) fn write(&self, path: &Path) {
        self.writer().write(path).unwrap();
    }

    /// Writes a set of shards named `STEM-00001-of-0000N.gguf`. Gives their paths.
    pub(crate) fn write_shards(&self, dir: &Path, stem: &str, count: u16) -> Vec<PathBuf> {
        self.writer().write_split(dir, stem, count).unwrap()
    }

    fn writer(&self) -> Writer {
        let mut writer = Writer::new();
        for (key, value) in &self.meta {
            writer.meta(key, value.clone()).unwrap();
        }
        for t in &self.tensors {
            writer.tensor(&t.name, &t.dims, t.ty, t.data.clone()).unwrap();
        }
        writer
    }
}
