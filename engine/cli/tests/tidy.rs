//! The workspace's own rules: who may depend on whom, where `unsafe` may live, what may lie where.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn metadata() -> cargo_metadata::Metadata {
    cargo_metadata::MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .other_options(vec!["--offline".to_owned()])
        .exec()
        .unwrap()
}

/// Every file of the project below `dir` with one of these endings, build output and hidden folders aside.
fn files(dir: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if entry.file_type().unwrap().is_dir() {
            if !name.starts_with('.') && name != "target" && name != "corpus" {
                found.extend(files(&path, endings));
            }
        } else if endings.iter().any(|e| name.ends_with(e)) {
            found.push(path);
        }
    }
    found
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Which of our crates each crate may use. A crate that is not listed may use none.
fn allowed(name: &str) -> &'static [&'static str] {
    match name {
        "strata-cpu" => &["strata-gguf"],
        "strata-cuda" => &["strata-gguf", "strata-cpu"],
        "strata-model" => &["strata-gguf", "strata-cpu", "strata-cuda", "strata-policy"],
        "strata-runtime" => &[
            "strata-gguf",
            "strata-cpu",
            "strata-cuda",
            "strata-model",
            "strata-trace",
            "strata-policy",
            "strata-config",
        ],
        // The server talks to a backend trait, never to a device.
        "strata-server" => &["strata-gguf", "strata-config", "strata-runtime", "strata-trace"],
        "strata" => &[
            "strata-gguf",
            "strata-cpu",
            "strata-cuda",
            "strata-model",
            "strata-runtime",
            "strata-server",
            "strata-config",
            "strata-trace",
            "strata-policy",
        ],
        "strata-policy" | "strata-config" => &["strata-trace"],
        // The policy that is simulated is the policy that runs; of the engine the simulator sees nothing else.
        "strata-sim" => &["strata-trace", "strata-policy", "strata-config"],
        "strata-report" => &["strata-trace", "strata-policy", "strata-config", "strata-sim"],
        _ => &[],
    }
}

#[test]
fn crates_use_only_what_their_layer_may() {
    for package in metadata().packages {
        let name = package.name.as_str();
        for dependency in &package.dependencies {
            let used = dependency.name.as_str();
            let ours = used == "strata" || used.starts_with("strata-");
            let test_only = dependency.kind == cargo_metadata::DependencyKind::Development;
            assert!(!ours || test_only || allowed(name).contains(&used), "{name} must not depend on {used}");
        }
    }
}

#[test]
fn slow_and_wide_crates_stay_in_their_place() {
    let homes: &[(&[&str], &[&str])] = &[
        (&["polars", "parquet", "arrow", "plotters"], &["strata-report"]),
        (&["tokio", "axum", "hyper", "rmcp"], &["strata-server", "strata"]),
        (&["clap"], &["strata", "strata-report"]),
        (&["criterion"], &["strata"]),
        (&["cudarc"], &["strata-cuda"]),
        (&["memmap2"], &["strata-gguf"]),
    ];
    for package in metadata().packages {
        for dependency in &package.dependencies {
            let used = dependency.name.as_str();
            for (crates, may) in homes {
                let is = |c: &&str| used == *c || used.strip_prefix(c).is_some_and(|rest| rest.starts_with('-'));
                let found = crates.iter().any(is);
                assert!(!found || may.contains(&package.name.as_str()), "{} must not use {used}", package.name);
            }
            if used == "cudarc" {
                assert!(!dependency.uses_default_features, "cudarc's defaults link a toolkit found at build time");
                assert!(dependency.features.iter().any(|f| f == "dynamic-loading"));
            }
        }
    }
}

/// Crates that may hold unsafe code, and the one module of the GGUF crate that may.
const UNSAFE_CRATES: [&str; 2] = ["strata-cpu", "strata-cuda"];
const UNSAFE_MODULE: &str = "engine/gguf/src/mmap.rs";

#[test]
fn unsafe_code_lives_only_where_it_may() {
    for package in metadata().packages {
        let name = package.name.as_str();
        let dir = package.manifest_path.parent().unwrap().as_std_path().to_owned();
        let roots: Vec<_> = ["src/lib.rs", "src/main.rs"].iter().map(|f| dir.join(f)).filter(|f| f.exists()).collect();
        assert!(!roots.is_empty(), "{name} has no source");
        for file in &roots {
            let text = read(file);
            let guarded = match name {
                _ if UNSAFE_CRATES.contains(&name) => true,
                "strata-gguf" => text.contains("#![deny(unsafe_code)]"),
                _ => text.contains("#![forbid(unsafe_code)]"),
            };
            assert!(guarded, "{} must forbid unsafe code", file.display());
        }
    }
    let switches = ["allow(unsafe_code)", "expect(unsafe_code)"];
    for file in files(&root().join("engine"), &[".rs"]) {
        let path = file.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        let free = ["engine/cpu/", "engine/cuda/", "engine/gguf/fuzz/"].iter().any(|p| path.starts_with(p));
        // The crate root names the module it excuses; this file names the switches.
        let excused = path == UNSAFE_MODULE || path == "engine/gguf/src/lib.rs" || path.ends_with("tests/tidy.rs");
        if !free && !excused {
            assert!(!switches.iter().any(|s| read(&file).contains(s)), "{path} must not allow unsafe code");
        }
    }
}

#[test]
fn nothing_needs_a_gpu_toolkit_to_build() {
    for file in files(&root(), &["build.rs"]) {
        let text = read(&file);
        assert!(!text.contains("nvcc") && !text.contains("CUDA_PATH"), "{} looks for a toolkit", file.display());
    }
}

#[test]
fn the_top_level_holds_what_it_should() {
    let known: BTreeSet<&str> = [
        "engine",
        "sim",
        "experiments",
        "results",
        "traces",
        "Cargo.toml",
        "Cargo.lock",
        "justfile",
        "README.md",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "rust-toolchain.toml",
        "rustfmt.toml",
        "clippy.toml",
        "deny.toml",
    ]
    .into();
    // What a user leaves beside the project is theirs.
    let listed = std::process::Command::new("git").args(["ls-files"]).current_dir(root()).output();
    let Some(listed) = listed.ok().filter(|o| o.status.success()) else {
        println!("skipped: this is no git checkout");
        return;
    };
    let tracked = String::from_utf8(listed.stdout).unwrap();
    let names: BTreeSet<&str> = tracked.lines().filter_map(|l| l.split('/').next()).collect();
    for name in names {
        assert!(name.starts_with('.') || known.contains(name), "{name} has no place at the top level");
    }
}

#[test]
fn files_can_be_read_in_one_sitting() {
    for file in files(&root(), &[".rs", ".cu", ".js", ".css"]) {
        let tables = file.file_name().is_some_and(|n| n.to_string_lossy().contains("tables"));
        let lines = read(&file).lines().count();
        assert!(tables || lines <= 500, "{} has {lines} lines, more than 500", file.display());
    }
}

#[test]
fn unfinished_work_and_paths_of_one_machine_are_not_left_in_the_tree() {
    // Written apart so that this file does not find itself.
    let marks =
        [concat!("FIX", "ME"), concat!("TO", "DO"), concat!("XX", "X"), concat!("/wo", "rk/"), concat!("/ro", "ot/")];
    for file in files(&root(), &[".rs", ".toml", ".md", "justfile"]) {
        let text = read(&file);
        for mark in marks {
            assert!(!text.contains(mark), "{} holds {mark}", file.display());
        }
    }
}
