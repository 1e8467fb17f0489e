//! Safetensors: what opens, what is refused, and with which words.

// clippy.toml lets `#[test]` functions panic; their helpers need to as well.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;
use std::path::Path;
use strata_gguf::{GgmlType, Result, SafeTensors};

/// A file with this header, and `data` bytes of 1, 2, 3, ...
fn file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend((0..data).map(|i| i as u8 + 1));
    bytes
}

/// Two tensors: `mtp.a`, BF16 [2][3], and `b`, F32 [1].
fn small() -> Vec<u8> {
    let header = r#"{"__metadata__":{"format":"pt"},"mtp.a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},"b":{"dtype":"F32","shape":[],"data_offsets":[12,16]}}"#;
    file(header, 16)
}

#[track_caller]
fn refused<T>(result: Result<T>, words: &[&str]) {
    let Err(error) = result else { panic!("should have been refused") };
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text:?} is not one line");
    for word in words {
        assert!(text.contains(word), "{text:?} does not say {word:?}");
    }
}

fn tensor_of(header: &str, data: usize) -> Result<()> {
    let all = SafeTensors::from_bytes("m", file(header, data))?;
    let names: Vec<String> = all.names().map(Into::into).collect();
    names.iter().try_for_each(|n| all.require(n).map(drop))
}

#[test]
fn tensors_have_their_bytes_and_dimensions_in_ggmls_order() {
    let all = SafeTensors::from_bytes("m", small()).unwrap();
    assert_eq!(all.names().collect::<Vec<_>>(), ["b", "mtp.a"]);
    let a = all.require("mtp.a").unwrap();
    assert_eq!((a.dims(), a.ty(), a.data()), (&[3, 2][..], GgmlType::BF16, &(1..=12).collect::<Vec<u8>>()[..]));
    let b = all.require("b").unwrap();
    assert_eq!((b.dims(), b.ty(), b.data()), (&[1][..], GgmlType::F32, &[13, 14, 15, 16][..]));
    refused(all.require("c"), &["m: tensor c is missing"]);
}

#[test]
fn what_is_cut_or_lies_is_refused_in_words() {
    let whole = small();
    for len in [0, 3, 7] {
        refused(SafeTensors::from_bytes("m", whole[..len].to_vec()), &["m: the file has", "expected at least the 8"]);
    }
    refused(SafeTensors::from_bytes("m", whole[..40].to_vec()), &["the header claims", "32 are left", "incomplete"]);
    refused(SafeTensors::from_bytes("m", whole[..whole.len() - 1].to_vec()), &["end elsewhere", "incomplete download"]);
    let longer = [whole.clone(), vec![0]].concat();
    refused(SafeTensors::from_bytes("m", longer), &["end elsewhere"]);
    let mut huge = whole.clone();
    huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    refused(SafeTensors::from_bytes("m", huge), &["the header claims 18446744073709551615 bytes"]);
    let gguf = [b"GGUF".as_slice(), &[3, 0, 0, 0], &[0; 64]].concat();
    refused(SafeTensors::from_bytes("m", gguf), &["a GGUF file, expected safetensors"]);
    refused(tensor_of("not json", 0), &["the header is damaged"]);
    refused(tensor_of(r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#, 4), &["the header is damaged"]);
    refused(tensor_of(r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}"#, 4), &["the header is damaged"]);
    let overflow = r#"{"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,4]}}"#;
    refused(tensor_of(overflow, 4), &["the header is damaged"]);
    let gap = r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#;
    refused(tensor_of(gap, 8), &["the header is damaged"]);
    refused(tensor_of(r#"{"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}"#, 8), &["tensor a is of type I64"]);
    let five = r#"{"a":{"dtype":"F32","shape":[1,1,1,1,1],"data_offsets":[0,4]}}"#;
    refused(tensor_of(five, 4), &["tensor a has 5 dimensions, expected 1 to 4"]);
    refused(tensor_of(r#"{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}"#, 0), &["a dimension of 0"]);
}

proptest! {
    #[test]
    fn flipped_bytes_load_or_are_refused(at in 0usize..200, bit in 0u8..8) {
        let mut bytes = small();
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        if let Ok(all) = SafeTensors::from_bytes("m", bytes) {
            for name in all.names() {
                let _ = all.require(name).map(|t| t.data().len());
            }
        }
    }
}

/// Two files and their index; the tensors of the second are not of the draft layer.
fn set(dir: &Path, index: &str) {
    std::fs::write(dir.join("model-00001-of-00002.safetensors"), small()).unwrap();
    let other = file(r#"{"c":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#, 4);
    std::fs::write(dir.join("model-00002-of-00002.safetensors"), other).unwrap();
    std::fs::write(dir.join("model.safetensors.index.json"), index).unwrap();
}

const GOOD_INDEX: &str = r#"{"weight_map":{"mtp.a":"model-00001-of-00002.safetensors","b":"model-00001-of-00002.safetensors","c":"model-00002-of-00002.safetensors"}}"#;

#[test]
fn sets_open_by_folder_index_or_file() {
    let dir = tempfile::tempdir().unwrap();
    set(dir.path(), GOOD_INDEX);
    let index = dir.path().join("model.safetensors.index.json");
    for path in [dir.path(), &index] {
        assert_eq!(SafeTensors::open(path, "").unwrap().names().collect::<Vec<_>>(), ["b", "c", "mtp.a"]);
    }
    // Files that hold none of the wanted tensors need not be there.
    std::fs::remove_file(dir.path().join("model-00002-of-00002.safetensors")).unwrap();
    for path in [dir.path(), &index, &dir.path().join("model-00001-of-00002.safetensors")] {
        let all = SafeTensors::open(path, "mtp.").unwrap();
        assert_eq!(all.names().collect::<Vec<_>>(), ["mtp.a"]);
        assert_eq!(all.require("mtp.a").unwrap().data().len(), 12);
    }
    refused(SafeTensors::open(dir.path(), ""), &["cannot open", "model-00002-of-00002.safetensors"]);
    // Without an index every file of the folder counts.
    std::fs::remove_file(&index).unwrap();
    assert_eq!(SafeTensors::open(dir.path(), "").unwrap().names().count(), 2);
    std::fs::copy(dir.path().join("model-00001-of-00002.safetensors"), dir.path().join("x.safetensors")).unwrap();
    refused(SafeTensors::open(dir.path(), ""), &["x.safetensors", "in another file of the set too"]);
}

#[test]
fn bad_indices_are_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    refused(SafeTensors::open(dir.path(), ""), &["holds no .safetensors file"]);
    refused(SafeTensors::open(&dir.path().join("none.safetensors"), ""), &["cannot open", "none.safetensors"]);
    for (index, words) in [
        ("{", &["not JSON"][..]),
        ("[]", &["weight_map"]),
        (r#"{"weight_map":{"mtp.a":"../up.safetensors"}}"#, &["tensor mtp.a", "../up.safetensors", "expected a name"]),
        (r#"{"weight_map":{"mtp.a":7}}"#, &["tensor mtp.a", "expected a name"]),
        (r#"{"weight_map":{"b":"x"}}"#, &["lists no tensor whose name starts with mtp."]),
    ] {
        set(dir.path(), index);
        refused(SafeTensors::open(dir.path(), "mtp."), &[&["index.json"], words].concat());
    }
}
