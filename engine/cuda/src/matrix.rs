//! Weight matrices in the block types of the file.

use crate::buffer::{Floats, Memory, blocks, n};
use crate::device::{Arg, Device};
use crate::error::{Error, Result};
use crate::many;
use crate::pack::Shape;
use std::sync::Arc;
use strata_cpu::Block;
use strata_cpu::matrix::block_for;
use strata_gguf::{GgmlType, Tensor};

/// A weight matrix `[out_len][in_len]` in the device's memory.
pub struct Matrix {
    memory: Arc<Memory>,
    shape: Shape,
    scale: f32,
}

/// How kernels of a type take their inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Floats.
    Floats,
    /// Integers, quantised in blocks.
    Integers(Block),
}

/// The form of a type's inputs.
pub(crate) fn form(ty: GgmlType) -> Form {
    block_for(ty).map_or(Form::Floats, Form::Integers)
}

/// The name of a type's kernel: a stem and the type, in small letters.
pub(crate) fn kernel(stem: &str, ty: GgmlType) -> String {
    format!("{stem}_{}", ty.to_string().to_lowercase())
}

/// The inputs as a type's kernels take them, behind the weights.
pub(crate) fn inputs(x: &Floats, ty: GgmlType) -> Vec<Arg> {
    match form(ty) {
        Form::Floats => vec![x.arg()],
        Form::Integers(block) => {
            let q = x.quantised(block);
            vec![q.values.arg(), q.scales.arg(), q.sums.arg()]
        }
    }
}

/// Warps of a block that compute, where each has tiles of its own.
const WARPS: usize = 4;

/// Warps of kernels for tiles that fit on a multiprocessor.
const RESIDENT: usize = 16;

/// Rows of a tile of integer weights.
const TILE_ROWS: usize = 4;

/// How a kernel of products is started: blocks for the rows of a matrix, threads of a block, and for types that are arranged in
/// tiles a last argument, the power of two of the warps that share rows out (`Shares` in `cu/products_tiles.cuh`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Start {
    shape: Shape,
    pub(crate) threads: u32,
    /// Rows that a block takes.
    rows: usize,
    share: Option<u32>,
}

impl Start {
    /// For the rows of some matrices of a type, `all` of them together, and `tiles` of a matrix to a warp.
    fn new(device: &Device, shape: Shape, all: usize, tiles: usize) -> Start {
        let Some(eights) = shape.eights() else {
            let floats = form(shape.ty) == Form::Floats;
            return Start { shape, threads: 128, rows: if floats { WARPS } else { WARPS * TILE_ROWS }, share: None };
        };
        // As many warps as run at the same time, if rows have so many eights.
        let (warps, most) = (all / (TILE_ROWS * tiles), device.processors() as usize * RESIDENT);
        let share = (0..3).rev().find(|share| warps << (share + 1) <= most && eights > 1 << share).map_or(0, |s| s + 1);
        Start { shape, threads: 256, rows: TILE_ROWS * tiles * (8 >> share), share: Some(share) }
    }

    /// For matrices of a type, of `all` rows together, or the down projections of experts.
    pub(crate) fn matrices(device: &Device, shape: Shape, all: usize) -> Start {
        Start::new(device, shape, all, 2)
    }

    /// For the gate and up projections of experts, whose rows are computed together.
    pub(crate) fn gate_up(device: &Device, shape: Shape, all: usize) -> Start {
        Start::new(device, shape, all, 1)
    }

    /// Blocks for a matrix.
    pub(crate) fn blocks(&self, rows: usize) -> u32 {
        blocks(rows, self.rows)
    }

    /// The grid for so many experts' matrices.
    pub(crate) fn grid(&self, experts: usize) -> [u32; 3] {
        [self.blocks(self.shape.rows), blocks(experts, 1), 1]
    }

    /// The last argument, if there is one.
    pub(crate) fn arg(&self) -> Option<Arg> {
        self.share.map(Arg::N)
    }
}

/// What becomes of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Nothing.
    None,
    /// `silu(y / divisor)`
    Silu,
    /// `2 sigmoid(y / divisor)`
    Inject,
}

impl Matrix {
    /// Copies a tensor to the device; products are multiplied by `scale`.
    ///
    /// # Errors
    /// There is no room.
    pub fn new(device: &Device, tensor: &Tensor, scale: f32) -> Result<Matrix> {
        let shape = Shape { ty: tensor.ty(), rows: tensor.rows() as usize, cols: tensor.row_len() as usize };
        let memory = Memory::new(device, shape.bytes());
        // SAFETY: there is room, or the device has failed.
        unsafe { shape.bring(device, tensor.data(), memory.address()) };
        device.failure().map_or(Ok(Matrix { memory, shape, scale }), Err)
    }

    /// Length of the input vectors.
    pub fn in_len(&self) -> usize {
        self.shape.cols
    }

    /// Length of the output vectors.
    pub fn out_len(&self) -> usize {
        self.shape.rows
    }

    pub(crate) fn ty(&self) -> GgmlType {
        self.shape.ty
    }

    pub(crate) fn scale(&self) -> f32 {
        self.scale
    }

    pub(crate) fn address(&self) -> u64 {
        self.memory.arg_address()
    }

    /// `y[t] = W x[t]` for each row t.
    pub fn mul(&self, x: &Floats) -> Floats {
        let [y] = Matrix::mul_all([(self, Act::None)], x, 1.0);
        y
    }

    /// `y[t] = act(W x[t])` for each row t and each of several matrices. Those of one type take one kernel, four at a time.
    pub fn mul_all<const N: usize>(matrices: [(&Matrix, Act); N], x: &Floats, divisor: f32) -> [Floats; N] {
        let device = x.device();
        let rows = |m: &Matrix| x.len() / m.in_len().max(1);
        let mut outputs = matrices.map(|(m, _)| Floats::new(device, rows(m) * m.out_len()));
        if let Some(&(first, _)) = matrices.first()
            && many::suits(device, rows(first))
            && matrices.iter().all(|(m, _)| rows(m) * m.in_len() == x.len())
        {
            matrices.into_iter().zip(&mut outputs).for_each(|((m, act), y)| many::product(m, act, x, y, divisor));
            return outputs;
        }
        let mut left: Vec<_> = matrices.into_iter().zip(&mut outputs).collect();
        // Floats first: they need not wait until inputs are quantised, and are done by then.
        left.sort_by_key(|((m, _), _)| form(m.ty()) != Form::Floats);
        let mut branch = None;
        while let Some(&((first, _), _)) = left.first() {
            let (cols, ty, tokens) = (first.in_len(), first.ty(), rows(first));
            if tokens * cols != x.len() {
                device.fail(Error::Internal(format!("{} values for a matrix of {cols} columns", x.len())));
                break;
            }
            let mut together = Vec::new();
            // Floats of any type, or integers of one.
            let floats = form(ty) == Form::Floats;
            let alike = |m: &Matrix| m.in_len() == cols && (m.ty() == ty || (floats && form(m.ty()) == Form::Floats));
            for (at, ((m, act), y)) in std::mem::take(&mut left).into_iter().enumerate() {
                match at == 0 || (alike(m) && together.len() < 4) {
                    true => together.push((m, act, y)),
                    false => left.push(((m, act), y)),
                }
            }
            let all = together.iter().map(|(m, ..)| m.out_len()).sum();
            let start = Start::matrices(device, first.shape, all);
            let grid = together.iter().map(|(m, ..)| start.blocks(m.out_len())).sum();
            // Two kernels, for short and for long rows.
            let (float_name, float_threads) = if cols > 4096 { ("mul_floats_long", 256) } else { ("mul_floats", 128) };
            let threads = if floats { float_threads } else { start.threads };
            let mut args = structure(&mut together);
            args.extend(inputs(x, ty));
            args.extend([n(cols), n(tokens), Arg::F(divisor)]);
            args.extend(start.arg());
            let name = if floats { float_name.to_owned() } else { kernel("mul", ty) };
            // SAFETY: each matrix has `out_len` rows of `cols` values, `x` has `tokens` rows of them, each output a value for
            // each pair.
            let begin = || unsafe { device.launch(&name, [grid, 1, 1], threads, &args) };
            // Of two kinds one goes beside the other.
            match branch {
                None if !left.is_empty() => branch = Some(device.aside(begin).1),
                _ => begin(),
            }
        }
        if let Some(branch) = branch {
            device.join(branch);
        }
        outputs
    }

    /// The mean over four streams of `sigmoid(gate) * values`, the gate being `W x`: from `[rows][4][width]` to
    /// `[rows][width]`. `None` for weights that are no floats, other numbers of streams, and so many rows that product and mean
    /// are better taken apart.
    pub fn mix(&self, x: &Floats, values: &Floats, streams: usize, width: usize) -> Option<Floats> {
        let device = x.device();
        let tokens = x.len() / self.in_len().max(1);
        let known = form(self.ty()) == Form::Floats && streams == 4 && self.out_len() == 4 * width;
        if !known
            || many::suits(device, tokens)
            || tokens * self.in_len() != x.len()
            || values.len() != tokens * self.out_len()
        {
            return None;
        }
        let mut out = Floats::new(device, tokens * width);
        let args = [
            self.memory.arg(),
            x.arg(),
            values.arg(),
            out.arg_mut(),
            n(width),
            n(self.in_len()),
            n(tokens),
            Arg::F(self.scale),
        ];
        // SAFETY: the matrix has four times `width` rows, as long as those of `x`; `values` is as long as its products.
        unsafe { device.launch(&kernel("mix", self.ty()), [blocks(width, WARPS), 1, 1], 128, &args) };
        Some(out)
    }
}

/// The matrices as kernels take them: four addresses, four of outputs, rows, factors, what becomes of products, and
/// types of floats.
fn structure(matrices: &mut [(&Matrix, Act, &mut Floats)]) -> Vec<Arg> {
    let mut words = [0u64; 16];
    for (k, (m, act, y)) in matrices.iter_mut().enumerate().take(4) {
        let half = |word: u64| if k % 2 == 0 { word } else { word << 32 };
        let mut put = |at: usize, word: u64| {
            if let Some(place) = words.get_mut(at) {
                *place |= word;
            }
        };
        put(k, m.memory.arg_address());
        y.arg_mut();
        put(4 + k, y.address());
        put(8 + k / 2, half(m.out_len() as u64));
        put(10 + k / 2, half(m.scale.to_bits().into()));
        put(12 + k / 2, half(*act as u64));
        let kind = match m.ty() {
            GgmlType::F16 => 1,
            GgmlType::BF16 => 2,
            _ => 0,
        };
        put(14 + k / 2, half(kind));
    }
    let [first, rest @ ..] = words;
    std::iter::once(Arg::At(first)).chain(rest.map(Arg::More)).collect()
}
