//! The routed experts of one layer.

use crate::elementwise::swiglu;
use crate::matrix::{mul_rows, transpose};
use crate::pool::Pool;
use strata_gguf::Tensor;

/// The gate and up projections of all experts: two tensors, or one that holds gate rows before up rows.
#[derive(Clone)]
pub enum GateUp {
    /// `ffn_gate_exps` and `ffn_up_exps`, `[experts][width][hidden]` each.
    Apart(Tensor, Tensor),
    /// `ffn_gate_up_exps`, `[experts][2 * width][hidden]`.
    Fused(Tensor),
}

/// All routed experts of one layer, read in place.
#[derive(Clone)]
pub struct Experts {
    /// Gate and up projections.
    pub gate_up: GateUp,
    /// `ffn_down_exps`, `[experts][hidden][width]`.
    pub down: Tensor,
    /// Factors on the three products (gate, up, down); 1 for all but NVFP4 files with companion scales.
    pub scales: [f32; 3],
    /// Number of experts.
    pub count: usize,
    /// Length of a token's vector.
    pub hidden: usize,
    /// Width of an expert.
    pub width: usize,
}

/// The rows of a matrix that lie in a contiguous part of a tensor.
struct Part<'a> {
    tensor: &'a Tensor,
    bytes: &'a [u8],
    scale: f32,
}

impl Part<'_> {
    fn mul(&self, cols: usize, x: &[f32], out: &mut [f32]) {
        mul_rows(self.tensor.ty(), self.bytes, cols, self.scale, x, out);
    }
}

impl Experts {
    /// `out[t] = sum over the token's experts, in routing order, of weight * expert(x[t])`.
    ///
    /// `x` and `out` are `[rows][hidden]`; `ids` and `weights` are `[rows][used]`. Each expert's weights are read once
    /// for all tokens that use it.
    pub fn forward(&self, pool: &Pool, x: &[f32], ids: &[u16], weights: &[f32], used: usize, out: &mut [f32]) {
        let hidden = self.hidden;
        // Pairs (token, choice) grouped by expert; `place[pair]` is where the pair's output lies.
        let mut order: Vec<usize> = (0..ids.len()).collect();
        order.sort_by_key(|&pair| ids[pair]);
        let mut place = vec![0; ids.len()];
        order.iter().enumerate().for_each(|(at, &pair)| place[pair] = at);

        let mut outputs = vec![0.0; ids.len() * hidden];
        let mut jobs = Vec::new();
        let mut rest = outputs.as_mut_slice();
        for group in order.chunk_by(|&a, &b| ids[a] == ids[b]) {
            let (mine, others) = rest.split_at_mut(group.len() * hidden);
            rest = others;
            jobs.push((group, mine));
        }
        pool.each(jobs, |(group, out)| {
            let x: Vec<f32> = group.iter().flat_map(|&pair| &x[pair / used * hidden..][..hidden]).copied().collect();
            self.one(usize::from(ids[group[0]]), &x, out);
        });

        for (t, out) in out.chunks_exact_mut(hidden).enumerate() {
            out.fill(0.0);
            for pair in t * used..(t + 1) * used {
                let y = &outputs[place[pair] * hidden..][..hidden];
                out.iter_mut().zip(y).for_each(|(o, &y)| *o += weights[pair] * y);
            }
        }
    }

    /// Expert `e` on inputs `[rows][hidden]`, to `out` of the same shape.
    fn one(&self, e: usize, x: &[f32], out: &mut [f32]) {
        let (hidden, width) = (self.hidden, self.width);
        let rows = x.len() / hidden;
        let (gate_part, up_part) = self.gate_up_of(e);
        let (mut gate, mut up) = (vec![0.0; width * rows], vec![0.0; width * rows]);
        gate_part.mul(hidden, x, &mut gate);
        up_part.mul(hidden, x, &mut up);
        swiglu(&mut gate, &up);
        transpose(&gate, rows, &mut up);
        let mut columns = vec![0.0; out.len()];
        self.part(&self.down, e, 0, hidden, hidden, self.scales[2]).mul(width, &up, &mut columns);
        transpose(&columns, rows, out);
    }

    fn gate_up_of(&self, e: usize) -> (Part<'_>, Part<'_>) {
        let (w, [gate, up, _]) = (self.width, self.scales);
        match &self.gate_up {
            GateUp::Apart(g, u) => (self.part(g, e, 0, w, w, gate), self.part(u, e, 0, w, w, up)),
            GateUp::Fused(both) => (self.part(both, e, 0, w, 2 * w, gate), self.part(both, e, w, w, 2 * w, up)),
        }
    }

    /// `rows` rows from `first` on, of expert `e` in a tensor with `per_expert` rows an expert.
    fn part<'a>(
        &self,
        tensor: &'a Tensor,
        e: usize,
        first: usize,
        rows: usize,
        per_expert: usize,
        scale: f32,
    ) -> Part<'a> {
        let stride = tensor.row_bytes() as usize;
        let start = (e * per_expert + first) * stride;
        Part { tensor, bytes: &tensor.data()[start..start + rows * stride], scale }
    }
}
