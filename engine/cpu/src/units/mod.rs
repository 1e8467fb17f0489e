//! Integer weights taken apart: the scalar definition of every quantised type.
//!
//! A row of weights is a sequence of *units*, runs of values under one floating-point scale `d`. Inside a unit each group
//! of 16 values has an integer scale `s` and, in types with an offset per group, an integer minimum `m` under a second
//! float `d_min`. A value is `d * s * level - d_min * m`. Types without integer scales have `s = 1`, `m = 0`.
//!
//! What a type's decoder expresses in floats is the same here in integers: where a format says `d * (s + 1/2) / 4`, the
//! integer scale is `2 s + 1` and the float scale `d / 8`, which is exact.

pub(crate) mod grid;
pub(crate) mod k;
pub(crate) mod small;

use strata_gguf::GgmlType;

/// Values of the longest unit.
pub(crate) const LONGEST: usize = 256;
/// Values that share integer scales.
pub(crate) const GROUP: usize = 16;

/// The scales of one unit. Its levels are kept apart.
#[derive(Debug, Clone)]
pub(crate) struct Scales {
    /// Integer scale of each group.
    pub(crate) scales: [i16; LONGEST / GROUP],
    /// Integer minimum of each group.
    pub(crate) mins: [i16; LONGEST / GROUP],
    /// Scale of the levels.
    pub(crate) d: f32,
    /// Scale of the minimums.
    pub(crate) d_min: f32,
}

impl Scales {
    /// What types without integer scales leave as it is.
    pub(crate) const PLAIN: Scales =
        Scales { scales: [1; LONGEST / GROUP], mins: [0; LONGEST / GROUP], d: 0.0, d_min: 0.0 };
}

/// How a type is cut into units.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    /// Values of a unit.
    pub(crate) values: usize,
    /// Units of a block.
    pub(crate) per_block: usize,
    /// Whether the type has minimums.
    pub(crate) mins: bool,
    unpack: fn(&[u8], usize, &mut [i8], &mut Scales),
}

impl Layout {
    /// Takes apart unit `u` of a row.
    #[inline(always)]
    pub(crate) fn unpack(self, ty: GgmlType, row: &[u8], u: usize, levels: &mut [i8], scales: &mut Scales) {
        let block = &row[u / self.per_block * ty.block_bytes()..][..ty.block_bytes()];
        (self.unpack)(block, u % self.per_block, &mut levels[..self.values], scales);
    }
}

/// How a type is cut into units; `None` for float types.
pub(crate) fn layout(ty: GgmlType) -> Option<Layout> {
    let plain = |values, unpack| Some(Layout { values, per_block: 1, mins: false, unpack });
    let with_mins = |values, unpack| Some(Layout { values, per_block: 1, mins: true, unpack });
    match ty {
        GgmlType::F32 | GgmlType::F16 | GgmlType::BF16 => None,
        GgmlType::Q8_0 => plain(32, small::q8_0),
        GgmlType::Q4_0 => plain(32, small::q4_0),
        GgmlType::Q4_1 => with_mins(32, small::q4_1),
        GgmlType::Q5_0 => plain(32, small::q5_0),
        GgmlType::Q5_1 => with_mins(32, small::q5_1),
        GgmlType::IQ4_NL => plain(32, small::iq4_nl),
        GgmlType::MXFP4 => plain(32, small::mxfp4),
        GgmlType::NVFP4 => Some(Layout { values: 16, per_block: 4, mins: false, unpack: small::nvfp4 }),
        GgmlType::Q2_0 => Some(Layout { values: 32, per_block: 2, mins: false, unpack: small::q2_0 }),
        GgmlType::Q2_K => with_mins(256, k::q2_k),
        GgmlType::Q3_K => plain(256, k::q3_k),
        GgmlType::Q4_K => with_mins(256, k::q4_k),
        GgmlType::Q5_K => with_mins(256, k::q5_k),
        GgmlType::Q6_K => plain(256, k::q6_k),
        GgmlType::IQ1_S => plain(256, grid::iq1_s),
        GgmlType::IQ1_M => plain(256, grid::iq1_m),
        GgmlType::IQ2_XXS => plain(256, grid::iq2_xxs),
        GgmlType::IQ2_XS => plain(256, grid::iq2_xs),
        GgmlType::IQ2_S => plain(256, grid::iq2_s),
        GgmlType::IQ3_XXS => plain(256, grid::iq3_xxs),
        GgmlType::IQ3_S => plain(256, grid::iq3_s),
        GgmlType::IQ4_XS => plain(256, small::iq4_xs),
    }
}

/// `N` bytes of a block from an offset on. Blocks have their type's size, so they are there; if not, zeros stand in.
#[inline(always)]
pub(crate) fn field<const N: usize>(block: &[u8], at: usize) -> &[u8; N] {
    block.get(at..).and_then(|rest| rest.first_chunk()).unwrap_or(&[0; N])
}

/// The little-endian half at a byte offset, as a float.
#[inline(always)]
pub(crate) fn half(block: &[u8], at: usize) -> f32 {
    crate::dot::f16_to_f32(u16::from_le_bytes(*field(block, at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use strata_gguf::quant;

    proptest! {
        /// The integers mean what the format's decoder says.
        #[test]
        fn units_are_the_decoded_values(bytes in prop::collection::vec(any::<u8>(), 256 * 2)) {
            for &ty in GgmlType::ALL {
                let Some(layout) = layout(ty) else { continue };
                let (mut levels, mut unit) = ([0i8; LONGEST], Scales::PLAIN);
                let block = &bytes[..ty.block_bytes()];
                let mut decoded = vec![0.0f32; ty.block_values()];
                quant::decode(ty, block, &mut decoded).unwrap();
                for (u, expected) in decoded.chunks(layout.values).enumerate() {
                    layout.unpack(ty, block, u, &mut levels, &mut unit);
                    for (i, &y) in expected.iter().enumerate() {
                        let (s, m) = (f64::from(unit.scales[i / GROUP]), f64::from(unit.mins[i / GROUP]));
                        let value = f64::from(unit.d) * s * f64::from(levels[i]) - f64::from(unit.d_min) * m;
                        let scale = f64::from(unit.d.abs()) * 4096.0 + f64::from(unit.d_min.abs()) * 64.0;
                        prop_assert!(
                            !y.is_finite() || (value - f64::from(y)).abs() <= scale * 1e-6,
                            "{} value {}: {} is {}", ty, i, value, y
                        );
                    }
                }
            }
        }
    }
}
