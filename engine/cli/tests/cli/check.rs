//! `strata check`: whole files pass, others are refused with what is wrong.

use crate::common::{Model, Run, nano, run, shared, tiny};
use std::path::Path;
use strata_gguf::{GgmlType, Value};

fn check(path: &Path) -> Run {
    run(&["check", path.to_str().unwrap(), "--weights"])
}

/// Checks a changed copy of a shared model.
fn changed(model: &Path, change: impl FnOnce(&mut Model)) -> Run {
    let mut model = Model::read(model);
    change(&mut model);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    model.write(&path);
    check(&path)
}

#[test]
fn whole_models_pass() {
    let others = ["Q2_0", "bf16"].map(|quant| Some(shared()?.join(format!("nano/nano-{quant}.gguf"))));
    for name in others.into_iter().flatten().chain([nano(), "nano".into()]) {
        let (r, name) = (check(&name), name.display());
        assert_eq!((r.code, r.err.as_str()), (Some(0), ""), "{name}: {}", r.out);
        assert!(r.out.contains("all values finite"), "{}", r.out);
    }
}

#[test]
fn missing_shards_are_all_listed() {
    let dir = tempfile::tempdir().unwrap();
    let shards = Model::read(&nano()).write_shards(dir.path(), "set", 4);
    let whole = check(&shards[2]);
    assert_eq!(whole.code, Some(0), "{}", whole.err);
    assert!(whole.out.contains("files: 4 of 4 shards present"), "{}", whole.out);
    std::fs::remove_file(&shards[1]).unwrap();
    std::fs::remove_file(&shards[3]).unwrap();
    for path in [&shards[0], &shards[2], &dir.path().to_path_buf()] {
        let r = check(path);
        assert_eq!((r.code, r.out.as_str()), (Some(1), ""));
        for part in ["2 of 4 shards are present", "set-00002-of-00004.gguf", "set-00004-of-00004.gguf"] {
            assert!(r.err.contains(part), "{}", r.err);
        }
    }
}

#[test]
fn a_missing_tensor_is_named() {
    let r = changed(&nano(), |m| m.tensors.retain(|t| t.name != "blk.0.ssm_out.weight"));
    assert_eq!(r.code, Some(1));
    assert!(r.out.contains("FAIL  tensors: tensor blk.0.ssm_out.weight is missing\n"), "{}", r.out);
    assert!(r.err.ends_with(": 1 problem found\n"), "{}", r.err);
}

#[test]
fn values_that_are_not_finite_are_counted_by_tensor_and_expert() {
    let r = changed(&tiny(), |m| {
        // Expert 3 has 64 * 32 values of four bytes.
        let at = |value: usize| (3 * 64 * 32 + value) * 4;
        let data = &mut m.tensor("blk.1.ffn_up_exps.weight").data;
        data[at(5)..at(6)].copy_from_slice(&f32::NAN.to_le_bytes());
        data[at(2047)..at(2048)].copy_from_slice(&f32::INFINITY.to_le_bytes());
        m.tensor("output_hc_norm.weight").data[..4].copy_from_slice(&f32::NEG_INFINITY.to_le_bytes());
    });
    assert_eq!(r.code, Some(1));
    let lines: Vec<&str> = r.out.lines().filter(|l| l.starts_with("FAIL  weights")).collect();
    assert_eq!(
        lines,
        [
            "FAIL  weights: tensor output_hc_norm.weight: 1 value is not finite (F32)",
            "FAIL  weights: tensor blk.1.ffn_up_exps.weight, expert 3: 2 values are not finite (F32)",
        ]
    );
    // The others are the norm, which loading refuses too, and tiny's stand-in for a tokenizer.
    assert!(r.err.ends_with(": 4 problems found\n"), "{}", r.err);

    let r = changed(&nano(), |m| {
        // A NaN scale at the start of the second block of expert 63.
        let expert = 64 * 256 / GgmlType::IQ3_S.block_values() * GgmlType::IQ3_S.block_bytes();
        let at = 63 * expert + GgmlType::IQ3_S.block_bytes();
        m.tensor("blk.7.ffn_gate_exps.weight").data[at..at + 2].copy_from_slice(&0x7e00u16.to_le_bytes());
    });
    assert_eq!(r.code, Some(1));
    let want = "FAIL  weights: tensor blk.7.ffn_gate_exps.weight, expert 63: 1 block is not finite (IQ3_S)\n";
    assert!(r.out.contains(want), "{}", r.out);
}

#[test]
fn another_architecture_fails() {
    let tiny = tiny();
    let r = changed(&tiny, |m| m.set("general.architecture", Value::String("llama".into())));
    assert_eq!(r.code, Some(1));
    let want = "FAIL  architecture: the architecture is llama, this engine runs qwen4exp only\n";
    assert!(r.out.contains(want), "{}", r.out);
}

#[test]
fn a_cut_file_is_refused() {
    let tiny = tiny();
    let whole = std::fs::read(tiny).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    for len in [0, 3, 100, whole.len() / 2, whole.len() - 64] {
        std::fs::write(&path, &whole[..len]).unwrap();
        let r = check(&path);
        assert_eq!((r.code, r.out.as_str()), (Some(1), ""), "{len}");
        assert!(r.err.starts_with("error: ") && r.err.contains("m.gguf"), "{}", r.err);
    }
}
