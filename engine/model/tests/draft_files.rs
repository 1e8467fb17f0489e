//! Draft layers that are refused, and in which words.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{data, load, nano};
use std::path::Path;
use strata_gguf::{GgmlType, Gguf, SafeTensors, Value, Writer};
use strata_model::{CpuOps, DraftLayer, Model, draft_from_safetensors, pack_draft};

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
        changed(&model, |c| c.reshape(q, &[256, 512])),
        &["key qwen4exp.attention.head_count is 2, but 4 in the model"],
    );
    let o = "mtp.layers.0.self_attn.o_proj.weight";
    says(
        changed(&model, |c| c.reshape(o, &[128, 512])),
        &["blk.8.attn_output.weight is [512, 128], expected [256, 256]"],
    );
    says(
        changed(&model, |c| c.reshape("mtp.layers.0.mlp.experts.gate_up_proj", &[64, 64, 512])),
        &["ffn_gate_up_exps.weight is [512, 64, 64], expected [256, 128, 64]"],
    );
    says(changed(&model, |c| c.reshape("mtp.pre_fc_norm_hidden.weight", &[4, 256])), &["hyper_connection.count is 1"]);
    says(
        changed(&model, |c| c.reshape("mtp.fc_embedding.weight", &[128, 512])),
        &["fc_embedding.weight is [512, 128]"],
    );
    says(
        changed(&model, |c| c.reshape("mtp.layers.0.self_attn.indexer.index_qk_proj.weight", &[24, 1024])),
        &["index_qk_proj.weight has 24 rows, expected more than the key's 32"],
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
        &["tensor blk.8.attn_q_norm.weight holds NaN at value 0"],
    );
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

/// What no 8-bit scale can hold is found while the file is written.
#[test]
fn values_that_a_type_cannot_hold_are_named() {
    let mut c = Checkpoint::read();
    let at = c.header["mtp.layers.0.self_attn.k_proj.weight"]["data_offsets"][0].as_u64().unwrap() as usize;
    c.data[at + 20..at + 22].copy_from_slice(&[0x80, 0x7f]);
    let error = pack_draft(&c.open(), 8, GgmlType::Q8_0).unwrap().to_bytes().unwrap_err().to_string();
    assert!(error.contains("tensor blk.8.attn_k.weight: ") && error.contains("inf"), "{error}");
    says(pack_draft(&c.open(), 8, GgmlType::IQ3_S).err(), &["cannot be written as IQ3_S"]);
}
