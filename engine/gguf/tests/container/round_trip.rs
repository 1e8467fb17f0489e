//! What the writer writes, the reader reads.

use crate::{contents, folder, small};
use std::time::Instant;
use strata_gguf::{ArrayValue, GgmlType, Gguf, Value, Writer};

fn all_values() -> Vec<(&'static str, Value)> {
    let array = Value::Array;
    vec![
        ("u8", Value::U8(u8::MAX)),
        ("i8", Value::I8(i8::MIN)),
        ("u16", Value::U16(u16::MAX)),
        ("i16", Value::I16(i16::MIN)),
        ("u32", Value::U32(u32::MAX)),
        ("i32", Value::I32(i32::MIN)),
        ("u64", Value::U64(u64::MAX)),
        ("i64", Value::I64(i64::MIN)),
        ("f32", Value::F32(1e-6)),
        ("f64", Value::F64(-1e300)),
        ("bool", Value::Bool(true)),
        ("string", Value::String("naïve 🦀\0".into())),
        ("u8s", array(ArrayValue::U8(vec![0, 255]))),
        ("i8s", array(ArrayValue::I8(vec![-1, 1]))),
        ("u16s", array(ArrayValue::U16(vec![1, 65535]))),
        ("i16s", array(ArrayValue::I16(vec![-2, 2]))),
        ("u32s", array(ArrayValue::U32(vec![3, u32::MAX]))),
        ("i32s", array(ArrayValue::I32(vec![-3, i32::MAX]))),
        ("u64s", array(ArrayValue::U64(vec![23_703_573_157_769, 20_109_073_645_365, u64::MAX]))),
        ("i64s", array(ArrayValue::I64(vec![-4, i64::MAX]))),
        ("f32s", array(ArrayValue::F32(vec![0.5, f32::INFINITY]))),
        ("f64s", array(ArrayValue::F64(vec![0.25]))),
        ("bools", array(ArrayValue::Bool(vec![true, false, true]))),
        ("strings", array(ArrayValue::String(vec![String::new(), "Ġthe".into()]))),
        ("none", array(ArrayValue::String(vec![]))),
        ("nested", array(ArrayValue::Array(vec![ArrayValue::Bool(vec![true]), ArrayValue::Array(vec![])]))),
    ]
}

#[test]
fn all_value_types_survive_in_order() {
    let mut w = Writer::new();
    for (key, value) in all_values() {
        w.meta(key, value).unwrap();
    }
    let model = Gguf::from_bytes("m", w.to_bytes().unwrap()).unwrap();
    let read: Vec<(&str, Value)> = model.meta().iter().map(|(k, v)| (k, v.clone())).collect();
    assert_eq!(read, all_values());
}

#[test]
fn a_written_file_equals_the_bytes_in_memory() {
    let dir = folder();
    let path = dir.path().join("m.gguf");
    for alignment in [8, 32, 4096] {
        let mut w = small();
        w.alignment(alignment).unwrap();
        w.zeros("hole", &[64, 3], GgmlType::F16).unwrap();
        w.write(&path).unwrap();
        let bytes = w.to_bytes().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        let model = Gguf::open(&path).unwrap();
        assert_eq!(Writer::copy_of(&model).unwrap().to_bytes().unwrap(), bytes);
        assert_eq!(contents(&model), contents(&Gguf::from_bytes("m", bytes).unwrap()));
    }
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "no .part file stays behind");
}

#[test]
fn the_writer_refuses_what_the_reader_would() {
    let mut w = small();
    let fails = |r: Result<&mut Writer, strata_gguf::Error>, word: &str| {
        let text = r.expect_err(word).to_string();
        assert!(text.contains(word), "{text}");
    };
    fails(w.meta("", Value::U8(0)), "0 bytes");
    fails(w.meta(&"k".repeat(65536), Value::U8(0)), "65536 bytes");
    fails(w.meta("general.architecture", Value::U8(0)), "added before");
    fails(w.tensor("output.weight", &[32, 8], GgmlType::F32, vec![0; 1024]), "added before");
    fails(w.tensor("x", &[640], GgmlType::IQ3_S, vec![]), "640");
    fails(w.tensor("x", &[4], GgmlType::F32, vec![0; 15]), "needs 16 bytes of data, 15 were given");
    fails(w.tensor("x", &[], GgmlType::F32, vec![]), "0 dimensions");
    fails(w.zeros("x", &[u64::MAX, 2], GgmlType::F32), "overflows");
    assert!(w.write_split(folder().path(), "x", 0).is_err());
}

#[test]
fn the_longest_key_and_name_survive() {
    let long = "k".repeat(65535);
    let mut w = Writer::new();
    w.meta(&long, Value::U8(1)).unwrap();
    w.zeros(&long, &[1, 1, 1, 1], GgmlType::F32).unwrap();
    let model = Gguf::from_bytes("m", w.to_bytes().unwrap()).unwrap();
    assert_eq!(model.meta().u64(&long).unwrap(), 1);
    assert_eq!(model.require(&long).unwrap().dims(), [1, 1, 1, 1]);
}

/// Prints how long the header of a large model takes; what counts is that it stays in the tens of milliseconds.
#[test]
fn a_large_header_opens() {
    let dir = folder();
    let path = dir.path().join("large.gguf");
    let mut w = Writer::new();
    let texts = |n: u32, word: &str| Value::Array(ArrayValue::String((0..n).map(|i| format!("{word}{i}")).collect()));
    w.meta("tokenizer.ggml.tokens", texts(250_000, "Ġtoken")).unwrap();
    w.meta("tokenizer.ggml.merges", texts(150_000, "Ġleft right")).unwrap();
    w.meta("tokenizer.ggml.token_type", Value::Array(ArrayValue::I32(vec![1; 250_000]))).unwrap();
    for i in 0..1500 {
        w.zeros(&format!("blk.{i}.ffn_gate_exps.weight"), &[2560, 640], GgmlType::Q4_0).unwrap();
    }
    w.write(&path).unwrap();
    let start = Instant::now();
    let model = Gguf::open(&path).unwrap();
    let header = model.files()[0].header_bytes;
    println!("opened a header of {header} bytes in {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    assert_eq!(model.meta().strings("tokenizer.ggml.tokens").unwrap().len(), 250_000);
    assert_eq!(model.tensors().len(), 1500);
}
