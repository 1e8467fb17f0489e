//! Kernels that do several operations at once have the bits of these one after another.

use super::{Numbers, cpu, gpu, same, tensor};
use strata_cpu::delta::{self, DeltaShape, Updates};
use strata_cpu::experts::GateUp;
use strata_cpu::{Isa, Rows, conv, elementwise, norm};
use strata_cuda::{DeltaInputs, DeltaWindow, Exchange, Experts, Floats, Matrix, Note, Routed, SharedExpert, Sizes};
use strata_gguf::GgmlType;

/// Values that are no numbers, or whose squares are none.
const ODD: [f32; 4] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e25];

/// Puts some odd values among others, about one in `apart`.
fn spoil(numbers: &mut Numbers, values: &mut [f32], apart: usize) {
    for _ in 0..values.len().div_ceil(apart) {
        let at = numbers.next() as usize % values.len();
        values[at] = ODD[numbers.next() as usize % ODD.len()];
    }
}

#[test]
fn windows_of_delta_net_layers() {
    let Some(device) = gpu() else { return };
    let mut numbers = Numbers(41);
    let up = |v: &[f32]| Floats::upload(&device, v);
    let shapes = [(2, 4, 8), (1, 3, 16), (2, 6, 32), (3, 3, 32), (4, 8, 64), (2, 6, 128), (1, 2, 256), (3, 2, 16)];
    for (key_heads, value_heads, dim) in shapes {
        let shape = DeltaShape { key_heads, value_heads, dim };
        let (channels, width) = (shape.channels(), value_heads * dim);
        let consumers = [GgmlType::Q8_0, GgmlType::F32].map(|ty| {
            let width = if width % 32 == 0 { width } else { 32 };
            tensor(ty, &[width as u64, 5], numbers.weights(ty, 5 * width))
        });
        for rows in 1..=9 {
            let taps = if rows < 6 { 4 } else { rows - 5 };
            let odd = rows % 3 == 2;
            let mut random = |n: usize, size: f32| {
                let mut values = numbers.floats(n, size);
                if odd && n > 5000 {
                    spoil(&mut numbers, &mut values, 3000);
                }
                values
            };
            let (x, w) = (random(rows * channels, 2.0), random(taps * channels, 0.7));
            let history = random((taps - 1) * channels, 1.0);
            let (beta, alpha) = (random(rows * value_heads, 3.0), random(rows * value_heads, 3.0));
            let (mut a, dt) = (random(value_heads, 2.0), random(value_heads, 2.0));
            a.iter_mut().for_each(|v| *v = -v.abs());
            let (state, gamma, z) = (random(shape.state_len(), 0.5), random(dim, 1.5), random(rows * width, 4.0));

            let mut qkv = vec![0.0; x.len()];
            conv::causal_silu(&cpu(), &x, &w, taps, 1, channels, &mut history.clone(), &mut qkv);
            let mut out = vec![0.0; rows * width];
            let (mut keys, mut deltas) = (vec![0.0; rows * key_heads * dim], vec![0.0; rows * width]);
            let mut decays = vec![0.0; rows * value_heads];
            let updates = Updates { keys: &mut keys[..], deltas: &mut deltas[..], decays: &mut decays[..] };
            delta::scan_noting(&cpu(), shape, &mut qkv, &beta, &alpha, &a, &dt, &state, updates, &mut out);
            delta::gated_norm(cpu().isa(), &mut out, &gamma, &z, 1e-6);

            for consumer in &consumers {
                let what = |part: &str| format!("{part}, {rows} rows of {value_heads} heads of {dim}, {taps} taps");
                let matrix = Matrix::new(&device, consumer, 1.0).unwrap();
                let room = rows + 1;
                let mut inputs = up(&vec![7.0; room * channels]);
                let mut notes = Updates {
                    keys: Floats::zeros(&device, room * key_heads * dim),
                    deltas: Floats::zeros(&device, room * width),
                    decays: Floats::zeros(&device, room * value_heads),
                };
                let (there, before) = (up(&state), up(&history));
                let window = DeltaWindow {
                    rule: DeltaInputs { qkv: up(&x), beta: &up(&beta), alpha: &up(&alpha), a: &up(&a), dt: &up(&dt) },
                    z: &up(&z),
                    conv: &up(&w),
                    taps,
                    history: &before,
                    state: &there,
                    gamma: &up(&gamma),
                    eps: 1e-6,
                };
                let got = window.run(shape, &mut inputs, &mut notes, &matrix);
                same(&what("results"), &got.download(), &out);
                same(&what("inputs"), &inputs.download(), &[&x[..], &vec![7.0; channels]].concat());
                // The keys of heads that no value head has are not noted by the device.
                if key_heads <= value_heads {
                    same(&what("keys"), &notes.keys.download()[..keys.len()], &keys);
                }
                same(&what("differences"), &notes.deltas.download()[..deltas.len()], &deltas);
                same(&what("decays"), &notes.decays.download()[..decays.len()], &decays);
                same(&what("state"), &there.download(), &state);
                same(&what("history"), &before.download(), &history);
                if width % 32 == 0 {
                    let mut y = vec![0.0; rows * 5];
                    strata_cpu::Matrix::new(consumer.clone(), 1.0).mul(&cpu(), &Rows::from(out.clone()), &mut y);
                    same(&what("product"), &matrix.mul(&got).download(), &y);
                }
            }
        }
    }
    assert!(device.failure().is_none());
}

#[test]
fn a_write_to_streams_and_the_norm_behind_it() {
    let Some(device) = gpu() else { return };
    let mut numbers = Numbers(43);
    let (up, isa) = (|v: &[f32]| Floats::upload(&device, v), Isa::detect());
    for (width, streams) in [(7, 4), (320, 4), (512, 3), (2560, 4), (4096, 2), (4100, 2)] {
        for rows in 1..=9 {
            let len = streams * width;
            let (mut r, mut y) = (numbers.floats(rows * len, 3.0), numbers.floats(rows * width, 2.0));
            let (a, gamma) = (numbers.floats(rows * streams, 2.0), numbers.floats(len, 1.5));
            if rows % 3 == 2 {
                spoil(&mut numbers, &mut r, 4 * len);
                spoil(&mut numbers, &mut y, 3 * width);
            }
            let mut there = up(&r);
            for ((r, a), y) in r.chunks_mut(len).zip(a.chunks(streams)).zip(y.chunks(width)) {
                elementwise::add_to_streams(isa, r, a, y);
            }
            let normed = |x: &[f32], gamma: &[f32]| {
                let mut y = vec![0.0; x.len()];
                for (x, y) in x.chunks(len).zip(y.chunks_mut(len)) {
                    norm::rms(isa, x, gamma, streams, 1e-6, y);
                }
                y
            };
            let what = |part: &str| format!("{part}, {rows} rows of {streams} streams of {width}");
            let found = up(&[f32::from_bits(u32::MAX); 2]);
            let note = Note { found: &found, site: 5, largest: 1e18 };
            let factors = up(&gamma);
            there.add_to_streams_normed(&up(&a), &up(&y), width, &factors, 1e-6, Some(note));
            same(&what("streams"), &there.download(), &r);
            let bits: Vec<u32> = found.download().iter().map(|v| v.to_bits()).collect();
            let noted = Floats::noted([bits[0], bits[1]]).map(|(site, found)| (site, found.index));
            let odd = r.iter().position(|v| v.is_nan() || v.abs() > 1e18);
            assert_eq!(noted, odd.map(|at| (5, at)), "{}", what("what is no number"));

            // Another norm is made anew, whatever is there.
            let other = numbers.floats(len, 1.0);
            same(&what("another norm"), &there.group_norm(&up(&other), streams, 1e-6).download(), &normed(&r, &other));
            same(&what("norm"), &there.group_norm(&factors, streams, 1e-6).download(), &normed(&r, &gamma));
            same(&what("norm, again"), &there.group_norm(&factors, streams, 1e-6).download(), &normed(&r, &gamma));
            // What changes the streams undoes their norm.
            there.add_to_streams_normed(&up(&a), &up(&y), width, &factors, 1e-6, None);
            there.overwrite(&up(&other));
            r[..len].copy_from_slice(&other);
            let got = there.group_norm(&factors, streams, 1e-6).download();
            same(&what("norm of others"), &got[..len], &normed(&r, &gamma)[..len]);
        }
    }
    assert!(device.failure().is_none());
}

/// A recorded layer of experts has the sum of one that is not, however many terms that has.
#[test]
fn sums_of_few_and_many_experts() {
    let Some(device) = gpu() else { return };
    let mut numbers = Numbers(47);
    let (rows, hidden, width, count) = (3, 288, 32, 40);
    let mut weights = |dims: &[u64]| {
        let values = dims.iter().product::<u64>() as usize;
        tensor(GgmlType::Q8_0, dims, numbers.weights(GgmlType::Q8_0, values))
    };
    let (wide, high) = ([hidden as u64, width as u64], [width as u64, hidden as u64]);
    let gate_up = GateUp::Apart(weights(&[wide[0], wide[1], count as u64]), weights(&[wide[0], wide[1], count as u64]));
    let down = weights(&[high[0], high[1], count as u64]);
    let there = Experts::new(&device, &gate_up, &down, [0.5, 0.25, 2.0], [count, hidden, width]).unwrap();
    let [gate, up, out] =
        [weights(&wide), weights(&wide), weights(&high)].map(|t| Matrix::new(&device, &t, 1.0).unwrap());
    let [x, opening, logits] = [(rows * hidden, 0.3), (rows, 2.0), (rows * count, 3.0)]
        .map(|(n, size)| Floats::upload(&device, &numbers.floats(n, size)));
    let shared = SharedExpert { gate: &gate, up: &up, down: &out, opening: &opening };
    for used in [1, 10, 15, 16, 20, 32] {
        let (ids, weights) = logits.route(count, used);
        let expected = there.forward(&x, Routed { used, ids: &ids, weights: &weights }, &shared).download();
        let sizes = Sizes { rows, used, hidden, width, layers: 1 };
        let exchange = Exchange::new(&device, sizes, Floats::zeros(&device, 2)).unwrap();
        let layer = || {
            shared.prepare(&x);
            let routed = logits.routed(count, used, None);
            exchange.layer(&x, &routed, &opening, &there.kinds(), Some(&there), None, |at| shared.results(&x, at))
        };
        let (graph, sum) = device.record(layer).unwrap();
        graph.launch();
        same(&format!("{used} experts"), &sum.download(), &expected);
    }
    assert!(device.failure().is_none());
}
