//! IQ1_S and IQ1_M: groups of eight values, each a row of -1, 0 and 1, moved up or down by an eighth.
//!
//! A block has 32 groups. Scales are 3-bit numbers `s`; they multiply by `d * (2 s + 1)`.

use super::float::half;
use super::tables::IQ1S_GRID;
use super::{field, nibble, scale, word};

/// `IQ1S_DELTA` and `IQ1M_DELTA` of `ggml-common.h`.
const DELTA: f32 = 0.125;

/// `d (2), rows (32), words (16)`. A sub-block of four groups has a 16-bit word: four times three high bits of a row
/// number, the scale in three bits, and whether its values move down.
pub(super) fn iq1_s(block: &[u8; 50], y: &mut [f32; 256]) {
    let d = scale::<0, _>(block);
    let rows = field::<2, 32, _>(block);
    let words = field::<34, 16, _>(block);
    for (group, y) in y.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let word = word(words, group / 4);
        let row = usize::from(rows[group]) | (usize::from(word >> (3 * (group % 4))) & 7) << 8;
        let factor = d * f32::from(2 * ((word >> 12) & 7) + 1);
        moved(y, factor, IQ1S_GRID[row], word & 0x8000 != 0);
    }
}

/// `rows (32), high bits (16), scales (8)`. A group has a nibble: three high bits of its row number, and whether its
/// values move down. The scales are four 16-bit words of four times three bits, one for each two groups; the upper
/// nibbles of the words, first word lowest, make up the f16 `d`.
pub(super) fn iq1_m(block: &[u8; 56], y: &mut [f32; 256]) {
    let rows = field::<0, 32, _>(block);
    let high = field::<32, 16, _>(block);
    let scales = field::<48, 8, _>(block);
    let d = half((0..4).fold(0, |d, i| d | (word(scales, i) >> 12) << (4 * i)));
    for (group, y) in y.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let high = nibble(high, group);
        let row = usize::from(rows[group]) | usize::from(high & 7) << 8;
        let pair = group / 2;
        let factor = d * f32::from(2 * ((word(scales, pair / 4) >> (3 * (pair % 4))) & 7) + 1);
        moved(y, factor, IQ1S_GRID[row], high & 8 != 0);
    }
}

fn moved(y: &mut [f32; 8], factor: f32, row: u64, down: bool) {
    let row = row.to_le_bytes();
    let delta = if down { -DELTA } else { DELTA };
    for j in 0..8 {
        y[j] = factor * (f32::from(row[j].cast_signed()) + delta);
    }
}
