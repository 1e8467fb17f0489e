//! Paths, kinds of files, and files that are shorter or longer than they should be.

use crate::{contents, folder, pattern, refusal, refused, says, small};
use std::fs;
use std::path::Path;
use strata_gguf::Gguf;

#[test]
fn opens_the_same_from_a_path_from_bytes_and_from_the_program() {
    let dir = folder();
    let path = dir.path().join("m.gguf");
    small().write(&path).unwrap();
    let mapped = Gguf::open(&path).unwrap();
    let bytes = fs::read(&path).unwrap();
    let linked: &'static [u8] = Box::leak(bytes.clone().into_boxed_slice());
    for other in [Gguf::from_bytes("m", bytes.clone()).unwrap(), Gguf::from_static("m", linked).unwrap()] {
        assert_eq!(contents(&mapped), contents(&other));
        assert_eq!(other.files()[0].path, None);
    }
    assert_eq!(mapped.version(), 3);
    assert_eq!(mapped.warnings(), [""; 0]);
    let file = &mapped.files()[0];
    assert_eq!((file.path.as_deref(), file.name.as_str(), file.tensors), (Some(&*path), "m.gguf", 6));
    assert_eq!(file.bytes, bytes.len() as u64);
    assert!(file.header_bytes <= mapped.tensors()[0].offset());
    for t in mapped.tensors() {
        let at = t.offset() as usize;
        assert_eq!(&bytes[at..at + t.bytes() as usize], t.data());
    }
}

#[test]
fn a_file_cut_anywhere_is_refused_and_the_tensor_named() {
    let dir = folder();
    let path = dir.path().join("cut.gguf");
    small().write(&path).unwrap();
    let whole = fs::read(&path).unwrap();
    let model = Gguf::open(&path).unwrap();
    let last = model.tensors().last().unwrap();
    let (data, header) = ((last.offset() + last.bytes()) as usize, model.files()[0].header_bytes as usize);
    drop(model);
    for (len, tensor) in [
        (data - 1, "output.weight"),
        (header + (data - header) / 2, "blk.0.norm.weight"),
        (header, "token_embd.weight"),
    ] {
        fs::write(&path, &whole[..len]).unwrap();
        let text = refusal(Gguf::open(&path));
        says(
            &text,
            &["first tensor out of bounds", tensor, "cut.gguf", "needs", &format!("file has {len}"), "incomplete"],
        );
    }
    for len in 0..header {
        let text = refusal(Gguf::from_bytes("cut", whole[..len].to_vec()));
        assert!(["incomplete", "unfinished"].iter().any(|w| text.contains(w)), "{text}");
    }
}

#[test]
fn unfinished_downloads_are_named_as_such() {
    let dir = folder();
    let bytes = small().to_bytes().unwrap();
    let half = bytes.len() / 2;
    let (first, second) = (dir.path().join("m.gguf.part1of2"), dir.path().join("m.gguf.part2of2"));
    fs::write(&first, &bytes[..half]).unwrap();
    fs::write(&second, &bytes[half..]).unwrap();
    says(&refusal(Gguf::open(&second)), &["not a GGUF file", "piece of a cut file"]);
    let text = refusal(Gguf::open(&first));
    says(&text, &["out of bounds", "incomplete"]);
    says(&refusal(Gguf::open(dir.path())), &["no .gguf file"]);
}

#[test]
fn extra_data_is_refused_unless_it_is_padding() {
    let bytes = small().to_bytes().unwrap();
    let with = |extra: &[u8]| [bytes.as_slice(), extra].concat();
    let padded = Gguf::from_bytes("m", with(&[0; 4000])).unwrap();
    says(&padded.warnings()[0], &["4000 zero bytes"]);
    refused(with(&pattern(100)), &["extra data", "100 bytes"]);
    refused(with(&[0; 70_000]), &["extra data"]);
}

#[test]
fn paths_of_any_script_and_length_open() {
    let dir = folder();
    let deep: String = (0..5).map(|i| format!("{i}{}/", "long".repeat(14))).collect();
    for name in ["модель", "模型", "a b  c", "🦀", "Łukasz é", deep.as_str()] {
        let inner = dir.path().join(name);
        fs::create_dir_all(&inner).unwrap();
        let path = inner.join("м 型 🦀.gguf");
        small().write(&path).unwrap();
        assert_eq!(Gguf::open(&path).unwrap().tensors().len(), 6, "{name}");
        assert_eq!(Gguf::open(&inner).unwrap().tensors().len(), 6, "{name}");
        small().write_split(&inner, "型", 2).unwrap();
        assert_eq!(Gguf::open(&inner.join("型-00002-of-00002.gguf")).unwrap().tensors().len(), 6, "{name}");
    }
    assert!(dir.path().join(deep).as_os_str().len() > 260);
}

#[test]
fn an_invisible_character_in_a_path_is_shown() {
    let text = refusal(Gguf::open(Path::new("\u{202a}/models/m.gguf")));
    says(&text, &["\\u{202a}", "U+202A", "invisible"]);
    assert!(!text.contains('\u{202a}'));
}

#[test]
fn what_is_no_model_file_gets_a_sentence() {
    let dir = folder();
    says(&refusal(Gguf::open(&dir.path().join("none.gguf"))), &["cannot open", "none.gguf"]);
    says(&refusal(Gguf::open(dir.path())), &["no .gguf file"]);
    fs::create_dir(dir.path().join("folder.gguf")).unwrap();
    says(&refusal(Gguf::open(&dir.path().join("folder.gguf"))), &["folder", "no .gguf file"]);
    let empty = dir.path().join("empty.gguf");
    fs::write(&empty, []).unwrap();
    says(&refusal(Gguf::open(&empty)), &["empty.gguf", "empty (0 bytes)"]);
    #[cfg(unix)]
    says(&refusal(Gguf::open(Path::new("/dev/null"))), &["not a regular file"]);
}

#[test]
fn other_kinds_of_files_are_recognised() {
    let safetensors = [&120u64.to_le_bytes()[..], br#"{"a":{"dtype":"BF16"}}"#].concat();
    for (bytes, word) in [
        (&b"version https://git-lfs.github.com/spec/v1\noid sha256:0"[..], "Git LFS pointer"),
        (&safetensors, "safetensors"),
        (b"PK\x03\x04aaaa", "zip"),
        (b"\n <!DOCTYPE html><html>", "web page"),
        (b"lmgg\x01\0\0\0", "older formats"),
        (b"{\"error\":\"not found\"}", "JSON"),
        (&[0; 64], "never finished"),
        (&[0x1f, 0x8b, 8, 0], "gzip"),
        (b"hello world", "\"hello wo\""),
        (b"GG", "ends after 2 bytes"),
    ] {
        refused(bytes.to_vec(), &[word]);
    }
}

#[test]
fn a_folder_with_several_models_lists_them() {
    let dir = folder();
    for name in ["a.gguf", "b.gguf", "mmproj-a.gguf", "notes.txt", "._a.gguf", "c.gguf.part"] {
        small().write(&dir.path().join(name)).unwrap();
    }
    says(&refusal(Gguf::open(dir.path())), &["2 models", "a, b"]);
    fs::remove_file(dir.path().join("b.gguf")).unwrap();
    assert_eq!(Gguf::open(dir.path()).unwrap().files()[0].name, "a.gguf");
}
