//! Short convolutions and the gated delta rule.

use crate::buffer::{Floats, Quantised, blocks, n};
use crate::device::{Arg, Device};
use crate::matrix::{Form, Matrix, form};
use crate::ops::{THREADS, WARPS, fits};
use strata_cpu::Block;
use strata_cpu::delta::{DeltaShape, Updates};

/// What the rows of a window did to a recurrent state; see [`strata_cpu::delta::Updates`].
pub type Notes = Updates<Floats>;

/// Widths of a head that there are kernels for: their states are kept in registers.
const WIDTHS: [usize; 6] = [8, 16, 32, 64, 128, 256];

/// Those for which one kernel does all of a window. A block has not enough registers for a wider head's state.
const WINDOW_WIDTHS: [usize; 5] = [8, 16, 32, 64, 128];

/// Threads of its block: four for each column of a state, or for two columns of a larger one.
fn window_threads(dim: usize) -> u32 {
    if dim < 64 { 4 * dim as u32 } else { 2 * dim as u32 }
}

/// Rows of the longest window that one kernel takes, and taps of its longest convolution.
const WINDOW: usize = 8;
const TAPS: usize = 4;

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
            let whole =
                |(state, notes): &(&mut Floats, &Notes)| state.len() == shape.state_len() && room(notes, shape, rows);
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

/// Whether notes have room for so many rows.
fn room(notes: &Notes, shape: DeltaShape, rows: usize) -> bool {
    let DeltaShape { key_heads, value_heads, dim } = shape;
    notes.keys.len() >= rows * key_heads * dim
        && notes.deltas.len() >= rows * value_heads * dim
        && notes.decays.len() >= rows * value_heads
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
        let room = notes.as_ref().is_none_or(|notes| room(notes, shape, rows));
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

/// What a delta-net layer has for a window whose rows may be taken back, between its projections.
pub struct DeltaWindow<'a> {
    /// What the delta rule takes, its `qkv` before the convolution.
    pub rule: DeltaInputs<'a>,
    /// What opens the results, `[rows][value_heads * dim]`.
    pub z: &'a Floats,
    /// Weights of the convolution, `[taps][channels]`.
    pub conv: &'a Floats,
    /// Taps of the convolution.
    pub taps: usize,
    /// Rows ahead of the window's, `[taps - 1][channels]`.
    pub history: &'a Floats,
    /// The recurrent state ahead of the window.
    pub state: &'a Floats,
    /// Of the norm of the results' heads.
    pub gamma: &'a Floats,
    /// Of the same norm.
    pub eps: f32,
}

impl DeltaWindow<'_> {
    /// The convolution, the gated delta rule and the gated norm of its results, `[rows][value_heads * dim]`. State and history stay as
    /// they are: `inputs` takes the convolution's rows and `notes` what they would do to the state. What `consumer` takes of the
    /// results is made at once, where that can be.
    pub fn run(self, shape: DeltaShape, inputs: &mut Floats, notes: &mut Notes, consumer: &Matrix) -> Floats {
        let DeltaShape { key_heads, value_heads, dim } = shape;
        let channels = shape.channels();
        let DeltaInputs { qkv, beta, alpha, a, dt } = &self.rule;
        let rows = qkv.len() / channels.max(1);
        let known = WINDOW_WIDTHS.contains(&dim) && (1..=TAPS).contains(&self.taps) && key_heads <= value_heads;
        if rows > WINDOW || !known {
            return self.apart(shape, inputs, notes);
        }
        let device = qkv.device().clone();
        let mut out = Floats::new(&device, rows * value_heads * dim);
        let given = rows * channels == qkv.len()
            && self.z.len() == out.len()
            && [beta.len(), alpha.len()] == [rows * value_heads; 2]
            && [a.len(), dt.len()] == [value_heads; 2]
            && self.conv.len() == self.taps * channels
            && self.history.len() == (self.taps - 1) * channels
            && self.state.len() == shape.state_len()
            && self.gamma.len() == dim;
        let room = inputs.len() >= rows * channels && room(notes, shape, rows);
        if !fits(&device, "delta-net window", given && room) {
            return out;
        }
        let wanted = dim.is_multiple_of(32) && form(consumer.ty()) == Form::Integers(Block::Short);
        let short = wanted.then(|| Quantised::new(&device, out.len()));
        let quantised = short.as_ref().map_or([Arg::At(0); 3], |q| [q.values.arg(), q.scales.arg(), q.sums.arg()]);
        let args = [
            &[qkv.arg(), self.conv.arg(), self.history.arg(), inputs.arg_mut()][..],
            &[beta.arg(), alpha.arg(), a.arg(), dt.arg(), self.state.arg()],
            &[self.gamma.arg(), self.z.arg(), out.arg_mut()],
            &[notes.keys.arg_mut(), notes.deltas.arg_mut(), notes.decays.arg_mut()],
            &quantised,
            &[n(rows), n(key_heads), n(value_heads), n(self.taps), Arg::F(self.eps)],
        ]
        .concat();
        let name = format!("delta_window_{dim}");
        // SAFETY: a block takes a value head; the lengths were compared above.
        unsafe { device.launch(&name, [blocks(value_heads, 1), 1, 1], window_threads(dim), &args) };
        if let Some(short) = short {
            out.set_short(short);
        }
        out
    }

    /// The same by a kernel for each.
    fn apart(self, shape: DeltaShape, inputs: &mut Floats, notes: &mut Notes) -> Floats {
        inputs.overwrite(&self.rule.qkv);
        let qkv = self.rule.qkv.conv_silu(self.conv, self.taps, 1, shape.channels(), self.history);
        let mut out = DeltaInputs { qkv, ..self.rule }.scan_noting(shape, self.state, notes);
        out.gated_norm(self.gamma, self.z, self.eps);
        out
    }
}
