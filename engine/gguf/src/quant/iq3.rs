//! IQ3_XXS and IQ3_S: groups of eight values, each two rows of four magnitudes of a code book and eight signs.
//!
//! A block has 32 groups in eight sub-blocks of four, and so 64 row numbers.

use super::tables::{IQ3S_GRID, IQ3XXS_GRID, KSIGNS};
use super::{dword, field, nibble, scale};

/// `d (2), rows (64), signs and scales (32)`. A sub-block has a 32-bit word: four times seven signs, then a 4-bit scale
/// `s` that multiplies by `d * (s + 0.5) / 2`.
pub(super) fn iq3_xxs(block: &[u8; 98], y: &mut [f32; 256]) {
    let d = scale::<0, _>(block);
    let rows = field::<2, 64, _>(block);
    let words = field::<66, 32, _>(block);
    for (group, y) in y.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let word = dword(words, group / 4);
        let factor = d * (((word >> 28) as f32 + 0.5) * 0.5);
        let signs = KSIGNS[((word >> (7 * (group % 4))) & 127) as usize];
        let row = |entry: usize| IQ3XXS_GRID[usize::from(rows[entry])];
        signed(y, factor, [row(2 * group), row(2 * group + 1)], signs);
    }
}

/// `d (2), rows (64), ninth row bits (8), signs (32), scales (4)`. A sub-block has a byte of ninth bits, one for each
/// of its eight rows, and a 4-bit scale `s` that multiplies by `d * (2 s + 1)`.
pub(super) fn iq3_s(block: &[u8; 110], y: &mut [f32; 256]) {
    let d = scale::<0, _>(block);
    let rows = field::<2, 64, _>(block);
    let ninth = field::<66, 8, _>(block);
    let signs = field::<74, 32, _>(block);
    let scales = field::<106, 4, _>(block);
    for (group, y) in y.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let sub = group / 4;
        let factor = d * f32::from(2 * nibble(scales, sub) + 1);
        let row =
            |entry: usize| IQ3S_GRID[usize::from(rows[entry]) | ((usize::from(ninth[sub]) >> (entry % 8)) & 1) << 8];
        signed(y, factor, [row(2 * group), row(2 * group + 1)], signs[group]);
    }
}

/// Two rows of magnitudes with their signs: bit `j` set makes value `j` negative.
fn signed(y: &mut [f32; 8], factor: f32, rows: [u32; 2], signs: u8) {
    let rows = rows.map(u32::to_le_bytes);
    for j in 0..8 {
        let magnitude = f32::from(rows[j / 4][j % 4]);
        y[j] = factor * if (signs >> j) & 1 == 1 { -magnitude } else { magnitude };
    }
}
