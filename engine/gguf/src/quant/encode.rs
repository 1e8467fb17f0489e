//! Encoders: F32, F16 and BF16 by rounding, Q8_0, Q4_0 and Q2_0 with one scale for a block.

use crate::GgmlType;

/// Why values were not encoded.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The engine reads this type but does not write it; see [`can_encode`].
    #[error("there is no encoder for {ty}")]
    Unsupported {
        /// The type asked for.
        ty: GgmlType,
    },
    /// The values do not fill whole blocks.
    #[error(
        "{values} values are not a whole number of {ty} blocks, which have {block} values each",
        block = ty.block_values()
    )]
    PartialBlock {
        /// The type asked for.
        ty: GgmlType,
        /// Values given.
        values: usize,
    },
    /// A value is NaN, infinite, or so large that its block's scale is beyond the largest f16, 65504.
    #[error("value {index} is {value}, which {ty} cannot hold")]
    OutOfRange {
        /// The type asked for.
        ty: GgmlType,
        /// Where the value is, from 0.
        index: usize,
        /// The value.
        value: f32,
    },
}

/// Whether [`encode`] writes this type.
pub fn can_encode(ty: GgmlType) -> bool {
    encoder(ty).is_some()
}

/// Encodes values as blocks.
///
/// - **F32** keeps every bit. **F16** and **BF16** round to nearest, ties to even, as `ggml_compute_fp32_to_fp16` and
///   `ggml_compute_fp32_to_bf16` do: NaN stays NaN and becomes quiet, what is too large becomes an infinity.
/// - **Q8_0** (ggml: `quantize_row_q8_0_ref`): `d` is the largest magnitude over 127, a code is the value over `d`,
///   rounded half away from zero. The scale is stored as f16, but codes are made with the unrounded one.
/// - **Q4_0** (ggml: `quantize_row_q4_0_ref`): `d` is the value of largest magnitude (the first, on ties) over -8, so
///   that this value gets code 0; a code is `min(15, floor(x / d + 8.5))`. Again codes are made with the unrounded `d`.
/// - **Q2_0**: the best of 32 scales by squared error, see the comment on its encoder. It is ours; files need not match
///   those of another program.
///
/// Fails for a type without an encoder, for values that do not fill whole blocks, and, in Q8_0, Q4_0 and Q2_0, for
/// values that are not finite or too large for an f16 scale.
pub fn encode(ty: GgmlType, values: &[f32]) -> Result<Vec<u8>, EncodeError> {
    let encoder = encoder(ty).ok_or(EncodeError::Unsupported { ty })?;
    if !values.len().is_multiple_of(ty.block_values()) {
        return Err(EncodeError::PartialBlock { ty, values: values.len() });
    }
    if let Some(limit) = encoder.limit {
        let beyond = |x: &f32| x.is_nan() || x.abs() >= limit;
        if let Some(index) = values.iter().position(beyond) {
            return Err(EncodeError::OutOfRange { ty, index, value: values[index] });
        }
    }
    let mut blocks = vec![0; values.len() / ty.block_values() * ty.block_bytes()];
    (encoder.run)(values, &mut blocks);
    Ok(blocks)
}

struct Encoder {
    /// Magnitudes must be below it; `None` where every float has a representation.
    limit: Option<f32>,
    run: Run,
}

/// Encodes whole blocks of values into as many whole blocks of bytes.
type Run = fn(&[f32], &mut [u8]);

/// What lies below rounds to at most 65504, the largest f16; from here on it rounds to infinity.
const F16_LIMIT: f32 = 65520.0;

fn encoder(ty: GgmlType) -> Option<Encoder> {
    let (limit, run): (_, Run) = match ty {
        GgmlType::F32 => (None, |x, out| each_block(x, out, |x: &[f32; 1], out| *out = x[0].to_le_bytes())),
        GgmlType::F16 => {
            (None, |x, out| each_block(x, out, |x: &[f32; 1], out| *out = half::f16::from_f32(x[0]).to_le_bytes()))
        }
        GgmlType::BF16 => {
            (None, |x, out| each_block(x, out, |x: &[f32; 1], out| *out = half::bf16::from_f32(x[0]).to_le_bytes()))
        }
        GgmlType::Q8_0 => (Some(127.0 * F16_LIMIT), |x, out| each_block(x, out, q8_0)),
        GgmlType::Q4_0 => (Some(8.0 * F16_LIMIT), |x, out| each_block(x, out, q4_0)),
        GgmlType::Q2_0 => (Some(2.0 * F16_LIMIT), |x, out| each_block(x, out, q2_0)),
        _ => return None,
    };
    Some(Encoder { limit, run })
}

fn q8_0(x: &[f32; 32], block: &mut [u8; 34]) {
    let most = x.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
    let d = most / 127.0;
    let inverse = inverse(d);
    block[..2].copy_from_slice(&half::f16::from_f32(d).to_le_bytes());
    for i in 0..32 {
        block[2 + i] = ((x[i] * inverse).round() as i8).cast_unsigned();
    }
}

fn q4_0(x: &[f32; 32], block: &mut [u8; 18]) {
    let most = x.iter().fold(0.0, |most: f32, x| if x.abs() > most.abs() { *x } else { most });
    let d = most / -8.0;
    let inverse = inverse(d);
    block[..2].copy_from_slice(&half::f16::from_f32(d).to_le_bytes());
    // The cast drops the fraction; no sum is below 0.5.
    let code = |x: f32| ((x * inverse + 8.5) as u8).min(15);
    for i in 0..16 {
        block[2 + i] = code(x[i]) | code(x[i + 16]) << 4;
    }
}

/// `1 / d`, or 0 where that is not finite: such a `d` is 0 as an f16, and any code stands for zero.
fn inverse(d: f32) -> f32 {
    let inverse = 1.0 / d;
    if inverse.is_finite() { inverse } else { 0.0 }
}

/// With four levels a scale that covers the largest value is seldom the best: clipping one value can halve the error of
/// all others. Levels are not symmetric either, so the sign of `d` matters. Tried are both signs of 8 eighths of the
/// largest magnitude, and for each of these also the least-squares scale for the codes that it gives:
/// `sum(level * x) / sum(level^2)`. All are rounded to f16 before codes are chosen and errors summed, and the first of
/// the best is kept. A block that this type can hold exactly is found, since its scale is the whole or half of its
/// largest magnitude.
fn q2_0(x: &[f32; 64], block: &mut [u8; 18]) {
    let most = x.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
    let mut best = Scaled::new(x, 0.0);
    for eighths in 1..=8 {
        for sign in [1.0, -1.0] {
            let tried = Scaled::new(x, sign * most * eighths as f32 / 8.0);
            let fitted = Scaled::new(x, tried.least_squares(x));
            for candidate in [tried, fitted] {
                if candidate.error < best.error {
                    best = candidate;
                }
            }
        }
    }
    block[..2].copy_from_slice(&best.d.to_le_bytes());
    for (byte, levels) in block[2..].iter_mut().zip(best.levels.as_chunks::<4>().0) {
        *byte = (0..4).fold(0, |byte, i| byte | (levels[i] + 1).cast_unsigned() << (2 * i));
    }
}

/// Values as levels under one scale.
struct Scaled {
    d: half::f16,
    /// From -1 to 2.
    levels: [i8; 64],
    /// Sum of squares; infinite when the scale is, so that such a scale is never the best.
    error: f64,
}

impl Scaled {
    fn new(x: &[f32; 64], d: f32) -> Scaled {
        let d = half::f16::from_f32(d);
        let scale = d.to_f32();
        if !scale.is_finite() {
            return Scaled { d, levels: [0; 64], error: f64::INFINITY };
        }
        let inverse = inverse(scale);
        let levels = x.map(|x| (x * inverse).round().clamp(-1.0, 2.0) as i8);
        let error = x.iter().zip(levels).map(|(x, level)| f64::from(x - scale * f32::from(level)).powi(2)).sum();
        Scaled { d, levels, error }
    }

    /// The scale with the least squared error for these levels; 0 when all levels are.
    fn least_squares(&self, x: &[f32; 64]) -> f32 {
        let (mut product, mut square) = (0.0, 0.0);
        for (x, level) in x.iter().zip(self.levels) {
            product += f64::from(level) * f64::from(*x);
            square += f64::from(level).powi(2);
        }
        if square > 0.0 { (product / square) as f32 } else { 0.0 }
    }
}

fn each_block<const N: usize, const B: usize>(
    values: &[f32],
    out: &mut [u8],
    encode: impl Fn(&[f32; N], &mut [u8; B]),
) {
    for (x, block) in values.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
        encode(x, block);
    }
}
