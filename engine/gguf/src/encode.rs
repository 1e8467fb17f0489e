//! Metadata as bytes: the inverse of what the header parser reads.

use crate::value::{ArrayValue, Value};

/// Appends a length-prefixed string.
pub(crate) fn put_str(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// Appends a key with its value.
pub(crate) fn put_meta(out: &mut Vec<u8>, key: &str, value: &Value) {
    put_str(out, key);
    out.extend(type_id(value).to_le_bytes());
    match value {
        Value::U8(v) => out.extend(v.to_le_bytes()),
        Value::I8(v) => out.extend(v.to_le_bytes()),
        Value::U16(v) => out.extend(v.to_le_bytes()),
        Value::I16(v) => out.extend(v.to_le_bytes()),
        Value::U32(v) => out.extend(v.to_le_bytes()),
        Value::I32(v) => out.extend(v.to_le_bytes()),
        Value::U64(v) => out.extend(v.to_le_bytes()),
        Value::I64(v) => out.extend(v.to_le_bytes()),
        Value::F32(v) => out.extend(v.to_le_bytes()),
        Value::F64(v) => out.extend(v.to_le_bytes()),
        Value::Bool(v) => out.push(u8::from(*v)),
        Value::String(v) => put_str(out, v),
        Value::Array(v) => put_array(out, v),
    }
}

fn put_array(out: &mut Vec<u8>, array: &ArrayValue) {
    out.extend(element_id(array).to_le_bytes());
    out.extend((array.len() as u64).to_le_bytes());
    match array {
        ArrayValue::U8(v) => out.extend(v),
        ArrayValue::I8(v) => out.extend(v.iter().map(|x| x.cast_unsigned())),
        ArrayValue::U16(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        ArrayValue::I16(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        ArrayValue::U32(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        ArrayValue::I32(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        ArrayValue::U64(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        ArrayValue::I64(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        ArrayValue::F32(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        ArrayValue::F64(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        ArrayValue::Bool(v) => out.extend(v.iter().map(|&x| u8::from(x))),
        ArrayValue::String(v) => v.iter().for_each(|x| put_str(out, x)),
        ArrayValue::Array(v) => v.iter().for_each(|x| put_array(out, x)),
    }
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

fn element_id(array: &ArrayValue) -> u32 {
    match array {
        ArrayValue::U8(_) => 0,
        ArrayValue::I8(_) => 1,
        ArrayValue::U16(_) => 2,
        ArrayValue::I16(_) => 3,
        ArrayValue::U32(_) => 4,
        ArrayValue::I32(_) => 5,
        ArrayValue::F32(_) => 6,
        ArrayValue::Bool(_) => 7,
        ArrayValue::String(_) => 8,
        ArrayValue::Array(_) => 9,
        ArrayValue::U64(_) => 10,
        ArrayValue::I64(_) => 11,
        ArrayValue::F64(_) => 12,
    }
}
