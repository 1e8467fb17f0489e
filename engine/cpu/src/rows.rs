//! Vectors of one operation, in every form that weights want them in.

use crate::activations::{Activations, Block};
use crate::isa::Isa;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;

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

    /// These rows of `cols` values, one after another, in the forms that were made.
    pub fn gather(&self, cols: usize, rows: impl Iterator<Item = usize> + Clone) -> Rows {
        let take = |form: &OnceLock<Activations>| match form.get() {
            Some(a) => OnceLock::from(a.gather(rows.clone())),
            None => OnceLock::new(),
        };
        Rows {
            values: rows.clone().flat_map(|t| &self.values[t * cols..][..cols]).copied().collect(),
            short: take(&self.short),
            long: take(&self.long),
        }
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
        assert_eq!(rows.gather(32, [1].into_iter()).quantised(Isa::SCALAR, 32, Block::Short).rows(), 1);
    }
}
