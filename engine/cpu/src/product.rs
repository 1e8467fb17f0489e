//! Products of integer weights with quantised activations.

use crate::activations::{Activations, Row, SHORT_BLOCK, SUM};
use crate::dot::join;
use crate::isa::Isa;
use crate::units::{GROUP, Layout, Unit, layout};
use strata_gguf::GgmlType;

/// Partial sums of a row: unit u goes to sum `u mod 8`.
pub(crate) const PARTIALS: usize = 8;

/// The scalar definition: `out[r][t] = scale * (row r of the weights) · x[t]`.
///
/// `rows` holds whole rows of `x.cols()` values of type `ty`.
pub(crate) fn rows_scalar(ty: GgmlType, layout: Layout, rows: &[u8], scale: f32, x: &Activations, out: &mut [f32]) {
    let stride = x.cols() / ty.block_values() * ty.block_bytes();
    let units = x.cols() / layout.values;
    let mut unit = Unit::ZERO;
    let mut sums = vec![[0.0f32; PARTIALS]; x.rows()];
    for (row, out) in rows.chunks_exact(stride).zip(out.chunks_exact_mut(x.rows())) {
        sums.fill([0.0; PARTIALS]);
        for u in 0..units {
            layout.unpack(ty, row, u, &mut unit);
            for (t, sums) in sums.iter_mut().enumerate() {
                add_unit(&unit, layout, x.row(t), u, &mut sums[u % PARTIALS]);
            }
        }
        for (out, sums) in out.iter_mut().zip(&sums) {
            *out = join(*sums) * scale;
        }
    }
}

/// Adds unit `u` of a row: the integer sums are exact, then one fused multiply-add each for levels and minimums.
fn add_unit(unit: &Unit, layout: Layout, x: Row<'_>, u: usize, sum: &mut f32) {
    let first = u * layout.values;
    let values = &x.values[first..first + layout.values];
    let mut levels = 0i32;
    for ((level, value), &s) in unit.levels.chunks(GROUP).zip(values.chunks(GROUP)).zip(&unit.scales) {
        let group: i32 = level.iter().zip(value).map(|(&l, &v)| i32::from(l) * i32::from(v)).sum();
        levels += i32::from(s) * group;
    }
    let a = x.scales[first / SHORT_BLOCK];
    *sum = (unit.d * a).mul_add(levels as f32, *sum);
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
        _ => rows_scalar(ty, layout, rows, scale, x, out),
    }
}
