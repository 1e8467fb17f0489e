//! Block types: what the bytes of a tensor mean as numbers.
//!
//! A quantised tensor is a row of *blocks*. A block holds a fixed count of consecutive values (1, 32, 64 or 256) in a
//! fixed count of bytes: small integer codes, and the scales that turn codes back into numbers. [`GgmlType`] knows the
//! sizes; this module knows the contents. Layouts are those of the `block_*` structures in ggml's `ggml-common.h`, and
//! the arithmetic is that of its `dequantize_row_*` functions in `ggml-quants.c` and, for 8-bit scales, `ggml-impl.h`.
//! All integers and floats are little-endian.
//!
//! There is one scalar decoder for each type. It is the definition that every faster kernel is compared with, so it
//! favours being read over being quick, and it computes the same bits on every machine. That is less work than it
//! sounds: scales are f16 or powers of two, codes are a few bits wide, and the product of all factors of a value fits
//! into the 24 bits of an f32 significand. A decoded value is therefore an exact product, and for the types with an
//! offset (Q4_1, Q5_1, Q2_K, Q4_K, Q5_K) an exact product plus an exact offset, rounded once. No order of operations
//! and no fused multiply-add can change it. The only exceptions are products beyond the range of f32, which MXFP4
//! scales can reach; they become infinities.
//!
//! Bytes are not trusted. Any bytes decode to some values; a scale that is NaN or infinite gives values that are not
//! finite, and [`nonfinite_blocks`] counts the blocks in which that happens.
//!
//! [`encode`] goes the other way for the types that the engine itself writes: small models made for tests, and copies
//! of tensors in another precision. It is no replacement for a quantiser that weighs errors by importance.

use std::fmt;

use crate::GgmlType;

mod encode;
mod float;
mod fp4;
mod iq1;
mod iq2;
mod iq3;
mod iq4;
mod k;
mod legacy;
mod q2_0;
pub mod tables;

pub use encode::{EncodeError, can_encode, encode};

/// The bytes given do not hold the number of values asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeMismatch {
    /// The block type.
    pub ty: GgmlType,
    /// Bytes given.
    pub bytes: usize,
    /// Values asked for.
    pub values: usize,
}

impl fmt::Display for SizeMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SizeMismatch { ty, bytes, values } = *self;
        let block = ty.block_bytes();
        if bytes.is_multiple_of(block) {
            write!(f, "{bytes} bytes of {ty} hold {} values, not {values}", held(ty, bytes))
        } else {
            write!(f, "{bytes} bytes are not a whole number of {ty} blocks, which have {block} bytes each")
        }
    }
}

impl std::error::Error for SizeMismatch {}

/// Values in the whole blocks of `bytes`.
fn held(ty: GgmlType, bytes: usize) -> usize {
    (bytes / ty.block_bytes()).saturating_mul(ty.block_values())
}

/// Decodes whole blocks to f32.
///
/// `out` must have exactly the number of values that `blocks` holds, else nothing is written and the error says how
/// the sizes disagree. Never panics, whatever the bytes.
pub fn decode(ty: GgmlType, blocks: &[u8], out: &mut [f32]) -> Result<(), SizeMismatch> {
    if !blocks.len().is_multiple_of(ty.block_bytes()) || held(ty, blocks.len()) != out.len() {
        return Err(SizeMismatch { ty, bytes: blocks.len(), values: out.len() });
    }
    match ty {
        GgmlType::F32 => each(blocks, out, float::f32),
        GgmlType::F16 => each(blocks, out, float::f16),
        GgmlType::BF16 => each(blocks, out, float::bf16),
        GgmlType::Q4_0 => each(blocks, out, legacy::q4_0),
        GgmlType::Q4_1 => each(blocks, out, legacy::q4_1),
        GgmlType::Q5_0 => each(blocks, out, legacy::q5_0),
        GgmlType::Q5_1 => each(blocks, out, legacy::q5_1),
        GgmlType::Q8_0 => each(blocks, out, legacy::q8_0),
        GgmlType::Q2_K => each(blocks, out, k::q2_k),
        GgmlType::Q3_K => each(blocks, out, k::q3_k),
        GgmlType::Q4_K => each(blocks, out, k::q4_k),
        GgmlType::Q5_K => each(blocks, out, k::q5_k),
        GgmlType::Q6_K => each(blocks, out, k::q6_k),
        GgmlType::IQ2_XXS => each(blocks, out, iq2::iq2_xxs),
        GgmlType::IQ2_XS => each(blocks, out, iq2::iq2_xs),
        GgmlType::IQ2_S => each(blocks, out, iq2::iq2_s),
        GgmlType::IQ3_XXS => each(blocks, out, iq3::iq3_xxs),
        GgmlType::IQ3_S => each(blocks, out, iq3::iq3_s),
        GgmlType::IQ1_S => each(blocks, out, iq1::iq1_s),
        GgmlType::IQ1_M => each(blocks, out, iq1::iq1_m),
        GgmlType::IQ4_NL => each(blocks, out, iq4::iq4_nl),
        GgmlType::IQ4_XS => each(blocks, out, iq4::iq4_xs),
        GgmlType::Q2_0 => each(blocks, out, q2_0::q2_0),
        GgmlType::MXFP4 => each(blocks, out, fp4::mxfp4),
        GgmlType::NVFP4 => each(blocks, out, fp4::nvfp4),
    }
    Ok(())
}

/// Counts the blocks that decode to at least one NaN or infinity.
///
/// For F32, F16 and BF16 a block is one value. Fails when `blocks` is not a whole number of blocks. Runs on the calling
/// thread at the speed of the decoder; split the tensor at block boundaries to use more.
pub fn nonfinite_blocks(ty: GgmlType, blocks: &[u8]) -> Result<usize, SizeMismatch> {
    if !blocks.len().is_multiple_of(ty.block_bytes()) {
        return Err(SizeMismatch { ty, bytes: blocks.len(), values: held(ty, blocks.len()) });
    }
    const BATCH: usize = 256;
    let mut values = [0.0; BATCH];
    let per_batch = BATCH / ty.block_values();
    let mut count = 0;
    for batch in blocks.chunks(per_batch * ty.block_bytes()) {
        let values = &mut values[..held(ty, batch.len())];
        decode(ty, batch, values)?;
        if has_nonfinite(values) {
            count += values.chunks(ty.block_values()).filter(|block| has_nonfinite(block)).count();
        }
    }
    Ok(count)
}

/// Looks at every value instead of stopping at the first hit, which lets the compiler use vector instructions.
fn has_nonfinite(values: &[f32]) -> bool {
    const INFINITY: u32 = 0x7f80_0000;
    values.iter().fold(0, |most, x| most.max(x.to_bits() & !(1 << 31))) >= INFINITY
}

/// Applies a block's decoder to every block. Fixed-size arrays on both sides let it be unrolled without bounds checks.
fn each<const B: usize, const N: usize>(blocks: &[u8], out: &mut [f32], decode: impl Fn(&[u8; B], &mut [f32; N])) {
    let (blocks, _) = blocks.as_chunks();
    let (values, _) = out.as_chunks_mut();
    for (block, y) in blocks.iter().zip(values) {
        decode(block, y);
    }
}

/// `N` bytes of a block, `AT` bytes from its start. Does not compile when they are not inside the block.
fn field<const AT: usize, const N: usize, const B: usize>(block: &[u8; B]) -> &[u8; N] {
    const { assert!(N > 0 && AT + N <= B) };
    &block[AT..AT + N].as_chunks().0[0]
}

/// The f16 scale that is stored `AT` bytes from the start of a block.
fn scale<const AT: usize, const B: usize>(block: &[u8; B]) -> f32 {
    float::half(u16::from_le_bytes(*field::<AT, 2, B>(block)))
}

/// Word `i` of bytes that hold 16-bit integers.
fn word<const B: usize>(bytes: &[u8; B], i: usize) -> u16 {
    u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]])
}

/// Word `i` of bytes that hold 32-bit integers.
fn dword<const B: usize>(bytes: &[u8; B], i: usize) -> u32 {
    u32::from_le_bytes([bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]])
}

/// Nibble `i` of bytes that hold two each, the low one first.
fn nibble<const B: usize>(bytes: &[u8; B], i: usize) -> u8 {
    (bytes[i / 2] >> (4 * (i % 2))) & 15
}
