//! What opening costs in memory, measured on the whole process: a target of its own, so that no other test counts.
#![cfg(target_os = "linux")]
// clippy.toml lets `#[test]` functions panic; their helpers need to as well.
#![allow(clippy::unwrap_used)]

use strata_gguf::{GgmlType, Gguf, Value, Writer};

/// A figure of `/proc/self/status` in bytes.
fn status(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|l| l.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Resident bytes of all mappings of a file.
fn resident(path: &std::path::Path) -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut ours, mut found, mut total) = (false, false, 0);
    for line in text.lines() {
        let first = line.split_whitespace().next().unwrap_or_default();
        if !first.ends_with(':') {
            ours = line.ends_with(path.to_str().unwrap());
            found |= ours;
        } else if ours && first == "Rss:" {
            total += line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024;
        }
    }
    assert!(found, "{} is not mapped", path.display());
    total
}

/// One test, since both figures belong to the process.
#[test]
fn opening_allocates_no_more_than_the_header_and_touches_no_weights() {
    let before = status("VmHWM:");
    for length in [100, 1 << 20, 1 << 28, 1 << 30, 1 << 33, (1 << 48) - 1, 1 << 62, u64::MAX] {
        let counts = [&b"GGUF\x03\0\0\0"[..], &length.to_le_bytes(), &length.to_le_bytes(), &[0; 64]].concat();
        assert!(Gguf::from_bytes("counts", counts).is_err());
        for kind in 0..=12u32 {
            let mut bytes = b"GGUF\x03\0\0\0".to_vec();
            bytes.extend(0u64.to_le_bytes());
            bytes.extend(1u64.to_le_bytes());
            bytes.extend(1u64.to_le_bytes());
            bytes.push(b'k');
            bytes.extend(9u32.to_le_bytes());
            bytes.extend(kind.to_le_bytes());
            bytes.extend(length.to_le_bytes());
            bytes.extend([0; 32]);
            assert!(Gguf::from_bytes("array", bytes).is_err());
        }
    }
    let grown = status("VmHWM:").saturating_sub(before);
    assert!(grown < 50 << 20, "hostile lengths made the process grow by {grown} bytes");

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sparse.gguf");
    let mut w = Writer::new();
    w.meta("general.architecture", Value::String("qwen4exp".into())).unwrap();
    for i in 0..50 {
        w.zeros(&format!("blk.{i}.ffn_gate_exps.weight"), &[1024, 1024], GgmlType::F32).unwrap();
    }
    w.write(&path).unwrap();
    let model = Gguf::open(&path).unwrap();
    assert!(model.files()[0].bytes > 200 << 20);
    let (rss, header) = (resident(&path), model.files()[0].header_bytes);
    println!("{rss} bytes of the mapping are resident after opening, the header has {header}");
    assert!(rss < header + (2 << 20), "{rss} bytes resident, the header has {header}");
    let t = model.require("blk.49.ffn_gate_exps.weight").unwrap();
    t.prefetch_rows(0, t.rows());
    assert!(t.data().iter().all(|&b| b == 0));
}
