//! Attention over selected positions, and the indexer that selects them.

use crate::Cpu;
use crate::delta::gate;
use crate::dot::{LANES, dot, join};
use crate::isa::{Isa, per_isa};
use crate::math::exp;

/// The shape of an attention layer. Query head `h` reads key/value head `h / (heads / kv_heads)`.
#[derive(Debug, Clone, Copy)]
pub struct AttentionShape {
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub dim: usize,
}

/// The positions one query attends to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// The first `n` positions: plain causal attention.
    All(usize),
    /// These positions, ascending.
    Some(Vec<u32>),
}

/// Positions whose weighted values are added up before they meet the others': a GPU spreads blocks over its cores.
const BLOCK: usize = 128;

/// Block scores worth handing to another thread.
const SCORES: usize = 256;

/// For each row t: softmax attention of `q[t]` over its selected positions, times `sigmoid(gate)`.
///
/// `q`, `gates` and `out` are `[rows][heads][dim]`; `keys` and `values` are `[positions][kv_heads][dim]` and include
/// the rows themselves.
///
/// The largest score is subtracted before exponentials are taken. Selected positions are cut into blocks of 128 in
/// ascending order: within a block the weights are added in 32 partial sums (position i in sum `i mod 32`) and the
/// weighted values in order by fused multiply-add; blocks are added in order.
pub fn attend(
    cpu: &Cpu,
    shape: AttentionShape,
    q: &[f32],
    gates: &[f32],
    keys: &[f32],
    values: &[f32],
    selections: &[Selection],
    out: &mut [f32],
) {
    let AttentionShape { heads, kv_heads, dim } = shape;
    let group = heads / kv_heads;
    let isa = cpu.isa();
    cpu.pool().rows(out, dim, 1, |first, out| {
        let (mut rows, mut scores, mut part) = (Vec::new(), Vec::new(), vec![0.0; dim]);
        for (at, out) in (first..).zip(out.chunks_exact_mut(dim)) {
            let (t, kv) = (at / heads, at % heads / group);
            let q = &q[at * dim..][..dim];
            let (stride, offset) = (kv_heads * dim, kv * dim);
            rows.clear();
            match &selections[t] {
                Selection::All(n) => rows.extend((0..*n).map(|p| p * stride)),
                Selection::Some(list) => rows.extend(list.iter().map(|&p| p as usize * stride)),
            }
            attend_one(isa, q, &keys[offset..], &values[offset..], &rows, &mut scores, &mut part, out);
            gate(isa, out, &gates[at * dim..][..dim]);
        }
    });
}

/// Attention of one head over the keys and values that begin at `rows`.
fn attend_one(
    isa: Isa,
    q: &[f32],
    keys: &[f32],
    values: &[f32],
    rows: &[usize],
    scores: &mut Vec<f32>,
    part: &mut [f32],
    out: &mut [f32],
) {
    scores.clear();
    scores.resize(rows.len(), 0.0);
    score(isa, q, keys, rows, scores);
    let sum = softmax_numerators(isa, scores);
    out.fill(0.0);
    for (weights, rows) in scores.chunks(BLOCK).zip(rows.chunks(BLOCK)) {
        weighted_values(isa, weights, values, rows, part);
        out.iter_mut().zip(part.iter()).for_each(|(o, p)| *o += p);
    }
    out.iter_mut().for_each(|o| *o /= sum);
}

per_isa! {
    /// Scaled dot products of the query with the keys that begin at `rows`.
    fn score(isa: Isa, q: &[f32], keys: &[f32], rows: &[usize], scores: &mut [f32]) {
        let scale = 1.0 / (q.len() as f32).sqrt();
        for (s, &row) in scores.iter_mut().zip(rows) {
            *s = dot(q, &keys[row..row + q.len()]) * scale;
        }
    }
}

per_isa! {
    /// Replaces scores by `e^(score - largest)` and returns their sum.
    fn softmax_numerators(isa: Isa, scores: &mut [f32]) -> f32 {
        let top = scores.iter().fold(f32::NEG_INFINITY, |top, &s| if s > top { s } else { top });
        let mut sum = 0.0;
        for block in scores.chunks_mut(BLOCK) {
            for s in &mut *block {
                *s = exp(*s - top);
            }
            let mut sums = [0.0f32; LANES];
            for piece in block.chunks(LANES) {
                for (sum, s) in sums.iter_mut().zip(piece) {
                    *sum += s;
                }
            }
            sum += join(sums);
        }
        sum
    }
}

per_isa! {
    /// The sum of the values that begin at `rows`, weighted.
    fn weighted_values(isa: Isa, weights: &[f32], values: &[f32], rows: &[usize], out: &mut [f32]) {
        out.fill(0.0);
        for (&weight, &row) in weights.iter().zip(rows) {
            let value = &values[row..row + out.len()];
            for i in 0..out.len() {
                out[i] = weight.mul_add(value[i], out[i]);
            }
        }
    }
}

/// The positions a query attends to when `positions` are visible: those of the `budget` best-scoring complete blocks,
/// and the incomplete block at the end.
///
/// `q` is `[index_heads][dim]`, `block_keys` is `[blocks][dim]`. A block's score is the sum over heads of the positive
/// part of `q · key`, divided by `sqrt(dim)`; among equal scores (zero is a common one) the lower block goes first.
pub fn select(
    cpu: &Cpu,
    q: &[f32],
    block_keys: &[f32],
    dim: usize,
    block: usize,
    budget: usize,
    positions: usize,
) -> Selection {
    let blocks = positions / block;
    if blocks <= budget {
        return Selection::All(positions);
    }
    let mut scores = vec![0.0; blocks];
    cpu.pool().rows(&mut scores, 1, SCORES, |first, scores| {
        block_scores(cpu.isa(), q, &block_keys[first * dim..], dim, scores);
    });
    let mut ranked: Vec<(f32, u32)> = scores.into_iter().zip(0..).collect();
    if budget > 0 {
        ranked.select_nth_unstable_by(budget - 1, |a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    }
    let mut chosen: Vec<u32> = ranked[..budget].iter().map(|&(_, b)| b).collect();
    chosen.sort_unstable();
    let block = block as u32;
    let tail = (blocks as u32 * block)..positions as u32;
    Selection::Some(chosen.into_iter().flat_map(|b| b * block..(b + 1) * block).chain(tail).collect())
}

per_isa! {
    fn block_scores(isa: Isa, q: &[f32], block_keys: &[f32], dim: usize, scores: &mut [f32]) {
        let scale = 1.0 / (dim as f32).sqrt();
        for (score, key) in scores.iter_mut().zip(block_keys.chunks_exact(dim)) {
            let mut sum = 0.0f32;
            for q in q.chunks_exact(dim) {
                let s = dot(q, key);
                sum += if s > 0.0 { s } else { 0.0 };
            }
            *score = sum * scale;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within_the_budget_everything_is_selected() {
        assert_eq!(select(&Cpu::exactly(2, Isa::detect()), &[1.0], &[1.0, 2.0], 1, 4, 2, 11), Selection::All(11));
    }

    #[test]
    fn ties_go_to_the_lower_block_and_the_tail_is_kept() {
        let keys = [0.0, -3.0, 2.0, -1.0, 0.0];
        let Selection::Some(chosen) = select(&Cpu::exactly(2, Isa::detect()), &[1.0], &keys, 1, 2, 3, 11) else {
            panic!("expected a selection")
        };
        assert_eq!(chosen, [0, 1, 2, 3, 4, 5, 10]);
    }

    #[test]
    fn equal_scores_average_the_values() {
        let shape = AttentionShape { heads: 2, kv_heads: 1, dim: 2 };
        let mut out = [0.0; 4];
        let (q, gate) = ([0.0; 4], [100.0; 4]);
        let keys = [1.0, 2.0, 3.0, 4.0];
        let values = [2.0, 4.0, 6.0, 8.0];
        attend(&Cpu::new(2, Isa::detect()), shape, &q, &gate, &keys, &values, &[Selection::All(2)], &mut out);
        assert_eq!(out, [4.0, 6.0, 4.0, 6.0]);
    }
}
