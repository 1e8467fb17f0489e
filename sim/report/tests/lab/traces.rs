//! Traces in and out of Parquet.

use std::path::{Path, PathBuf};
use strata_report::trace::flame::{self, Options};
use strata_report::trace::table;
use strata_trace::{LayerTimes, Move, Trace, gate_to_fixed};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/flame")
}

fn options() -> Options {
    Options { iteration: None, skip: 0, tokens: 60, experts: 8, request: 25, expert_bytes: 1000 }
}

#[test]
fn a_public_layout_made_by_pyarrow_is_read() {
    let trace = flame::import(&folder(), &Options { skip: 35, tokens: 20, ..options() }).unwrap();
    let m = &trace.meta;
    assert_eq!((m.layers, m.experts, m.used, m.expert_bytes.as_slice()), (3, 8, 3, [1000; 3].as_slice()));
    assert_eq!(m.engine, "FLAME-MoE-Traces, iteration 5473");
    assert_eq!((trace.rounds.len(), trace.tokens.len()), (20, 20));
    for (i, token) in trace.tokens.iter().enumerate() {
        // What tests/data/flame.py writes; the samples go on in a second file at row 40.
        let row = i + 35;
        assert_eq!((token.id, token.position), (1000 + 7 * row as u32, i as u32));
        for (at, layer) in [2, 3, 10].into_iter().enumerate() {
            let want: Vec<u16> = (0..3).map(|j| ((row + 3 * j + layer + 5473) % 8) as u16).collect();
            assert_eq!(trace.chosen(i, at), want);
        }
    }
    let weights = [0.5, 0.25, 0.125].map(gate_to_fixed);
    assert_eq!(trace.gates[..3], weights);
    let first = flame::import(&folder(), &Options { iteration: Some(540), ..options() }).unwrap();
    assert_eq!(first.rounds.iter().map(|r| r.request).max(), Some(2), "60 tokens are three requests of 25");
    assert_eq!((first.tokens[49].position, first.tokens[50].position), (24, 0));
    assert_eq!(first.chosen(0, 0), [(2 + 540) % 8, (5 + 540) % 8, (8 + 540) % 8]);
}

#[test]
fn what_the_files_do_not_hold_is_said() {
    let error = |o: Options| format!("{:#}", flame::import(&folder(), &o).unwrap_err());
    assert!(
        error(Options { tokens: 61, ..options() }).contains("samples: found 60 tokens from token 0 on, expected 61")
    );
    assert!(error(Options { iteration: Some(7), ..options() }).contains("expected one of 540, 5473"));
    let small = error(Options { experts: 4, ..options() });
    assert!(small.contains("layer_02.parquet row") && small.contains("expected one from 0 to 3"), "{small}");
    let other = tempfile::tempdir().unwrap();
    let nothing = format!("{:#}", flame::import(other.path(), &options()).unwrap_err());
    assert!(nothing.contains("cannot list"), "{nothing}");
}

#[test]
fn columns_of_another_kind_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let copy = |from: &str, to: &str| {
        std::fs::create_dir_all(dir.path().join(to).parent().unwrap()).unwrap();
        std::fs::copy(folder().join(from), dir.path().join(to)).unwrap();
    };
    copy("samples/000.parquet", "samples/000.parquet");
    copy("samples/000.parquet", "actives/iter_1/layer_02.parquet");
    let error = format!("{:#}", flame::import(dir.path(), &Options { tokens: 4, ..options() }).unwrap_err());
    assert!(error.contains("layer_02.parquet"), "{error}");
    std::fs::write(dir.path().join("actives/iter_1/layer_02.parquet"), "PAR1").unwrap();
    let error = format!("{:#}", flame::import(dir.path(), &Options { tokens: 4, ..options() }).unwrap_err());
    assert!(error.contains("layer_02.parquet"), "{error}");
}

fn read(path: &Path) -> polars::prelude::DataFrame {
    use polars::prelude::SerReader;
    polars::prelude::ParquetReader::new(std::fs::File::open(path).unwrap()).finish().unwrap()
}

#[test]
fn tables_hold_what_the_trace_holds() {
    let mut trace: Trace = flame::import(&folder(), &options()).unwrap();
    trace.hits = (0..trace.ids.len()).map(|i| i % 3 == 0).collect();
    trace.layer_times = (0..60 * 3).map(|i| LayerTimes { dense: i, gpu: 0, copy: 2 * i, cpu: 3 }).collect();
    trace.moves =
        vec![Move { layer: 1, came: Some(4), left: Some((2, 7)) }, Move { layer: 0, came: Some(1), left: None }];
    trace.move_ends = (0..60).map(|i| if i < 9 { 0 } else { 2 }).collect();
    let dir = tempfile::tempdir().unwrap();
    let names = table::write(&trace, dir.path()).unwrap();
    assert_eq!(names, ["meta.json", "rounds.parquet", "tokens.parquet", "layers.parquet", "moves.parquet"]);
    let rounds = read(&dir.path().join("rounds.parquet"));
    assert_eq!((rounds.height(), rounds.width()), (60, 7 + 2 * 9));
    assert_eq!(rounds.column("phase").unwrap().str().unwrap().get(0), Some("decode"));
    let tokens = read(&dir.path().join("tokens.parquet"));
    assert_eq!((tokens.height(), tokens.width()), (60 * 3, 11));
    let list = |name: &str, row: usize| tokens.column(name).unwrap().list().unwrap().get_as_series(row).unwrap();
    let row = 17 * 3 + 2;
    assert_eq!(tokens.column("layer").unwrap().u16().unwrap().get(row), Some(2));
    assert_eq!(tokens.column("token").unwrap().u32().unwrap().get(row), Some(1000 + 7 * 17));
    let experts: Vec<u16> = list("experts", row).u16().unwrap().iter().flatten().collect();
    assert_eq!(experts, trace.chosen(17, 2));
    let weights: Vec<f32> = list("weights", row).f32().unwrap().iter().flatten().collect();
    assert!((weights[0] - 0.5).abs() < 1e-4 && weights.len() == 3);
    let hits: Vec<bool> = list("hits", row).bool().unwrap().iter().flatten().collect();
    assert_eq!(hits, [true, false, false]);
    let layers = read(&dir.path().join("layers.parquet"));
    assert_eq!(layers.column("copy").unwrap().u64().unwrap().get(row), Some(2 * row as u64));
    let moves = read(&dir.path().join("moves.parquet"));
    assert_eq!((moves.height(), moves.column("round").unwrap().u32().unwrap().get(0)), (2, Some(9)));
    assert_eq!(moves.column("left").unwrap().u16().unwrap().get(1), None);
}
