//! `strata inspect`: the figures are right, and what is odd is said.

use crate::common::{Model, Stored, run, shared, tiny};
use serde_json::{Value as Json, json};
use std::path::Path;
use strata_gguf::{ArrayValue, GgmlType, Value};

fn inspect(path: &Path) -> Json {
    let r = run(&["inspect", path.to_str().unwrap(), "--json"]);
    assert_eq!((r.code, r.err.as_str()), (Some(0), ""), "{}", path.display());
    serde_json::from_str(&r.out).unwrap()
}

/// Figures computed by another program from another reader of the header: parts by formulas over the dimensions, bytes by
/// block sizes and checked against the distances of offsets.
#[test]
fn figures_of_nano_iq3_s() {
    let Some(shared) = shared() else { return };
    let j = inspect(&shared.join("nano/nano-IQ3_S.gguf"));
    assert_eq!(j["parameters"], 35_150_688);
    assert_eq!(j["active_parameters"], 9_235_808);
    assert_eq!(j["active_expert_parameters"], 2_359_296);
    assert_eq!(j["file_bytes"], 17_858_496);
    assert_eq!(j["tensor_bytes"], 17_715_392);
    let part = |name, tensors, parameters, bytes| json!({"part": name, "tensors": tensors, "parameters": parameters, "bytes": bytes});
    assert_eq!(
        j["parts"],
        json!([
            part("dense", 184, 5_760_864, 3_281_600),
            part("experts", 24, 25_165_824, 11_927_552),
            part("ngram_table", 1, 2_060_288, 1_158_912),
            part("embedding_head", 5, 2_163_712, 1_347_328),
        ])
    );
    let ty = |name, bits, tensors, parameters, bytes| json!({"type": name, "bits_per_weight": bits, "tensors": tensors, "parameters": parameters, "bytes": bytes});
    assert_eq!(
        j["types"],
        json!([
            ty("IQ3_S", 3.4375, 106, 22_732_800, 9_768_000),
            ty("IQ4_NL", 4.5, 34, 11_137_024, 6_264_576),
            ty("Q6_K", 6.5625, 1, 1_048_576, 860_160),
            ty("F32", 32.0, 68, 179_040, 716_160),
            ty("BF16", 16.0, 4, 49_152, 98_304),
            ty("F16", 16.0, 1, 4_096, 8_192),
        ])
    );
    assert_eq!((&j["expert"]["min_bytes"], &j["expert"]["max_bytes"]), (&json!(23_296), &json!(23_296)));
    assert_eq!(j["expert"]["count"], 512);
    assert_eq!((&j["layers"]["gdn"], &j["layers"]["attention"]), (&json!(6), &json!(2)));
    assert_eq!(j["layers"]["attention_interval"], 4);
    assert_eq!((&j["tensor_count"], &j["expected_tensor_count"]), (&json!(214), &json!(213)));
    assert_eq!(j["tokenizer"]["tokens"], 4096);
    assert_eq!(j["notes"], json!(["there is no draft layer"]));
}

/// Layers of this file store their experts in different types.
#[test]
fn experts_of_nano_q4_k_m_differ() {
    let Some(shared) = shared() else { return };
    let j = inspect(&shared.join("nano/nano-Q4_K_M.gguf"));
    let want = json!({"count": 512, "min_bytes": 29_696, "mean_bytes": 32_768.0, "max_bytes": 35_840,
                      "min_layer": 1, "max_layer": 0});
    assert_eq!(j["expert"], want);
}

#[test]
fn every_shared_model_is_whole() {
    let Some(shared) = shared() else { return };
    let nano = std::fs::read_dir(shared.join("nano")).unwrap().map(|e| e.unwrap().path());
    let models = nano.filter(|p| p.extension().is_some_and(|e| e == "gguf")).chain([tiny()]);
    let mut seen = 0;
    for path in models {
        let j = inspect(&path);
        assert_eq!(j["supported"], true);
        assert_eq!((&j["missing_tensors"], &j["unknown_tensors"]["count"]), (&json!([]), &json!(0)));
        let sum =
            |list: &str, of: &str| j[list].as_array().unwrap().iter().map(|p| p[of].as_u64().unwrap()).sum::<u64>();
        for list in ["parts", "types"] {
            assert_eq!(sum(list, "parameters"), j["parameters"]);
            assert_eq!(sum(list, "bytes"), j["tensor_bytes"]);
            assert_eq!(sum(list, "tensors"), j["tensor_count"]);
        }
        let people = run(&["inspect", path.to_str().unwrap()]);
        assert_eq!(people.code, Some(0));
        assert!(people.out.contains("qwen4exp") && people.out.contains("GB = 10^9"), "{}", people.out);
        seen += 1;
    }
    assert_eq!(seen, 8);
}

#[test]
fn any_shard_and_the_folder_show_the_same_model() {
    let tiny = tiny();
    let dir = tempfile::tempdir().unwrap();
    let shards = Model::read(&tiny).write_shards(dir.path(), "set", 3);
    let whole = inspect(&tiny);
    for path in shards.iter().map(|p| p.as_path()).chain([dir.path()]) {
        let j = inspect(path);
        assert_eq!(j["files"].as_array().unwrap().len(), 3);
        for key in ["parameters", "active_parameters", "parts", "types", "expert", "layers", "dimensions", "tokenizer"]
        {
            assert_eq!(j[key], whole[key], "{key} of {}", path.display());
        }
    }
}

/// Writes a changed copy of the small model and looks into it.
fn changed(change: impl FnOnce(&mut Model)) -> Option<(Json, String)> {
    let mut model = Model::read(&tiny());
    change(&mut model);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    model.write(&path);
    let people = run(&["inspect", path.to_str().unwrap()]);
    assert_eq!((people.code, people.err.as_str()), (Some(0), ""));
    Some((inspect(&path), people.out))
}

#[test]
fn missing_and_unknown_tensors_are_named() {
    let Some((j, people)) = changed(|m| {
        m.tensors.retain(|t| t.name != "blk.2.attn_k.weight");
        for i in 0..7 {
            let name = format!("extra.{i}");
            m.tensors.push(Stored { name, dims: vec![1], ty: GgmlType::F32, data: vec![0; 4] });
        }
    }) else {
        return;
    };
    assert_eq!(j["missing_tensors"], json!(["blk.2.attn_k.weight"]));
    let first: Vec<String> = (0..5).map(|i| format!("extra.{i}")).collect();
    assert_eq!(j["unknown_tensors"], json!({"count": 7, "first": first}));
    assert!(people.contains("missing 1 tensor: blk.2.attn_k.weight\n"), "{people}");
    assert!(people.contains("7 tensors the engine does not know: extra.0, extra.1"), "{people}");
    assert!(people.contains("extra.4 and 2 more\n"), "{people}");
}

#[test]
fn odd_metadata_is_noted() {
    let Some((_, people)) = changed(|m| {
        m.set("qwen4exp.attention.compress_ratios", Value::Array(ArrayValue::I32(vec![0; 6])));
        m.set("tokenizer.ggml.tokens", Value::Array(ArrayValue::String(vec!["a".into(); 299])));
        m.set("qwen4exp.expert_used_count", Value::String("three".into()));
    }) else {
        return;
    };
    for note in [
        "key qwen4exp.attention.compress_ratios is 0 for every layer though there are indexers",
        "the tokenizer has 299 tokens, but token_embd.weight has 300 rows",
        "qwen4exp.expert_used_count is of type string",
        "there is no draft layer",
        "there is no chat template",
    ] {
        assert!(people.contains(note), "{note}\n{people}");
    }
}

#[test]
fn a_draft_layer_is_counted_apart() {
    let Some((j, _)) = changed(|m| {
        let copies = m.tensors.iter().filter(|t| t.name.starts_with("blk.5.")).cloned();
        let mut copies: Vec<Stored> =
            copies.map(|t| Stored { name: t.name.replace("blk.5.", "blk.6."), ..t }).collect();
        m.tensors.append(&mut copies);
        m.set("qwen4exp.block_count", Value::U32(7));
        m.set("qwen4exp.nextn_predict_layers", Value::U32(1));
    }) else {
        return;
    };
    assert_eq!((&j["layers"]["trunk"], &j["layers"]["draft"]), (&json!(6), &json!(1)));
    assert_eq!(j["active_parameters"], 533_584);
    assert_eq!(j["expert"]["count"], 48);
    assert_eq!(j["parts"].as_array().unwrap().last().unwrap()["part"], "draft_layer");
    assert_eq!(j["missing_tensors"].as_array().unwrap().len(), 6);
    assert_eq!(j["missing_tensors"][0], "blk.6.nextn.eh_proj.weight");
}

#[test]
fn another_architecture_is_shown_and_said_not_to_run() {
    let Some((j, people)) = changed(|m| m.set("general.architecture", Value::String("qwen4exp2".into()))) else {
        return;
    };
    assert_eq!((&j["supported"], &j["architecture"], &j["layers"]), (&json!(false), &json!("qwen4exp2"), &Json::Null));
    assert_eq!(j["parameters"], 771_792);
    let note =
        "the architecture is qwen4exp2, this engine runs qwen4exp; the file may need a newer version of the engine";
    assert!(people.contains(note), "{people}");
}

/// The file has none, and whoever runs the built-in model has one all the same.
#[test]
fn the_built_in_models_draft_layer_is_named() {
    let note = "the draft layer is a file of its own, built in as well";
    assert_eq!(inspect(Path::new("nano"))["notes"], json!([note]));
    let r = run(&["check", "nano"]);
    assert!(r.code == Some(0) && r.out.ends_with(&format!("note  {note}\n")), "{}", r.out);
}
