//! The header of one file: magic, counts, metadata and the table of tensors.
//!
//! Layout, all little-endian: `GGUF`, version `u32`, tensor count `u64`, key count `u64`; per key its name, a `u32`
//! value type and the value; per tensor its name, `u32` rank, `u64` dimensions, `u32` type and the `u64` offset of its
//! data behind the header. The data starts at the next multiple of the alignment. Versions 2 and 3 share this layout.

use crate::cursor::Cursor;
use crate::error::{Result, show_text};
use crate::foreign;
use crate::types::GgmlType;
use crate::value::{ArrayValue, Metadata, Value};
use std::collections::HashSet;
use std::sync::Arc;

/// Arrays may hold arrays this deep. Nothing published nests at all.
const MAX_DEPTH: usize = 8;

/// Data alignment of a file that does not say, in bytes.
const DEFAULT_ALIGNMENT: u64 = 32;

/// What a header says, with the ranges of its tensors checked for overflow but not yet against the file's length.
pub(crate) struct Header {
    pub(crate) version: u32,
    pub(crate) meta: Metadata,
    pub(crate) tensors: Vec<TensorInfo>,
    /// Data alignment in bytes.
    pub(crate) alignment: u64,
    /// First byte behind the table of tensors.
    pub(crate) end: u64,
}

/// One row of the table of tensors.
#[derive(Debug)]
pub(crate) struct TensorInfo {
    pub(crate) name: Arc<str>,
    pub(crate) dims: Vec<u64>,
    pub(crate) ty: GgmlType,
    /// Bytes of one row of `dims[0]` values.
    pub(crate) row_bytes: u64,
    /// Bytes of all rows.
    pub(crate) bytes: u64,
    /// Absolute position in the file, in bytes.
    pub(crate) offset: u64,
}

/// Parses a header. `file` is the name for messages.
pub(crate) fn parse(bytes: &[u8], file: &str) -> Result<Header> {
    let mut c = Cursor::new(bytes, file);
    if bytes.get(..4) != Some(b"GGUF") {
        return Err(c.invalid(foreign::describe(bytes)));
    }
    c.take(4, &|| "the magic".into())?;
    let version = c.u32(&|| "the version".into())?;
    check_version(&c, version)?;
    let tensor_count = c.u64(&|| "the tensor count".into())?;
    let key_count = c.u64(&|| "the metadata count".into())?;
    // The least that an entry takes, with an empty name: that has a sentence of its own.
    c.expect(key_count, 13, &|| format!("a metadata count of {key_count}"))?;
    c.expect(tensor_count, 32, &|| format!("a tensor count of {tensor_count}"))?;

    let mut meta = Metadata::new(file);
    for i in 0..key_count {
        let key = c.name(&|| format!("metadata key {} of {key_count}", i + 1))?;
        let value = read_value(&mut c, key)?;
        if !meta.insert(key, value) {
            return Err(c.invalid(format!("metadata key {} appears twice", show_text(key))));
        }
    }
    let alignment = alignment_of(&meta)?;

    let mut tensors = Vec::new();
    let mut names = HashSet::new();
    for i in 0..tensor_count {
        let info = read_tensor(&mut c, i, tensor_count, alignment)?;
        if !names.insert(info.name.clone()) {
            return Err(c.invalid(format!("two tensors are named {}", show_text(&info.name))));
        }
        tensors.push(info);
    }

    let end = c.pos() as u64;
    let data = end.checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
    for t in &mut tensors {
        match t.offset.checked_add(data).and_then(|start| Some((start, start.checked_add(t.bytes)?))) {
            Some((start, _)) => t.offset = start,
            None => {
                return Err(c.invalid(format!(
                    "tensor {} has offset {} and {} bytes, beyond any file",
                    show_text(&t.name),
                    t.offset,
                    t.bytes
                )));
            }
        }
    }
    Ok(Header { version, meta, tensors, alignment, end })
}

fn check_version(c: &Cursor<'_>, version: u32) -> Result<()> {
    match version {
        2 | 3 => Ok(()),
        1 => Err(c.invalid("GGUF version 1 is not supported (versions 2 and 3 are): convert the model again")),
        _ if (1..=0xffff).contains(&version.swap_bytes()) => Err(c.invalid(format!(
            "this is a big-endian GGUF file (version {}): only little-endian files are supported, convert the model again",
            version.swap_bytes()
        ))),
        _ => Err(c.invalid(format!(
            "GGUF version {version} is unknown (versions 2 and 3 are supported): the file is newer than this engine, or damaged"
        ))),
    }
}

/// The alignment a file declares, checked; [`DEFAULT_ALIGNMENT`] when it declares none.
pub(crate) fn alignment_of(meta: &Metadata) -> Result<u64> {
    match meta.opt_u64("general.alignment")? {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(a) if a.is_power_of_two() && (8..=65536).contains(&a) => Ok(a),
        Some(a) => Err(meta.invalid(format!("general.alignment is {a}, expected a power of two between 8 and 65536"))),
    }
}

fn read_value(c: &mut Cursor<'_>, key: &str) -> Result<Value> {
    let what = || format!("the value of key {}", show_text(key));
    let id = c.u32(&|| format!("the type of key {}", show_text(key)))?;
    Ok(match id {
        0 => Value::U8(c.u8(&what)?),
        1 => Value::I8(c.u8(&what)?.cast_signed()),
        2 => Value::U16(c.u16(&what)?),
        3 => Value::I16(c.u16(&what)?.cast_signed()),
        4 => Value::U32(c.u32(&what)?),
        5 => Value::I32(c.u32(&what)?.cast_signed()),
        6 => Value::F32(f32::from_bits(c.u32(&what)?)),
        7 => Value::Bool(truth(c.u8(&what)?).ok_or_else(|| c.invalid(not_bool(key)))?),
        8 => Value::String(c.string(&what)?.to_string()),
        9 => Value::Array(read_array(c, key, 0)?),
        10 => Value::U64(c.u64(&what)?),
        11 => Value::I64(c.u64(&what)?.cast_signed()),
        12 => Value::F64(f64::from_bits(c.u64(&what)?)),
        _ => return Err(c.invalid(unknown_type(key, id))),
    })
}

fn read_array(c: &mut Cursor<'_>, key: &str, depth: usize) -> Result<ArrayValue> {
    let what = || format!("the array of key {}", show_text(key));
    let id = c.u32(&what)?;
    let count = c.u64(&what)?;
    let mut raw = |size: u64| {
        c.expect(count, size, &what)?;
        c.take(count.saturating_mul(size), &what)
    };
    Ok(match id {
        0 => ArrayValue::U8(raw(1)?.to_vec()),
        1 => ArrayValue::I8(raw(1)?.iter().map(|b| b.cast_signed()).collect()),
        2 => ArrayValue::U16(numbers(raw(2)?, u16::from_le_bytes)),
        3 => ArrayValue::I16(numbers(raw(2)?, i16::from_le_bytes)),
        4 => ArrayValue::U32(numbers(raw(4)?, u32::from_le_bytes)),
        5 => ArrayValue::I32(numbers(raw(4)?, i32::from_le_bytes)),
        6 => ArrayValue::F32(numbers(raw(4)?, f32::from_le_bytes)),
        7 => {
            let values: Option<Vec<bool>> = raw(1)?.iter().map(|&b| truth(b)).collect();
            ArrayValue::Bool(values.ok_or_else(|| c.invalid(not_bool(key)))?)
        }
        8 => {
            c.expect(count, 8, &what)?;
            let mut out = Vec::with_capacity(first_capacity(count));
            for i in 0..count {
                out.push(c.string(&|| format!("element {i} of key {}", show_text(key)))?.to_string());
            }
            ArrayValue::String(out)
        }
        9 => {
            if depth + 1 >= MAX_DEPTH {
                return Err(c.invalid(format!("key {} nests arrays deeper than {MAX_DEPTH}", show_text(key))));
            }
            c.expect(count, 12, &what)?;
            let mut out = Vec::with_capacity(first_capacity(count));
            for _ in 0..count {
                out.push(read_array(c, key, depth + 1)?);
            }
            ArrayValue::Array(out)
        }
        10 => ArrayValue::U64(numbers(raw(8)?, u64::from_le_bytes)),
        11 => ArrayValue::I64(numbers(raw(8)?, i64::from_le_bytes)),
        12 => ArrayValue::F64(numbers(raw(8)?, f64::from_le_bytes)),
        _ => return Err(c.invalid(unknown_type(key, id))),
    })
}

/// Elements to reserve at once: an element takes more memory than file, so long arrays grow as they are read.
fn first_capacity(count: u64) -> usize {
    count.min(1 << 16) as usize
}

fn numbers<T, const N: usize>(bytes: &[u8], from: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|b| from(*b)).collect()
}

fn truth(byte: u8) -> Option<bool> {
    match byte {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn not_bool(key: &str) -> String {
    format!("key {} holds a bool that is neither 0 nor 1: the header is damaged", show_text(key))
}

fn unknown_type(key: &str, id: u32) -> String {
    format!("key {} has unknown value type {id}: the header is damaged or its counts are wrong", show_text(key))
}

fn read_tensor(c: &mut Cursor<'_>, index: u64, count: u64, alignment: u64) -> Result<TensorInfo> {
    let name = c.name(&|| format!("the name of tensor {} of {count}", index + 1))?;
    let shown = show_text(name);
    let what = || format!("the entry of tensor {shown}");
    let rank = c.u32(&what)?;
    if !(1..=4).contains(&rank) {
        return Err(c.invalid(wrong_rank(&shown, u64::from(rank))));
    }
    let mut dims = Vec::with_capacity(4);
    for _ in 0..rank {
        dims.push(c.u64(&what)?);
    }
    let id = c.u32(&what)?;
    let offset = c.u64(&what)?;
    let Some(ty) = GgmlType::from_id(id) else {
        return Err(c.invalid(foreign::unknown_tensor_type(&shown, id)));
    };
    let (row_bytes, bytes) = check_shape(name, &dims, ty).map_err(|what| c.invalid(what))?;
    if !offset.is_multiple_of(alignment) {
        return Err(c.invalid(format!(
            "tensor {shown} has offset {offset}, not a multiple of the alignment {alignment}: the header is damaged"
        )));
    }
    Ok(TensorInfo { name: name.into(), dims, ty, row_bytes, bytes, offset })
}

fn wrong_rank(shown: &str, rank: u64) -> String {
    format!("tensor {shown} has {rank} dimensions, expected 1 to 4: the header is damaged or its counts are wrong")
}

/// Bytes of a row and of the whole tensor; an error when the type cannot hold rows of this length or a size overflows.
pub(crate) fn check_shape(name: &str, dims: &[u64], ty: GgmlType) -> Result<(u64, u64), String> {
    let shown = show_text(name);
    let Some((&row_len, others)) = dims.split_first().filter(|_| dims.len() <= 4) else {
        return Err(wrong_rank(&shown, dims.len() as u64));
    };
    if dims.contains(&0) {
        return Err(format!("tensor {shown} has a dimension of 0: {dims:?}"));
    }
    if !row_len.is_multiple_of(ty.block_values() as u64) {
        return Err(format!(
            "tensor {shown} has rows of {row_len} values, which type {ty} cannot hold: its blocks are of {} values",
            ty.block_values()
        ));
    }
    let rows = others.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
    let elements = rows.and_then(|n| n.checked_mul(row_len));
    let row_bytes = ty.row_bytes(row_len);
    let bytes = row_bytes.zip(rows).and_then(|(row, n)| row.checked_mul(n));
    match (elements, row_bytes, bytes) {
        (Some(_), Some(row_bytes), Some(bytes)) => Ok((row_bytes, bytes)),
        _ => Err(format!("tensor {shown} has dimensions {dims:?}, whose product overflows")),
    }
}
