//! Models and oracles for the tests.
// Each test binary uses its own part of these.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use strata_gguf::Gguf;
use strata_model::{CpuOps, Model, Observer, Routing, Silent, State, Want};

/// A file committed with the tests.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// The built-in model.
pub fn nano() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/model/nano-IQ3_S.gguf")
}

/// A larger file that lies beside the project where it is developed; `None`, with a line, elsewhere.
pub fn shared(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("STRATA_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let path = root.join(name);
    let found = path.exists();
    if !found {
        println!("skipped: {} is not here", path.display());
    }
    found.then_some(path)
}

pub fn load(path: &Path) -> Model<CpuOps> {
    load_gguf(&Gguf::open(path).unwrap())
}

pub fn load_gguf(gguf: &Gguf) -> Model<CpuOps> {
    Model::load(gguf, CpuOps::new(0), &mut |_| ()).unwrap()
}

pub fn floats(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

pub fn json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

pub fn numbers(value: &serde_json::Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect()
}

pub fn max_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Logits of every token, read in windows of `chunk`.
pub fn logits_in_chunks(
    model: &Model<CpuOps>,
    state: &mut State<CpuOps>,
    tokens: &[u32],
    chunk: usize,
    observer: &mut dyn Observer,
) -> Vec<f32> {
    let read = |tokens: &[u32]| model.forward(state, tokens, Want::All, observer).unwrap().logits;
    tokens.chunks(chunk).flat_map(read).collect()
}

pub fn all_logits(model: &Model<CpuOps>, tokens: &[u32]) -> Vec<f32> {
    logits_in_chunks(model, &mut model.new_state(tokens.len()), tokens, 64, &mut Silent)
}

/// Keeps the residuals and the routing of a pass.
#[derive(Default)]
pub struct Recorder {
    pub residuals: Vec<(usize, Vec<f32>)>,
    pub routing: Vec<(usize, Routing)>,
}

impl Observer for Recorder {
    fn wants_residuals(&self) -> bool {
        true
    }

    fn residual(&mut self, layer: usize, values: &[f32]) {
        self.residuals.push((layer, values.to_vec()));
    }

    fn routing(&mut self, layer: usize, routing: &Routing) {
        self.routing.push((layer, routing.clone()));
    }
}

pub fn argmax(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().fold((0, f32::MIN), |b, (i, &l)| if l > b.1 { (i, l) } else { b });
    best.0 as u32
}
