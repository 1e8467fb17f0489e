//! In which order misses are inserted.

use super::shape::{Key, Shape};

/// Hands a scarce budget round the layers.
///
/// A round goes through the layers in order, so whoever inserts the first misses until the budget is spent serves the
/// first layers only. Where all misses can be inserted, they are, in the order of time. Otherwise the turn goes on
/// behind the layer of the last insertion.
#[derive(Debug, Clone)]
pub(crate) struct Turns {
    experts: u32,
    layer: u32,
}

impl Turns {
    pub(crate) fn new(shape: &Shape) -> Turns {
        Turns { experts: shape.experts() as u32, layer: 0 }
    }

    /// Where in `missed`, which is in the order of time, to begin.
    pub(crate) fn start(&self, missed: &[Key], budget: u32) -> usize {
        if missed.len() <= budget as usize {
            return 0;
        }
        missed.iter().position(|&key| key / self.experts > self.layer).unwrap_or(0)
    }

    /// Something was inserted.
    pub(crate) fn inserted(&mut self, key: Key) {
        self.layer = key / self.experts;
    }
}
