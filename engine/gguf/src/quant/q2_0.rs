//! Q2_0: 64 values of the four levels -1, 0, 1 and 2 under one scale.

use super::{field, scale};

/// `d (2), codes (16)`: `d * (code - 1)`. A byte holds four consecutive values, the first in its lowest bits.
pub(super) fn q2_0(block: &[u8; 18], y: &mut [f32; 64]) {
    let d = scale::<0, _>(block);
    let codes = field::<2, 16, _>(block);
    for (code, y) in codes.iter().zip(y.as_chunks_mut::<4>().0) {
        for i in 0..4 {
            y[i] = d * (f32::from((code >> (2 * i)) & 3) - 1.0);
        }
    }
}
