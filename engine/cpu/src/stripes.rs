//! Columns of a matrix as pieces of work for several threads.

use crate::scratch;
use std::marker::PhantomData;

/// Some columns of all rows of a matrix `[rows][columns]`. No two stripes of a matrix share a value.
pub(crate) struct Stripe<'a> {
    /// Its first value in the first row.
    start: *mut f32,
    rows: usize,
    /// Columns of the matrix.
    stride: usize,
    first: usize,
    len: usize,
    borrow: PhantomData<&'a mut [f32]>,
}

// SAFETY: a stripe is the only way to its values while the matrix is borrowed, as a `&mut [f32]` is to its own.
unsafe impl Send for Stripe<'_> {}

/// Cuts a matrix of rows of `columns` values into stripes of `width` columns; the last may be narrower.
pub(crate) fn stripes(matrix: &mut [f32], columns: usize, width: usize) -> impl Iterator<Item = Stripe<'_>> {
    let rows = matrix.len() / columns.max(1);
    let columns = if rows == 0 { 0 } else { columns };
    let start = matrix.as_mut_ptr();
    (0..columns).step_by(width.max(1)).map(move |first| Stripe {
        // SAFETY: `first` is a column of the first row, which exists.
        start: unsafe { start.add(first) },
        rows,
        stride: columns,
        first,
        len: width.max(1).min(columns - first),
        borrow: PhantomData,
    })
}

impl<'a> Stripe<'a> {
    /// Its first column.
    pub(crate) fn first(&self) -> usize {
        self.first
    }

    /// How many columns it has.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Its part of every row, in order.
    pub(crate) fn rows(&mut self) -> impl Iterator<Item = &mut [f32]> {
        let (start, stride, len) = (self.start, self.stride, self.len);
        // SAFETY: row `t` exists and the stripe's columns lie within it, so the slice lies within the matrix. The rows'
        // slices do not overlap, `self` stays borrowed while they live, and no other stripe has these values.
        (0..self.rows).map(move |t| unsafe { std::slice::from_raw_parts_mut(start.add(t * stride), len) })
    }

    /// Cuts it into stripes of `width` columns.
    pub(crate) fn cut(self, width: usize) -> impl Iterator<Item = Stripe<'a>> {
        let width = width.max(1);
        (0..self.len).step_by(width).map(move |first| Stripe {
            // SAFETY: `first` is one of the stripe's columns.
            start: unsafe { self.start.add(first) },
            rows: self.rows,
            stride: self.stride,
            first: self.first + first,
            len: width.min(self.len - first),
            borrow: PhantomData,
        })
    }

    /// Has `f` compute the values column by column, `[columns][rows]`, and puts them where they belong.
    pub(crate) fn by_columns(mut self, f: impl FnOnce(&mut [f32])) {
        let count = self.rows;
        if count == 1 {
            return self.rows().next().map_or((), f);
        }
        scratch::with(self.len * count, |block| {
            f(block);
            for (t, row) in self.rows().enumerate() {
                for (to, from) in row.iter_mut().zip(block.iter().skip(t).step_by(count)) {
                    *to = *from;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_belongs_to_one_stripe() {
        for (rows, columns, width) in [(1, 7, 3), (3, 7, 3), (4, 8, 8), (2, 5, 9), (0, 4, 2), (3, 1, 1)] {
            let mut matrix = vec![0.0; rows * columns];
            for stripe in stripes(&mut matrix, columns, width) {
                let first = stripe.first();
                for mut piece in stripe.cut(2) {
                    let at = piece.first();
                    assert!(first <= at && at < first + width);
                    piece.rows().enumerate().for_each(|(t, row)| {
                        row.iter_mut().zip(at..).for_each(|(v, c)| *v += (t * columns + c + 1) as f32);
                    });
                }
            }
            assert!(matrix.iter().enumerate().all(|(i, &v)| v == (i + 1) as f32), "{rows} x {columns} by {width}");
        }
    }

    #[test]
    fn columns_are_turned_into_rows() {
        for rows in [1, 3] {
            let mut matrix = vec![0.0; rows * 10];
            for stripe in stripes(&mut matrix, 10, 4) {
                let first = stripe.first();
                stripe.by_columns(|block| {
                    let values = (first..).flat_map(|c| (0..rows).map(move |t| (t * 10 + c) as f32));
                    block.iter_mut().zip(values).for_each(|(b, v)| *b = v);
                });
            }
            assert!(matrix.iter().enumerate().all(|(i, &v)| v == i as f32));
        }
    }
}
