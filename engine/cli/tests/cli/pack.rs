//! `strata pack mtp`: what is written, and what is not overwritten.

use crate::common::{Run, run};
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
