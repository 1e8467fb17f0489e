//! Operations on rows of floats. Each has the bits of its twin in [`strata_cpu`].

use crate::buffer::{Cache, First, Floats, Memory, Norm, blocks, n};
use crate::device::{Arg, Device};
use crate::error::Error;
use crate::routing::Note;
use std::ops::Range;
use strata_cpu::rope::Rope;

/// Threads of a block where a thread takes a value.
pub(crate) const THREADS: usize = 256;
/// Warps of a block where a warp takes a head.
pub(crate) const WARPS: usize = 4;
/// Values of the longest stream that is written and normed by one kernel.
const NORMED: usize = 4096;

/// A value that ends a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Index of the first such value.
    pub index: usize,
    /// What it is.
    pub value: &'static str,
}

/// Whether lengths fit each other; if not, that is a failure, kept by the device.
pub(crate) fn fits(device: &Device, what: &str, fit: bool) -> bool {
    if !fit {
        device.fail(Error::Internal(format!("buffers that do not fit each other: {what}")));
    }
    fit
}

/// The cosines and sines of some positions, `[positions][pairs][2]`.
pub struct Turns {
    values: Floats,
    positions: usize,
    /// Pairs of a position.
    half: usize,
}

impl Turns {
    /// The values of positions, on the host.
    pub fn values(rope: &Rope, positions: impl Iterator<Item = usize>) -> Vec<f32> {
        positions
            .flat_map(|p| rope.at(p).cos_sin().iter().flat_map(|&(cos, sin)| [cos, sin]).collect::<Vec<_>>())
            .collect()
    }

    /// Of these positions.
    pub fn new(device: &Device, rope: &Rope, positions: Range<usize>) -> Turns {
        let count = positions.len();
        Turns::within(Floats::upload(device, &Turns::values(rope, positions)), count)
    }

    /// Values of so many positions that are on the device, or will be.
    pub fn within(values: Floats, positions: usize) -> Turns {
        let half = values.len() / 2 / positions.max(1);
        Turns { values, positions, half }
    }
}

impl Floats {
    /// Each row of `width` values repeated `times` times.
    pub fn repeat(&self, width: usize, times: usize) -> Floats {
        let device = self.device();
        let mut out = Floats::new(device, self.len() * times);
        let args = [self.arg(), out.arg_mut(), n(out.len()), n(width), n(times)];
        if fits(device, "repeat", width > 0 && self.len().is_multiple_of(width)) {
            // SAFETY: a thread takes a value of `out`, whose row is one of `self`.
            unsafe { device.launch("repeat", [blocks(out.len(), THREADS), 1, 1], THREADS as u32, &args) };
        }
        out
    }

    /// Root-mean-square norm of each of `groups` parts of each row; `gamma` is as long as a row.
    pub fn group_norm(&self, gamma: &Floats, groups: usize, eps: f32) -> Floats {
        if let Some(made) = self.take_norm(Norm::new(gamma, groups, eps)) {
            return made;
        }
        let device = self.device();
        let mut out = Floats::new(device, self.len());
        let width = gamma.len() / groups.max(1);
        let whole = width > 0 && self.len().is_multiple_of(gamma.len()) && gamma.len() == width * groups;
        if fits(device, "group norm", whole) {
            let parts = self.len() / width;
            let args = [self.arg(), gamma.arg(), out.arg_mut(), n(width), n(groups), Arg::F(eps)];
            // SAFETY: a block takes a part of `width` values of `self` and `out`; part p uses the gammas of p mod groups.
            unsafe { device.launch("group_norm", [blocks(parts, 1), 1, 1], 512, &args) };
        }
        out
    }

    /// Root-mean-square norm of each head with one shared `gamma`, then rotation, one for each row.
    pub fn norm_rope(&mut self, gamma: &Floats, eps: f32, turns: &Turns, heads: usize) {
        let device = self.device().clone();
        let (dim, row) = (gamma.len(), gamma.len() * heads);
        let rows = self.len() / row.max(1);
        let half = turns.half;
        if fits(&device, "rotation", rows * row == self.len() && 2 * half <= dim && rows <= turns.positions) {
            let sizes = [n(rows), n(heads), n(dim), n(half), Arg::F(eps)];
            let args = [&[self.arg_mut(), gamma.arg(), turns.values.arg()][..], &sizes].concat();
            // SAFETY: a warp takes a head of `dim` values; there is a rotation for each row.
            unsafe { device.launch("norm_rope", [blocks(rows * heads, WARPS), 1, 1], 128, &args) };
        }
    }

    /// `silu(x / divisor)` in place.
    pub fn silu_scaled(&mut self, divisor: f32) {
        self.each("silu_scaled", divisor);
    }

    /// `2 sigmoid(x / divisor)` in place.
    pub fn inject_weights(&mut self, divisor: f32) {
        self.each("inject_weights", divisor);
    }

    fn each(&mut self, kernel: &str, divisor: f32) {
        let device = self.device().clone();
        let args = [self.arg_mut(), n(self.len()), Arg::F(divisor)];
        // SAFETY: a thread takes a value.
        unsafe { device.launch(kernel, [blocks(self.len(), THREADS), 1, 1], THREADS as u32, &args) };
    }

    /// The mean over streams of `sigmoid(gate) * n`, `self` being the gate: from `[rows][streams][width]` to `[rows][width]`.
    pub fn mix_streams(&self, values: &Floats, streams: usize, width: usize) -> Floats {
        let device = self.device();
        let len = self.len() / streams.max(1);
        let mut out = Floats::new(device, len);
        let whole = width > 0 && len.is_multiple_of(width) && len * streams == self.len() && self.len() == values.len();
        if fits(device, "mix of streams", whole) {
            let args = [self.arg(), values.arg(), out.arg_mut(), n(len), n(streams), n(width)];
            // SAFETY: a thread takes a value of `out` and reads `streams` values of its row.
            unsafe { device.launch("mix_streams", [blocks(len, THREADS), 1, 1], THREADS as u32, &args) };
        }
        out
    }

    /// `self[stream] += a[stream] * y` for each row of `width` values in `y`. Sums that are no numbers are noted.
    pub fn add_to_streams(&mut self, a: &Floats, y: &Floats, width: usize, note: Option<Note<'_>>) {
        let device = self.device().clone();
        let rows = y.len() / width.max(1);
        let streams = a.len() / rows.max(1);
        let whole = rows * width == y.len() && rows * streams == a.len() && self.len() == y.len() * streams;
        if fits(&device, "write to streams", whole) {
            let [found, site, largest] = Note::args(note.as_ref());
            let args = [self.arg_mut(), a.arg(), y.arg(), n(y.len()), n(streams), n(width), found, site, largest];
            // SAFETY: a thread takes a value of `y` and its place in each stream.
            unsafe { device.launch("add_to_streams", [blocks(y.len(), THREADS), 1, 1], THREADS as u32, &args) };
        }
    }

    /// [`Floats::add_to_streams`] ahead of a [`Floats::group_norm`] of the streams by `gamma`, which then is made already.
    pub fn add_to_streams_normed(
        &mut self,
        a: &Floats,
        y: &Floats,
        width: usize,
        gamma: &Floats,
        eps: f32,
        note: Option<Note<'_>>,
    ) {
        if width > NORMED {
            return self.add_to_streams(a, y, width, note);
        }
        let device = self.device().clone();
        let streams = gamma.len() / width.max(1);
        let whole = streams * width == gamma.len()
            && y.len().is_multiple_of(width.max(1))
            && a.len() * width == y.len() * streams
            && self.len() == y.len() * streams;
        if fits(&device, "write to streams and their norm", whole) {
            let made = Memory::new(&device, self.len() * 4);
            let [found, site, largest] = Note::args(note.as_ref());
            let sizes = [n(streams), n(width), Arg::F(eps), found, site, largest];
            let args = [&[self.arg_mut(), a.arg(), y.arg(), gamma.arg(), made.arg()][..], &sizes].concat();
            // SAFETY: a block takes a stream of a row, which has a weight; there are as many blocks as weights.
            unsafe { device.launch("write_norm", [blocks(a.len(), 1), 1, 1], 512, &args) };
            self.set_norm(Norm::new(gamma, streams, eps), made);
        }
    }

    /// `self += y`.
    pub fn add(&mut self, y: &Floats) {
        let device = self.device().clone();
        if fits(&device, "sum", self.len() == y.len()) {
            let args = [self.arg_mut(), y.arg(), n(y.len())];
            // SAFETY: a thread takes a value of both.
            unsafe { device.launch("add", [blocks(y.len(), THREADS), 1, 1], THREADS as u32, &args) };
        }
    }

    /// Splits heads of `2 * dim` values into their halves.
    pub fn split_heads(&self, dim: usize) -> (Floats, Floats) {
        let device = self.device();
        let len = self.len() / 2;
        let (mut a, mut b) = (Floats::new(device, len), Floats::new(device, len));
        if fits(device, "split of heads", dim > 0 && self.len().is_multiple_of(2 * dim)) {
            let args = [self.arg(), a.arg_mut(), b.arg_mut(), n(len), n(dim)];
            // SAFETY: a thread takes a value of each half.
            unsafe { device.launch("split_heads", [blocks(len, THREADS), 1, 1], THREADS as u32, &args) };
        }
        (a, b)
    }

    /// Norm of each head with `gamma`, times `sigmoid(z)`, in place.
    pub fn gated_norm(&mut self, gamma: &Floats, z: &Floats, eps: f32) {
        let device = self.device().clone();
        let dim = gamma.len();
        if fits(&device, "gated norm", dim > 0 && self.len().is_multiple_of(dim) && self.len() == z.len()) {
            let heads = self.len() / dim;
            let args = [self.arg_mut(), gamma.arg(), z.arg(), n(heads), n(dim), Arg::F(eps)];
            // SAFETY: a warp takes a head of `dim` values.
            unsafe { device.launch("gated_norm", [blocks(heads, WARPS), 1, 1], 128, &args) };
        }
    }

    /// The n-gram module's gated value for each row, `self` being the keys: `[rows][streams][width]`.
    pub fn ngram_gate(&self, q: &Floats, v: &Floats, width: usize) -> Floats {
        let device = self.device();
        let mut out = Floats::new(device, self.len());
        let rows = v.len() / width.max(1);
        let streams = self.len() / v.len().max(1);
        let whole = rows * width == v.len() && streams * v.len() == self.len() && q.len() == self.len();
        if fits(device, "n-gram gate", whole) {
            let args = [self.arg(), q.arg(), v.arg(), out.arg_mut(), n(streams), n(width)];
            // SAFETY: a block takes a stream of a row, `width` values.
            unsafe { device.launch("ngram_gate", [blocks(rows * streams, 1), 1, 1], 256, &args) };
        }
        out
    }

    /// The first value that is no number, or of a magnitude beyond `largest`. Waits for it.
    pub fn nonfinite(&self, largest: f32) -> Option<Found> {
        let device = self.device();
        let found = Memory::of(device, &[u64::MAX]);
        let args = [self.arg(), found.arg(), n(self.len()), Arg::N(0), Arg::F(largest)];
        let mut word = [u64::MAX];
        // SAFETY: a thread takes some of the values; `found` is one word, of which any bits are a number.
        unsafe {
            device.launch("nonfinite", [blocks(self.len(), THREADS * 4), 1, 1], THREADS as u32, &args);
            device.download(found.address(), &mut word);
        }
        let [word] = word;
        Floats::noted([word as u32, (word >> 32) as u32]).map(|(_, found)| found)
    }

    /// Records that a value that is no number is noted.
    pub fn note_nonfinite(&self, note: Note<'_>) {
        let device = self.device();
        if fits(device, "note", note.found.len() == 2 && note.site < 1 << 16) {
            let [found, site, largest] = Note::args(Some(&note));
            let args = [self.arg(), found, n(self.len()), site, largest];
            let grid = [blocks(self.len(), THREADS * 4).min(128), 1, 1];
            // SAFETY: a thread takes some of the values; `found` is one word of 64 bits.
            unsafe { device.launch("nonfinite", grid, THREADS as u32, &args) };
        }
    }

    /// What [`Floats::note_nonfinite`] noted: the site and what it found.
    pub fn noted(words: [u32; 2]) -> Option<(u32, Found)> {
        let word = u64::from(words[0]) | u64::from(words[1]) << 32;
        let value = ["NaN", "infinity", "a number beyond 1e18"];
        (word != u64::MAX).then(|| {
            let index = usize::try_from((word & 0xffff_ffff_ffff) >> 2).unwrap_or(usize::MAX);
            let value = value.get((word & 3) as usize).copied().unwrap_or("no number");
            ((word >> 48) as u32, Found { index, value })
        })
    }
}

impl Cache {
    /// Appends the keys of the blocks of `block` positions that a window of `rows` rows completes, whose raw keys `raw`
    /// holds: mean, norm, rotation at the block's first position, of which `turns` has one for each such block.
    pub fn pool_blocks(
        &mut self,
        raw: &Cache,
        gamma: &Floats,
        eps: f32,
        turns: &Turns,
        block: usize,
        first: First<'_>,
        rows: usize,
    ) {
        let device = gamma.device().clone();
        let (dim, half) = (gamma.len(), turns.half);
        let known = first.known() + rows;
        let most = match first {
            First::At(first) => known / block.max(1) - first / block.max(1),
            // Wherever it begins.
            First::Word(..) => rows.div_ceil(block.max(1)),
        };
        let whole = self.row_len() == dim && raw.row_len() == dim && block > 0;
        let room = known / block.max(1) <= self.capacity() && known <= raw.capacity() && 2 * half <= dim;
        if most == 0 || !fits(&device, "indexer's keys", whole && room && most <= turns.positions) {
            return;
        }
        let [word, at] = first.args();
        let sizes = [word, at, n(rows), n(block), n(dim), n(half), Arg::F(eps)];
        let args = [&[raw.arg(), self.arg(), gamma.arg(), turns.values.arg()][..], &sizes].concat();
        // SAFETY: a warp takes a block of positions that the rows complete, which `raw` has, and writes one row, for which
        // there is room.
        unsafe { device.launch("pool_blocks", [blocks(most, WARPS), 1, 1], 128, &args) };
        self.grow(known / block);
    }
}
