//! The experts of one layer: those that the router chose, and the one that every token uses.
//!
//! A window's work is cut by rows of weights, not by experts, so that any number of threads shares it evenly however
//! the tokens are spread over the experts. There are two rounds: gate and up projections, a task having some rows of
//! one expert; then down projections, a task having some rows of every expert, so that it can add up what belongs to
//! an output in the written order. Each weight is read once per window.

use crate::activations::Activations;
use crate::elementwise::swiglu;
use crate::isa::per_isa;
use crate::math::sigmoid;
use crate::matrix::{Inputs, ROWS, WORK, Weights, block_for, evenly, inputs_for, transpose};
use crate::rows::Picked;
use crate::stripes::{Stripe, stripes};
use crate::{Cpu, Matrix, Rows, scratch};
use std::cmp::Reverse;
use strata_gguf::Tensor;

/// Values of intermediate results that a task of the second round keeps at a time, for its cache's sake.
const KEPT: usize = 128 * 1024;

/// Values worth quantising on several threads.
const QUANTISED: usize = 64 * 1024;

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

/// The experts that the rows of a window use.
#[derive(Clone, Copy)]
pub struct Choices<'a> {
    /// Experts per row.
    pub used: usize,
    /// `[rows][used]`, in routing order.
    pub ids: &'a [u16],
    /// `[rows][used]`
    pub weights: &'a [f32],
}

/// The expert that every row uses.
#[derive(Clone, Copy)]
pub struct Shared<'a> {
    /// Gate projection, `[width][hidden]`.
    pub gate: &'a Matrix,
    /// Up projection, `[width][hidden]`.
    pub up: &'a Matrix,
    /// Down projection, `[hidden][width]`.
    pub down: &'a Matrix,
    /// `[rows]`: its weight in each row is the logistic function of this.
    pub opening: &'a [f32],
}

/// An expert and the rows that use it.
struct Group<'a> {
    gate: Weights<'a>,
    up: Weights<'a>,
    down: Weights<'a>,
    x: Picked<'a>,
    /// Number of its first result among all.
    first: usize,
    rows: usize,
}

impl Group<'_> {
    fn width(&self) -> usize {
        self.gate.rows()
    }

    /// What a row of its weights costs, in products with a row of inputs; unpacking it costs about one.
    fn cost(&self) -> usize {
        self.rows + 1
    }
}

/// Intermediate results in the form that a weight type is multiplied with.
enum Form<'a> {
    Floats(&'a [f32], usize),
    Integers(Box<Activations>),
}

impl Form<'_> {
    fn inputs(&self) -> Inputs<'_> {
        match self {
            Form::Floats(x, cols) => Inputs::Floats { x, cols: *cols },
            Form::Integers(a) => Inputs::Integers(a),
        }
    }
}

impl Experts {
    /// `out[t] = sum over the row's experts, in routing order, of weight * expert(x[t])`, the shared expert last.
    ///
    /// `x` and `out` are `[rows][hidden]`.
    pub fn forward(&self, cpu: &Cpu, x: &Rows, choices: Choices<'_>, shared: Option<Shared<'_>>, out: &mut [f32]) {
        let Choices { used, ids, .. } = choices;
        // Pairs (row, choice) grouped by expert; `place[pair]` is the number of the pair's result.
        let mut order: Vec<usize> = (0..ids.len()).collect();
        order.sort_by_key(|&pair| ids[pair]);
        let mut place = vec![0; ids.len()];
        order.iter().enumerate().for_each(|(at, &pair)| place[pair] = at);
        let mut groups = self.groups(x, choices, &order);
        let first = ids.len();
        if let Some(Shared { gate, up, down, opening }) = shared {
            let (gate, up, down) = (gate.weights(), up.weights(), down.weights());
            groups.push(Group { gate, up, down, x: Picked::all(x, self.hidden), first, rows: opening.len() });
        }
        // Each row's terms in order: the number of the result, and its weight.
        let mut terms = Vec::new();
        for t in 0..out.len() / self.hidden {
            let pairs = t * used..(t + 1) * used;
            terms.extend(pairs.map(|pair| (place[pair], choices.weights[pair])));
            terms.extend(shared.map(|shared| (first + t, sigmoid(shared.opening[t]))));
        }
        self.sum(cpu, x, &groups, &terms, out);
    }

    /// What some of the pairs (row, choice), which have the numbers `row * used + choice`, add to their rows before it is weighted:
    /// `out[i] = expert(x[row])` for pair i, `[pairs][hidden]`. Pairs of one expert are in ascending order.
    pub fn results(&self, cpu: &Cpu, x: &Rows, choices: Choices<'_>, pairs: &[usize], out: &mut [f32]) {
        let mut order: Vec<usize> = (0..pairs.len()).collect();
        order.sort_by_key(|&i| choices.ids[pairs[i]]);
        let mut terms = vec![(0, 1.0); pairs.len()];
        order.iter().enumerate().for_each(|(at, &i)| terms[i].0 = at);
        let order: Vec<usize> = order.into_iter().map(|i| pairs[i]).collect();
        let groups = self.groups(x, choices, &order);
        // A sum of one term with weight 1 is the term.
        self.sum(cpu, x, &groups, &terms, out);
    }

    /// The groups of pairs that are in the order of their experts.
    fn groups<'a>(&'a self, x: &'a Rows, choices: Choices<'_>, order: &'a [usize]) -> Vec<Group<'a>> {
        let Choices { used, ids, .. } = choices;
        let mut groups = Vec::with_capacity(order.len().min(self.count) + 1);
        let mut first = 0;
        for pairs in order.chunk_by(|&a, &b| ids[a] == ids[b]) {
            groups.push(self.group(usize::from(ids[pairs[0]]), Picked::new(x, self.hidden, pairs, used), first, pairs));
            first += pairs.len();
        }
        groups
    }

    /// The weighted sums of the groups' results; `terms` as [`down`] has them.
    fn sum(&self, cpu: &Cpu, x: &Rows, groups: &[Group<'_>], terms: &[(usize, f32)], out: &mut [f32]) {
        // Quantise all rows once, before experts take theirs.
        for group in groups {
            inputs_for(cpu.isa(), group.gate.ty(), x, self.hidden);
            inputs_for(cpu.isa(), group.up.ty(), x, self.hidden);
        }
        let mut middle = vec![0.0; groups.iter().map(|g| g.rows * g.width()).sum()];
        gate_and_up(cpu, groups, self.hidden, &mut middle);
        let middle = quantised(cpu, groups, &middle);
        down(cpu, groups, &middle, self.hidden, terms, out);
    }

    fn group<'a>(&'a self, e: usize, x: Picked<'a>, first: usize, pairs: &[usize]) -> Group<'a> {
        let (w, [gate, up, down]) = (self.width, self.scales);
        let (gate, up) = match &self.gate_up {
            GateUp::Apart(g, u) => (Weights::of(g, e * w, w, gate), Weights::of(u, e * w, w, up)),
            GateUp::Fused(both) => (Weights::of(both, 2 * e * w, w, gate), Weights::of(both, (2 * e + 1) * w, w, up)),
        };
        let down = Weights::of(&self.down, e * self.hidden, self.hidden, down);
        Group { gate, up, down, x, first, rows: pairs.len() }
    }
}

/// `silu(gate x) * (up x)` of every group, `[rows][width]` each, one after another in `middle`.
fn gate_and_up(cpu: &Cpu, groups: &[Group<'_>], hidden: usize, middle: &mut [f32]) {
    let isa = cpu.isa();
    let work = groups.iter().map(|g| 2 * g.cost() * g.width() * hidden).sum();
    let piece = cpu.pool().piece(work, WORK);
    let mut jobs = Vec::new();
    let mut rest = middle;
    for group in groups {
        let (mine, others) = rest.split_at_mut(group.rows * group.width());
        rest = others;
        let width = evenly(group.width(), piece / (2 * group.cost() * hidden));
        jobs.extend(stripes(mine, group.width(), width).map(|stripe| (group, width * group.cost(), stripe)));
    }
    // The largest first, so that threads finish together.
    jobs.sort_by_key(|&(_, cost, _)| Reverse(cost));
    cpu.pool().each(jobs, |(group, _, stripe)| {
        let first = stripe.first();
        let (x_gate, x_up) = (group.x.inputs(isa, group.gate.ty()), group.x.inputs(isa, group.up.ty()));
        stripe.by_columns(|gate| {
            scratch::with(gate.len(), |up| {
                group.gate.mul(isa, first, x_gate, gate);
                group.up.mul(isa, first, x_up, up);
                swiglu(isa, gate, up);
            });
        });
    });
}

/// The results of [`gate_and_up`] in the forms that the groups' down projections want.
fn quantised<'a>(cpu: &Cpu, groups: &[Group<'_>], middle: &'a [f32]) -> Vec<Form<'a>> {
    let mut rest = middle;
    let mut floats = |group: &Group<'_>| {
        let (mine, others) = rest.split_at(group.rows * group.width());
        rest = others;
        Form::Floats(mine, group.width())
    };
    let mut forms: Vec<Form<'a>> = groups.iter().map(&mut floats).collect();
    let quantise = |(form, group): (&mut Form<'a>, &Group<'_>)| {
        if let (Form::Floats(x, width), Some(block)) = (&*form, block_for(group.down.ty())) {
            *form = Form::Integers(Box::new(Activations::new(cpu.isa(), x, *width, block)));
        }
    };
    if middle.len() < QUANTISED {
        forms.iter_mut().zip(groups).for_each(quantise);
    } else {
        cpu.pool().each(forms.iter_mut().zip(groups).collect(), quantise);
    }
    forms
}

/// The weighted sums of the groups' down projections: `terms` names for each row of `out`, `[rows][hidden]`, the
/// results that it adds up, and their weights.
fn down(cpu: &Cpu, groups: &[Group<'_>], middle: &[Form<'_>], hidden: usize, terms: &[(usize, f32)], out: &mut [f32]) {
    let isa = cpu.isa();
    let per_row = terms.len() / (out.len() / hidden).max(1);
    let results: usize = groups.iter().map(|g| g.rows).sum();
    let largest = groups.iter().map(|g| g.rows).max().unwrap_or(0);
    let work: usize = groups.iter().map(|g| g.cost() * g.width()).sum();
    let width = evenly(hidden, cpu.pool().piece(work * hidden, WORK) / work.max(1));
    let kept = (KEPT / results.max(1)).next_multiple_of(ROWS);
    let sums = |mut stripe: Stripe<'_>| {
        let (first, len) = (stripe.first(), stripe.len());
        // Results as `[results][len]`, and room for a group's products before they are turned.
        scratch::with((results + largest) * len, |values| {
            let (values, columns) = values.split_at_mut(results * len);
            for (group, x) in groups.iter().zip(middle) {
                let values = &mut values[group.first * len..][..group.rows * len];
                if group.rows == 1 {
                    group.down.mul(isa, first, x.inputs(), values);
                } else {
                    let columns = &mut columns[..values.len()];
                    group.down.mul(isa, first, x.inputs(), columns);
                    transpose(columns, group.rows, values);
                }
            }
            for (row, terms) in stripe.rows().zip(terms.chunks_exact(per_row)) {
                weighted_sum(isa, values, terms, row);
            }
        });
    };
    cpu.pool().each(stripes(out, hidden, width).collect(), |stripe| stripe.cut(kept).for_each(sums));
}

per_isa! {
    /// `out = sum over terms, in order, of weight * values[number]` by fused multiply-add, from zero; `values` has rows
    /// as long as `out`.
    fn weighted_sum(isa: Isa, values: &[f32], terms: &[(usize, f32)], out: &mut [f32]) {
        let len = out.len();
        out.fill(0.0);
        for &(number, weight) in terms {
            let y = &values[number * len..][..len];
            for i in 0..len {
                out[i] = weight.mul_add(y[i], out[i]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::silu;
    use strata_gguf::{GgmlType, Gguf, Writer};

    const HIDDEN: usize = 256;
    const WIDTH: usize = 64;
    const COUNT: usize = 6;

    fn tensors(types: [GgmlType; 3]) -> Gguf {
        let mut w = Writer::new();
        let mut add = |name: &str, dims: &[u64], ty: GgmlType| {
            let values: usize = dims.iter().map(|&d| d as usize).product();
            let bytes = (0..values / ty.block_values() * ty.block_bytes())
                // Bytes whose pairs are small numbers, whether a type reads them as halves or as floats.
                .map(|i| (i as u32 + name.len() as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] & 0x2f)
                .collect();
            w.tensor(name, dims, ty, bytes).unwrap();
        };
        let [gate_up, down, shared] = types;
        add("gate", &[HIDDEN as u64, WIDTH as u64, COUNT as u64], gate_up);
        add("up_exps", &[HIDDEN as u64, WIDTH as u64, COUNT as u64], gate_up);
        add("both", &[HIDDEN as u64, 2 * WIDTH as u64, COUNT as u64], gate_up);
        add("down_e", &[WIDTH as u64, HIDDEN as u64, COUNT as u64], down);
        add("shared_gate", &[HIDDEN as u64, 32], shared);
        add("shared_up", &[HIDDEN as u64, 32], shared);
        add("shared_down", &[32, HIDDEN as u64], shared);
        Gguf::from_bytes("experts", w.to_bytes().unwrap()).unwrap()
    }

    /// One row of one expert, step after step.
    fn plain([gate, up, down]: [Weights<'_>; 3], x: &[f32]) -> Vec<f32> {
        let isa = crate::Isa::SCALAR;
        let product = |w: Weights<'_>, x: &[f32]| {
            let x = Rows::from(x.to_vec());
            let mut y = vec![0.0; w.rows()];
            w.mul(isa, 0, inputs_for(isa, w.ty(), &x, x.len()), &mut y);
            y
        };
        let (gate, up) = (product(gate, x), product(up, x));
        product(down, &gate.iter().zip(up).map(|(&g, u)| silu(g) * u).collect::<Vec<f32>>())
    }

    #[test]
    fn any_number_of_threads_and_rows_gives_the_bits_of_the_plain_form() {
        for types in
            [[GgmlType::IQ3_S, GgmlType::IQ4_NL, GgmlType::Q4_0], [GgmlType::BF16, GgmlType::F32, GgmlType::Q8_0]]
        {
            let gguf = tensors(types);
            let get = |name: &str| gguf.require(name).unwrap().clone();
            let matrix = |name: &str| Matrix::new(get(name), 1.0);
            let (gate, up, down) = (matrix("shared_gate"), matrix("shared_up"), matrix("shared_down"));
            for (fused, rows, used) in [(false, 1, 3), (true, 1, 3), (false, 4, 2), (true, 40, 3)] {
                let gate_up = match fused {
                    true => GateUp::Fused(get("both")),
                    false => GateUp::Apart(get("gate"), get("up_exps")),
                };
                let scales = [0.5, 0.25, 2.0];
                let experts =
                    Experts { gate_up, down: get("down_e"), scales, count: COUNT, hidden: HIDDEN, width: WIDTH };
                let x: Vec<f32> = (0..rows * HIDDEN).map(|i| (i as f32 * 0.37).sin()).collect();
                // The first expert is every row's: popularity is skewed.
                let ids: Vec<u16> = (0..rows).flat_map(|t| [4, (t % 3) as u16, 5][..used].to_vec()).collect();
                let weights: Vec<f32> = (0..ids.len()).map(|i| 0.1 + (i % 7) as f32 * 0.07).collect();
                let opening: Vec<f32> = (0..rows).map(|t| t as f32 * 0.3 - 1.0).collect();

                let mut expected = vec![0.0f32; x.len()];
                for (t, sum) in expected.chunks_exact_mut(HIDDEN).enumerate() {
                    let x = &x[t * HIDDEN..][..HIDDEN];
                    let mut add = |weight: f32, y: Vec<f32>| {
                        sum.iter_mut().zip(y).for_each(|(s, y)| *s = weight.mul_add(y, *s));
                    };
                    for pair in t * used..(t + 1) * used {
                        let nothing = Rows::default();
                        let g = experts.group(usize::from(ids[pair]), Picked::all(&nothing, HIDDEN), 0, &[]);
                        add(weights[pair], plain([g.gate, g.up, g.down], x));
                    }
                    add(sigmoid(opening[t]), plain([&gate, &up, &down].map(Matrix::weights), x));
                }
                assert!(expected.iter().all(|v| v.is_finite()) && expected.iter().any(|&v| v != 0.0), "{types:?}");
                for threads in [1, 2, 3, 5, 16] {
                    let cpu = Cpu::exactly(threads, crate::Isa::detect());
                    let mut out = vec![f32::NAN; x.len()];
                    let choices = Choices { used, ids: &ids, weights: &weights };
                    let shared = Shared { gate: &gate, up: &up, down: &down, opening: &opening };
                    experts.forward(&cpu, &x.clone().into(), choices, Some(shared), &mut out);
                    let same = out.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits());
                    assert!(same, "{types:?}, fused: {fused}, {rows} rows, {threads} threads");
                    // Every other pair by itself.
                    let pairs: Vec<usize> = (0..ids.len()).step_by(2).collect();
                    let mut some = vec![f32::NAN; pairs.len() * HIDDEN];
                    experts.results(&cpu, &x.clone().into(), choices, &pairs, &mut some);
                    for (&pair, found) in pairs.iter().zip(some.chunks_exact(HIDDEN)) {
                        let nothing = Rows::default();
                        let g = experts.group(usize::from(ids[pair]), Picked::all(&nothing, HIDDEN), 0, &[]);
                        let alone = plain([g.gate, g.up, g.down], &x[pair / used * HIDDEN..][..HIDDEN]);
                        // Zeros have no sign once something was added to them.
                        assert!(
                            alone.iter().zip(found).all(|(a, b)| (a + 0.0).to_bits() == b.to_bits()),
                            "pair {pair}"
                        );
                    }
                }
            }
        }
    }
}
