//! Seeds, which programs write in many ways.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::Server;
use serde_json::{Value, json};

#[test]
fn seeds_are_any_whole_numbers_of_64_bits() {
    let server = Server::text(["Hi"]);
    let seeded = |seed: Value| server.post("/v1/completions", &json!({"prompt": "Hello", "seed": seed}));
    for (seed, meant) in [(json!(7), 7), (json!(7.0), 7), (json!(-1), u64::MAX), (json!(u64::MAX), u64::MAX)] {
        assert_eq!(seeded(seed.clone()).status, 200, "{seed}");
        assert_eq!(server.backend.seen().pop().unwrap().0.params.sampling.seed, meant, "{seed}");
    }
    for seed in [json!(1.5), json!(1e30), json!("7")] {
        let error = seeded(seed).json()["error"].clone();
        assert_eq!(error["param"], "seed");
        assert!(error["message"].as_str().unwrap().ends_with("expected a whole number of at most 64 bits"), "{error}");
    }
}
