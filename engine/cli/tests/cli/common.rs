//! Running the binary, finding the shared models, and writing changed copies of them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use strata_gguf::{ArrayValue, Gguf, Value};

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

/// The small random model of the shared folder.
pub(crate) fn tiny() -> Option<PathBuf> {
    Some(shared()?.join("tiny-qwen4exp/tiny-qwen4exp.gguf"))
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
    pub(crate) ty: u32,
    pub(crate) data: Vec<u8>,
}

impl Model {
    pub(crate) fn read(path: &Path) -> Model {
        let gguf = Gguf::open(path).unwrap();
        let stored = |t: &strata_gguf::Tensor| Stored {
            name: t.name().into(),
            dims: t.dims().to_vec(),
            ty: t.ty().id(),
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
        std::fs::write(path, self.bytes()).unwrap();
    }

    /// Writes a set of shards named `STEM-00001-of-0000N.gguf`; metadata stays in the first. Gives their paths.
    pub(crate) fn write_shards(&self, dir: &Path, stem: &str, count: usize) -> Vec<PathBuf> {
        let per = self.tensors.len().div_ceil(count);
        let shard = |(i, tensors): (usize, &[Stored])| {
            let mut part = Model { meta: Vec::new(), tensors: tensors.to_vec() };
            if i == 0 {
                part.meta = self.meta.clone();
            }
            part.set("split.no", Value::U16(i as u16));
            part.set("split.count", Value::U16(count as u16));
            part.set("split.tensors.count", Value::I32(self.tensors.len() as i32));
            let path = dir.join(format!("{stem}-{:05}-of-{count:05}.gguf", i + 1));
            part.write(&path);
            path
        };
        self.tensors.chunks(per).enumerate().map(shard).collect()
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.meta.len() as u64).to_le_bytes());
        for (key, value) in &self.meta {
            text(&mut out, key);
            out.extend(type_id(value).to_le_bytes());
            put(&mut out, value);
        }
        let mut offset = 0u64;
        for t in &self.tensors {
            text(&mut out, &t.name);
            out.extend((t.dims.len() as u32).to_le_bytes());
            t.dims.iter().for_each(|d| out.extend(d.to_le_bytes()));
            out.extend(t.ty.to_le_bytes());
            out.extend(offset.to_le_bytes());
            offset += t.data.len().next_multiple_of(32) as u64;
        }
        for t in &self.tensors {
            out.resize(out.len().next_multiple_of(32), 0);
            out.extend(&t.data);
        }
        out.resize(out.len().next_multiple_of(32), 0);
        out
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn type_id(value: &Value) -> u32 {
    match value {
        Value::U8(_) => 0,
        Value::I8(_) => 1,
        Value::U16(_) => 2,
        Value::I16(_) => 3,
        Value::U32(_) => 4,
        Value::I32(_) => 5,
        Value::F32(_) => 6,
        Value::Bool(_) => 7,
        Value::String(_) => 8,
        Value::Array(_) => 9,
        Value::U64(_) => 10,
        Value::I64(_) => 11,
        Value::F64(_) => 12,
    }
}

fn put(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::U8(v) => out.push(*v),
        Value::I8(v) => out.extend(v.to_le_bytes()),
        Value::U16(v) => out.extend(v.to_le_bytes()),
        Value::I16(v) => out.extend(v.to_le_bytes()),
        Value::U32(v) => out.extend(v.to_le_bytes()),
        Value::I32(v) => out.extend(v.to_le_bytes()),
        Value::F32(v) => out.extend(v.to_le_bytes()),
        Value::Bool(v) => out.push(u8::from(*v)),
        Value::String(v) => text(out, v),
        Value::U64(v) => out.extend(v.to_le_bytes()),
        Value::I64(v) => out.extend(v.to_le_bytes()),
        Value::F64(v) => out.extend(v.to_le_bytes()),
        Value::Array(array) => {
            let items: Vec<Value> = match array {
                ArrayValue::I32(v) => v.iter().copied().map(Value::I32).collect(),
                ArrayValue::U32(v) => v.iter().copied().map(Value::U32).collect(),
                ArrayValue::U64(v) => v.iter().copied().map(Value::U64).collect(),
                ArrayValue::F32(v) => v.iter().copied().map(Value::F32).collect(),
                ArrayValue::Bool(v) => v.iter().copied().map(Value::Bool).collect(),
                ArrayValue::String(v) => v.iter().cloned().map(Value::String).collect(),
                other => panic!("the shared models have no arrays of {}", other.element_name()),
            };
            out.extend(items.first().map_or(4, type_id).to_le_bytes());
            out.extend((items.len() as u64).to_le_bytes());
            items.iter().for_each(|v| put(out, v));
        }
    }
}
