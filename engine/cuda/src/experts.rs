//! The experts of a layer, all of them in the device's memory.

use crate::buffer::{Floats, Memory, n};
use crate::device::{Arg, Device};
use crate::error::Result;
use crate::many::{self, Between};
use crate::matrix::{Matrix, Start, inputs, kernel};
use crate::ops::fits;
use crate::pack::Shape;
use crate::sum::ExpertSum;
use std::sync::Arc;
use strata_cpu::experts::GateUp as HostGateUp;
use strata_gguf::{GgmlType, Tensor};

/// Gate and up projections of all experts.
pub enum GateUp {
    /// Two tensors, `[experts][width][hidden]` each.
    Apart(Weights, Weights),
    /// One, `[experts][2 * width][hidden]`, gate rows before up rows.
    Fused(Weights),
}

/// A tensor of all experts' matrices, one after another.
pub struct Weights {
    memory: Arc<Memory>,
    shape: Shape,
}

impl Weights {
    /// `count` matrices of `rows` rows.
    fn new(device: &Device, tensor: &Tensor, rows: usize, count: usize) -> Weights {
        let shape = Shape { ty: tensor.ty(), rows, cols: tensor.row_len() as usize };
        let memory = Memory::new(device, shape.bytes() * count);
        if fits(device, "experts' weights", tensor.data().len() == shape.file_bytes() * count) {
            // SAFETY: there is room for as many.
            unsafe { shape.bring(device, tensor.data(), memory.address()) };
        }
        Weights { memory, shape }
    }

    /// The address of a matrix.
    fn at(&self, number: usize) -> u64 {
        self.memory.address() + (number * self.shape.bytes()) as u64
    }
}

/// The routed experts of one layer.
pub struct Experts {
    gate_up: GateUp,
    down: Weights,
    scales: [f32; 3],
    count: usize,
    hidden: usize,
    width: usize,
}

/// The expert that every row uses, and the logits of its weight, one a row.
pub struct SharedExpert<'a> {
    /// Gate projection, `[width][hidden]`.
    pub gate: &'a Matrix,
    /// Up projection, `[width][hidden]`.
    pub up: &'a Matrix,
    /// Down projection, `[hidden][width]`.
    pub down: &'a Matrix,
    /// `[rows]`
    pub opening: &'a Floats,
}

/// The experts chosen for the rows of a window.
#[derive(Clone, Copy)]
pub struct Routed<'a> {
    /// Experts per row.
    pub used: usize,
    /// `[rows][used]`, in routing order.
    pub ids: &'a [u16],
    /// `[rows][used]`
    pub weights: &'a [f32],
}

/// Distinct experts and the rows that use them: entries `starts[g]..starts[g + 1]` of `tokens` are group g's rows.
#[derive(Default)]
pub(crate) struct Groups {
    pub(crate) gate: Vec<u64>,
    pub(crate) up: Vec<u64>,
    pub(crate) down: Vec<u64>,
    pub(crate) starts: Vec<u32>,
    pub(crate) tokens: Vec<u32>,
}

/// The three products of an expert: types, factors and sizes.
#[derive(Debug, Clone, Copy)]
pub struct Kinds {
    /// Type and factor of the gate projection.
    pub gate: (GgmlType, f32),
    /// Type and factor of the up projection.
    pub up: (GgmlType, f32),
    /// Type and factor of the down projection.
    pub down: (GgmlType, f32),
    /// Width of the expert.
    pub width: usize,
    /// Values of a row.
    pub hidden: usize,
}

impl Kinds {
    /// The shapes of the gate, up and down projections.
    pub fn shapes(&self) -> [Shape; 3] {
        let &Kinds { gate, up, down, width, hidden } = self;
        let inner = |ty| Shape { ty, rows: width, cols: hidden };
        [inner(gate.0), inner(up.0), Shape { ty: down.0, rows: hidden, cols: width }]
    }
}

impl Experts {
    /// Copies the experts of a layer to the device.
    ///
    /// # Errors
    /// There is no room.
    pub fn new(
        device: &Device,
        gate_up: &HostGateUp,
        down: &Tensor,
        scales: [f32; 3],
        [count, hidden, width]: [usize; 3],
    ) -> Result<Experts> {
        let gate_up = match gate_up {
            HostGateUp::Apart(gate, up) => {
                GateUp::Apart(Weights::new(device, gate, width, count), Weights::new(device, up, width, count))
            }
            HostGateUp::Fused(both) => GateUp::Fused(Weights::new(device, both, width, 2 * count)),
        };
        let down = Weights::new(device, down, hidden, count);
        device.failure().map_or(Ok(Experts { gate_up, down, scales, count, hidden, width }), Err)
    }

    /// The three products of an expert.
    pub fn kinds(&self) -> Kinds {
        let (gate, up) = match &self.gate_up {
            GateUp::Apart(gate, up) => (gate.shape.ty, up.shape.ty),
            GateUp::Fused(both) => (both.shape.ty, both.shape.ty),
        };
        let [gate_scale, up_scale, down_scale] = self.scales;
        let down = (self.down.shape.ty, down_scale);
        Kinds { gate: (gate, gate_scale), up: (up, up_scale), down, width: self.width, hidden: self.hidden }
    }

    /// Where the gate, up and down projections of expert 0 begin, and how many bytes the next expert's lie behind.
    pub(crate) fn places(&self) -> [(Arg, u64); 3] {
        let bytes = |w: &Weights| w.shape.bytes() as u64;
        let (gate, up) = match &self.gate_up {
            GateUp::Apart(gate, up) => ((gate.memory.arg(), bytes(gate)), (up.memory.arg(), bytes(up))),
            GateUp::Fused(both) => ((both.memory.arg(), 2 * bytes(both)), (Arg::At(both.at(1)), 2 * bytes(both))),
        };
        [gate, up, (self.down.memory.arg(), bytes(&self.down))]
    }

    /// The addresses of an expert's gate, up and down projections.
    fn at(&self, expert: usize) -> [u64; 3] {
        let (gate, up) = match &self.gate_up {
            GateUp::Apart(gate, up) => (gate.at(expert), up.at(expert)),
            GateUp::Fused(both) => (both.at(2 * expert), both.at(2 * expert + 1)),
        };
        [gate, up, self.down.at(expert)]
    }

    /// The weighted sum of the routed experts' outputs in routing order, then of the shared expert's.
    pub fn forward(&self, x: &Floats, routed: Routed<'_>, shared: &SharedExpert<'_>) -> Floats {
        let Some(mut sum) = ExpertSum::new(x, routed, self.kinds(), self.count) else {
            return Floats::new(x.device(), x.len());
        };
        let all: Vec<_> = sum.wanted().map(|expert| (expert, self.at(expert))).collect();
        sum.add(&all);
        sum.finish(shared)
    }
}

impl SharedExpert<'_> {
    /// Makes the form of `x` that [`SharedExpert::results`] needs, so that branches of a graph which need it too find it made.
    pub fn prepare(&self, x: &Floats) {
        inputs(x, self.gate.ty());
    }

    /// Puts the results of all rows at an address, which must have room for them.
    pub fn results(&self, x: &Floats, at: u64) {
        let SharedExpert { gate, up, down, opening } = *self;
        let (rows, hidden) = (opening.len(), gate.in_len());
        let all = Groups {
            gate: vec![gate.address()],
            up: vec![up.address()],
            down: vec![down.address()],
            starts: vec![0, rows as u32],
            tokens: (0..rows as u32).collect(),
        };
        let inputs = x.len() == rows * hidden && up.in_len() == hidden && down.out_len() == hidden;
        if fits(x.device(), "shared expert", inputs && gate.out_len() == up.out_len() && down.in_len() == up.out_len())
        {
            let kind = |m: &Matrix| (m.ty(), m.scale());
            let kinds = Kinds { gate: kind(gate), up: kind(up), down: kind(down), width: gate.out_len(), hidden };
            match many::suits(x.device(), rows) && many::knows(&kinds) {
                true => many::experts(x, &all, &kinds, &Between::new(x.device(), rows, &kinds), 0, at),
                false => run(x, &all, &kinds, at),
            }
        }
    }
}

/// The results of groups of rows, `[entries][hidden]` from an address on.
pub(crate) fn run(x: &Floats, groups: &Groups, kinds: &Kinds, results: u64) {
    let device = x.device();
    let (entries, count) = (groups.tokens.len(), groups.gate.len());
    let [gate, up, down] = [&groups.gate, &groups.up, &groups.down].map(|list| Memory::of(device, list));
    let (starts, tokens) = (Memory::of(device, &groups.starts), Memory::of(device, &groups.tokens));
    let plan = [gate.arg(), up.arg(), down.arg(), starts.arg(), tokens.arg()];
    run_at(x, plan, count, entries, kinds, results);
}

/// [`run`] for groups that are described on the device: addresses of gate, up and down projections, starts and tokens, of at
/// most `count` groups and `entries` entries.
pub(crate) fn run_at(x: &Floats, plan: [Arg; 5], count: usize, entries: usize, kinds: &Kinds, results: u64) {
    let device = x.device();
    let &Kinds { gate, up, down, width, hidden } = kinds;
    let [gates, ups, downs, starts, tokens] = plan;
    let mut middle = Floats::new(device, entries * width);
    // Types differ between gate and up in no file known; were they to, each would want a kernel of its own.
    if !fits(device, "gate and up projections of one type", gate.0 == up.0) {
        return;
    }
    let mut args = vec![gates, ups, starts, tokens];
    args.extend(inputs(x, gate.0));
    args.extend([middle.arg_mut(), n(count), n(width), n(hidden), Arg::F(gate.1), Arg::F(up.1)]);
    let [inner, _, outer] = kinds.shapes();
    let start = Start::gate_up(device, inner, count * width);
    args.extend(start.arg());
    // SAFETY: every group's weights are `width` rows of `hidden` values, its tokens are rows of `x`, and `middle` has
    // `width` values for each entry.
    unsafe { device.launch(&kernel("gate_up", gate.0), start.grid(count), start.threads, &args) };
    let mut args = vec![downs, starts];
    args.extend(inputs(&middle, down.0));
    args.extend([Arg::At(results), n(count), n(hidden), n(width), Arg::F(down.1)]);
    let start = Start::matrices(device, outer, count * hidden);
    args.extend(start.arg());
    // SAFETY: every group's weights are `hidden` rows of `width` values, and there is room for a result for each entry.
    unsafe { device.launch(&kernel("down", down.0), start.grid(count), start.threads, &args) };
}
