//! Damaged models are refused with a sentence, and numbers that stop being numbers are named.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{data, load_gguf};
use strata_gguf::{ArrayValue, GgmlType, Gguf, Value, Writer};
use strata_model::{CpuOps, Error, Model, Silent, Want};

/// The tiny model, rebuilt with changes.
struct Rebuild {
    meta: Vec<(String, Value)>,
    tensors: Vec<(String, Vec<u64>, GgmlType, Vec<u8>)>,
}

impl Rebuild {
    fn new() -> Rebuild {
        let gguf = Gguf::open(&data("tiny/tiny-qwen4exp.gguf")).unwrap();
        Rebuild {
            meta: gguf.meta().iter().map(|(k, v)| (k.to_owned(), v.clone())).collect(),
            tensors: gguf
                .tensors()
                .iter()
                .map(|t| (t.name().to_owned(), t.dims().to_vec(), t.ty(), t.data().to_vec()))
                .collect(),
        }
    }

    fn set(&mut self, key: &str, value: Value) {
        self.meta.iter_mut().find(|(k, _)| k == key).unwrap().1 = value;
    }

    fn unset(&mut self, key: &str) {
        self.meta.retain(|(k, _)| k != key);
    }

    fn tensor(&mut self, name: &str) -> &mut (String, Vec<u64>, GgmlType, Vec<u8>) {
        self.tensors.iter_mut().find(|t| t.0 == name).unwrap()
    }

    fn gguf(&self) -> Gguf {
        let mut writer = Writer::new();
        for (key, value) in &self.meta {
            writer.meta(key, value.clone()).unwrap();
        }
        for (name, dims, ty, bytes) in &self.tensors {
            writer.tensor(name, dims, *ty, bytes.clone()).unwrap();
        }
        Gguf::from_bytes("tiny.gguf", writer.to_bytes().unwrap()).unwrap()
    }

    fn error(&self) -> String {
        match Model::load(&self.gguf(), CpuOps::new(1), &mut |_| ()) {
            Ok(_) => panic!("the model was accepted"),
            Err(e) => e.to_string(),
        }
    }
}

fn assert_names(error: &str, words: &[&str]) {
    for word in words {
        assert!(error.contains(word), "\"{error}\" does not name {word}");
    }
    assert!(!error.contains('\n') && !error.contains("truncated"), "{error}");
}

#[test]
fn another_architecture_is_named_with_the_supported_one() {
    let mut model = Rebuild::new();
    model.set("general.architecture", Value::String("qwen4exp2".into()));
    assert_names(&model.error(), &["tiny.gguf", "\"qwen4exp2\"", "\"qwen4exp\"", "newer"]);
}

#[test]
fn a_missing_tensor_is_called_missing() {
    for name in ["blk.0.attn_qkv.weight", "blk.5.indexer.k_norm.weight", "output_hc_up.weight"] {
        let mut model = Rebuild::new();
        model.tensors.retain(|t| t.0 != name);
        assert_names(&model.error(), &["tiny.gguf", name, "missing"]);
    }
}

#[test]
fn a_missing_or_mistyped_key_is_named() {
    for key in ["qwen4exp.block_count", "qwen4exp.rope.freq_base", "qwen4exp.ple.head_offsets", "qwen4exp.expert_count"]
    {
        let mut model = Rebuild::new();
        model.unset(key);
        assert_names(&model.error(), &[key, "missing"]);
        let mut model = Rebuild::new();
        model.set(key, Value::String("seven".into()));
        assert_names(&model.error(), &[key, "string"]);
    }
}

#[test]
fn dimensions_out_of_range_are_named() {
    let cases: [(&str, Value); 10] = [
        ("qwen4exp.block_count", Value::U32(0)),
        ("qwen4exp.block_count", Value::U32(u32::MAX)),
        ("qwen4exp.embedding_length", Value::U64(1 << 60)),
        ("qwen4exp.attention.layer_norm_rms_epsilon", Value::F32(f32::NAN)),
        ("qwen4exp.expert_used_count", Value::U32(9)),
        ("qwen4exp.ssm.inner_size", Value::U32(95)),
        ("qwen4exp.ple.layers", Value::Array(ArrayValue::I32(vec![2]))),
        ("qwen4exp.ple.eos_token_id", Value::U32(65_536)),
        ("qwen4exp.ple.layer_multipliers", Value::Array(ArrayValue::U64(vec![0; 3]))),
        ("qwen4exp.attention.compress_ratios", Value::Array(ArrayValue::I32(vec![4; 5]))),
    ];
    for (key, value) in cases {
        let mut model = Rebuild::new();
        model.set(key, value);
        assert_names(&model.error(), &["tiny.gguf", key]);
    }
}

#[test]
fn a_norm_that_is_no_number_is_refused_at_once() {
    let mut model = Rebuild::new();
    model.tensor("blk.2.indexer.q_norm.weight").3[8..12].copy_from_slice(&f32::NAN.to_le_bytes());
    assert_names(&model.error(), &["blk.2.indexer.q_norm.weight", "NaN at value 2", "finite"]);
}

#[test]
fn layers_that_are_only_claimed_cost_nothing() {
    let mut model = Rebuild::new();
    model.set("qwen4exp.block_count", Value::U32(1 << 24));
    model.unset("qwen4exp.attention.recurrent_layers");
    model.set("qwen4exp.full_attention_interval", Value::U32(3));
    model.set("qwen4exp.attention.compress_ratios", Value::Array(ArrayValue::I32(vec![0, 0, 4])));
    assert_names(&model.error(), &["compress_ratios", "3 entries"]);
    model.unset("qwen4exp.attention.compress_ratios");
    assert_names(&model.error(), &["blk.6.", "missing"]);
}

#[test]
fn a_tensor_of_another_shape_is_named_with_both_shapes() {
    // Experts padded to another width, as one pack does, must never be read with the wrong stride.
    let mut model = Rebuild::new();
    let down = model.tensor("blk.0.ffn_down_exps.weight");
    let (width, rows) = (down.1[0] as usize, (down.1[1] * down.1[2]) as usize);
    let padded = width + 32;
    down.3 = (0..rows)
        .flat_map(|r| {
            let mut row = down.3[r * width * 4..(r + 1) * width * 4].to_vec();
            row.resize(padded * 4, 0);
            row
        })
        .collect();
    down.1[0] = padded as u64;
    assert_names(
        &model.error(),
        &["blk.0.ffn_down_exps.weight", &format!("[{padded}, "), &format!("expected [{width}, ")],
    );
}

#[test]
fn hash_heads_beyond_the_table_are_refused() {
    let mut model = Rebuild::new();
    let offsets = model.meta.iter().find(|(k, _)| k == "qwen4exp.ple.head_offsets").unwrap().1.clone();
    let Value::Array(array) = offsets else { panic!() };
    let mut offsets = array.to_u64s().unwrap();
    *offsets.last_mut().unwrap() = u64::MAX;
    model.set("qwen4exp.ple.head_offsets", Value::Array(ArrayValue::U64(offsets)));
    assert_names(&model.error(), &["n-gram head", "per_layer_token_embd.weight"]);
}

#[test]
fn zero_compress_ratios_beside_indexer_tensors_are_read_as_four() {
    let mut model = Rebuild::new();
    let layers = load_gguf(&model.gguf()).config().layers.len();
    let expected = load_gguf(&model.gguf()).config().attention.indexer;
    model.set("qwen4exp.attention.compress_ratios", Value::Array(ArrayValue::I32(vec![0; layers])));
    let loaded = load_gguf(&model.gguf());
    assert_eq!(loaded.config().attention.indexer, expected);
    assert!(loaded.warnings().iter().any(|w| w.contains("compress_ratios")), "{:?}", loaded.warnings());
}

#[test]
fn unknown_tensors_are_counted_and_the_first_named() {
    let mut model = Rebuild::new();
    for i in 0..7 {
        model.tensors.push((format!("vision.{i}.weight"), vec![4], GgmlType::F32, vec![0; 16]));
    }
    let warnings = load_gguf(&model.gguf()).warnings().to_vec();
    assert!(warnings.iter().any(|w| w.contains("7 tensors") && w.contains("vision.0.weight, ")), "{warnings:?}");
}

#[test]
fn fused_gate_and_up_give_the_same_bits() {
    let apart = Rebuild::new();
    let mut fused = Rebuild::new();
    for layer in 0..6 {
        let gate = fused.tensor(&format!("blk.{layer}.ffn_gate_exps.weight")).clone();
        let up = fused.tensor(&format!("blk.{layer}.ffn_up_exps.weight")).clone();
        let per = gate.3.len() / gate.1[2] as usize;
        let both = gate.3.chunks(per).zip(up.3.chunks(per)).flat_map(|(g, u)| [g, u].concat()).collect();
        let dims = vec![gate.1[0], 2 * gate.1[1], gate.1[2]];
        fused.tensors.retain(|t| t.0 != gate.0 && t.0 != up.0);
        fused.tensors.push((format!("blk.{layer}.ffn_gate_up_exps.weight"), dims, GgmlType::F32, both));
    }
    let run = |model: &Rebuild| common::all_logits(&load_gguf(&model.gguf()), &[5, 6, 7, 8, 9]);
    assert_eq!(run(&apart), run(&fused));
}

/// Runs a few tokens on a model with one broken weight.
fn failure(name: &str, value: f32) -> Error {
    let mut model = Rebuild::new();
    let bytes = &mut model.tensor(name).3;
    let at = bytes.len() / 8 * 4;
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    let row = if name == "token_embd.weight" { at / 4 / 64 } else { 2 };
    let model = load_gguf(&model.gguf());
    let mut state = model.new_state(16);
    let error = model.forward(&mut state, &[1, row as u32, 3], Want::Last, &mut Silent).err().expect("no failure");
    // The state is refused until it is restored, then good again.
    assert!(matches!(model.forward(&mut state, &[1], Want::Last, &mut Silent), Err(Error::State(_))));
    error
}

#[test]
fn a_value_that_is_no_number_is_named_with_its_layer() {
    let cases = [
        ("blk.0.attn_qkv.weight", f32::NAN, "layer 0 (delta-net)", "NaN"),
        ("blk.2.attn_v.weight", f32::INFINITY, "layer 2 (attention)", ""),
        ("blk.4.ffn_down_shexp.weight", f32::NAN, "layer 4 (experts)", "NaN"),
        ("blk.1.ple_value.weight", f32::NAN, "layer 1 (n-gram module)", "NaN"),
        ("output.weight", f32::NAN, "the head", "NaN"),
        // What a choice is made on is looked at before the choice hides it.
        ("blk.2.indexer.k_proj.weight", f32::NAN, "layer 2 (indexer)", "NaN"),
        ("blk.0.ffn_gate_inp.weight", f32::NAN, "layer 0 (router)", "NaN"),
        // Its square overflows, and a norm would make zeros of it.
        ("token_embd.weight", 3e38, "the token embedding", "beyond 1e18"),
    ];
    for (tensor, value, place, kind) in cases {
        let error = failure(tensor, value).to_string();
        assert_names(&error, &[place, "position", kind]);
    }
}

#[test]
fn a_failed_pass_can_be_taken_back() {
    let mut rebuilt = Rebuild::new();
    // Only token 7's embedding is broken: other tokens run.
    let width = rebuilt.tensor("token_embd.weight").1[0] as usize;
    rebuilt.tensor("token_embd.weight").3[7 * width * 4..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
    let model = load_gguf(&rebuilt.gguf());
    let run = |state: &mut _, tokens: &[u32]| model.forward(state, tokens, Want::All, &mut Silent).map(|o| o.logits);
    let mut clean = model.new_state(16);
    let expected = [run(&mut clean, &[1, 2, 3]).unwrap(), run(&mut clean, &[4, 5]).unwrap()];
    let mut state = model.new_state(16);
    assert_eq!(run(&mut state, &[1, 2, 3]).unwrap(), expected[0]);
    let snapshot = model.snapshot(&state).unwrap();
    let error = run(&mut state, &[4, 7, 5]).unwrap_err().to_string();
    assert_names(&error, &["token embedding", "position 4"]);
    model.restore(&mut state, &snapshot).unwrap();
    assert_eq!(run(&mut state, &[4, 5]).unwrap(), expected[1]);
}

#[test]
fn a_failed_window_leaves_the_state_as_it_was() {
    // One breaks before the first layer, the other behind the last.
    for (name, row) in [("token_embd.weight", 7), ("output.weight", 0)] {
        let mut rebuilt = Rebuild::new();
        let width = rebuilt.tensor(name).1[0] as usize;
        rebuilt.tensor(name).3[row * width * 4..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
        let model = load_gguf(&rebuilt.gguf());
        let mut state = model.new_state(16);
        let read = |state: &mut _| model.forward(state, &[1, 2, 3, 4, 5], Want::Nothing, &mut Silent).unwrap();
        read(&mut state);
        let before = state.fingerprint();
        let error = model.verify(&mut state, &[4, 7, 5], &mut Silent).err().expect("no failure").to_string();
        assert_names(&error, &["NaN", "position"]);
        assert_eq!(state.fingerprint(), before);
        let error = model.commit(&mut state, 1).unwrap_err().to_string();
        assert_names(&error, &["no window"]);
        // Nothing needs to be restored before it is used again.
        read(&mut state);
        let mut clean = model.new_state(16);
        read(&mut clean);
        read(&mut clean);
        assert_eq!(state.fingerprint(), clean.fingerprint());
    }
}

#[test]
fn a_window_is_not_committed_to_an_unusable_state() {
    let mut rebuilt = Rebuild::new();
    rebuilt.tensor("output.weight").3[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    let model = load_gguf(&rebuilt.gguf());
    let mut state = model.new_state(16);
    model.forward(&mut state, &[1], Want::Last, &mut Silent).err().expect("no failure");
    assert_names(&model.commit(&mut state, 0).unwrap_err().to_string(), &["no window"]);
    assert!(matches!(model.verify(&mut state, &[1], &mut Silent), Err(Error::State(_))));
}

#[test]
fn tokens_and_contexts_have_bounds() {
    let model = load_gguf(&Rebuild::new().gguf());
    let mut state = model.new_state(4);
    let vocab = model.config().vocab as u32;
    let error = |state: &mut _, tokens: &[u32]| {
        model.forward(state, tokens, Want::Last, &mut Silent).err().expect("no failure").to_string()
    };
    assert_names(&error(&mut state, &[1, vocab]), &[&vocab.to_string(), "vocabulary"]);
    assert_names(&error(&mut state, &[1, 2, 3, 4, 5]), &["5 tokens", "context of 4"]);
    assert!(model.forward(&mut state, &[1, 2, 3, 4], Want::Last, &mut Silent).is_ok());
    assert_names(&error(&mut state, &[1]), &["5 tokens"]);
}
