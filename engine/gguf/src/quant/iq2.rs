//! IQ2_XXS, IQ2_XS and IQ2_S: groups of eight values, each a row of a code book of magnitudes and eight signs.
//!
//! A block has 32 groups in eight sub-blocks of four. Scales are 4-bit numbers `s`; they multiply by `d * (s + 0.5) /
//! 4`.

use super::tables::{IQ2S_GRID, IQ2XS_GRID, IQ2XXS_GRID, KSIGNS};
use super::{dword, field, nibble, scale, word};

/// `d (2), words (64)`. A sub-block is two 32-bit words: four row numbers, one a byte; then four times seven signs and,
/// in the upper four bits, its scale.
pub(super) fn iq2_xxs(block: &[u8; 66], y: &mut [f32; 256]) {
    let d = scale::<0, _>(block);
    let words = field::<2, 64, _>(block);
    for (sub, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let rows = dword(words, 2 * sub).to_le_bytes();
        let signs = dword(words, 2 * sub + 1);
        let factor = factor(d, (signs >> 28) as u8);
        for (group, y) in y.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let signs = KSIGNS[((signs >> (7 * group)) & 127) as usize];
            signed(y, factor, IQ2XXS_GRID[usize::from(rows[group])], signs);
        }
    }
}

/// `d (2), words (64), scales (8)`. A group is a 16-bit word: nine bits of row number, then seven signs. Two groups
/// share a scale.
pub(super) fn iq2_xs(block: &[u8; 74], y: &mut [f32; 256]) {
    let d = scale::<0, _>(block);
    let words = field::<2, 64, _>(block);
    let scales = field::<66, 8, _>(block);
    for (group, y) in y.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let word = word(words, group);
        let factor = factor(d, nibble(scales, group / 2));
        signed(y, factor, IQ2XS_GRID[usize::from(word & 511)], KSIGNS[usize::from(word >> 9)]);
    }
}

/// `d (2), rows (32), signs (32), high row bits (8), scales (8)`. A sub-block's byte of high bits has two for each of
/// its groups. Two groups share a scale.
pub(super) fn iq2_s(block: &[u8; 82], y: &mut [f32; 256]) {
    let d = scale::<0, _>(block);
    let rows = field::<2, 32, _>(block);
    let signs = field::<34, 32, _>(block);
    let high = field::<66, 8, _>(block);
    let scales = field::<74, 8, _>(block);
    for (group, y) in y.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let row = usize::from(rows[group]) | (usize::from(high[group / 4] >> (2 * (group % 4))) & 3) << 8;
        signed(y, factor(d, nibble(scales, group / 2)), IQ2S_GRID[row], signs[group]);
    }
}

fn factor(d: f32, scale: u8) -> f32 {
    d * ((f32::from(scale) + 0.5) * 0.25)
}

/// A row of magnitudes with its signs: bit `j` set makes value `j` negative.
fn signed(y: &mut [f32; 8], factor: f32, row: u64, signs: u8) {
    let row = row.to_le_bytes();
    for j in 0..8 {
        let magnitude = f32::from(row[j]);
        y[j] = factor * if (signs >> j) & 1 == 1 { -magnitude } else { magnitude };
    }
}
