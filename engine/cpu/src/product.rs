//! Products of integer weights with quantised activations.

use crate::activations::{Activations, Row, SHORT_BLOCK, SUM};
use crate::dot::join;
use crate::isa::{Isa, Level};
use crate::units::{GROUP, LONGEST, Layout, Scales, layout};
use strata_gguf::GgmlType;

/// Partial sums of a row: unit u goes to sum `u mod 8`.
pub(crate) const PARTIALS: usize = 8;

/// The scalar definition: `out[r][t] = scale * (row r of the weights) · x[t]`.
///
/// `rows` holds whole rows of `x.cols()` values of type `ty`.
pub(crate) fn rows_scalar(ty: GgmlType, layout: Layout, rows: &[u8], scale: f32, x: &Activations, out: &mut [f32]) {
    let stride = x.cols() / ty.block_values() * ty.block_bytes();
    let units = x.cols() / layout.values;
    let (mut levels, mut scales) = ([0i8; LONGEST], Scales::PLAIN);
    let mut sums = vec![[0.0f32; PARTIALS]; x.rows()];
    for (row, out) in rows.chunks_exact(stride).zip(out.chunks_exact_mut(x.rows())) {
        sums.fill([0.0; PARTIALS]);
        for u in 0..units {
            layout.unpack(ty, row, u, &mut levels, &mut scales);
            for (t, sums) in sums.iter_mut().enumerate() {
                add_unit(&levels, &scales, layout, x.row(t), u, &mut sums[u % PARTIALS]);
            }
        }
        for (out, sums) in out.iter_mut().zip(&sums) {
            *out = join(*sums) * scale;
        }
    }
}

/// Adds unit `u` of a row: the integer sums are exact, then one fused multiply-add each for levels and minimums.
fn add_unit(levels: &[i8], unit: &Scales, layout: Layout, x: Row<'_>, u: usize, sum: &mut f32) {
    let first = u * layout.values;
    let values = &x.values[first..first + layout.values];
    let mut product = 0i32;
    for ((level, value), &s) in levels.chunks(GROUP).zip(values.chunks(GROUP)).zip(&unit.scales) {
        let group: i32 = level.iter().zip(value).map(|(&l, &v)| i32::from(l) * i32::from(v)).sum();
        product += i32::from(s) * group;
    }
    let a = x.scales[first / SHORT_BLOCK];
    *sum = (unit.d * a).mul_add(product as f32, *sum);
    if layout.mins {
        let sums = &x.sums[first / SUM..];
        let mins: i32 =
            unit.mins[..layout.values / GROUP].iter().zip(sums).map(|(&m, &s)| i32::from(m) * i32::from(s)).sum();
        *sum = (unit.d_min * a).mul_add(-(mins as f32), *sum);
    }
}

/// `out[r][t] = scale * (row r of the weights) · x[t]` on an instruction set.
pub(crate) fn rows(isa: Isa, ty: GgmlType, rows: &[u8], scale: f32, x: &Activations, out: &mut [f32]) {
    let Some(layout) = layout(ty) else { return };
    match isa.level() {
        // SAFETY: an `Isa` above scalar exists only where its features were found.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { crate::x86::rows(ty, layout, rows, scale, x, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { crate::x86::rows_wide(ty, layout, rows, scale, x, out) },
        _ => rows_scalar(ty, layout, rows, scale, x, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activations::Block;
    use proptest::prelude::*;

    /// Bits, with all NaNs alike.
    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|v| if v.is_nan() { u32::MAX } else { v.to_bits() }).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Every instruction set computes what the definition says, to the last bit, for any bytes as weights, and a
        /// row of inputs gets the bits it would get alone.
        #[test]
        fn every_isa_gives_the_bits_of_the_definition(
            seed in any::<u64>(),
            inputs in 1usize..=8,
            out_len in 1usize..20,
            blocks in 1usize..20,
            tame in any::<bool>(),
        ) {
            let mut state = seed | 1;
            let mut next = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state
            };
            for &ty in GgmlType::ALL {
                let Some(layout) = layout(ty) else { continue };
                let cols = blocks * ty.block_values();
                let stride = blocks * ty.block_bytes();
                let mut weights: Vec<u8> = (0..stride * out_len).map(|_| next() as u8).collect();
                if tame {
                    // Scales of ordinary size wherever a half may lie at the start or the end of a block.
                    for block in weights.chunks_exact_mut(ty.block_bytes()) {
                        let n = block.len();
                        for at in [1, 3, n - 1, n - 3] {
                            block[at] = (block[at] & 0x83) | 0x28;
                        }
                    }
                }
                let x: Vec<f32> = (0..inputs * cols).map(|_| (next() as i32 as f32) * 1e-9).collect();
                let block = if layout.values == LONGEST { Block::Long } else { Block::Short };
                let quantised = Activations::new(Isa::SCALAR, &x, cols, block);
                let mut expected = vec![0.0; out_len * inputs];
                rows(Isa::SCALAR, ty, &weights, 0.75, &quantised, &mut expected);
                for isa in Isa::available() {
                    let mut out = vec![0.0; out_len * inputs];
                    rows(isa, ty, &weights, 0.75, &quantised, &mut out);
                    prop_assert!(bits(&out) == bits(&expected), "{} on {}: {:?} is not {:?}", ty, isa, out, expected);
                }
                let last = quantised.gather(std::iter::once(inputs - 1));
                let mut alone = vec![0.0; out_len];
                rows(Isa::detect(), ty, &weights, 0.75, &last, &mut alone);
                let together: Vec<f32> = expected.iter().skip(inputs - 1).step_by(inputs).copied().collect();
                prop_assert!(bits(&alone) == bits(&together), "{} alone", ty);
            }
        }
    }
}
