//! Activations in the order in which vector kernels meet the weights.
//!
//! Packed formats put neighbouring values into different bits of one byte, so that taking bytes apart yields values that
//! are far apart in the row. Instead of moving weights back into order for every row, the activations are moved once.
//! Integer sums do not depend on their order, so neither do results.

use crate::activations::{Row, SHORT_BLOCK, SUM};
use crate::product::PARTIALS;

/// Values of a chunk: eight units of 32.
const VALUES: usize = SHORT_BLOCK * PARTIALS;

/// An order of the values and units of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// For units whose 16 bytes hold values 0 to 15 in the low nibbles and 16 to 31 in the high ones: the first halves
    /// of units 0 to 3, their second halves, then the same of units 4 to 7.
    Halves,
    /// For blocks of two units whose bytes hold four values each: the first value of every byte of four blocks, then the
    /// second of every byte, and so on.
    Planes,
}

impl Order {
    /// Which unit each lane of a vector of eight sums belongs to, as adding neighbours in pairs leaves them.
    pub(crate) const fn lanes(self) -> [usize; PARTIALS] {
        match self {
            Order::Halves => [0, 2, 4, 6, 1, 3, 5, 7],
            Order::Planes => [0, 1, 4, 5, 2, 3, 6, 7],
        }
    }

    /// Where value `i` of a chunk goes.
    const fn place(self, i: usize) -> usize {
        match self {
            Order::Halves => {
                let (unit, half) = (i / 32, i / 16 % 2);
                unit / 4 * 128 + half * 64 + unit % 4 * 16 + i % 16
            }
            Order::Planes => i % 4 * 64 + i / 4,
        }
    }
}

/// The activations of eight units of 32 values. Units beyond the end of a row are zeros.
#[derive(Debug, Clone, PartialEq)]
#[repr(C, align(64))]
pub(crate) struct Chunk {
    pub(crate) values: [i8; VALUES],
    /// Scales, in lane order.
    pub(crate) scales: [f32; PARTIALS],
    /// Sums of each unit's values, in lane order.
    pub(crate) sums: [i32; PARTIALS],
}

impl Chunk {
    const ZERO: Chunk = Chunk { values: [0; VALUES], scales: [0.0; PARTIALS], sums: [0; PARTIALS] };
}

/// Appends the chunks of a row.
pub(crate) fn arrange(order: Order, row: Row<'_>, out: &mut Vec<Chunk>) {
    let (units, sums) = (row.values.as_chunks::<SHORT_BLOCK>().0, row.sums.as_chunks::<{ SHORT_BLOCK / SUM }>().0);
    for (c, values) in units.chunks(PARTIALS).enumerate() {
        let mut chunk = Chunk::ZERO;
        match order {
            Order::Halves => {
                for (u, unit) in values.iter().enumerate() {
                    for (half, values) in unit.as_chunks::<16>().0.iter().enumerate() {
                        let at = order.place(32 * u + 16 * half);
                        chunk.values[at..at + 16].copy_from_slice(values);
                    }
                }
            }
            Order::Planes => {
                for (i, bytes) in values.as_flattened().as_chunks::<4>().0.iter().enumerate() {
                    for (plane, &value) in bytes.iter().enumerate() {
                        chunk.values[order.place(4 * i + plane)] = value;
                    }
                }
            }
        }
        for (lane, unit) in order.lanes().into_iter().enumerate().filter(|&(_, u)| u < values.len()) {
            chunk.scales[lane] = row.scales[c * PARTIALS + unit];
            chunk.sums[lane] = sums[c * PARTIALS + unit].iter().map(|&s| i32::from(s)).sum();
        }
        out.push(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_a_place_of_its_own() {
        for order in [Order::Halves, Order::Planes] {
            let mut places: Vec<_> = (0..VALUES).map(|i| order.place(i)).collect();
            places.sort_unstable();
            assert!(places.into_iter().eq(0..VALUES), "{order:?}");
        }
    }

    #[test]
    fn scales_and_sums_follow_their_units() {
        let values: Vec<i8> = (0..10 * 32).map(|i| (i / 32) as i8).collect();
        let scales: Vec<f32> = (0..10).map(|u| u as f32).collect();
        let sums: Vec<i16> = (0..20).map(|g| 16 * (g / 2)).collect();
        for order in [Order::Halves, Order::Planes] {
            let mut chunks = Vec::new();
            arrange(order, Row { values: &values, scales: &scales, sums: &sums }, &mut chunks);
            assert_eq!(chunks.len(), 2);
            for (lane, unit) in order.lanes().into_iter().enumerate() {
                assert_eq!((chunks[0].scales[lane], chunks[0].sums[lane]), (unit as f32, 32 * unit as i32));
                let beyond = if unit < 2 { (8 + unit) as f32 } else { 0.0 };
                assert_eq!((chunks[1].scales[lane], chunks[1].sums[lane]), (beyond, 32 * beyond as i32));
            }
            for (i, &v) in values[..VALUES].iter().enumerate() {
                assert_eq!(chunks[0].values[order.place(i)], v);
            }
        }
    }
}
