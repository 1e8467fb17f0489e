//! Vectors of one operation, in every form that weights want them in.

use crate::activations::{Activations, Block};
use crate::isa::Isa;
use crate::matrix::{Inputs, block_for, inputs_for};
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;
use strata_gguf::GgmlType;

/// Rows of floats that remember their quantised forms, so that several matrices can be multiplied with the same
/// vectors at the price of one quantisation. Changing the floats forgets the forms.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    values: Vec<f32>,
    short: OnceLock<Activations>,
    long: OnceLock<Activations>,
}

impl Rows {
    /// The rows quantised in blocks, each row `cols` values long.
    ///
    /// The first call decides `cols`: rows of one buffer have one length.
    pub fn quantised(&self, isa: Isa, cols: usize, block: Block) -> &Activations {
        let form = match block {
            Block::Short => &self.short,
            Block::Long => &self.long,
        };
        form.get_or_init(|| Activations::new(isa, &self.values, cols, block))
    }
}

impl From<Vec<f32>> for Rows {
    fn from(values: Vec<f32>) -> Rows {
        Rows { values, ..Rows::default() }
    }
}

impl Deref for Rows {
    type Target = Vec<f32>;

    fn deref(&self) -> &Vec<f32> {
        &self.values
    }
}

impl DerefMut for Rows {
    fn deref_mut(&mut self) -> &mut Vec<f32> {
        self.short.take();
        self.long.take();
        &mut self.values
    }
}

/// Some rows of a window, in the forms that weights ask for. Each form is made once, whoever asks first.
pub(crate) struct Picked<'a> {
    all: &'a Rows,
    cols: usize,
    /// For each row the number of its pair (row, choice), and the choices of a row; `None` means all rows.
    pairs: Option<(&'a [usize], usize)>,
    floats: OnceLock<Vec<f32>>,
    short: OnceLock<Activations>,
    long: OnceLock<Activations>,
}

impl<'a> Picked<'a> {
    /// All rows of `cols` values.
    pub(crate) fn all(all: &'a Rows, cols: usize) -> Picked<'a> {
        let (floats, short, long) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Picked { all, cols, pairs: None, floats, short, long }
    }

    /// The row of each of these pairs, of which row t has the numbers `t * used` to `(t + 1) * used`: ascending, and no
    /// row twice.
    pub(crate) fn new(all: &'a Rows, cols: usize, pairs: &'a [usize], used: usize) -> Picked<'a> {
        // As many as there are must be all of them, which need no copy.
        let some = pairs.len() * cols < all.len();
        Picked { pairs: some.then_some((pairs, used)), ..Picked::all(all, cols) }
    }

    /// The form that weights of a type are multiplied with.
    pub(crate) fn inputs(&self, isa: Isa, ty: GgmlType) -> Inputs<'_> {
        let Some((pairs, used)) = self.pairs else { return inputs_for(isa, ty, self.all, self.cols) };
        let rows = pairs.iter().map(|pair| pair / used);
        match inputs_for(isa, ty, self.all, self.cols) {
            Inputs::Floats { x, cols } => {
                let x = self.floats.get_or_init(|| {
                    let mut picked = Vec::with_capacity(pairs.len() * cols);
                    rows.for_each(|t| picked.extend_from_slice(&x[t * cols..][..cols]));
                    picked
                });
                Inputs::Floats { x, cols }
            }
            Inputs::Integers(a) => {
                let form = if block_for(ty) == Some(Block::Long) { &self.long } else { &self.short };
                Inputs::Integers(form.get_or_init(|| a.gather(rows)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_forgets_the_forms() {
        let mut rows = Rows::from(vec![1.0; 64]);
        let before = rows.quantised(Isa::SCALAR, 32, Block::Short).clone();
        rows[40] = 2.0;
        let after = rows.quantised(Isa::SCALAR, 32, Block::Short);
        assert_ne!(&before, after);
    }

    #[test]
    fn picked_rows_have_the_forms_of_their_rows() {
        let rows = Rows::from((0..4 * 32).map(|i| (i as f32).sin()).collect::<Vec<f32>>());
        let picked = Picked::new(&rows, 32, &[3, 6], 2);
        let Inputs::Floats { x, .. } = picked.inputs(Isa::SCALAR, GgmlType::F32) else { panic!("expected floats") };
        assert_eq!(x, [&rows[32..64], &rows[96..]].concat());
        let Inputs::Integers(a) = picked.inputs(Isa::SCALAR, GgmlType::Q4_0) else { panic!("expected integers") };
        assert_eq!(a, &Activations::new(Isa::SCALAR, x, 32, Block::Short));
        let all = Picked::new(&rows, 32, &[0, 3, 4, 7], 2);
        let Inputs::Floats { x, .. } = all.inputs(Isa::SCALAR, GgmlType::F32) else { panic!("expected floats") };
        assert_eq!(x.as_ptr(), rows.as_ptr());
    }
}
