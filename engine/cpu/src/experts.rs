//! The routed experts of one layer.

use crate::elementwise::{add_weighted, swiglu};
use crate::matrix::{inputs_for, mul_rows, transpose};
use crate::{Cpu, Rows};
use strata_gguf::{GgmlType, Tensor};

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
    fn mul(&self, cpu: &Cpu, x: &Rows, cols: usize, out: &mut [f32]) {
        let ty = self.tensor.ty();
        mul_rows(cpu, ty, self.bytes, self.scale, inputs_for(cpu, ty, x, cols), out);
    }
}

impl Experts {
    /// `out[t] = sum over the token's experts, in routing order, of weight * expert(x[t])`.
    ///
    /// `x` and `out` are `[rows][hidden]`; `ids` and `weights` are `[rows][used]`. Each expert's weights are read once
    /// for all tokens that use it.
    pub fn forward(&self, cpu: &Cpu, x: &Rows, ids: &[u16], weights: &[f32], used: usize, out: &mut [f32]) {
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
        // Quantise all tokens once, before experts take theirs.
        for ty in self.gate_up_types() {
            inputs_for(cpu, ty, x, hidden);
        }
        cpu.pool().each(jobs, |(group, out)| {
            let x = x.gather(hidden, group.iter().map(|&pair| pair / used));
            self.one(cpu, usize::from(ids[group[0]]), &x, out);
        });

        for (t, out) in out.chunks_exact_mut(hidden).enumerate() {
            out.fill(0.0);
            for pair in t * used..(t + 1) * used {
                let y = &outputs[place[pair] * hidden..][..hidden];
                add_weighted(cpu.isa(), out, weights[pair], y);
            }
        }
    }

    /// Expert `e` on inputs `[rows][hidden]`, to `out` of the same shape.
    fn one(&self, cpu: &Cpu, e: usize, x: &Rows, out: &mut [f32]) {
        let (hidden, width) = (self.hidden, self.width);
        let rows = x.len() / hidden;
        let (gate_part, up_part) = self.gate_up_of(e);
        let (mut gate, mut up) = (vec![0.0; width * rows], vec![0.0; width * rows]);
        gate_part.mul(cpu, x, hidden, &mut gate);
        up_part.mul(cpu, x, hidden, &mut up);
        swiglu(cpu.isa(), &mut gate, &up);
        transpose(&gate, rows, &mut up);
        let mut columns = vec![0.0; out.len()];
        self.part(&self.down, e, 0, hidden, hidden, self.scales[2]).mul(cpu, &up.into(), width, &mut columns);
        transpose(&columns, rows, out);
    }

    fn gate_up_types(&self) -> [GgmlType; 2] {
        match &self.gate_up {
            GateUp::Apart(gate, up) => [gate.ty(), up.ty()],
            GateUp::Fused(both) => [both.ty(); 2],
        }
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
