//! IQ4_NL and IQ4_XS: 4-bit codes of sixteen unevenly spaced values.
//!
//! In 32 values, the low nibbles of the 16 code bytes are values 0..16, the high nibbles values 16..32.

use super::tables::KVALUES_IQ4NL;
use super::{field, nibble, scale, word};

/// `d (2), codes (16)`.
pub(super) fn iq4_nl(block: &[u8; 18], y: &mut [f32; 32]) {
    values(y, scale::<0, _>(block), field::<2, 16, _>(block));
}

/// `d (2), high scale bits (2), low scale nibbles (4), codes (128)`. Each 32 values have a 6-bit scale `s`: nibble and
/// bit pair of the same number; it multiplies by `d * (s - 32)`.
pub(super) fn iq4_xs(block: &[u8; 136], y: &mut [f32; 256]) {
    let d = scale::<0, _>(block);
    let high = word(field::<2, 2, _>(block), 0);
    let low = field::<4, 4, _>(block);
    let codes = field::<8, 128, _>(block).as_chunks::<16>().0;
    for (sub, (y, codes)) in y.as_chunks_mut::<32>().0.iter_mut().zip(codes).enumerate() {
        let bits = u16::from(nibble(low, sub)) | ((high >> (2 * sub)) & 3) << 4;
        values(y, d * (f32::from(bits) - 32.0), codes);
    }
}

fn values(y: &mut [f32; 32], factor: f32, codes: &[u8; 16]) {
    for i in 0..16 {
        y[i] = factor * f32::from(KVALUES_IQ4NL[usize::from(codes[i] & 15)]);
        y[i + 16] = factor * f32::from(KVALUES_IQ4NL[usize::from(codes[i] >> 4)]);
    }
}
