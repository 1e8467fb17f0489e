//! Every operation has the bits of its twin on the CPU. Needs a GPU, and says so where there is none.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fused;

use strata_cpu::attention::{self, AttentionShape};
use strata_cpu::delta::{self, DeltaShape, Updates};
use strata_cpu::experts::{self, Choices, GateUp, Shared};
use strata_cpu::rope::Rope;
use strata_cpu::{Cpu, Isa, Rows, conv, elementwise, norm, router};
use strata_cuda::{
    Act, Cache, DeltaInputs, Device, Experts, First, Floats, Matrix, Note, Routed, Selection, SharedExpert, Slots,
    Turns,
};
use strata_gguf::{GgmlType, Gguf, Writer};

/// The first GPU, or a line that says why not.
fn gpu() -> Option<Device> {
    let device = Device::open(0).inspect_err(|e| println!("skipped: {e}"));
    let emulated = std::env::var_os("EMULATED_GPU_SEED").is_some();
    assert!(device.is_ok() || !emulated, "the emulated GPU is not there");
    device.ok()
}

fn cpu() -> Cpu {
    Cpu::exactly(2, Isa::detect())
}

/// Numbers without a pattern, from a seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Between -`size` and `size`.
    fn floats(&mut self, n: usize, size: f32) -> Vec<f32> {
        (0..n).map(|_| (self.next() as i32 as f32) / (i32::MAX as f32) * size).collect()
    }

    /// Blocks of a type, whose scales are of ordinary size.
    fn weights(&mut self, ty: GgmlType, values: usize) -> Vec<u8> {
        match ty {
            GgmlType::F32 => self.floats(values, 1.0).iter().flat_map(|v| v.to_le_bytes()).collect(),
            GgmlType::BF16 => {
                self.floats(values, 1.0).iter().flat_map(|v| ((v.to_bits() >> 16) as u16).to_le_bytes()).collect()
            }
            _ => {
                let mut bytes: Vec<u8> =
                    (0..values / ty.block_values() * ty.block_bytes()).map(|_| self.next() as u8).collect();
                for block in bytes.chunks_exact_mut(ty.block_bytes()) {
                    let n = block.len();
                    for at in [1, 3, n - 1, n.saturating_sub(3)] {
                        if let Some(byte) = block.get_mut(at) {
                            *byte = (*byte & 0x83) | 0x28;
                        }
                    }
                }
                bytes
            }
        }
    }
}

#[track_caller]
fn same(what: &str, gpu: &[f32], cpu: &[f32]) {
    assert_eq!(gpu.len(), cpu.len(), "{what}");
    let bits = |v: &f32| if v.is_nan() { u32::MAX } else { v.to_bits() };
    let differ = gpu.iter().zip(cpu).filter(|(a, b)| bits(a) != bits(b)).count();
    let first = gpu.iter().zip(cpu).position(|(a, b)| bits(a) != bits(b));
    if let Some(at) = first {
        panic!("{what}: {differ} of {} values differ, first {at}: {} instead of {}", gpu.len(), gpu[at], cpu[at]);
    }
}

fn tensor(ty: GgmlType, dims: &[u64], bytes: Vec<u8>) -> strata_gguf::Tensor {
    let mut w = Writer::new();
    w.tensor("w", dims, ty, bytes).unwrap();
    Gguf::from_bytes("test", w.to_bytes().unwrap()).unwrap().require("w").unwrap().clone()
}

#[test]
fn products_of_every_type() {
    let Some(device) = gpu() else { return };
    let mut numbers = Numbers(0x1234_5678_9abc_def1);
    let mut wrong = Vec::new();
    for &ty in GgmlType::ALL {
        for (rows, blocks, tokens) in [
            (5, 1, 1),
            (37, 3, 2),
            (64, 10, 1),
            (16, 10, 3),
            (9, 4, 8),
            (130, 2, 13),
            (512, 2560 / 256, 4),
            (37, 9, 20),
            (200, 20, 33),
            (75, 11, 130),
        ] {
            let cols = if ty.block_values() == 1 { blocks * 97 } else { blocks * ty.block_values() };
            let bytes = numbers.weights(ty, rows * cols);
            let t = tensor(ty, &[cols as u64, rows as u64], bytes);
            let x = numbers.floats(tokens * cols, 3.0);
            let mut expected = vec![0.0; tokens * rows];
            strata_cpu::Matrix::new(t.clone(), 0.75).mul(&cpu(), &Rows::from(x.clone()), &mut expected);
            let got = Matrix::new(&device, &t, 0.75).unwrap().mul(&Floats::upload(&device, &x)).download();
            if let Some(e) = device.failure() {
                panic!("{ty}: {e}");
            }
            let bits = |v: &f32| if v.is_nan() { u32::MAX } else { v.to_bits() };
            let differ = got.iter().zip(&expected).filter(|(a, b)| bits(a) != bits(b)).count();
            if differ > 0 {
                wrong.push(format!("{ty} {rows} x {cols}, {tokens} tokens: {differ} of {}", got.len()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn several_matrices_with_one_input() {
    let Some(device) = gpu() else { return };
    let mut numbers = Numbers(99);
    let (width, low) = (96, 320);
    let types = [GgmlType::BF16, GgmlType::Q4_0, GgmlType::BF16, GgmlType::F32, GgmlType::Q4_0, GgmlType::F16];
    for tokens in [1, 3, 8, 50] {
        let x = numbers.floats(tokens * low, 2.0);
        let there = Floats::upload(&device, &x);
        let tensors: [_; 6] = std::array::from_fn(|i| {
            let (ty, rows) = (types[i], 3 + 17 * i);
            tensor(ty, &[low as u64, rows as u64], numbers.weights(ty, rows * low))
        });
        let expected = |t: &strata_gguf::Tensor| {
            let mut y = vec![0.0; tokens * t.rows() as usize];
            strata_cpu::Matrix::new(t.clone(), 0.5).mul(&cpu(), &Rows::from(x.clone()), &mut y);
            y
        };
        let matrices = tensors.each_ref().map(|t| Matrix::new(&device, t, 0.5).unwrap());
        let acts = [Act::Silu, Act::None, Act::Inject, Act::None, Act::None, Act::Silu];
        let asked: [_; 6] = std::array::from_fn(|i| (&matrices[i], acts[i]));
        for ((got, t), act) in Matrix::mul_all(asked, &there, 4.0).iter().zip(&tensors).zip(acts) {
            let mut y = expected(t);
            match act {
                Act::None => {}
                Act::Silu => elementwise::silu_scaled(cpu().isa(), &mut y, 4.0),
                Act::Inject => elementwise::inject_weights(cpu().isa(), &mut y, 4.0),
            }
            same(&format!("{act:?} of {}, {tokens} tokens", t.ty()), &got.download(), &y);
        }
        for ty in [GgmlType::BF16, GgmlType::F16, GgmlType::F32] {
            let t = tensor(ty, &[low as u64, 4 * width as u64], numbers.weights(ty, 4 * width * low));
            let values = numbers.floats(tokens * 4 * width, 1.0);
            let (gate, mut y) = (expected(&t), vec![0.0; tokens * width]);
            for ((g, n), y) in gate.chunks(4 * width).zip(values.chunks(4 * width)).zip(y.chunks_mut(width)) {
                elementwise::mix_streams(cpu().isa(), g, n, 4, y);
            }
            let matrix = Matrix::new(&device, &t, 0.5).unwrap();
            let there_values = Floats::upload(&device, &values);
            // Of many rows, product and mean are taken apart.
            let got = matrix.mix(&there, &there_values, 4, width);
            let got = got.unwrap_or_else(|| matrix.mul(&there).mix_streams(&there_values, 4, width));
            same(&format!("mix of {ty}, {tokens} tokens"), &got.download(), &y);
        }
    }
    assert!(device.failure().is_none());
}

#[test]
fn experts_of_every_type() {
    let Some(device) = gpu() else { return };
    let mut numbers = Numbers(77);
    let mut wrong = Vec::new();
    let (hidden, width, count) = (512, 256, 6);
    for &ty in GgmlType::ALL {
        for (rows, used, fused) in [(1, 3, false), (4, 2, true), (19, 4, false), (150, 4, true)] {
            let mut exps = |rows: usize, cols: usize, n: usize| {
                let bytes = numbers.weights(ty, rows * cols * n);
                tensor(ty, &[cols as u64, rows as u64, n as u64], bytes)
            };
            let gate_up = match fused {
                true => GateUp::Fused(exps(2 * width, hidden, count)),
                false => GateUp::Apart(exps(width, hidden, count), exps(width, hidden, count)),
            };
            let down = exps(hidden, width, count);
            let one = |ty, rows: usize, cols: usize, numbers: &mut Numbers| {
                tensor(ty, &[cols as u64, rows as u64], numbers.weights(ty, rows * cols))
            };
            let shared = [
                one(GgmlType::Q8_0, width, hidden, &mut numbers),
                one(GgmlType::Q8_0, width, hidden, &mut numbers),
                one(GgmlType::BF16, hidden, width, &mut numbers),
            ];
            let x = numbers.floats(rows * hidden, 0.3);
            let ids: Vec<u16> = (0..rows).flat_map(|t| [4, (t % 3) as u16, 5, 3][..used].to_vec()).collect();
            let weights: Vec<f32> = (0..ids.len()).map(|i| 0.1 + (i % 7) as f32 * 0.07).collect();
            let opening = numbers.floats(rows, 2.0);
            let scales = [0.5, 0.25, 2.0];

            let host = experts::Experts { gate_up: gate_up.clone(), down: down.clone(), scales, count, hidden, width };
            let matrices = shared.clone().map(|t| strata_cpu::Matrix::new(t, 1.0));
            let [gate, up, out] = &matrices;
            let mut expected = vec![0.0; rows * hidden];
            host.forward(
                &cpu(),
                &Rows::from(x.clone()),
                Choices { used, ids: &ids, weights: &weights },
                Some(Shared { gate, up, down: out, opening: &opening }),
                &mut expected,
            );
            let there = Experts::new(&device, &gate_up, &down, scales, [count, hidden, width]).unwrap();
            let matrices = shared.map(|t| Matrix::new(&device, &t, 1.0).unwrap());
            let [gate, up, out] = &matrices;
            let opening = Floats::upload(&device, &opening);
            let routed = Routed { used, ids: &ids, weights: &weights };
            let shared = SharedExpert { gate, up, down: out, opening: &opening };
            let got = there.forward(&Floats::upload(&device, &x), routed, &shared).download();
            if let Some(e) = device.failure() {
                panic!("{ty}: {e}");
            }
            let bits = |v: &f32| if v.is_nan() { u32::MAX } else { v.to_bits() };
            let differ = got.iter().zip(&expected).filter(|(a, b)| bits(a) != bits(b)).count();
            if differ > 0 {
                wrong.push(format!("{ty}, {rows} rows, {used} used: {differ} of {}", got.len()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn norms_rotations_and_gates() {
    let Some(device) = gpu() else { return };
    let mut numbers = Numbers(5);
    let isa = Isa::detect();
    let (rows, streams, width) = (3, 4, 320);
    let len = streams * width;
    let up = |v: &[f32]| Floats::upload(&device, v);
    let (x, gamma) = (numbers.floats(rows * len, 4.0), numbers.floats(len, 1.5));
    let mut y = vec![0.0; x.len()];
    for (x, y) in x.chunks(len).zip(y.chunks_mut(len)) {
        norm::rms(isa, x, &gamma, streams, 1e-6, y);
    }
    same("group norm", &up(&x).group_norm(&up(&gamma), streams, 1e-6).download(), &y);

    let (heads, dim, first) = (5, 96, 70_001);
    let rope = Rope::new(48, 1e7);
    let (q, gamma) = (numbers.floats(rows * heads * dim, 2.0), numbers.floats(dim, 1.5));
    let mut expected = q.clone();
    for (t, row) in expected.chunks_mut(heads * dim).enumerate() {
        norm::rms_heads(isa, row, &gamma, 1e-6);
        rope.at(first + t).apply(isa, row, dim);
    }
    let mut got = up(&q);
    got.norm_rope(&up(&gamma), 1e-6, &Turns::new(&device, &rope, first..first + rows), heads);
    same("norm and rotation", &got.download(), &expected);

    let z = numbers.floats(q.len(), 5.0);
    let mut expected = q.clone();
    delta::gated_norm(isa, &mut expected, &gamma, &z, 1e-6);
    let mut got = up(&q);
    got.gated_norm(&up(&gamma), &up(&z), 1e-6);
    same("gated norm", &got.download(), &expected);

    let wide = numbers.floats(4099, 60.0);
    let mut expected = wide.clone();
    elementwise::silu_scaled(isa, &mut expected, 4.0);
    let mut got = up(&wide);
    got.silu_scaled(4.0);
    same("silu", &got.download(), &expected);
    let mut expected = wide.clone();
    elementwise::inject_weights(isa, &mut expected, 4.0);
    let mut got = up(&wide);
    got.inject_weights(4.0);
    same("weights of a write", &got.download(), &expected);

    let gate = numbers.floats(x.len(), 3.0);
    let mut expected = vec![0.0; rows * width];
    for ((g, x), y) in gate.chunks(len).zip(x.chunks(len)).zip(expected.chunks_mut(width)) {
        elementwise::mix_streams(isa, g, x, streams, y);
    }
    same("mix of streams", &up(&gate).mix_streams(&up(&x), streams, width).download(), &expected);

    let (a, y) = (numbers.floats(rows * streams, 2.0), numbers.floats(rows * width, 2.0));
    let mut expected = x.clone();
    for ((r, a), y) in expected.chunks_mut(len).zip(a.chunks(streams)).zip(y.chunks(width)) {
        elementwise::add_to_streams(isa, r, a, y);
    }
    let mut got = up(&x);
    got.add_to_streams(&up(&a), &up(&y), width, None);
    same("write to streams", &got.download(), &expected);
    let found = up(&[f32::from_bits(u32::MAX); 2]);
    let mut bad = x.clone();
    (bad[width + 1], bad[2 * width]) = (f32::NAN, f32::INFINITY);
    up(&bad).add_to_streams(&up(&a), &up(&y), width, Some(Note { found: &found, site: 3, largest: 1e18 }));
    let words = found.download();
    let noted = Floats::noted([words[0].to_bits(), words[1].to_bits()]);
    assert_eq!(noted.map(|(site, f)| (site, f.index, f.value)), Some((3, width + 1, "NaN")));

    let mut q = numbers.floats(x.len(), 1.0);
    q[..width].fill(0.0);
    let mut expected = vec![0.0; x.len()];
    for (((k, q), v), o) in x.chunks(len).zip(q.chunks(len)).zip(y.chunks(width)).zip(expected.chunks_mut(len)) {
        elementwise::ngram_gate(isa, k, q, v, o);
    }
    same("n-gram gate", &up(&x).ngram_gate(&up(&q), &up(&y), width).download(), &expected);

    let repeated = up(&y).repeat(width, streams).download();
    let expected: Vec<f32> = y.chunks(width).flat_map(|row| row.repeat(streams)).collect();
    same("repeated rows", &repeated, &expected);
    let (a, b) = up(&x).split_heads(width / 2);
    let halves =
        |at: usize| -> Vec<f32> { x.chunks(width).flat_map(|h| h[at * width / 2..][..width / 2].to_vec()).collect() };
    same("first halves", &a.download(), &halves(0));
    same("second halves", &b.download(), &halves(1));

    for (experts, used) in [(100, 9), (512, 10), (32, 1), (7, 7), (1000, 32)] {
        let mut logits = numbers.floats(rows * experts, 3.0);
        (logits[6], logits[5], logits[experts - 1], logits[0], logits[1]) = (2.9, 2.9, 2.9, -0.0, 0.0);
        let (mut ids, mut weights) = (vec![0; rows * used], vec![0.0; rows * used]);
        for ((l, i), w) in logits.chunks(experts).zip(ids.chunks_mut(used)).zip(weights.chunks_mut(used)) {
            router::top_k(l, i, w);
        }
        let (got, shares) = up(&logits).route(experts, used);
        assert_eq!(got, ids, "{used} of {experts}");
        same("router weights", &shares, &weights);
    }

    let mut bad = numbers.floats(100_000, 1.0);
    assert_eq!(up(&bad).nonfinite(1e18), None);
    (bad[99_999], bad[70_000]) = (f32::NAN, f32::NEG_INFINITY);
    assert_eq!(up(&bad).nonfinite(1e18).map(|f| (f.index, f.value)), Some((70_000, "infinity")));
}

#[test]
fn delta_net_layers() {
    let Some(device) = gpu() else { return };
    let mut numbers = Numbers(9);
    let up = |v: &[f32]| Floats::upload(&device, v);
    for (key_heads, value_heads, dim) in [(2, 4, 8), (1, 3, 16), (2, 6, 32), (4, 8, 64), (16, 48, 128), (1, 2, 256)] {
        let shape = DeltaShape { key_heads, value_heads, dim };
        let (rows, channels) = (5, shape.channels());
        let (x, w) = (numbers.floats(rows * channels, 2.0), numbers.floats(4 * channels, 0.7));
        let mut history = numbers.floats(3 * channels, 1.0);
        let mut there = up(&history);
        let (mut qkv, before) = (vec![0.0; x.len()], up(&history));
        conv::causal_silu(&cpu(), &x, &w, 4, 1, channels, &mut history, &mut qkv);
        let got = up(&x).conv_silu(&up(&w), 4, 1, channels, &before);
        same("convolution", &got.download(), &qkv);
        there.conv_advance(&up(&x), rows, channels);
        same("history", &there.download(), &history);

        let (beta, alpha) = (numbers.floats(rows * value_heads, 3.0), numbers.floats(rows * value_heads, 3.0));
        let (a, dt) = (numbers.floats(value_heads, 2.0), numbers.floats(value_heads, 2.0));
        let a: Vec<f32> = a.iter().map(|v| -v.abs()).collect();
        let start = numbers.floats(shape.state_len(), 0.5);
        let (mut state, mut out) = (start.clone(), vec![0.0; rows * value_heads * dim]);
        delta::scan(&cpu(), shape, &mut qkv.clone(), &beta, &alpha, &a, &dt, &mut state, &mut out);
        let (b, al, aa, d) = (up(&beta), up(&alpha), up(&a), up(&dt));
        let inputs = || DeltaInputs { qkv: up(&qkv), beta: &b, alpha: &al, a: &aa, dt: &d };
        let mut there = up(&start);
        same(&format!("delta rule, width {dim}"), &inputs().scan(shape, &mut there).download(), &out);
        same(&format!("state, width {dim}"), &there.download(), &state);

        let mut notes = Updates {
            keys: Floats::zeros(&device, (rows + 1) * key_heads * dim),
            deltas: Floats::zeros(&device, (rows + 1) * value_heads * dim),
            decays: Floats::zeros(&device, (rows + 1) * value_heads),
        };
        let mut there = up(&start);
        same("delta rule, noting", &inputs().scan_noting(shape, &there, &mut notes).download(), &out);
        same("state left alone", &there.download(), &start);
        there.delta_replay(shape, &notes, rows);
        same("state behind the noted rows", &there.download(), &state);
    }
}

#[test]
fn attention_and_its_selection() {
    let Some(device) = gpu() else { return };
    for (rows, heads) in [(3, 6), (40, 6), (33, 26)] {
        attention_of(&device, rows, heads);
    }
}

fn attention_of(device: &Device, rows: usize, query_heads: usize) {
    let mut numbers = Numbers(11);
    let up = |v: &[f32]| Floats::upload(device, v);
    let shape = AttentionShape { heads: query_heads, kv_heads: 2, dim: 64 };
    let (first, row) = (900, 2 * 64);
    let held = first + rows;
    let (k, v) = (numbers.floats(held * row, 1.0), numbers.floats(held * row, 2.0));
    let (q, gate) = (numbers.floats(rows * query_heads * 64, 1.5), numbers.floats(rows * query_heads * 64, 3.0));
    let (mut keys, mut values) = (Cache::new(device, row, 1000), Cache::new(device, row, 1000));
    for (from, to) in [(0, 500), (500, 501), (501, held)] {
        keys.append(&up(&k[from * row..to * row]));
        values.append(&up(&v[from * row..to * row]));
    }
    same("keys kept", &keys.rows(499..502), &k[499 * row..502 * row]);

    let (heads, dim, block) = (3, 32, 4);
    let rope = Rope::new(16, 1e4);
    let (raw, gamma) = (numbers.floats(held * dim, 1.0), numbers.floats(dim, 1.0));
    let mut raw_keys = Cache::new(device, dim, 1000);
    raw_keys.append(&up(&raw));
    let mut pooled = Vec::new();
    for b in 0..held / block {
        let mut key = vec![0.0; dim];
        for r in raw[b * block * dim..][..block * dim].chunks(dim) {
            key.iter_mut().zip(r).for_each(|(k, &r)| *k += r);
        }
        key.iter_mut().for_each(|k| *k /= block as f32);
        norm::rms_heads(Isa::detect(), &mut key, &gamma, 1e-6);
        rope.at(b * block).apply(Isa::detect(), &mut key, dim);
        pooled.extend(key);
    }
    let mut block_keys = Cache::new(device, dim, 250);
    for (from, to) in [(0, 401), (401, held)] {
        let turns: Vec<f32> = Turns::values(&rope, (from / block..to / block).map(|b| b * block));
        let turns = Turns::within(up(&turns), to / block - from / block);
        block_keys.pool_blocks(&raw_keys, &up(&gamma), 1e-6, &turns, block, First::At(from), to - from);
    }
    same("indexer's keys", &block_keys.rows(0..held / block), &pooled);

    let mut queries = numbers.floats(rows * heads * dim, 1.0);
    // A row whose scores are all zero: ties.
    queries[..heads * dim].fill(0.0);
    for budget in [1, 7, 64, 200, 224, 225, 300] {
        let expected: Vec<_> = queries
            .chunks(heads * dim)
            .enumerate()
            .map(|(t, q)| attention::select(&cpu(), q, &pooled, dim, block, budget, first + t + 1))
            .collect();
        let selection = Selection::best(&up(&queries), &block_keys, heads, block, budget, First::At(first));
        let mut out = vec![0.0; q.len()];
        attention::attend(&cpu(), shape, &q, &gate, &k, &v, &expected, &mut out);
        let got = selection.attend(shape, &up(&q), &up(&gate), &keys, &values).download();
        same(&format!("attention to the best {budget} blocks"), &got, &out);
    }
    let all: Vec<_> = (1..=rows).map(|t| attention::Selection::All(first + t)).collect();
    let mut out = vec![0.0; q.len()];
    attention::attend(&cpu(), shape, &q, &gate, &k, &v, &all, &mut out);
    let selection = Selection::all(device, First::At(first), rows, first + rows);
    same("attention to all", &selection.attend(shape, &up(&q), &up(&gate), &keys, &values).download(), &out);
}

/// Buffers that do not fit are a failure with a sentence, and nothing is started after it.
#[test]
fn a_failure_is_kept() {
    let Some(device) = gpu() else { return };
    let x = Floats::upload(&device, &[1.0; 8]);
    let mut y = Floats::upload(&device, &[1.0; 8]);
    y.add(&Floats::zeros(&device, 4));
    let told = device.failure().map(|e| e.to_string());
    assert_eq!(told.as_deref(), Some("internal error: buffers that do not fit each other: sum"));
    y.add(&x);
    assert_eq!(y.download(), [0.0; 8]);
    assert!(device.synchronize().is_err());
}

/// What is asked for beyond the memory is refused with a sentence, and the device goes on.
#[test]
fn without_room_the_device_goes_on() {
    let Some(device) = gpu() else { return };
    for (bytes, count) in [(1 << 30, 1 << 12), (usize::MAX / 2, 7)] {
        let refused = Slots::new(&device, bytes, count).err().map(|e| e.to_string()).unwrap();
        assert!(refused.contains("has no room for"), "{refused}");
    }
    let mut y = Floats::upload(&device, &[1.0; 8]);
    y.add(&Floats::upload(&device, &[2.0; 8]));
    assert_eq!(y.download(), [3.0; 8]);
    assert!(device.failure().is_none());
}
