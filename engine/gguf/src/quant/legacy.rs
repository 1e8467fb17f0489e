//! Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0: 32 values under one scale.
//!
//! The 4-bit codes of values 0..16 are the low nibbles of the 16 code bytes, those of values 16..32 the high nibbles.
//! Types ending in `_0` are centred on zero, types ending in `_1` start at a stored minimum.

use super::{dword, field, scale};

/// `d (2 bytes), codes (16)`: `d * (code - 8)`.
pub(super) fn q4_0(block: &[u8; 18], y: &mut [f32; 32]) {
    let d = scale::<0, _>(block);
    let codes = field::<2, 16, _>(block);
    for i in 0..16 {
        y[i] = d * (f32::from(codes[i] & 15) - 8.0);
        y[i + 16] = d * (f32::from(codes[i] >> 4) - 8.0);
    }
}

/// `d (2), minimum (2), codes (16)`: `d * code + minimum`.
pub(super) fn q4_1(block: &[u8; 20], y: &mut [f32; 32]) {
    let d = scale::<0, _>(block);
    let minimum = scale::<2, _>(block);
    let codes = field::<4, 16, _>(block);
    for i in 0..16 {
        y[i] = d * f32::from(codes[i] & 15) + minimum;
        y[i + 16] = d * f32::from(codes[i] >> 4) + minimum;
    }
}

/// `d (2), fifth bits (4), codes (16)`: `d * (code - 16)`.
pub(super) fn q5_0(block: &[u8; 22], y: &mut [f32; 32]) {
    let d = scale::<0, _>(block);
    let codes = five_bits(dword(field::<2, 4, _>(block), 0), field::<6, 16, _>(block));
    for i in 0..32 {
        y[i] = d * (f32::from(codes[i]) - 16.0);
    }
}

/// `d (2), minimum (2), fifth bits (4), codes (16)`: `d * code + minimum`.
pub(super) fn q5_1(block: &[u8; 24], y: &mut [f32; 32]) {
    let d = scale::<0, _>(block);
    let minimum = scale::<2, _>(block);
    let codes = five_bits(dword(field::<4, 4, _>(block), 0), field::<8, 16, _>(block));
    for i in 0..32 {
        y[i] = d * f32::from(codes[i]) + minimum;
    }
}

/// `d (2), codes (32, signed)`: `d * code`.
pub(super) fn q8_0(block: &[u8; 34], y: &mut [f32; 32]) {
    let d = scale::<0, _>(block);
    let codes = field::<2, 32, _>(block);
    for i in 0..32 {
        y[i] = d * f32::from(codes[i].cast_signed());
    }
}

/// Codes from nibbles and fifth bits; bit `i` of `fifth` belongs to value `i`.
fn five_bits(fifth: u32, nibbles: &[u8; 16]) -> [u8; 32] {
    let mut codes = [0; 32];
    for i in 0..16 {
        codes[i] = (nibbles[i] & 15) | (((fifth >> i) & 1) << 4) as u8;
        codes[i + 16] = (nibbles[i] >> 4) | (((fifth >> (i + 16)) & 1) << 4) as u8;
    }
    codes
}
