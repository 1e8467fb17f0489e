//! Writes the seeds of the fuzz target `open`: small valid models that hold every kind of value and tensor.

use strata_gguf::{ArrayValue, GgmlType, Result, Value, Writer};

fn main() -> Result<()> {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/open");
    std::fs::create_dir_all(&dir).unwrap_or_else(|e| panic!("cannot create {}: {e}", dir.display()));

    let mut values = Writer::new();
    for (i, value) in all_values().into_iter().enumerate() {
        values.meta(&format!("k{i}"), value)?;
    }
    values.write(&dir.join("values"))?;

    let mut types = Writer::new();
    types.alignment(8)?;
    for ty in GgmlType::ALL {
        types.zeros(ty.name(), &[ty.block_values() as u64, 2], *ty)?;
    }
    types.write(&dir.join("types"))?;

    let mut model = Writer::new();
    model.meta("general.architecture", Value::String("qwen4exp".into()))?;
    model.meta("qwen4exp.block_count", Value::U32(1))?;
    model.tensor("token_embd.weight", &[4, 2], GgmlType::F32, (0..32).collect())?;
    model.tensor("blk.0.ffn_up_exps.weight", &[32, 2, 2, 1], GgmlType::Q8_0, (0..136).collect())?;
    model.write(&dir.join("model"))?;
    model.meta("split.count", Value::U16(2))?.meta("split.no", Value::U16(0))?;
    model.write(&dir.join("shard"))
}

fn all_values() -> Vec<Value> {
    let array = Value::Array;
    vec![
        Value::U8(1),
        Value::I8(-1),
        Value::U16(2),
        Value::I16(-2),
        Value::U32(3),
        Value::I32(-3),
        Value::U64(4),
        Value::I64(-4),
        Value::F32(0.5),
        Value::F64(0.25),
        Value::Bool(true),
        Value::String("text".into()),
        array(ArrayValue::U8(vec![1])),
        array(ArrayValue::I16(vec![-1])),
        array(ArrayValue::I32(vec![11, 11, 10, 0])),
        array(ArrayValue::U64(vec![0, 20_000_003])),
        array(ArrayValue::F32(vec![1.0])),
        array(ArrayValue::F64(vec![1.0])),
        array(ArrayValue::Bool(vec![true, false])),
        array(ArrayValue::String(vec!["a".into(), String::new()])),
        array(ArrayValue::Array(vec![ArrayValue::U8(vec![7]), ArrayValue::String(vec![])])),
    ]
}
