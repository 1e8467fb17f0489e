//! Tensors: shapes, types, ranges, and access to rows.

use crate::raw::Raw;
use crate::{folder, pattern, refusal, refused, says, small};
use strata_gguf::{GgmlType, Gguf, Metadata, Tensor, Writer, quant};

#[test]
fn every_supported_type_loads() {
    let mut w = Writer::new();
    for ty in GgmlType::ALL {
        let bytes = ty.row_bytes(512).unwrap() as usize * 3;
        w.tensor(&format!("{ty}.weight"), &[512, 3], *ty, pattern(bytes)).unwrap();
    }
    let model = Gguf::from_bytes("all", w.to_bytes().unwrap()).unwrap();
    for ty in GgmlType::ALL {
        let t = model.require(&format!("{ty}.weight")).unwrap();
        assert_eq!((t.ty(), t.row_len(), t.rows(), t.elements()), (*ty, 512, 3, 1536));
        assert_eq!(Some(t.row_bytes()), ty.row_bytes(512));
        assert_eq!(t.data(), pattern(t.bytes() as usize));
    }
}

#[test]
fn rows_and_prefetch_stay_inside_the_tensor() {
    let dir = folder();
    let path = dir.path().join("m.gguf");
    small().write(&path).unwrap();
    let mapped = Gguf::open(&path).unwrap();
    let memory = Gguf::from_bytes("m", small().to_bytes().unwrap()).unwrap();
    for t in mapped.tensors().iter().chain(memory.tensors()) {
        let rows: Vec<u8> = (0..t.rows()).flat_map(|i| t.row(i).unwrap().to_vec()).collect();
        assert_eq!(rows, t.data());
        for beyond in [t.rows(), u64::MAX / 2, u64::MAX] {
            assert_eq!(t.row(beyond), None);
        }
        for (first, count) in [(0, 1), (1, u64::MAX), (u64::MAX, 1), (u64::MAX, u64::MAX), (0, 0)] {
            t.prefetch_rows(first, count);
        }
    }
    let exps = mapped.require("blk.1.ffn_up_exps.weight").unwrap();
    assert_eq!((exps.dims(), exps.rows(), exps.row_bytes(), exps.bytes()), (&[32, 3, 2][..], 6, 34, 204));
}

#[test]
fn tensors_outlive_the_model_and_cross_threads() {
    fn shared<T: Send + Sync + 'static>(_: &T) {}
    let dir = folder();
    let path = dir.path().join("m.gguf");
    small().write(&path).unwrap();
    let model = Gguf::open(&path).unwrap();
    let t = model.require("output.weight").unwrap().clone();
    shared(&model);
    shared(&t);
    drop(model);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(t.data(), pattern(512));
}

#[test]
fn a_missing_tensor_is_missing_and_nothing_else() {
    let model = Gguf::from_bytes("m.gguf", small().to_bytes().unwrap()).unwrap();
    let text = model.require("blk.7.attn_q.weight").unwrap_err().to_string();
    assert_eq!(text, "m.gguf: tensor blk.7.attn_q.weight is missing");
}

#[test]
fn an_unknown_type_names_tensor_id_file_and_choices() {
    let with = |id| Raw::header(1, 0).tensor("blk.1.ffn_up_exps.weight", &[32], id, 0).data(32, 128);
    refused(
        with(99),
        &["blk.1.ffn_up_exps.weight", "type id 99", "newer than this engine", "damaged", "IQ3_S", "Q2_0"],
    );
    refused(with(43), &["type id 43", "newer than this engine"]);
    refused(with(34), &["TQ1_0", "does not run"]);
    refused(with(28), &["F64", "does not run"]);
    refused(with(4), &["removed"]);
    refused(with(15), &["intermediate"]);
}

#[test]
fn rows_must_divide_into_blocks() {
    let rows = |ty: GgmlType, ne0: u64| Raw::header(1, 0).tensor("blk.0.ffn_down_exps.weight", &[ne0, 2], ty.id(), 0);
    for ty in GgmlType::ALL {
        let bytes = rows(*ty, 640).data(32, 640 * 4 * 2);
        if ty.block_values() == 256 {
            refused(bytes, &["blk.0.ffn_down_exps.weight", "640", ty.name(), "blocks are of 256"]);
        } else {
            let size = 2 * ty.row_bytes(640).unwrap() as usize;
            let t = Gguf::from_bytes("m", rows(*ty, 640).data(32, size)).unwrap().tensors()[0].clone();
            assert_eq!(t.row(1).unwrap(), &pattern(size)[size / 2..]);
        }
        // A pack that stores 640 as 768 says 768: rows follow each other at that stride.
        let size = 2 * ty.row_bytes(768).unwrap() as usize;
        let t = Gguf::from_bytes("m", rows(*ty, 768).data(32, size)).unwrap().tensors()[0].clone();
        assert_eq!((t.row_len(), t.row(1).unwrap()), (768, &pattern(size)[size / 2..]));
    }
}

#[test]
fn hostile_shapes_and_offsets_do_not_wrap() {
    let one = |dims: &[u64], offset| Raw::header(1, 0).tensor("t", dims, 0, offset).data(32, 64);
    refused(one(&[u64::MAX, 2, 1, 1], 0), &["tensor t", "overflows"]);
    refused(one(&[1 << 32, 1 << 32], 0), &["overflows"]);
    refused(one(&[1 << 62], 0), &["overflows"]);
    refused(one(&[1 << 40], 0), &["first tensor out of bounds t"]);
    refused(one(&[1, 1, 1, 1, 1], 0), &["5 dimensions", "1 to 4"]);
    refused(one(&[], 0), &["0 dimensions"]);
    refused(one(&[4, 0], 0), &["dimension of 0"]);
    refused(one(&[4], u64::MAX - 31), &["tensor t", "beyond any file"]);
    refused(one(&[4], 1 << 40), &["out of bounds"]);
    refused(one(&[4], 8), &["offset 8", "alignment 32"]);
    let huge_rank = Raw::header(1, 0).str("t").u32(u32::MAX).bytes(&[0; 64]);
    refused(huge_rank.0, &["4294967295 dimensions"]);
}

#[test]
fn tensors_do_not_share_bytes_or_names() {
    let two = |b: &str, offset| Raw::header(2, 0).tensor("a", &[16], 0, 0).tensor(b, &[16], 0, offset).data(32, 128);
    assert_eq!(Gguf::from_bytes("m", two("b", 64)).unwrap().tensors().len(), 2);
    refused(two("b", 32), &["a and b overlap"]);
    refused(two("b", 0), &["overlap"]);
    refused(two("a", 64), &["two tensors are named a"]);
}

#[test]
fn wrong_counts_are_refused() {
    let table = |count| {
        let both = Raw::header(count, 0).tensor("a", &[16], 0, 0).tensor("b", &[16], 0, 64);
        both.data(32, 128)
    };
    assert!(Gguf::from_bytes("m", table(2)).is_ok());
    refused(table(1), &["tensor count is wrong"]);
    refused(table(3), &["damaged"]);
    refused(table(1 << 40), &["tensor count of 1099511627776", "needs"]);
    refused(table(u64::MAX), &["needs more than 2^64"]);
    let mut keys = small().to_bytes().unwrap();
    keys[16] = 1;
    let text = refusal(Gguf::from_bytes("m", keys.clone()));
    says(&text, &["damaged"]);
    keys[16] = 3;
    says(&refusal(Gguf::from_bytes("m", keys)), &["tensor 1 of 6", "damaged"]);
}

/// A matrix of 4 rows of 64 values in Q8_0, and the same as floats.
fn matrix() -> (Tensor, Vec<f32>) {
    let values: Vec<f32> = (0..256).map(|i| (i as f32 * 0.37).sin()).collect();
    let data = quant::encode(GgmlType::Q8_0, &values).unwrap();
    let tensor = Tensor::owned("m", &[64, 4], GgmlType::Q8_0, data).unwrap();
    let decoded = decoded(&tensor);
    (tensor, decoded)
}

fn decoded(tensor: &Tensor) -> Vec<f32> {
    let mut values = vec![0.0; tensor.elements() as usize];
    quant::decode(tensor.ty(), tensor.data(), &mut values).unwrap();
    values
}

#[test]
fn parts_rows_and_columns_hold_their_values() {
    let (m, values) = matrix();
    let part = m.part("p", 1, &[64, 1, 2]).unwrap();
    assert_eq!((part.name(), part.dims(), decoded(&part)), ("p", &[64, 1, 2][..], values[64..192].to_vec()));
    let again = part.part("q", 1, &[64]).unwrap();
    assert_eq!(decoded(&again), values[128..192]);
    let gathered = m.gathered([3, 0, 3]).unwrap();
    assert_eq!(gathered.dims(), [64, 3]);
    assert_eq!(decoded(&gathered), [&values[192..], &values[..64], &values[192..]].concat());
    let columns = m.columns(32..64).unwrap();
    assert_eq!(columns.dims(), [32, 4]);
    assert_eq!(decoded(&columns), values.chunks(64).flat_map(|row| row[32..].to_vec()).collect::<Vec<_>>());
}

#[test]
fn parts_that_do_not_exist_are_refused() {
    let (m, _) = matrix();
    let sentences = [
        (m.part("p", 3, &[64, 2]), "no part of [64, 4]"),
        (m.part("p", 0, &[32, 4]), "no part of [64, 4]"),
        (m.part("p", u64::MAX, &[64, 2]), "no part of [64, 4]"),
        (m.part("p", 0, &[64, u64::MAX, 2]), "no part of [64, 4]"),
        (m.gathered([4]), "there is no row 4, only 4"),
        (m.columns(16..64), "cut a block"),
        (m.columns(0..96), "do not exist"),
        (m.columns(0..u64::MAX), "do not exist"),
        (Tensor::owned("m", &[64, 5], GgmlType::Q8_0, m.data().to_vec()), "needs 340 bytes"),
        (Tensor::owned("m", &[], GgmlType::F32, Vec::new()), "has 0 dimensions"),
    ];
    for (made, words) in sentences {
        let text = made.unwrap_err().to_string();
        assert!(text.starts_with("tensor m: ") || text.starts_with("tensor p: "), "{text}");
        says(&text, &[words]);
    }
    let twice = Gguf::from_tensors(Metadata::new("both"), vec![m.clone(), m]);
    says(&refusal(twice), &["both: two tensors are named m"]);
}

#[test]
fn tensors_are_converted_while_they_are_written() {
    let (m, values) = matrix();
    let mut w = Writer::new();
    for ty in [GgmlType::F32, GgmlType::Q8_0, GgmlType::BF16] {
        w.converted(ty.name(), &m, ty).unwrap();
    }
    says(&w.converted("no", &m, GgmlType::Q2_K).unwrap_err().to_string(), &["tensor no cannot be written as Q2_K"]);
    let dir = folder();
    let (path, mut told) = (dir.path().join("m.gguf"), 0);
    w.write_with(&path, &mut |bytes| told += bytes).unwrap();
    assert_eq!(told, w.data_bytes());
    assert_eq!(std::fs::read(&path).unwrap(), w.to_bytes().unwrap());
    let gguf = Gguf::open(&path).unwrap();
    assert_eq!(decoded(gguf.require("F32").unwrap()), values);
    assert_eq!(gguf.require("Q8_0").unwrap().data(), m.data());
    assert_eq!(gguf.require("BF16").unwrap().data(), quant::encode(GgmlType::BF16, &values).unwrap());
}

/// A type without a scale would take an infinity or a NaN without a word.
#[test]
fn values_that_are_not_finite_are_not_converted() {
    for (value, from, to, words) in [
        (f32::NAN, GgmlType::F32, GgmlType::F32, "value 70 is NaN, expected finite numbers"),
        (f32::INFINITY, GgmlType::F32, GgmlType::F16, "value 70 is inf, expected finite numbers"),
        (f32::NEG_INFINITY, GgmlType::BF16, GgmlType::BF16, "value 70 is -inf, expected finite numbers"),
        (f32::NAN, GgmlType::BF16, GgmlType::Q8_0, "value 70 is NaN, expected finite numbers"),
        (1e6, GgmlType::F32, GgmlType::F16, "value 70 is 1000000, which F16 cannot hold"),
        (1e30, GgmlType::F32, GgmlType::Q8_0, "which Q8_0 cannot hold"),
        (f32::MAX, GgmlType::F32, GgmlType::BF16, "which BF16 cannot hold"),
    ] {
        let mut values = vec![0.5; 128];
        values[70] = value;
        let tensor = Tensor::owned("its own name", &[64, 2], from, quant::encode(from, &values).unwrap()).unwrap();
        let mut w = Writer::new();
        w.converted("another", &tensor, to).unwrap();
        says(&w.to_bytes().unwrap_err().to_string(), &["tensor its own name: ", words]);
        let dir = folder();
        let path = dir.path().join("m.gguf");
        assert!(w.write(&path).is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

/// A name may stand for a pipe or a socket that somebody listens to, or for a link.
#[test]
#[cfg(unix)]
fn only_regular_files_are_replaced() {
    let dir = folder();
    let at = |name: &str| dir.path().join(name);
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    std::fs::write(at("file"), "precious").unwrap();
    std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
    std::os::unix::fs::symlink(at("file"), at("new.part")).unwrap();
    std::fs::create_dir(at("folder")).unwrap();
    for (name, blamed) in [("socket", "socket"), ("link", "link"), ("folder", "folder"), ("new", "new.part")] {
        let text = Writer::new().write(&at(name)).unwrap_err().to_string();
        says(&text, &[&format!("{blamed}: not a regular file")]);
    }
    assert_eq!(std::fs::read(at("file")).unwrap(), b"precious");
    Writer::new().write(&at("file")).unwrap();
    assert!(Gguf::open(&at("link")).is_ok());
}
