//! The traces of the project are what their manifest says, and the engine's own log in them is what their replay does.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use strata_policy::cache::CacheParams;
use strata_sim::replay::{StartState, check};
use strata_trace::Trace;

#[test]
fn committed_traces_replay_without_a_difference() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    let text = std::fs::read_to_string(dir.join("manifest.toml")).unwrap();
    let manifest: toml::Table = toml::from_str(&text).unwrap();
    let common = &manifest["common"];
    let mut found: Vec<String> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".strace"))
        .collect();
    found.sort();
    let mut listed: Vec<&String> = manifest.keys().filter(|name| *name != "common").collect();
    listed.sort();
    assert_eq!(found.iter().collect::<Vec<_>>(), listed);
    let mut routing = Vec::new();
    for name in &found {
        let path = dir.join(name);
        assert_eq!(manifest[name]["bytes"].as_integer().unwrap() as u64, path.metadata().unwrap().len(), "{name}");
        let opened = Trace::read(&path).unwrap();
        assert_eq!(opened.warnings, [""; 0], "{name}");
        let trace = opened.trace;
        assert_eq!(common["model_id"].as_str().unwrap(), trace.meta.model.id, "{name}");
        assert_eq!(common["engine"].as_str().unwrap(), trace.meta.engine, "{name}");
        let params = CacheParams::from_meta(&trace.meta).unwrap().unwrap();
        assert_eq!(*name, format!("nano-{}.strace", params.rule.name()));
        assert_eq!(check(&trace, &params, &StartState::default()).unwrap(), None, "{name}");
        routing.push((trace.ids, trace.gates, trace.tokens));
    }
    assert!(routing.windows(2).all(|pair| pair[0] == pair[1]), "the same requests have the same routing");
}
