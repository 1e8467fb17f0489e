//! Short convolutions and the gated delta rule.

use crate::buffer::{Floats, blocks, n};
use crate::device::{Arg, Device};
use crate::ops::{THREADS, WARPS, fits};
use strata_cpu::delta::{DeltaShape, Updates};

/// What the rows of a window did to a recurrent state; see [`strata_cpu::delta::Updates`].
pub type Notes = Updates<Floats>;

/// Widths of a head that there are kernels for: their states are kept in registers.
const WIDTHS: [usize; 6] = [8, 16, 32, 64, 128, 256];

impl Floats {
    /// `silu` of a causal depthwise convolution with weights `[taps][channels]` behind `history`, which stays as it is.
    pub fn conv_silu(&self, w: &Floats, taps: usize, dilation: usize, channels: usize, history: &Floats) -> Floats {
        let device = self.device();
        let mut out = Floats::new(device, self.len());
        let rows = self.len() / channels.max(1);
        let kept = taps.saturating_sub(1) * dilation;
        let whole = rows * channels == self.len() && w.len() == taps * channels && history.len() == kept * channels;
        if fits(device, "convolution", whole) {
            let sizes = [n(rows), n(channels), n(taps), n(dilation)];
            let args = [&[self.arg(), w.arg(), history.arg(), out.arg_mut()][..], &sizes].concat();
            // SAFETY: a thread takes a value; the rows it reads are of the history or at most its own.
            unsafe { device.launch("conv_silu", [blocks(self.len(), THREADS), 1, 1], THREADS as u32, &args) };
        }
        out
    }

    /// Moves a history on behind the first `rows` rows of `x`.
    pub fn conv_advance(&mut self, x: &Floats, rows: usize, channels: usize) {
        Floats::conv_advance_all([(self, x)], rows, channels);
    }

    /// [`Floats::conv_advance`] of several histories, of the same length.
    pub fn conv_advance_all<'a>(
        pairs: impl IntoIterator<Item = (&'a mut Floats, &'a Floats)>,
        rows: usize,
        channels: usize,
    ) {
        let mut pairs: Vec<_> = pairs.into_iter().collect();
        let len = pairs.first().map_or(0, |(history, _)| history.len());
        for some in pairs.chunks_mut(LAYERS) {
            let Some(device) = some.first().map(|(history, _)| history.device().clone()) else { return };
            let kept = len / channels.max(1);
            let whole = |(h, x): &(&mut Floats, &Floats)| h.len() == len && rows * channels <= x.len();
            if !fits(&device, "history", kept * channels == len && some.iter().all(whole)) {
                return;
            }
            let mut layers = Layers::default();
            for (at, (history, x)) in some.iter_mut().enumerate() {
                layers.put(at, [history.arg_mut(), x.arg(), Arg::At(0), Arg::At(0)]);
            }
            let args = [layers.args(), vec![n(rows), n(channels), n(kept)]].concat();
            let grid = [blocks(channels, THREADS), blocks(some.len(), 1), 1];
            // SAFETY: a thread takes a channel of a history and of its rows.
            unsafe { device.launch("advance_layers", grid, THREADS as u32, &args) };
        }
    }

    /// Copies `x` over the first values.
    pub fn overwrite(&mut self, x: &Floats) {
        let device = self.device().clone();
        if fits(&device, "copy", x.len() <= self.len()) {
            self.arg_mut();
            // SAFETY: there is room, and two buffers do not overlap.
            unsafe { device.copy(self.address(), x.address(), x.len() * 4) };
        }
    }

    /// Does to a recurrent state what the first `rows` noted rows did.
    pub fn delta_replay(&mut self, shape: DeltaShape, notes: &Notes, rows: usize) {
        Floats::delta_replay_all([(self, notes)], shape, rows);
    }

    /// [`Floats::delta_replay`] of several states.
    pub fn delta_replay_all<'a>(
        states: impl IntoIterator<Item = (&'a mut Floats, &'a Notes)>,
        shape: DeltaShape,
        rows: usize,
    ) {
        let DeltaShape { key_heads, value_heads, dim } = shape;
        let mut states: Vec<_> = states.into_iter().collect();
        for some in states.chunks_mut(LAYERS) {
            let Some(device) = some.first().map(|(state, _)| state.device().clone()) else { return };
            let whole = |(state, notes): &(&mut Floats, &Notes)| {
                state.len() == shape.state_len()
                    && rows * key_heads * dim <= notes.keys.len()
                    && rows * value_heads * dim <= notes.deltas.len()
                    && rows * value_heads <= notes.decays.len()
            };
            if !fits(&device, "noted rows", some.iter().all(whole)) {
                return;
            }
            let mut layers = Layers::default();
            for (at, (state, notes)) in some.iter_mut().enumerate() {
                layers.put(at, [state.arg_mut(), notes.keys.arg(), notes.deltas.arg(), notes.decays.arg()]);
            }
            let args = [layers.args(), vec![n(rows), n(key_heads), n(value_heads), n(dim)]].concat();
            let grid = [blocks(shape.state_len(), THREADS), blocks(some.len(), 1), 1];
            // SAFETY: a thread takes a value of a state, and the notes have so many rows.
            unsafe { device.launch("replay_layers", grid, THREADS as u32, &args) };
        }
    }
}

/// Layers that a kernel takes at a time.
const LAYERS: usize = 32;

/// Addresses for several layers as kernels take them, a structure.
struct Layers([u64; 4 * LAYERS]);

impl Default for Layers {
    fn default() -> Layers {
        Layers([0; 4 * LAYERS])
    }
}

impl Layers {
    /// The four addresses of a layer.
    fn put(&mut self, at: usize, addresses: [Arg; 4]) {
        for (which, arg) in addresses.into_iter().enumerate() {
            if let (Some(place), Arg::At(address)) = (self.0.get_mut(which * LAYERS + at), arg) {
                *place = address;
            }
        }
    }

    fn args(&self) -> Vec<Arg> {
        let word = |(at, &word): (usize, &u64)| if at == 0 { Arg::At(word) } else { Arg::More(word) };
        self.0.iter().enumerate().map(word).collect()
    }
}

/// What the gated delta rule takes for each row; see [`strata_cpu::delta::scan`].
pub struct DeltaInputs<'a> {
    /// `[rows][channels]` after the convolution.
    pub qkv: Floats,
    /// `[rows][value_heads]`
    pub beta: &'a Floats,
    /// `[rows][value_heads]`
    pub alpha: &'a Floats,
    /// `[value_heads]`
    pub a: &'a Floats,
    /// `[value_heads]`
    pub dt: &'a Floats,
}

impl DeltaInputs<'_> {
    /// Moves the state on behind the rows. Returns `[rows][value_heads * dim]`.
    pub fn scan(self, shape: DeltaShape, state: &mut Floats) -> Floats {
        let state_arg = state.arg_mut();
        self.run(shape, state.len(), state_arg, None)
    }

    /// Leaves the state as it is and notes what the rows would do to it.
    pub fn scan_noting(self, shape: DeltaShape, state: &Floats, notes: &mut Notes) -> Floats {
        self.run(shape, state.len(), state.arg(), Some(notes))
    }

    fn run(self, shape: DeltaShape, state_len: usize, state: Arg, notes: Option<&mut Notes>) -> Floats {
        let DeltaInputs { mut qkv, beta, alpha, a, dt } = self;
        let DeltaShape { key_heads, value_heads, dim } = shape;
        let device: Device = qkv.device().clone();
        let channels = shape.channels();
        let rows = qkv.len() / channels.max(1);
        let mut out = Floats::new(&device, rows * value_heads * dim);
        let inputs = rows * channels == qkv.len()
            && [beta.len(), alpha.len()] == [rows * value_heads; 2]
            && [a.len(), dt.len()] == [value_heads; 2]
            && state_len == shape.state_len();
        let room = notes.as_ref().is_none_or(|notes| {
            notes.keys.len() >= rows * key_heads * dim
                && notes.deltas.len() >= rows * value_heads * dim
                && notes.decays.len() >= rows * value_heads
        });
        let known = WIDTHS.contains(&dim);
        if !fits(&device, "delta rule", inputs && room)
            || !fits(&device, &format!("heads of width {dim}, of {WIDTHS:?}"), known)
        {
            return out;
        }
        let args = [qkv.arg_mut(), n(rows), n(channels), n(key_heads), n(dim)];
        // SAFETY: a warp takes a query's or key's head of a row.
        unsafe { device.launch("unit_heads", [blocks(rows * 2 * key_heads, WARPS), 1, 1], 128, &args) };
        let noted = match notes {
            Some(notes) => [notes.keys.arg_mut(), notes.deltas.arg_mut(), notes.decays.arg_mut()],
            None => [Arg::At(0); 3],
        };
        let args = [
            &[qkv.arg(), beta.arg(), alpha.arg(), a.arg(), dt.arg(), state, out.arg_mut()][..],
            &noted,
            &[n(rows), n(key_heads), n(value_heads)],
        ]
        .concat();
        let grid = [blocks(value_heads, 1), blocks(dim, 32), 1];
        // SAFETY: a block takes 32 columns of a head's state; the lengths were compared above.
        unsafe { device.launch(&format!("delta_scan_{dim}"), grid, 128, &args) };
        out
    }
}
