//! Draft layers that are refused, and in which words.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{data, load, nano};
use std::path::Path;
use strata_gguf::{GgmlType, Gguf, SafeTensors, Value, Writer};
use strata_model::{CpuOps, DraftLayer, Model, check_draft_layer, draft_from_safetensors, pack_draft};

/// The safetensors of the built-in model's draft layer: header and data.
struct Checkpoint {
    header: serde_json::Map<String, serde_json::Value>,
    data: Vec<u8>,
}

impl Checkpoint {
    fn read() -> Checkpoint {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/model/nano-mtp.safetensors");
        let bytes = std::fs::read(path).unwrap();
        let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        Checkpoint { header: serde_json::from_slice(&bytes[8..8 + len]).unwrap(), data: bytes[8 + len..].to_vec() }
    }

    fn open(&self) -> SafeTensors {
        let header = serde_json::to_vec(&self.header).unwrap();
        let bytes = [&(header.len() as u64).to_le_bytes(), header.as_slice(), &self.data].concat();
        SafeTensors::from_bytes("mtp", bytes).unwrap()
    }

    /// Gives a tensor another shape of as many values.
    fn reshape(&mut self, name: &str, shape: &[u64]) {
        self.header[name]["shape"] = serde_json::json!(shape);
    }

    /// Gives the first values of a tensor, in BF16, other bits.
    fn overwrite(&mut self, name: &str, at: usize, bits: u16) {
        let start = self.header[name]["data_offsets"][0].as_u64().unwrap() as usize + 2 * at;
        self.data[start..start + 2].copy_from_slice(&bits.to_le_bytes());
    }

    /// Leaves half of a tensor: the shape, and as many values.
    fn cut(&mut self, name: &str, shape: &[u64]) {
        let len = 2 * shape.iter().product::<u64>() as usize;
        let start = self.data.len();
        self.data.extend(vec![0; len]);
        // Ranges must follow each other without gaps, so what it had becomes another tensor of the model.
        let old = self.header[name].clone();
        self.header.insert(format!("model.was.{name}"), old);
        self.header[name] = serde_json::json!({
            "dtype": "BF16", "shape": shape, "data_offsets": [start, start + len]
        });
    }

    fn rename(&mut self, from: &str, to: &str) {
        let tensor = self.header.remove(from).unwrap();
        self.header.insert(to.into(), tensor);
    }
}

#[track_caller]
fn says(error: Option<strata_model::Error>, words: &[&str]) {
    let text = error.expect("should have been refused").to_string();
    assert!(!text.contains('\n'), "{text:?} is not one line");
    for word in words {
        assert!(text.contains(word), "{text:?} does not say {word:?}");
    }
}

/// Loads a changed copy of the built-in draft layer.
fn changed(model: &Model<CpuOps>, change: impl FnOnce(&mut Checkpoint)) -> Option<strata_model::Error> {
    let mut checkpoint = Checkpoint::read();
    change(&mut checkpoint);
    let named = draft_from_safetensors(&checkpoint.open(), 8);
    named.and_then(|gguf| DraftLayer::load(&gguf, model)).err()
}

#[test]
fn checkpoints_that_do_not_fit_are_refused_in_words() {
    let model = load(&nano());
    assert!(changed(&model, |_| ()).is_none());
    let q = "mtp.layers.0.self_attn.q_proj.weight";
    says(changed(&model, |c| c.rename(q, "mtp.x")), &["mtp: tensor", q, "is missing"]);
    says(
        changed(&model, |c| c.cut("mtp.layers.0.mlp.shared_expert.gate_proj.weight", &[32, 256])),
        &["mtp.layers.0.mlp.shared_expert.gate_proj.weight is [32, 256], expected [64, 256]"],
    );
    says(
        changed(&model, |c| {
            let again = c.header["mtp.pre_fc_norm_embedding.weight"].clone();
            let mut end = again.clone();
            let len = c.data.len();
            c.data.extend([0; 512]);
            end["data_offsets"] = serde_json::json!([len, len + 512]);
            c.header.insert("mtp.layers.1.self_attn.q_norm.weight".into(), end);
        }),
        &["tensor mtp.layers.1.self_attn.q_norm.weight is no part", "1 such in all"],
    );
    says(
        changed(&model, |c| {
            let norm = c.header["mtp.layers.0.self_attn.q_norm.weight"]["data_offsets"][0].as_u64().unwrap() as usize;
            c.data[norm..norm + 2].copy_from_slice(&[0xc0, 0x7f]);
        }),
        &["tensor mtp.layers.0.self_attn.q_norm.weight: value 0 is NaN, expected finite numbers"],
    );
}

/// Names and shapes are those of the checkpoint, where whoever reads the message looks.
#[test]
fn shapes_that_contradict_others_are_refused_with_the_checkpoints_names() {
    let pack = |change: &dyn Fn(&mut Checkpoint)| {
        let mut checkpoint = Checkpoint::read();
        change(&mut checkpoint);
        pack_draft(&checkpoint.open(), 8, GgmlType::Q8_0).err()
    };
    for (name, shape, expected) in [
        ("fc_embedding.weight", &[128, 512][..], "[256, 256]"),
        ("pre_fc_norm_hidden.weight", &[4, 256], "[1024]"),
        ("hyper_connection_mixer.input_mix_weight_down.weight", &[1024, 32], "[32, 1024]"),
        ("layers.0.mlp_hyper_connection.block_inject_weight.weight", &[1024, 4], "[4, 1024]"),
        ("layers.0.self_attn.q_proj.weight", &[256, 512], "[512, 256]"),
        ("layers.0.self_attn.k_proj.weight", &[256, 128], "[128, 256]"),
        ("layers.0.self_attn.o_proj.weight", &[128, 512], "[256, 256]"),
        ("layers.0.mlp.gate.weight", &[256, 64], "[64, 256]"),
        ("layers.0.mlp.experts.gate_up_proj", &[64, 64, 512], "[64, 128, 256]"),
        ("layers.0.mlp.experts.down_proj", &[64, 64, 256], "[64, 256, 64]"),
        ("layers.0.mlp.shared_expert.gate_proj.weight", &[256, 64], "[64, 256]"),
        ("layers.0.mlp.shared_expert.down_proj.weight", &[64, 256], "[256, 64]"),
    ] {
        let error = pack(&|c| c.reshape(&format!("mtp.{name}"), shape));
        says(error, &[&format!("tensor mtp.{name} is {shape:?}, expected {expected} by the layer's other tensors")]);
    }
    for (name, shape, words) in [
        ("mlp.experts.gate_up_proj", &[32, 128, 256][..], "is [32, 128, 256], expected [64, 128, 256]"),
        ("mlp.experts.down_proj", &[32, 256, 64], "is [32, 256, 64], expected [64, 256, 64]"),
        ("self_attn.k_norm.weight", &[32], "is [32], expected [64]"),
        ("self_attn.q_proj.weight", &[256, 256], "is [256, 256], expected [512, 256]"),
        ("self_attn.indexer.index_qk_proj.weight", &[48, 512], "is [48, 512], expected [N, 256] with a multiple of"),
        ("self_attn.indexer.index_qk_proj.weight", &[32, 256], "the key's 32 as N, from 64 on"),
        ("self_attn.indexer.index_qk_proj.weight", &[100, 256], "is [100, 256], expected [N, 256]"),
        ("self_attn.indexer.q_layernorm.weight", &[16], "is [16], expected [32], as the key's norm"),
    ] {
        let error = pack(&|c| c.cut(&format!("mtp.layers.0.{name}"), shape));
        says(error, &[&format!("tensor mtp.layers.0.{name} "), words]);
    }
}

#[test]
fn a_packed_layer_is_checked_without_its_model() {
    let whole = pack_draft(&Checkpoint::read().open(), 8, GgmlType::Q8_0).unwrap().to_bytes().unwrap();
    let whole = Gguf::from_bytes("mtp", whole).unwrap();
    assert!(whole.is_draft_layer());
    check_draft_layer(&whole).unwrap();
    let mut other = Writer::new();
    for (key, value) in whole.meta().iter() {
        other.meta(key, value.clone()).unwrap();
    }
    for t in whole.tensors() {
        let turned: Vec<u64> = t.dims().iter().rev().copied().collect();
        let dims = if t.name() == "blk.8.ffn_gate_inp.weight" { turned.as_slice() } else { t.dims() };
        other.tensor(t.name(), dims, t.ty(), t.data().to_vec()).unwrap();
    }
    let other = Gguf::from_bytes("mtp", other.to_bytes().unwrap()).unwrap();
    let words = "tensor blk.8.ffn_gate_inp.weight is [64, 256], expected [256, 64] by the file's own dimensions";
    says(check_draft_layer(&other).err(), &[words]);
    let model = Gguf::open(&nano()).unwrap();
    assert!(!model.is_draft_layer());
    says(check_draft_layer(&model).err(), &["there is no draft layer in it"]);
}

#[test]
fn layers_of_another_model_are_refused() {
    let (nano, tiny) = (load(&nano()), load(&data("tiny/tiny-qwen4exp.gguf")));
    let draft = |layers| draft_from_safetensors(&Checkpoint::read().open(), layers).unwrap();
    says(DraftLayer::load(&draft(8), &tiny).err(), &["embedding_length is 256, but 64", "of another model"]);
    says(DraftLayer::load(&draft(48), &nano).err(), &["a model of 48 layers, but this has 8"]);
    assert!(DraftLayer::load(&draft(0), &nano).is_ok());
    let gguf = Gguf::open(&common::nano()).unwrap();
    says(DraftLayer::load(&gguf, &nano).err(), &["there is no draft layer in it", "eh_proj"]);
    let mut other = Writer::new();
    other.meta("general.architecture", Value::String("llama".into())).unwrap();
    other.tensor("blk.8.nextn.eh_proj.weight", &[512, 256], GgmlType::Q8_0, vec![0; 512 * 256 / 32 * 34]).unwrap();
    let other = Gguf::from_bytes("other", other.to_bytes().unwrap()).unwrap();
    says(DraftLayer::load(&other, &nano).err(), &["architecture \"llama\", expected \"qwen4exp\""]);
}

/// Whatever the type: an infinity would be kept by some, and be of no use.
#[test]
fn values_that_are_not_finite_are_named_as_in_the_checkpoint() {
    let packed = |name: &str, bits, ty| {
        let mut c = Checkpoint::read();
        c.overwrite(name, 10, bits);
        pack_draft(&c.open(), 8, ty).and_then(|w| Ok(w.to_bytes()?)).unwrap_err().to_string()
    };
    let (inf, nan) = (0x7f80, 0x7fc0);
    for ty in [GgmlType::Q8_0, GgmlType::BF16, GgmlType::F16, GgmlType::F32] {
        for (name, bits, word) in [
            ("mtp.layers.0.self_attn.k_proj.weight", inf, "value 10 is inf"),
            ("mtp.layers.0.mlp.experts.down_proj", nan, "value 10 is NaN"),
            ("mtp.layers.0.self_attn.indexer.index_qk_proj.weight", nan, "value 10 is NaN"),
            ("mtp.layers.0.mlp.gate.weight", nan, "value 10 is NaN"),
            ("mtp.pre_fc_norm_hidden.weight", inf, "value 10 is inf"),
            ("mtp.fc_hidden.weight", inf, "value 10 is inf"),
        ] {
            let error = packed(name, bits, ty);
            assert!(error.contains(&format!("tensor {name}: {word}, expected finite numbers")), "{ty}: {error}");
        }
    }
    // 1e20 is a number, but none that these can hold.
    for ty in [GgmlType::Q8_0, GgmlType::F16] {
        let error = packed("mtp.layers.0.self_attn.k_proj.weight", 0x60ad, ty);
        assert!(error.contains("tensor mtp.layers.0.self_attn.k_proj.weight: value 10 is "), "{error}");
        assert!(error.contains(&format!("which {ty} cannot hold")), "{error}");
    }
    says(pack_draft(&Checkpoint::read().open(), 8, GgmlType::IQ3_S).err(), &["cannot be written as IQ3_S"]);
}
