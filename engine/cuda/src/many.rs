//! Products with many inputs: those of prompts. Where the GPU has integer matrix instructions they take a fraction of the time
//! that the kernels for a few inputs take, and have the same bits (`cu/many.cuh`).

use crate::buffer::{Floats, Memory, Quantised, blocks, n, quantiser};
use crate::device::{Arg, Device};
use crate::experts::{Groups, Kinds};
use crate::matrix::{Act, Form, Matrix, form, inputs, kernel};
use std::sync::Arc;
use strata_cpu::Block;
use strata_cpu::matrix::block_for;
use strata_gguf::GgmlType;

/// Inputs from which on these kernels are used.
const MANY: usize = 9;

/// Inputs of a group at most (GROUP_INPUTS).
const GROUP: usize = 64;

/// Threads of a block.
const THREADS: u32 = 256;

/// Rows that a block has at least.
const ROWS: usize = 32;

/// Inputs of a block of the kernels for floats.
const FLOAT_INPUTS: usize = 16;

/// Whether products with so many inputs are for these kernels, and the device has what they need.
pub(crate) fn suits(device: &Device, tokens: usize) -> bool {
    tokens >= MANY && device.capability() >= (8, 0) && !device.is_recording()
}

/// `y[t] = act(W x[t])`
pub(crate) fn product(m: &Matrix, act: Act, x: &Floats, y: &mut Floats, divisor: f32) {
    let device = x.device();
    let (rows, cols) = (m.out_len(), m.in_len());
    let tokens = x.len() / cols.max(1);
    let name = kernel("many", m.ty());
    let end = [n(rows), n(cols)];
    let last = [Arg::F(m.scale()), Arg::N(act as u32), Arg::F(divisor)];
    let (groups, args) = match form(m.ty()) {
        Form::Floats => {
            let args = [&[Arg::At(m.address()), x.arg(), y.arg_mut()][..], &end, &[n(tokens)], &last].concat();
            (FLOAT_INPUTS, args)
        }
        Form::Integers(_) => {
            let none = Arg::At(0);
            let first = [none, Arg::At(m.address()), none, none, n(tokens)];
            (GROUP, [&first[..], &inputs(x, m.ty()), &[y.arg_mut()], &end, &last].concat())
        }
    };
    // SAFETY: the matrix has `rows` rows of `cols` values, `x` has `tokens` rows of them, `y` a value for each pair.
    unsafe { device.launch(&name, [blocks(rows, ROWS), blocks(tokens, groups), 1], THREADS, &args) };
}

/// Whether [`experts`] can compute experts of these types.
pub(crate) fn knows(kinds: &Kinds) -> bool {
    [kinds.gate.0, kinds.up.0, kinds.down.0].into_iter().all(|ty| form(ty) != Form::Floats)
}

/// Room for what experts' products leave on the way for some entries.
pub(crate) struct Between {
    gate: Arc<Memory>,
    middle: Arc<Memory>,
    form: Quantised,
    block: Block,
}

impl Between {
    pub(crate) fn new(device: &Device, entries: usize, kinds: &Kinds) -> Between {
        let [gate, middle] = [(); 2].map(|()| Memory::new(device, entries * kinds.width * 4));
        let block = block_for(kinds.down.0).unwrap_or(Block::Short);
        Between { gate, middle, form: Quantised::new(device, entries * kinds.width), block }
    }
}

/// The results of groups of rows, `[entries][hidden]` from an address on; what is on the way there has entries from `first` on.
pub(crate) fn experts(x: &Floats, groups: &Groups, kinds: &Kinds, between: &Between, first: usize, results: u64) {
    let device = x.device();
    let &Kinds { gate, up, down, width, hidden } = kinds;
    let entries = groups.tokens.len();
    // Groups as large as kernels take them.
    let mut parts = Groups { starts: vec![0], ..Groups::default() };
    for (group, bounds) in groups.starts.windows(2).enumerate() {
        let &[begin, end] = bounds else { continue };
        let addresses = (groups.gate.get(group), groups.up.get(group), groups.down.get(group));
        let (Some(&gate), Some(&up), Some(&down)) = addresses else { continue };
        for at in (begin..end).step_by(GROUP) {
            parts.gate.push(gate);
            parts.up.push(up);
            parts.down.push(down);
            parts.starts.push(end.min(at + GROUP as u32));
        }
    }
    let count = parts.gate.len();
    let [gates, ups, downs] = [&parts.gate, &parts.up, &parts.down].map(|list| Memory::of(device, list));
    let (starts, tokens) = (Memory::of(device, &parts.starts), Memory::of(device, &groups.tokens));
    let product = |w: Arg, tokens: Arg, x: &[Arg], (ty, scale): (GgmlType, f32), y: Arg, [rows, cols]: [usize; 2]| {
        let end = [y, n(rows), n(cols), Arg::F(scale), Arg::N(0), Arg::F(1.0)];
        let args = [&[w, Arg::At(0), starts.arg(), tokens, n(entries)][..], x, &end].concat();
        // SAFETY: every group's weights are `rows` rows of `cols` values, its inputs are rows of `x`, and there is room for
        // `rows` values for each entry.
        unsafe { device.launch(&kernel("many", ty), [blocks(rows, ROWS), blocks(count, 1), 1], THREADS, &args) };
    };
    let behind = |memory: &Arc<Memory>, bytes: usize| Arg::At(memory.arg_address() + bytes as u64);
    let (begin, len) = (first * width, entries * width);
    let [open, middle] = [&between.gate, &between.middle].map(|memory| behind(memory, begin * 4));
    product(gates.arg(), tokens.arg(), &inputs(x, gate.0), gate, open, [width, hidden]);
    product(ups.arg(), tokens.arg(), &inputs(x, up.0), up, middle, [width, hidden]);
    let form = &between.form;
    let form = [behind(&form.values, begin), behind(&form.scales, begin / 8), behind(&form.sums, begin / 8)];
    let (quantise, each, at_once) = quantiser(between.block);
    let form_args = [&[middle][..], &form, &[n(len / each)]].concat();
    // SAFETY: a thread takes a value of both; then there is room for what whole blocks become.
    unsafe {
        device.launch("swiglu", [blocks(len, 256), 1, 1], 256, &[open, middle, n(len)]);
        device.launch(quantise, [blocks(len, at_once), 1, 1], 128, &form_args);
    }
    product(downs.arg(), Arg::At(0), &form, down, Arg::At(results), [hidden, width]);
}
