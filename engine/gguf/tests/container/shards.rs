//! Sets of shards.

use crate::{contents, folder, refusal, says, small};
use std::fs;
use std::path::{Path, PathBuf};
use strata_gguf::{GgmlType, Gguf, Value, Writer, models_in};

fn three(dir: &Path) -> Vec<PathBuf> {
    small().write_split(dir, "tiny", 3).unwrap()
}

/// One shard with keys of one's own choosing.
fn shard(no: u16, count: u16, total: i32, tensor: &str) -> Writer {
    let mut w = Writer::new();
    w.meta("split.no", Value::U16(no)).unwrap();
    w.meta("split.count", Value::U16(count)).unwrap();
    w.meta("split.tensors.count", Value::I32(total)).unwrap();
    w.tensor(tensor, &[4], GgmlType::F32, vec![1; 16]).unwrap();
    w
}

#[test]
fn any_shard_and_the_folder_open_the_same_model() {
    let dir = folder();
    let paths = three(dir.path());
    let whole = Gguf::from_bytes("whole", small().to_bytes().unwrap()).unwrap();
    for path in paths.iter().map(PathBuf::as_path).chain([dir.path()]) {
        let model = Gguf::open(path).unwrap();
        assert_eq!(contents(&model), contents(&whole), "{}", path.display());
        assert_eq!(model.meta().str("general.architecture").unwrap(), "qwen4exp");
        assert_eq!(model.files().iter().map(|f| f.tensors).collect::<Vec<_>>(), [2, 2, 2]);
        assert_eq!(model.tensors().iter().map(|t| t.file()).collect::<Vec<_>>(), [0, 0, 1, 1, 2, 2]);
        assert_eq!(model.name(), paths[0].to_string_lossy());
    }
}

#[test]
fn a_set_copies_into_one_file_and_back() {
    let (dir, other) = (folder(), folder());
    three(dir.path());
    let model = Gguf::open(dir.path()).unwrap();
    let copy = Writer::copy_of(&model).unwrap();
    assert_eq!(copy.to_bytes().unwrap(), small().to_bytes().unwrap());
    copy.write_split(other.path(), "copy", 2).unwrap();
    assert_eq!(contents(&Gguf::open(other.path()).unwrap()), contents(&model));
    // Replacing the file that the copy is read from must not cut it under its map.
    let path = dir.path().join("tiny-00001-of-00003.gguf");
    copy.write(&path).unwrap();
    assert_eq!(contents(&Gguf::open(&path).unwrap()), contents(&model));
}

#[test]
fn more_shards_than_tensors_and_another_alignment_work() {
    let dir = folder();
    let mut w = small();
    w.alignment(256).unwrap();
    w.write_split(dir.path(), "wide", 9).unwrap();
    let model = Gguf::open(dir.path()).unwrap();
    assert_eq!(model.tensors().len(), 6);
    assert!(model.tensors().iter().all(|t| t.offset() % 256 == 0));
}

#[test]
fn a_listing_shows_one_model_per_set() {
    let dir = folder();
    three(dir.path());
    small().write(&dir.path().join("other.gguf")).unwrap();
    small().write(&dir.path().join("tiny-00004-of-00009.gguf.part")).unwrap();
    fs::write(dir.path().join("readme.md"), "x").unwrap();
    let models = models_in(dir.path()).unwrap();
    let names: Vec<&str> = models.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["other", "tiny"]);
    let set = &models[1];
    assert_eq!((set.paths.len(), set.declared, set.is_complete()), (3, 3, true));
    assert_eq!(set.bytes, set.paths.iter().map(|p| fs::metadata(p).unwrap().len()).sum::<u64>());
}

/// A draft layer is put beside the model that it belongs to, and must not hide it.
#[test]
fn a_draft_layer_beside_a_model_is_no_second_model() {
    let dir = folder();
    let mut draft = Writer::new();
    draft.tensor("blk.8.nextn.eh_proj.weight", &[2, 1], GgmlType::F32, vec![0; 8]).unwrap();
    let draft_file = dir.path().join("mtp.gguf");
    draft.write(&draft_file).unwrap();
    assert!(Gguf::open(dir.path()).unwrap().is_draft_layer(), "alone it is what the folder holds");
    let mut model = Writer::new();
    model.tensor("token_embd.weight", &[2, 1], GgmlType::F32, vec![0; 8]).unwrap();
    model.tensor("blk.8.nextn.eh_proj.weight", &[2, 1], GgmlType::F32, vec![0; 8]).unwrap();
    model.write(&dir.path().join("a.gguf")).unwrap();
    let found = Gguf::open(dir.path()).unwrap();
    assert!(!found.is_draft_layer() && found.name().ends_with("a.gguf"), "{}", found.name());
    let drafts: Vec<bool> = models_in(dir.path()).unwrap().iter().map(|m| m.is_draft_layer()).collect();
    assert_eq!(drafts, [false, true]);
    model.write_split(dir.path(), "b", 2).unwrap();
    says(&refusal(Gguf::open(dir.path())), &["the folder holds 2 models, name one of them: a, b"]);
}

#[test]
fn all_missing_shards_are_listed_at_once() {
    let dir = folder();
    let paths = three(dir.path());
    fs::remove_file(&paths[1]).unwrap();
    let (second, third) = ("tiny-00002-of-00003.gguf", "tiny-00003-of-00003.gguf");
    says(&refusal(Gguf::open(&paths[0])), &["2 of 3 shards are present", second]);
    says(&refusal(Gguf::open(dir.path())), &["2 of 3 shards are present", second]);
    fs::remove_file(&paths[2]).unwrap();
    let text = refusal(Gguf::open(&paths[0]));
    says(&text, &["1 of 3 shards are present", second, third]);
    let models = models_in(dir.path()).unwrap();
    assert_eq!(models[0].missing, [second, third]);
    assert_eq!(models[0].declared, 3);
}

#[test]
fn shards_joined_with_cat_are_recognised() {
    let dir = folder();
    let paths = three(dir.path());
    let bytes: Vec<Vec<u8>> = paths.iter().map(|p| fs::read(p).unwrap()).collect();
    for order in [vec![0, 1], vec![1, 0], vec![0, 1, 2]] {
        let joined: Vec<u8> = order.iter().flat_map(|&i: &usize| bytes[i].clone()).collect();
        let path = dir.path().join("m.gguf");
        fs::write(&path, joined).unwrap();
        says(&refusal(Gguf::open(&path)), &["m.gguf", "concatenated", "separate files", "--merge"]);
    }
    // A first shard that holds no tensors ends with its header.
    let mut empty = Writer::new();
    empty.meta("split.count", Value::U16(2)).unwrap();
    let joined = [empty.to_bytes().unwrap(), bytes[1].clone()].concat();
    says(&refusal(Gguf::from_bytes("m", joined)), &["concatenated"]);
}

#[test]
fn a_whole_model_may_carry_a_shards_name() {
    let dir = folder();
    let path = dir.path().join("x-00001-of-00013.gguf");
    small().write(&path).unwrap();
    assert_eq!(Gguf::open(&path).unwrap().tensors().len(), 6);
    assert_eq!(Gguf::open(dir.path()).unwrap().tensors().len(), 6);
    let models = models_in(dir.path()).unwrap();
    assert_eq!((models[0].declared, models[0].is_complete()), (1, true));
}

#[test]
fn a_renamed_shard_is_told_its_name() {
    let dir = folder();
    let paths = three(dir.path());
    let renamed = dir.path().join("other-00002-of-00003.gguf");
    fs::rename(&paths[1], &renamed).unwrap();
    let expected = "tiny-00002-of-00003.gguf";
    says(&refusal(Gguf::open(&paths[0])), &["missing", expected, "other-00002-of-00003.gguf", "renamed"]);
    let plain = dir.path().join("part-two.gguf");
    fs::rename(&renamed, &plain).unwrap();
    says(&refusal(Gguf::open(&plain)), &["shard 2 of 3", expected, "rename"]);
    let wrong = dir.path().join("tiny-00003-of-00004.gguf");
    fs::rename(&plain, &wrong).unwrap();
    says(&refusal(Gguf::open(&wrong)), &["shard 2 of 3", expected]);
}

#[test]
fn swapped_shards_are_told_their_names() {
    let dir = folder();
    let paths = three(dir.path());
    let spare = dir.path().join("spare");
    fs::rename(&paths[1], &spare).unwrap();
    fs::rename(&paths[2], &paths[1]).unwrap();
    fs::rename(&spare, &paths[2]).unwrap();
    says(&refusal(Gguf::open(&paths[0])), &["00002-of-00003.gguf: ", "shard 3 of 3", "tiny-00003-of-00003.gguf"]);
}

#[test]
fn a_set_renamed_as_a_whole_opens() {
    let dir = folder();
    for path in three(dir.path()) {
        let name = path.file_name().unwrap().to_str().unwrap().replace("tiny", "big");
        fs::rename(&path, dir.path().join(name)).unwrap();
    }
    assert_eq!(Gguf::open(&dir.path().join("big-00003-of-00003.gguf")).unwrap().tensors().len(), 6);
}

#[test]
fn one_tensor_in_two_shards_names_both() {
    let dir = folder();
    let path = |n: u32| dir.path().join(format!("d-0000{n}-of-00002.gguf"));
    shard(0, 2, 2, "output.weight").write(&path(1)).unwrap();
    shard(1, 2, 2, "output.weight").write(&path(2)).unwrap();
    says(
        &refusal(Gguf::open(&path(1))),
        &["output.weight", "two files", "d-00001-of-00002.gguf", "d-00002-of-00002.gguf"],
    );
}

#[test]
fn split_keys_are_checked() {
    let dir = folder();
    let path = |n: u32| dir.path().join(format!("d-0000{n}-of-00002.gguf"));
    let open = |first: Writer, second: Writer| {
        first.write(&path(1)).unwrap();
        second.write(&path(2)).unwrap();
        refusal(Gguf::open(&path(1)))
    };
    says(&open(shard(0, 2, 5, "a"), shard(1, 2, 5, "b")), &["split.tensors.count is 5", "hold 2 tensors"]);
    says(&open(shard(0, 2, 2, "a"), shard(1, 2, 3, "b")), &["split.tensors.count is 3, but 2", "different models"]);
    says(&open(shard(0, 2, 2, "a"), shard(1, 4, 2, "b")), &["split.count is 4, but 2"]);
    says(&open(shard(0, 2, 2, "a"), small()), &["shard 2 of 2", "whole model"]);
    says(&open(shard(2, 2, 2, "a"), small()), &["split.no is 2", "less than split.count 2"]);
    let mut text = Writer::new();
    text.meta("split.count", Value::String("2".into())).unwrap();
    says(&refusal(Gguf::from_bytes("m", text.to_bytes().unwrap())), &["split.count", "string"]);
}

#[test]
fn a_truncated_shard_is_named() {
    let dir = folder();
    let paths = three(dir.path());
    let bytes = fs::read(&paths[2]).unwrap();
    fs::write(&paths[2], &bytes[..bytes.len() - 40]).unwrap();
    says(&refusal(Gguf::open(&paths[0])), &["first tensor out of bounds output.weight in tiny-00003-of-00003.gguf"]);
}

#[test]
fn a_shard_in_memory_is_refused() {
    let bytes = shard(0, 2, 2, "a").to_bytes().unwrap();
    says(&refusal(Gguf::from_bytes("m", bytes)), &["shard 1 of 2", "from files only"]);
}
