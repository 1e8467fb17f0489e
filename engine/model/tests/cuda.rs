//! The forward pass on a GPU against the one on the CPU: the same bits. Needs a GPU, or the one that `engine/cuda/emulator` makes, and
//! says so where there is none.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Recorder, data, json, nano, numbers, shared};
use std::path::Path;
use strata_cpu::{Cpu, Isa};
use strata_cuda::Device;
use strata_gguf::Gguf;
use strata_model::{CpuOps, CudaOps, ExpertPlace, Model, Observer, Ops, Routing, Silent, Want};
use strata_policy::cache::{Admission, Cache, CacheParams, Capacity, Key, Phase, Rule, Scope, Shape, Start};
use strata_policy::split::SplitRule;

fn on_gpu(path: &Path, place: ExpertPlace) -> Option<Model<CudaOps>> {
    let device = Device::open(0).inspect_err(|e| println!("skipped: {e}"));
    assert!(device.is_ok() || !is_emulated(), "the emulated GPU is not there");
    let device = device.ok()?;
    let ops = CudaOps::new(device, Cpu::exactly(2, Isa::detect()), place);
    Some(Model::load(&Gguf::open(path).unwrap(), ops, &mut |_| ()).unwrap())
}

/// Logits of all tokens, read in windows of `chunk`, and what was seen inside.
fn read<O: Ops>(model: &Model<O>, tokens: &[u32], chunk: usize) -> (Vec<f32>, Recorder) {
    let (mut state, mut seen) = (model.new_state(tokens.len()), Recorder::default());
    let logits = tokens
        .chunks(chunk)
        .flat_map(|chunk| model.forward(&mut state, chunk, Want::All, &mut seen).unwrap().logits)
        .collect();
    (logits, seen)
}

/// Logits of all tokens, read in windows of the sizes given, again and again, by recorded passes.
fn read_recorded(model: &Model<CudaOps>, tokens: &[u32], sizes: &[usize]) -> Vec<f32> {
    let mut state = model.new_state(tokens.len());
    let (mut logits, mut at) = (Vec::new(), 0);
    for &size in sizes.iter().cycle() {
        let size = size.min(tokens.len() - at);
        if size == 0 {
            return logits;
        }
        logits.extend(model.forward(&mut state, &tokens[at..at + size], Want::All, &mut Silent).unwrap().logits);
        at += size;
    }
    logits
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[track_caller]
fn same_pass(name: &str, cpu: &Model<CpuOps>, gpu: &Model<CudaOps>, tokens: &[u32], chunk: usize) {
    let ((expected, host), (got, device)) = (read(cpu, tokens, chunk), read(gpu, tokens, chunk));
    for (at, ((layer, a), (_, b))) in host.residuals.iter().zip(&device.residuals).enumerate() {
        assert!(bits(a) == bits(b), "{name}, windows of {chunk}: residual {at} behind layer {layer} differs");
    }
    assert_eq!(host.routing, device.routing, "{name}, windows of {chunk}");
    assert!(bits(&expected) == bits(&got), "{name}, windows of {chunk}: logits differ");
}

/// Whether kernels run on the CPU (`engine/cuda/emulator`), where tests do less, so that they take no hours.
fn is_emulated() -> bool {
    std::env::var_os("EMULATED_GPU_SEED").is_some()
}

/// The tokens of a case, or the first of them.
fn tokens_of(case: &str) -> Vec<u32> {
    let mut tokens = numbers(&json(&data(&format!("oracle/{case}.json")))["tokens"]);
    if is_emulated() {
        tokens.truncate(if case == "long" { 110 } else { 30 });
    }
    tokens
}

#[test]
fn the_random_model() {
    let path = data("tiny/tiny-qwen4exp.gguf");
    let Some(gpu) = on_gpu(&path, ExpertPlace::Device) else { return };
    let cpu = common::load(&path);
    let tokens = numbers(&json(&data("tiny/tiny-qwen4exp.json"))["ids"]);
    for chunk in [1, 3, tokens.len()] {
        same_pass("tiny", &cpu, &gpu, &tokens, chunk);
    }
    let expected = read(&cpu, &tokens, 1).0;
    for sizes in [&[1][..], &[3], &[8, 1, 2]] {
        assert!(bits(&read_recorded(&gpu, &tokens, sizes)) == bits(&expected), "recorded windows of {sizes:?}");
    }
}

#[test]
fn the_trained_model_in_every_type() {
    let quants = ["IQ1_M", "IQ2_XS", "IQ3_XXS", "Q2_0", "Q4_K_M", "bf16"];
    let quants = if is_emulated() { &[] } else { &quants[..] };
    let others = quants.iter().filter_map(|quant| shared(&format!("nano/nano-{quant}.gguf")));
    for path in std::iter::once(nano()).chain(others) {
        let Some(gpu) = on_gpu(&path, ExpertPlace::Device) else { return };
        let cpu = common::load(&path);
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        for case in ["capital", "code", "sum"] {
            same_pass(&format!("{name}, {case}"), &cpu, &gpu, &tokens_of(case), 8);
        }
        // Beyond the indexer's budget.
        let long = tokens_of("long");
        same_pass(&format!("{name}, long"), &cpu, &gpu, &long, 64);
        let expected = read(&cpu, &long, 64).0;
        assert!(bits(&read_recorded(&gpu, &long, &[5, 8, 1])) == bits(&expected), "{name}, recorded");
        println!("{name}: the same bits");
    }
}

/// Experts on the host, some of them on the device too: wherever they are, the bits are the same.
#[test]
fn experts_on_both_sides() {
    let cpu = common::load(&nano());
    let tokens = tokens_of("story");
    let expected = read(&cpu, &tokens, 1).0;
    // All misses to the CPU, all that there is room for over the link, half of them.
    for rule in [SplitRule::fixed(0.0), SplitRule::fixed(1.0), SplitRule::fixed(0.5), SplitRule::Measured] {
        let Some(gpu) = on_gpu(&nano(), ExpertPlace::Host) else { return };
        gpu.ops().split_misses(rule);
        for sizes in [&[1][..], &[8, 2]] {
            let got = read_recorded(&gpu, &tokens, sizes);
            assert!(bits(&got) == bits(&expected), "{rule:?}, recorded windows of {sizes:?}");
        }
    }
    let Some(gpu) = on_gpu(&nano(), ExpertPlace::Host) else { return };
    same_pass("nano, experts on the host", &cpu, &gpu, &tokens, 8);
    let (layers, experts) = (cpu.config().layers.len(), cpu.config().experts);
    let all = || (0..layers * experts).map(|i| (i % layers, i / layers * 37 % experts));
    for (share, kept) in [(0, 0), (7, 7), (100, 100), (9999, layers * experts)] {
        // Slots of nano's experts are a little smaller than this.
        let bytes = share * 64 * 1024;
        let slots = gpu.keep_experts(bytes, all()).unwrap();
        assert!(slots >= kept.min(layers * experts), "{slots} slots in {bytes} bytes");
        for sizes in [&[1][..], &[4], &[8, 2]] {
            let got = read_recorded(&gpu, &tokens, sizes);
            assert!(bits(&got) == bits(&expected), "{slots} slots, recorded windows of {sizes:?}");
        }
    }
}

/// Experts that pass through the device when prompts are read, all at once or a few at a time, with and without some that stay.
#[test]
fn prompts_with_experts_on_the_host() {
    let q2 = shared("nano/nano-Q2_0.gguf").filter(|_| !is_emulated());
    for path in std::iter::once(nano()).chain(q2) {
        let cpu = common::load(&path);
        let tokens = tokens_of("long");
        let (expected, _) = read(&cpu, &tokens, 64);
        let (layers, experts) = (cpu.config().layers.len(), cpu.config().experts);
        for (ring, slots) in [(0, 0), (1 << 19, 0), (1 << 19, 4 << 20), (64 << 20, 1 << 20)] {
            let Some(gpu) = on_gpu(&path, ExpertPlace::Host) else { return };
            gpu.ops().ring(ring);
            gpu.keep_experts(slots, (0..layers * experts).map(|i| (i % layers, i / layers * 37 % experts))).unwrap();
            for chunk in [40, 200] {
                let (got, _) = read(&gpu, &tokens, chunk);
                assert!(bits(&got) == bits(&expected), "a ring of {ring} bytes, slots of {slots}, chunks of {chunk}");
            }
        }
    }
}

/// Notes each window's experts.
#[derive(Default)]
struct Uses(Vec<(usize, Vec<u16>)>);

impl Observer for Uses {
    fn routing(&mut self, layer: usize, routing: &Routing) {
        self.0.push((layer, routing.ids.clone()));
    }
}

/// What is resident follows the policy, hit by hit, and answers do not change. Some passes are of so many rows that slots are lent for
/// them, and begin while copies are under way.
#[test]
fn experts_that_come_and_go() {
    let cpu = common::load(&nano());
    let tokens = tokens_of("long");
    let expected = read(&cpu, &tokens, 64).0;
    let Some(gpu) = on_gpu(&nano(), ExpertPlace::Host) else { return };
    gpu.ops().ring(0);
    let (layers, experts, vocab) = (cpu.config().layers.len(), cpu.config().experts, cpu.config().vocab);
    let shape = Shape::uniform(layers, experts, 1).unwrap();
    let lru = CacheParams::new(Rule::Lru, Capacity::Slots(0));
    let adaptive = Rule::Adaptive { every: 2, swaps: 20, min_use: 1.0, gain: 1.1, decay: 0.8 };
    let cases = [
        lru,
        CacheParams { copy_rounds: 0, scope: Scope::PerLayer, ..lru },
        CacheParams { copy_rounds: 3, insert_budget: Some(5), ..lru },
        CacheParams { count_prefill: true, ..lru },
        CacheParams { admission: Admission::WaitForCopy, insert_budget: Some(3), ..lru },
        CacheParams::new(adaptive, Capacity::Slots(0)),
    ];
    for params in cases {
        let ranking: Vec<_> = (0..layers * experts).map(|i| (i % layers, i / layers * 37 % experts)).collect();
        let slots = gpu.keep_experts(100 * 64 * 1024, ranking.iter().copied()).unwrap();
        gpu.adapt_experts(&params).unwrap();
        let began = gpu.restart_cache().unwrap().unwrap();
        let waiting = if params.admission == Admission::WaitForCopy { 3 } else { 0 };
        assert_eq!(began.params, CacheParams { capacity: Capacity::Slots(slots - waiting), ..params });
        let keys =
            |(layer, ids): (usize, &Vec<u16>)| ids.iter().map(|&id| shape.key(layer, id.into())).collect::<Vec<Key>>();
        let kept: Vec<Key> = began.resident.iter().enumerate().flat_map(keys).collect();
        assert_eq!(kept.len(), slots - waiting);
        let start = Start { ranking: &kept, ..Start::default() };
        let mut cache = Cache::new(&shape, &began.params, &start).unwrap();
        let (mut state, mut at, mut hits, mut inserts) = (gpu.new_state(tokens.len()), 0, Vec::new(), 0);
        for size in [8, 1, 40, 3, 2, 1, 1, 64, 1, 5].into_iter().cycle() {
            let size = usize::min(size, tokens.len() - at);
            if size == 0 {
                break;
            }
            let mut uses = Uses::default();
            let logits = gpu.forward(&mut state, &tokens[at..at + size], Want::All, &mut uses).unwrap().logits;
            assert!(bits(&logits) == bits(&expected[at * vocab..][..size * vocab]), "{params}, {size} tokens at {at}");
            at += size;
            let keys = uses.0.iter().flat_map(|(layer, ids)| ids.iter().map(|&id| shape.key(*layer, id.into())));
            let phase = if size > 8 { Phase::Prefill } else { Phase::Decode };
            cache.round(phase, &keys.collect::<Vec<_>>(), &mut hits);
            inserts += cache.begun().len() as u64;
        }
        let counted = gpu.ops().cache_use().unwrap();
        let found = hits.iter().filter(|&&hit| hit).count() as u64;
        assert_eq!((counted.accesses, counted.hits, counted.inserts), (hits.len() as u64, found, inserts), "{params}");
        assert!(inserts > 0, "{params}: nothing came");
        println!("{params}: {found} of {} found, {inserts} came", hits.len());
    }
}

/// Windows that are verified and cut back leave the state of reading their kept tokens.
#[test]
fn windows_that_are_cut_back() {
    let cpu = common::load(&nano());
    let tokens = tokens_of("story");
    let expected = read(&cpu, &tokens, 1).0;
    let vocab = cpu.config().vocab;
    for (place, recorded) in [(ExpertPlace::Device, false), (ExpertPlace::Device, true), (ExpertPlace::Host, true)] {
        let Some(gpu) = on_gpu(&nano(), place) else { return };
        gpu.ops().record_windows(recorded);
        let mut state = gpu.new_state(tokens.len() + 8);
        let mut at = 0;
        let mut start = Some(gpu.snapshot(&state).unwrap());
        // Twelve and fourteen rows are too many to be recorded; what notes rows is made anew for them.
        let windows = [(1, 1), (3, 2), (12, 2), (3, 1), (1, 1), (8, 4), (5, 0), (2, 2), (14, 3), (4, 4), (8, 5)];
        for (window, keep) in windows.into_iter().cycle() {
            let window = window.min(tokens.len() - at);
            if window == 0 {
                break;
            }
            // The last rows are wrong guesses.
            let mut guess = tokens[at..at + window].to_vec();
            let keep = keep.min(window);
            guess[keep..].iter_mut().for_each(|t| *t = (*t + 17) % 4000);
            let logits = gpu.verify(&mut state, &guess, &mut Silent).unwrap().logits;
            let same = bits(&logits[..keep * vocab]) == bits(&expected[at * vocab..][..keep * vocab]);
            assert!(same, "at {at}, {place:?}, recorded: {recorded}");
            gpu.commit(&mut state, keep).unwrap();
            at += keep;
            // Once back to the start.
            if at > 12
                && let Some(start) = start.take()
            {
                gpu.restore(&mut state, &start).unwrap();
                at = 0;
            }
        }
        assert_eq!(state.tokens(), tokens);
    }
}

/// Lets the GPU wait for longer than it does.
struct Late(bool);

impl Observer for Late {
    fn routing(&mut self, _: usize, _: &Routing) {
        if std::mem::take(&mut self.0) {
            std::thread::sleep(std::time::Duration::from_secs(7));
        }
    }
}

/// Kernels give up a host that does not answer; that is an error of the round, and the next one runs.
#[test]
fn a_host_that_is_late_is_an_error() {
    let Some(gpu) = on_gpu(&data("tiny/tiny-qwen4exp.gguf"), ExpertPlace::Host) else { return };
    let tokens = [5, 6, 7, 8];
    let mut state = gpu.new_state(16);
    let expected = gpu.forward(&mut state, &tokens, Want::All, &mut Silent).unwrap().logits;
    let mut state = gpu.new_state(16);
    let late = gpu.forward(&mut state, &tokens, Want::All, &mut Late(true)).map(|_| ()).unwrap_err().to_string();
    assert!(late.contains("the GPU waited in vain for the host"), "{late}");
    let mut state = gpu.new_state(16);
    let again = gpu.forward(&mut state, &tokens, Want::All, &mut Silent).unwrap().logits;
    assert!(bits(&again) == bits(&expected));
}
