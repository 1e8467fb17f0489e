//! Attention over selected positions, and their selection.

use crate::buffer::{Cache, First, Floats, Memory, blocks, n};
use crate::device::{Arg, Device};
use crate::ops::fits;
use std::sync::Arc;
use strata_cpu::attention::AttentionShape;

/// Positions of a block of weighted values; the kernels have the same number.
const BLOCK: usize = 128;

/// Values of intermediate results that are made at a time.
const SCRATCH: usize = 16 << 20;

/// Rows from which on there is enough to do without spreading a row's positions over the device.
const ROWS: usize = 32;

/// Query heads of a key/value head whose values are added up together (VALUE_HEADS).
const VALUE_HEADS: usize = 12;

/// The positions that each row attends to, ascending.
pub struct Selection {
    counts: Arc<Memory>,
    /// `[rows][width]`
    list: Arc<Memory>,
    rows: usize,
    width: usize,
}

impl Selection {
    fn new(device: &Device, rows: usize, width: usize) -> Selection {
        let (counts, list) = (Memory::new(device, rows * 4), Memory::new(device, rows * width * 4));
        Selection { counts, list, rows, width }
    }

    /// Every earlier position and its own, for rows at `first`, `first + 1`, ..., at most `width` of them.
    pub fn all(device: &Device, first: First<'_>, rows: usize, width: usize) -> Selection {
        let s = Selection::new(device, rows, width);
        let [word, at] = first.args();
        let args = [s.counts.arg(), s.list.arg(), word, at, n(s.width)];
        // SAFETY: a row of the list has room for `width` positions, and the kernel writes no more.
        unsafe { device.launch("select_all", [blocks(s.width, 1024).min(64), blocks(rows, 1), 1], 256, &args) };
        s
    }

    /// The positions of the best `budget` blocks of `block` positions and of the incomplete one, for each row of `heads`
    /// indexer queries; `keys` holds a row for each complete block.
    pub fn best(q: &Floats, keys: &Cache, heads: usize, block: usize, budget: usize, first: First<'_>) -> Selection {
        let device = q.device();
        let dim = keys.row_len();
        let rows = q.len() / (heads * dim).max(1);
        let known = first.known() + rows;
        let complete = match first {
            First::At(_) => known / block.max(1),
            First::Word(..) => keys.capacity(),
        };
        let width = budget * block + block - 1;
        let s = Selection::new(device, rows, if let First::At(_) = first { width.min(known) } else { width });
        let whole = rows * heads * dim == q.len() && block > 0 && complete <= keys.capacity();
        if !fits(device, "selection", whole) {
            return s;
        }
        let scores = Memory::new(device, rows * complete * 4);
        let [word, at] = first.args();
        let sizes = [word, at, n(heads), n(dim), n(block), n(complete)];
        let args = [&[q.arg(), keys.arg(), scores.arg()][..], &sizes].concat();
        // SAFETY: a warp takes a block of positions and one of `complete` scores of a row.
        unsafe { device.launch("block_scores", [blocks(complete, 8).min(1024), blocks(rows, 1), 1], 256, &args) };
        let sizes = [word, at, n(block), n(budget), n(complete), n(s.width)];
        let args = [&[scores.arg(), s.counts.arg(), s.list.arg()][..], &sizes].concat();
        // SAFETY: the kernel writes at most `width` positions a row.
        unsafe { device.launch("select_blocks", [blocks(rows, 1), 1, 1], 1024, &args) };
        s
    }

    /// Attention of each row over its selection, times `sigmoid(gate)`.
    pub fn attend(&self, shape: AttentionShape, q: &Floats, gate: &Floats, keys: &Cache, values: &Cache) -> Floats {
        let AttentionShape { heads, kv_heads, dim } = shape;
        let device = q.device();
        let mut out = Floats::new(device, q.len());
        let row = heads * dim;
        let whole = q.len() == self.rows * row
            && gate.len() == q.len()
            && [keys.row_len(), values.row_len()] == [kv_heads * dim; 2]
            && kv_heads > 0
            && heads.is_multiple_of(kv_heads)
            && dim <= 1024;
        if !fits(device, "attention", whole) {
            return out;
        }
        if self.rows >= ROWS && matches!(dim, 32 | 64 | 128 | 256) {
            self.attend_rows(shape, q, gate, keys, values, &mut out);
            return out;
        }
        let parts = self.width.div_ceil(BLOCK);
        let per_row = heads * (self.width + parts * (dim + 1) + 1);
        let at_a_time = (SCRATCH / per_row.max(1)).clamp(1, self.rows.clamp(1, 65_535));
        let scores = Memory::new(device, at_a_time * heads * self.width * 4);
        let sums = Memory::new(device, at_a_time * heads * 4);
        let block_sums = Memory::new(device, at_a_time * heads * parts * 4);
        let block_values = Memory::new(device, at_a_time * heads * parts * dim * 4);
        let out_address = out.arg_mut();
        for from in (0..self.rows).step_by(at_a_time) {
            let rows = blocks(at_a_time.min(self.rows - from), 1);
            let behind = |arg: Arg, words: usize| match arg {
                Arg::At(address) => Arg::At(address + words as u64 * 4),
                other => other,
            };
            let (counts, list) = (behind(self.counts.arg(), from), behind(self.list.arg(), from * self.width));
            let (q, gate, out) =
                (behind(q.arg(), from * row), behind(gate.arg(), from * row), behind(out_address, from * row));
            let (h, kv, d, width) = (n(heads), n(kv_heads), n(dim), n(self.width));
            let (hs, threads) = (blocks(heads, 1), blocks(dim, 1));
            // SAFETY: positions of the list are below the caches' capacity; the scratch has room for `rows` rows of `heads`
            // heads with `width` scores, `parts` block sums and `parts` blocks of `dim` values.
            unsafe {
                let args = [q, keys.arg(), counts, list, scores.arg(), h, kv, d, width];
                device.launch("attend_scores", [blocks(self.width, 4).min(256), hs, rows], 128, &args);
                let args = [scores.arg(), counts, sums.arg(), block_sums.arg(), h, width];
                device.launch("attend_softmax", [hs, rows, 1], 256, &args);
                let args = [scores.arg(), values.arg(), counts, list, block_values.arg(), h, kv, d, width];
                device.launch("attend_values", [blocks(parts, 1), hs, rows], threads, &args);
                let args = [block_values.arg(), sums.arg(), gate, counts, out, h, d, width];
                device.launch("attend_finish", [hs, rows, 1], threads, &args);
            }
        }
        out
    }

    /// [`Selection::attend`] for many rows.
    fn attend_rows(
        &self,
        shape: AttentionShape,
        q: &Floats,
        gate: &Floats,
        keys: &Cache,
        values: &Cache,
        out: &mut Floats,
    ) {
        let AttentionShape { heads, kv_heads, dim } = shape;
        let device = q.device();
        let row = heads * dim;
        let at_a_time = (SCRATCH / (heads * self.width).max(1)).clamp(1, self.rows.min(65_535));
        let scores = Memory::new(device, at_a_time * heads * self.width * 4);
        let parts = Memory::new(device, at_a_time * heads * self.width.div_ceil(BLOCK) * 4);
        let sums = Memory::new(device, at_a_time * heads * 4);
        let out_address = out.arg_mut();
        let behind = |arg: Arg, words: usize| match arg {
            Arg::At(address) => Arg::At(address + words as u64 * 4),
            other => other,
        };
        for from in (0..self.rows).step_by(at_a_time) {
            let rows = blocks(at_a_time.min(self.rows - from), 1);
            let (counts, list) = (behind(self.counts.arg(), from), behind(self.list.arg(), from * self.width));
            let [q, gate, out] = [q.arg(), gate.arg(), out_address].map(|arg| behind(arg, from * row));
            let (h, kv, d, width) = (n(heads), n(kv_heads), n(dim), n(self.width));
            let (hs, kvs) = (blocks(heads, 1), blocks(kv_heads, 1));
            let value_blocks = kvs * blocks(heads / kv_heads, VALUE_HEADS);
            // SAFETY: positions of the list are below the caches' capacity; the scratch has room for `rows` rows of `heads` heads with
            // `width` scores, a sum of each block of them and one of all.
            unsafe {
                let args = [q, keys.arg(), counts, list, scores.arg(), h, kv, width];
                let name = format!("row_scores_{dim}");
                device.launch(&name, [blocks(self.width, 32 * 8), kvs, rows], 128, &args);
                let args = [scores.arg(), counts, sums.arg(), parts.arg(), h, width];
                device.launch("attend_softmax", [hs, rows, 1], 256, &args);
                let args = [scores.arg(), values.arg(), counts, list, sums.arg(), gate, out, h, kv, d, width];
                device.launch("row_values", [value_blocks, rows, 1], blocks(dim, 1), &args);
            }
        }
    }
}
