//! `strata pack mtp`: what is written, and what is not overwritten.

use crate::common::{Model, Run, nano, run};
use std::path::{Path, PathBuf};
use strata_gguf::{GgmlType, Gguf};

fn mtp() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("model/nano-mtp.safetensors")
}

fn pack(source: &Path, target: &Path, more: &[&str]) -> Run {
    run(&[&["pack", "mtp", source.to_str().unwrap(), "-o", target.to_str().unwrap()], more].concat())
}

#[test]
fn the_draft_layer_is_packed_in_each_type() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(mtp(), dir.path().join("model.safetensors")).unwrap();
    let config = r#"{"text_config": {"num_hidden_layers": 8}, "num_hidden_layers": 1}"#;
    std::fs::write(dir.path().join("config.json"), config).unwrap();
    let types = [(None, GgmlType::Q8_0), (Some("bf16"), GgmlType::BF16), (Some("f16"), GgmlType::F16)];
    for (name, ty) in types.into_iter().chain([(Some("f32"), GgmlType::F32)]) {
        let target = dir.path().join(format!("{ty}.gguf"));
        let r = pack(dir.path(), &target, &name.map_or(vec![], |n| vec!["--type", n]));
        assert_eq!((r.code, r.err.as_str()), (Some(0), ""));
        assert!(r.out.contains(&format!("the draft layer as {ty}, ")) && r.out.contains("of 8 layers"), "{}", r.out);
        let gguf = Gguf::open(&target).unwrap();
        assert_eq!(gguf.tensors().len(), 31);
        assert_eq!(gguf.meta().u64("qwen4exp.block_count").unwrap(), 9);
        assert_eq!(gguf.meta().u64("qwen4exp.nextn_predict_layers").unwrap(), 1);
        let (joined, norm) = ("blk.8.nextn.eh_proj.weight", "blk.8.nextn.hnorm.weight");
        assert_eq!((gguf.require(joined).unwrap().dims(), gguf.require(joined).unwrap().ty()), (&[512, 256][..], ty));
        assert_eq!(gguf.require(norm).unwrap().ty(), GgmlType::F32);
    }
    let left = std::fs::read_dir(dir.path())
        .unwrap()
        .filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().ends_with(".part"));
    assert_eq!(left.count(), 0);
}

#[test]
fn a_file_is_replaced_only_by_force() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("mtp.gguf");
    std::fs::write(&target, "precious").unwrap();
    let r = pack(&mtp(), &target, &[]);
    assert_eq!((r.code, r.out.as_str()), (Some(1), ""));
    assert!(r.err.contains("mtp.gguf exists already; --force replaces it"), "{}", r.err);
    assert_eq!(std::fs::read(&target).unwrap(), b"precious");
    let r = pack(&mtp(), &target, &["--force"]);
    assert_eq!(r.code, Some(0), "{}", r.err);
    // The folder of the source has no config.json.
    assert!(r.err.starts_with("warning: no config.json"), "{}", r.err);
    assert!(Gguf::open(&target).unwrap().tensor("blk.0.nextn.eh_proj.weight").is_some());
}

/// A name may stand for a pipe or a socket that somebody listens to, for a link, or for the source itself.
#[test]
#[cfg(unix)]
fn only_another_regular_file_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    std::fs::create_dir(at("folder")).unwrap();
    std::os::unix::fs::symlink(at("nowhere"), at("lost")).unwrap();
    for (name, word) in [("socket", "not a regular file"), ("folder", "not a regular file"), ("lost", "leads nowhere")]
    {
        let before = at(name).symlink_metadata().unwrap().file_type();
        for force in [&["--force"][..], &[]] {
            let r = pack(&mtp(), &at(name), force);
            assert_eq!((r.code, r.out.as_str()), (Some(1), ""));
            assert!(r.err.contains(word), "{}", r.err);
            assert_eq!(at(name).symlink_metadata().unwrap().file_type(), before);
        }
    }
    // Where a link leads is written, and the link stays.
    std::fs::write(at("old"), "x").unwrap();
    std::os::unix::fs::symlink(at("old"), at("link")).unwrap();
    assert_eq!(pack(&mtp(), &at("link"), &[]).code, Some(1));
    assert_eq!(pack(&mtp(), &at("link"), &["--force"]).code, Some(0));
    assert!(at("link").symlink_metadata().unwrap().is_symlink() && Gguf::open(&at("old")).is_ok());

    let source = at("a.safetensors");
    std::fs::copy(mtp(), &source).unwrap();
    std::os::unix::fs::symlink(&source, at("b.gguf")).unwrap();
    std::os::unix::fs::symlink(&source, at("c.gguf.part")).unwrap();
    for target in [source.clone(), at("b.gguf"), at("c.gguf")] {
        for from in [source.as_path(), dir.path()] {
            let r = pack(from, &target, &["--force"]);
            assert_eq!((r.code, r.out.as_str()), (Some(1), ""));
            assert!(r.err.contains("a.safetensors is what is to be packed"), "{}", r.err);
        }
    }
    assert_eq!(std::fs::read(&source).unwrap(), std::fs::read(mtp()).unwrap());
}

#[test]
fn values_that_are_not_finite_are_refused_with_their_tensor() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("a.safetensors"), dir.path().join("mtp.gguf"));
    let mut bytes = std::fs::read(mtp()).unwrap();
    let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + len]).unwrap();
    let name = "mtp.layers.0.mlp.experts.down_proj";
    let at = 8 + len + header[name]["data_offsets"][0].as_u64().unwrap() as usize;
    bytes[at..at + 2].copy_from_slice(&[0xc0, 0x7f]);
    std::fs::write(&source, bytes).unwrap();
    for ty in ["q8_0", "bf16", "f16", "f32"] {
        let r = pack(&source, &target, &["--type", ty]);
        assert_eq!((r.code, r.out.as_str()), (Some(1), ""));
        assert!(r.err.contains(&format!("tensor {name}: value 0 is NaN, expected finite numbers")), "{ty}: {}", r.err);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "{ty}");
    }
}

/// What the documentation says to do: the draft layer beside the model.
#[test]
fn a_packed_layer_lies_beside_its_model() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("fold");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(dir.path().join("config.json"), r#"{"num_hidden_layers": 8}"#).unwrap();
    std::fs::copy(mtp(), dir.path().join("a.safetensors")).unwrap();
    let (model, layer) = (folder.join("nano.gguf"), folder.join("mtp.gguf"));
    std::fs::copy(nano(), &model).unwrap();
    assert_eq!(pack(&dir.path().join("a.safetensors"), &layer, &[]).code, Some(0));
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let drafted = |args: &[&str]| {
        let r = run(
            &[&["run", "--json", "--no-think", "--draft", "mtp", "--spec", "2", "Tell me a story."], args].concat()
        );
        assert_eq!(r.code, Some(0), "{}", r.err);
        let v: serde_json::Value = serde_json::from_str(&r.out).unwrap();
        v["speculation"]["counts"]["mtp"]["verified"].as_u64().unwrap()
    };
    assert!(drafted(&["--model", &text(&folder)]) > 0);
    // Another model's folder, and names of one's own.
    let apart = dir.path().join("apart");
    std::fs::create_dir(&apart).unwrap();
    assert!(drafted(&["--draft-model", &text(&folder)]) > 0);
    std::fs::rename(&layer, apart.join("mine.gguf")).unwrap();
    assert!(drafted(&["--model", &text(&model), "--draft-model", &text(&apart)]) > 0);
    let layer = apart.join("mine.gguf");
    let listed = run(&["list", &text(&apart)]);
    assert!(listed.out.starts_with("mine ") && listed.out.trim_end().ends_with("draft layer"), "{}", listed.out);
    let checked = run(&["check", &text(&layer), "--weights"]);
    assert_eq!((checked.code, checked.err.as_str()), (Some(0), ""), "{}", checked.out);
    assert!(checked.out.contains("all 31 required ones present"), "{}", checked.out);
    assert!(checked.out.contains("draft layer") && !checked.out.contains("missing"), "{}", checked.out);
    let seen = run(&["inspect", &text(&layer)]);
    assert!(seen.out.contains("for a model of") && seen.out.contains("a draft layer without a model"), "{}", seen.out);
    assert!(!seen.out.contains("missing") && !seen.out.contains("GDN"), "{}", seen.out);
    for verb in [&["run", "--model", &text(&layer), "hi"][..], &["bench", "decode", &text(&layer)]] {
        let r = run(verb);
        assert_eq!((r.code, r.out.as_str()), (Some(1), ""));
        assert!(r.err.contains("mine.gguf: a draft layer without a model; give it with --draft-model"), "{}", r.err);
    }
    // A damaged one is still found to be so.
    let mut damaged = Model::read(&layer);
    damaged.tensors.retain(|t| t.name != "blk.8.attn_k.weight");
    let router = damaged.tensor("blk.8.ffn_gate_inp.weight");
    router.dims.reverse();
    damaged.write(&layer);
    let checked = run(&["check", &text(&layer)]);
    assert_eq!(checked.code, Some(1));
    assert!(checked.out.contains("FAIL  tensors: tensor blk.8.attn_k.weight is missing"), "{}", checked.out);
}

#[test]
fn what_cannot_be_packed_is_said_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("a.safetensors"), dir.path().join("mtp.gguf"));
    let whole = std::fs::read(mtp()).unwrap();
    for (bytes, word) in [
        (&whole[..whole.len() / 2], "incomplete download"),
        (&[], "expected at least the 8"),
        (&[2, 0, 0, 0, 0, 0, 0, 0, b'{', b'}'], "tensor mtp.fc_embedding.weight is missing"),
    ] {
        std::fs::write(&source, bytes).unwrap();
        let r = pack(&source, &target, &[]);
        assert_eq!((r.code, r.out.as_str()), (Some(1), ""));
        assert!(r.err.contains("a.safetensors") && r.err.contains(word), "{}", r.err);
        assert!(!target.exists());
    }
    std::fs::write(dir.path().join("config.json"), "{}").unwrap();
    let r = pack(&source, &target, &[]);
    assert!(r.code == Some(1) && r.err.contains("no num_hidden_layers"), "{}", r.err);
    let r = pack(&source, &target, &["--type", "q2_k"]);
    assert!(r.code == Some(2) && r.err.contains("q8_0, bf16, f16, f32"), "{}", r.err);
}
