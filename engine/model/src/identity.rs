//! Which model a file holds, in sixteen bytes.

use std::fmt;
use strata_gguf::{ArrayValue, Gguf, Value};
use twox_hash::XxHash3_128;

/// Raised whenever a change to the engine changes a bit of what the model computes: states saved before are then of no
/// use after.
pub const NUMERIC_VERSION: u32 = 1;

/// Samples of each tensor, and bytes of each sample.
const SAMPLES: usize = 8;
const SAMPLE: usize = 64;

/// Tells models apart: a hash (XXH3, 128 bits) over all metadata, over the name, type and dimensions of every tensor,
/// and over eight samples of 64 bytes spread evenly through each tensor's data.
///
/// It does not depend on how a model is cut into files, nor on their names and places. Another quantisation, a
/// fine-tune or other metadata give another number. It is cheap because it does not read everything: a few bytes that
/// were changed between the samples are not seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ModelId([u8; 16]);

impl ModelId {
    /// The identity of a file's model. Reads about half a kilobyte of each tensor.
    pub fn of(gguf: &Gguf) -> ModelId {
        let mut feed = Feed(XxHash3_128::new());
        // What a shard says of itself is not the model's.
        let mut meta: Vec<_> = gguf.meta().iter().filter(|(key, _)| !key.starts_with("split.")).collect();
        meta.sort_by_key(|(key, _)| *key);
        feed.number(meta.len() as u64);
        for (key, value) in meta {
            feed.bytes(key.as_bytes());
            feed.value(value);
        }
        let mut tensors: Vec<_> = gguf.tensors().iter().collect();
        tensors.sort_by_key(|t| t.name());
        feed.number(tensors.len() as u64);
        for tensor in tensors {
            feed.bytes(tensor.name().as_bytes());
            feed.bytes(tensor.ty().to_string().as_bytes());
            feed.number(tensor.dims().len() as u64);
            tensor.dims().iter().for_each(|&d| feed.number(d));
            let data = tensor.data();
            let last = data.len().saturating_sub(SAMPLE);
            for i in 0..SAMPLES {
                // Exact for tensors of any size that fits memory addresses.
                let at = (last as u128 * i as u128 / (SAMPLES as u128 - 1)) as usize;
                feed.bytes(&data[at..data.len().min(at + SAMPLE)]);
            }
        }
        ModelId(feed.0.finish_128().to_le_bytes())
    }

    /// An identity as it was stored.
    pub fn from_bytes(bytes: [u8; 16]) -> ModelId {
        ModelId(bytes)
    }

    /// The bytes to store.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Everything of changing length goes in behind its length, so that no two inputs are the same bytes.
struct Feed(XxHash3_128);

impl Feed {
    fn number(&mut self, n: u64) {
        self.0.write(&n.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.write(bytes);
    }

    fn value(&mut self, value: &Value) {
        self.bytes(value.type_name().as_bytes());
        match value {
            Value::U8(v) => self.0.write(&v.to_le_bytes()),
            Value::I8(v) => self.0.write(&v.to_le_bytes()),
            Value::U16(v) => self.0.write(&v.to_le_bytes()),
            Value::I16(v) => self.0.write(&v.to_le_bytes()),
            Value::U32(v) => self.0.write(&v.to_le_bytes()),
            Value::I32(v) => self.0.write(&v.to_le_bytes()),
            Value::U64(v) => self.0.write(&v.to_le_bytes()),
            Value::I64(v) => self.0.write(&v.to_le_bytes()),
            Value::F32(v) => self.0.write(&v.to_le_bytes()),
            Value::F64(v) => self.0.write(&v.to_le_bytes()),
            Value::Bool(v) => self.0.write(&[u8::from(*v)]),
            Value::String(v) => self.bytes(v.as_bytes()),
            Value::Array(array) => self.array(array),
        }
    }

    fn array(&mut self, array: &ArrayValue) {
        self.bytes(array.element_name().as_bytes());
        self.number(array.len() as u64);
        match array {
            ArrayValue::U8(v) => self.0.write(v),
            ArrayValue::I8(v) => v.iter().for_each(|v| self.0.write(&v.to_le_bytes())),
            ArrayValue::U16(v) => v.iter().for_each(|v| self.0.write(&v.to_le_bytes())),
            ArrayValue::I16(v) => v.iter().for_each(|v| self.0.write(&v.to_le_bytes())),
            ArrayValue::U32(v) => v.iter().for_each(|v| self.0.write(&v.to_le_bytes())),
            ArrayValue::I32(v) => v.iter().for_each(|v| self.0.write(&v.to_le_bytes())),
            ArrayValue::U64(v) => v.iter().for_each(|v| self.0.write(&v.to_le_bytes())),
            ArrayValue::I64(v) => v.iter().for_each(|v| self.0.write(&v.to_le_bytes())),
            ArrayValue::F32(v) => v.iter().for_each(|v| self.0.write(&v.to_le_bytes())),
            ArrayValue::F64(v) => v.iter().for_each(|v| self.0.write(&v.to_le_bytes())),
            ArrayValue::Bool(v) => v.iter().for_each(|v| self.0.write(&[u8::from(*v)])),
            ArrayValue::String(v) => v.iter().for_each(|v| self.bytes(v.as_bytes())),
            ArrayValue::Array(v) => v.iter().for_each(|v| self.array(v)),
        }
    }
}
