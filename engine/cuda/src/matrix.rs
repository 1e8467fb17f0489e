//! Weight matrices in the block types of the file.

use crate::buffer::{Floats, Memory, blocks, n};
use crate::device::{Arg, Device};
use crate::error::{Error, Result};
use std::sync::Arc;
use strata_cpu::Block;
use strata_cpu::matrix::block_for;
use strata_gguf::{GgmlType, Tensor};

/// A weight matrix `[out_len][in_len]` in the device's memory, as the file holds it.
pub struct Matrix {
    memory: Arc<Memory>,
    ty: GgmlType,
    out_len: usize,
    in_len: usize,
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

/// Warps of a block.
const WARPS: usize = 4;

/// Warps that a multiprocessor has room for when they multiply.
const RESIDENT: usize = 24;

/// Blocks among which the rows of `groups` matrices are shared out, so that all of them run at the same time and none has
/// more than `MOST` rows one after another.
pub(crate) fn shared_out(device: &Device, rows: usize, groups: usize) -> u32 {
    const MOST: usize = 16;
    let warps = device.processors() as usize * RESIDENT;
    let each = (rows * groups.max(1)).div_ceil(warps.max(1)).clamp(1, MOST);
    blocks(rows, WARPS * each)
}

impl Matrix {
    /// Copies a tensor to the device; products are multiplied by `scale`.
    ///
    /// # Errors
    /// There is no room.
    pub fn new(device: &Device, tensor: &Tensor, scale: f32) -> Result<Matrix> {
        let memory = Memory::of(device, tensor.data());
        let (out_len, in_len) = (tensor.rows() as usize, tensor.row_len() as usize);
        device.failure().map_or(Ok(Matrix { memory, ty: tensor.ty(), out_len, in_len, scale }), Err)
    }

    /// Length of the input vectors.
    pub fn in_len(&self) -> usize {
        self.in_len
    }

    /// Length of the output vectors.
    pub fn out_len(&self) -> usize {
        self.out_len
    }

    pub(crate) fn ty(&self) -> GgmlType {
        self.ty
    }

    pub(crate) fn scale(&self) -> f32 {
        self.scale
    }

    pub(crate) fn address(&self) -> u64 {
        self.memory.arg_address()
    }

    /// `y[t] = W x[t]` for each row t.
    pub fn mul(&self, x: &Floats) -> Floats {
        let device = x.device();
        let tokens = x.len() / self.in_len.max(1);
        let mut y = Floats::new(device, tokens * self.out_len);
        if tokens * self.in_len != x.len() {
            device.fail(Error::Internal(format!("{} values for a matrix of {} columns", x.len(), self.in_len)));
            return y;
        }
        let mut args = vec![self.memory.arg()];
        args.extend(inputs(x, self.ty));
        let sizes = [n(self.out_len), n(self.in_len), n(tokens), n(self.out_len), Arg::F(self.scale)];
        args.push(y.arg_mut());
        args.extend(sizes);
        // SAFETY: the matrix has `out_len` rows of `in_len` values, `x` has `tokens` rows of them, `y` a value for each pair.
        unsafe { device.launch(&kernel("mul", self.ty), [shared_out(device, self.out_len, 1), 1, 1], 128, &args) };
        y
    }
}
