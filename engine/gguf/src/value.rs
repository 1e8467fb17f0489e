//! Metadata: typed values under string keys.

use crate::error::{Error, Result};

/// One metadata value.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    String(String),
    Array(ArrayValue),
}

/// An array of one element type.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq)]
pub enum ArrayValue {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bool(Vec<bool>),
    String(Vec<String>),
    /// Arrays of arrays exist in the format; no key of this engine uses them.
    Array(Vec<ArrayValue>),
}

impl Value {
    /// The type's name for messages, such as `u32` or `array of i32`.
    pub fn type_name(&self) -> String {
        match self {
            Value::U8(_) => "u8".into(),
            Value::I8(_) => "i8".into(),
            Value::U16(_) => "u16".into(),
            Value::I16(_) => "i16".into(),
            Value::U32(_) => "u32".into(),
            Value::I32(_) => "i32".into(),
            Value::U64(_) => "u64".into(),
            Value::I64(_) => "i64".into(),
            Value::F32(_) => "f32".into(),
            Value::F64(_) => "f64".into(),
            Value::Bool(_) => "bool".into(),
            Value::String(_) => "string".into(),
            Value::Array(a) => format!("array of {}", a.element_name()),
        }
    }

    /// The value as an unsigned number, if it is a non-negative integer of any width.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Value::U8(v) => Some(v.into()),
            Value::U16(v) => Some(v.into()),
            Value::U32(v) => Some(v.into()),
            Value::U64(v) => Some(v),
            Value::I8(v) => u64::try_from(v).ok(),
            Value::I16(v) => u64::try_from(v).ok(),
            Value::I32(v) => u64::try_from(v).ok(),
            Value::I64(v) => u64::try_from(v).ok(),
            _ => None,
        }
    }
}

impl ArrayValue {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            ArrayValue::U8(v) => v.len(),
            ArrayValue::I8(v) => v.len(),
            ArrayValue::U16(v) => v.len(),
            ArrayValue::I16(v) => v.len(),
            ArrayValue::U32(v) => v.len(),
            ArrayValue::I32(v) => v.len(),
            ArrayValue::U64(v) => v.len(),
            ArrayValue::I64(v) => v.len(),
            ArrayValue::F32(v) => v.len(),
            ArrayValue::F64(v) => v.len(),
            ArrayValue::Bool(v) => v.len(),
            ArrayValue::String(v) => v.len(),
            ArrayValue::Array(v) => v.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element type's name for messages.
    pub fn element_name(&self) -> &'static str {
        match self {
            ArrayValue::U8(_) => "u8",
            ArrayValue::I8(_) => "i8",
            ArrayValue::U16(_) => "u16",
            ArrayValue::I16(_) => "i16",
            ArrayValue::U32(_) => "u32",
            ArrayValue::I32(_) => "i32",
            ArrayValue::U64(_) => "u64",
            ArrayValue::I64(_) => "i64",
            ArrayValue::F32(_) => "f32",
            ArrayValue::F64(_) => "f64",
            ArrayValue::Bool(_) => "bool",
            ArrayValue::String(_) => "string",
            ArrayValue::Array(_) => "array",
        }
    }

    /// The elements as unsigned numbers, if all are non-negative integers of any width.
    pub fn to_u64s(&self) -> Option<Vec<u64>> {
        fn all<T: Copy>(v: &[T]) -> Option<Vec<u64>>
        where
            u64: TryFrom<T>,
        {
            v.iter().map(|&x| u64::try_from(x).ok()).collect()
        }
        match self {
            ArrayValue::U8(v) => all(v),
            ArrayValue::I8(v) => all(v),
            ArrayValue::U16(v) => all(v),
            ArrayValue::I16(v) => all(v),
            ArrayValue::U32(v) => all(v),
            ArrayValue::I32(v) => all(v),
            ArrayValue::U64(v) => all(v),
            ArrayValue::I64(v) => all(v),
            _ => None,
        }
    }
}

/// The metadata of a file, in file order. Getters check the type and name key, found and expected in their errors.
#[derive(Debug, Clone, Default)]
pub struct Metadata {
    /// The name used in messages.
    file: String,
    entries: Vec<(String, Value)>,
    index: std::collections::HashMap<String, usize>,
}

impl Metadata {
    /// Empty metadata of a file with this name (used in messages).
    pub fn new(file: impl Into<String>) -> Self {
        Metadata { file: file.into(), ..Metadata::default() }
    }

    /// Adds an entry; `false` when the key exists already (the first value stays).
    pub fn insert(&mut self, key: impl Into<String>, value: Value) -> bool {
        let key = key.into();
        if self.index.contains_key(&key) {
            return false;
        }
        self.index.insert(key.clone(), self.entries.len());
        self.entries.push((key, value));
        true
    }

    /// The name of the file, for messages.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// All entries in file order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// The value under a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.index.get(key).and_then(|&i| self.entries.get(i)).map(|(_, v)| v)
    }

    /// An error about this file.
    pub fn invalid(&self, what: impl Into<String>) -> Error {
        Error::Invalid { file: self.file.clone(), what: what.into() }
    }

    fn mismatch(&self, key: &str, found: &Value, expected: &str) -> Error {
        let negative = match *found {
            Value::I8(v) => Some(v.into()),
            Value::I16(v) => Some(v.into()),
            Value::I32(v) => Some(v.into()),
            Value::I64(v) => Some(v),
            _ => None::<i64>,
        };
        if let Some(v) = negative.filter(|&v| v < 0) {
            return self.invalid(format!("key {key} is {v}, expected {expected}"));
        }
        self.invalid(format!("key {key} is of type {}, expected {expected}", found.type_name()))
    }

    fn missing(&self, key: &str) -> Error {
        self.invalid(format!("key {key} is missing"))
    }

    /// An unsigned integer of any width, if present.
    pub fn opt_u64(&self, key: &str) -> Result<Option<u64>> {
        self.get(key).map(|v| v.as_u64().ok_or_else(|| self.mismatch(key, v, "a non-negative integer"))).transpose()
    }

    /// An unsigned integer of any width.
    pub fn u64(&self, key: &str) -> Result<u64> {
        self.opt_u64(key)?.ok_or_else(|| self.missing(key))
    }

    /// A float, if present.
    pub fn opt_f32(&self, key: &str) -> Result<Option<f32>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::F32(v)) => Ok(Some(*v)),
            Some(Value::F64(v)) => Ok(Some(*v as f32)),
            Some(v) => Err(self.mismatch(key, v, "f32")),
        }
    }

    /// A float.
    pub fn f32(&self, key: &str) -> Result<f32> {
        self.opt_f32(key)?.ok_or_else(|| self.missing(key))
    }

    /// A truth value, if present.
    pub fn opt_bool(&self, key: &str) -> Result<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(v)) => Ok(Some(*v)),
            Some(v) => Err(self.mismatch(key, v, "bool")),
        }
    }

    /// A string, if present.
    pub fn opt_str(&self, key: &str) -> Result<Option<&str>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(v)) => Ok(Some(v)),
            Some(v) => Err(self.mismatch(key, v, "string")),
        }
    }

    /// A string.
    pub fn str(&self, key: &str) -> Result<&str> {
        self.opt_str(key)?.ok_or_else(|| self.missing(key))
    }

    /// An array of non-negative integers of any width, if present.
    pub fn opt_u64s(&self, key: &str) -> Result<Option<Vec<u64>>> {
        let expected = "an array of non-negative integers";
        match self.get(key) {
            None => Ok(None),
            Some(v @ Value::Array(a)) => a.to_u64s().map(Some).ok_or_else(|| self.mismatch(key, v, expected)),
            Some(v) => Err(self.mismatch(key, v, expected)),
        }
    }

    /// An array of non-negative integers of any width.
    pub fn u64s(&self, key: &str) -> Result<Vec<u64>> {
        self.opt_u64s(key)?.ok_or_else(|| self.missing(key))
    }

    /// An array of truth values, if present.
    pub fn opt_bools(&self, key: &str) -> Result<Option<&[bool]>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(ArrayValue::Bool(v))) => Ok(Some(v)),
            Some(v) => Err(self.mismatch(key, v, "array of bool")),
        }
    }

    /// An array of strings, if present.
    pub fn opt_strings(&self, key: &str) -> Result<Option<&[String]>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(ArrayValue::String(v))) => Ok(Some(v)),
            Some(v) => Err(self.mismatch(key, v, "array of string")),
        }
    }

    /// An array of strings.
    pub fn strings(&self, key: &str) -> Result<&[String]> {
        self.opt_strings(key)?.ok_or_else(|| self.missing(key))
    }

    /// An array of i32, if present.
    pub fn opt_i32s(&self, key: &str) -> Result<Option<&[i32]>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(ArrayValue::I32(v))) => Ok(Some(v)),
            Some(v) => Err(self.mismatch(key, v, "array of i32")),
        }
    }
}
