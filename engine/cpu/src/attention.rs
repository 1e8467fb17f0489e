//! Attention over selected positions, and the indexer that selects them.

use crate::dot;
use crate::elementwise::sigmoid;
use crate::pool::Pool;

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

/// For each row t: softmax attention of `q[t]` over its selected positions, times `sigmoid(gate)`.
///
/// `q`, `gate` and `out` are `[rows][heads][dim]`; `keys` and `values` are `[positions][kv_heads][dim]` and include
/// the rows themselves. Sums run over positions in ascending order.
pub fn attend(
    pool: &Pool,
    shape: AttentionShape,
    q: &[f32],
    gate: &[f32],
    keys: &[f32],
    values: &[f32],
    selections: &[Selection],
    out: &mut [f32],
) {
    let AttentionShape { heads, kv_heads, dim } = shape;
    let scale = 1.0 / (dim as f32).sqrt();
    let group = heads / kv_heads;
    pool.rows(out, dim, 1, |first, out| {
        let mut scores = Vec::new();
        for (at, out) in (first..).zip(out.chunks_exact_mut(dim)) {
            let (t, kv) = (at / heads, at % heads / group);
            let q = &q[at * dim..][..dim];
            let row = |position: usize| (position * kv_heads + kv) * dim;
            scores.clear();
            let mut top = f32::NEG_INFINITY;
            for_each_position(&selections[t], |p| {
                let s = dot(q, &keys[row(p)..][..dim]) * scale;
                top = top.max(s);
                scores.push(s);
            });
            let mut sum = 0.0;
            for s in &mut scores {
                *s = (*s - top).exp();
                sum += *s;
            }
            out.fill(0.0);
            let mut weights = scores.iter();
            for_each_position(&selections[t], |p| {
                let weight = weights.next().copied().unwrap_or(0.0);
                out.iter_mut().zip(&values[row(p)..][..dim]).for_each(|(o, &v)| *o += weight * v);
            });
            for (o, &g) in out.iter_mut().zip(&gate[at * dim..][..dim]) {
                *o = *o / sum * sigmoid(g);
            }
        }
    });
}

fn for_each_position(selection: &Selection, mut f: impl FnMut(usize)) {
    match selection {
        Selection::All(n) => (0..*n).for_each(f),
        Selection::Some(positions) => positions.iter().for_each(|&p| f(p as usize)),
    }
}

/// The positions a query attends to when `positions` are visible: those of the `budget` best-scoring complete blocks,
/// and the incomplete block at the end.
///
/// `q` is `[index_heads][dim]`, `block_keys` is `[blocks][dim]`. A block's score is the sum over heads of the positive
/// part of `q · key`, divided by `sqrt(dim)`; among equal scores (zero is a common one) the lower block goes first.
pub fn select(q: &[f32], block_keys: &[f32], dim: usize, block: usize, budget: usize, positions: usize) -> Selection {
    let blocks = positions / block;
    if blocks <= budget {
        return Selection::All(positions);
    }
    let scale = 1.0 / (dim as f32).sqrt();
    let mut ranked: Vec<(f32, u32)> = block_keys
        .chunks_exact(dim)
        .take(blocks)
        .zip(0..)
        .map(|(key, b)| (q.chunks_exact(dim).map(|q| dot(q, key).max(0.0)).sum::<f32>() * scale, b))
        .collect();
    if budget > 0 {
        ranked.select_nth_unstable_by(budget - 1, |a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    }
    let mut chosen: Vec<u32> = ranked[..budget].iter().map(|&(_, b)| b).collect();
    chosen.sort_unstable();
    let block = block as u32;
    let tail = (blocks as u32 * block)..positions as u32;
    Selection::Some(chosen.into_iter().flat_map(|b| b * block..(b + 1) * block).chain(tail).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within_the_budget_everything_is_selected() {
        assert_eq!(select(&[1.0], &[1.0, 2.0], 1, 4, 2, 11), Selection::All(11));
    }

    #[test]
    fn ties_go_to_the_lower_block_and_the_tail_is_kept() {
        let keys = [0.0, -3.0, 2.0, -1.0, 0.0];
        let Selection::Some(chosen) = select(&[1.0], &keys, 1, 2, 3, 11) else { panic!("expected a selection") };
        assert_eq!(chosen, [0, 1, 2, 3, 4, 5, 10]);
    }

    #[test]
    fn equal_scores_average_the_values() {
        let shape = AttentionShape { heads: 2, kv_heads: 1, dim: 2 };
        let mut out = [0.0; 4];
        let (q, gate) = ([0.0; 4], [100.0; 4]);
        let keys = [1.0, 2.0, 3.0, 4.0];
        let values = [2.0, 4.0, 6.0, 8.0];
        attend(&Pool::new(2), shape, &q, &gate, &keys, &values, &[Selection::All(2)], &mut out);
        assert_eq!(out, [4.0, 6.0, 4.0, 6.0]);
    }
}
