//! `strata config show`: which source wins.

use crate::common::{Model, finish, run, strata, tiny};
use strata_gguf::Value;

/// The value of a setting as shown, and where it came from.
fn shown(text: &str, name: &str) -> (String, String) {
    // What nothing sets is a comment.
    let plain = |l: &str| l.trim_start_matches("# ").to_owned();
    let line = text.lines().map(plain).find(|l| l.starts_with(&format!("{name} = "))).unwrap();
    let (value, origin) = line.split_once(" # ").unwrap();
    (value.trim_end().replace(&format!("{name} = "), ""), origin.into())
}

#[test]
fn defaults_are_shown_and_can_be_read_back() {
    let r = run(&["config", "show"]);
    assert_eq!((r.code, r.err.as_str()), (Some(0), ""));
    assert_eq!(shown(&r.out, "ctx"), ("8192".into(), "default".into()));
    assert!(r.out.contains("# seed = "), "{}", r.out);
    // What `run` does without --model: the built-in model is asked not to think, and a file is not.
    let (value, origin) = shown(&r.out, "think");
    assert!(value == "false" && origin.starts_with("model: the built-in nano was trained"), "{value} {origin}");
    let file = run(&["config", "show", "--model", crate::common::nano().to_str().unwrap()]);
    assert!(file.out.contains("# think = ") && file.out.contains("not set: as the model's"), "{}", file.out);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    std::fs::write(&path, &r.out).unwrap();
    let again = run(&["config", "show", "--config", path.to_str().unwrap()]);
    assert_eq!(again.out, r.out, "a saved file of defaults sets nothing");
}

#[test]
fn variables_win_over_the_file_and_that_over_the_model() {
    let tiny = tiny();
    let dir = tempfile::tempdir().unwrap();
    let mut model = Model::read(&tiny);
    model.set("general.sampling.temp", Value::F32(0.6));
    model.set("general.sampling.top_k", Value::I32(30));
    model.set("general.sampling.min_p", Value::F32(0.05));
    model.set("general.sampling.penalty_last_n", Value::I32(-1));
    model.write(&dir.path().join("m.gguf"));
    std::fs::write(dir.path().join("strata.toml"), "[sampling]\ntemp = 1\ntop_k = 40\n[chat]\nsystem = 'a \"b\"'")
        .unwrap();
    let mut command = strata(&["config", "show", "--model", "m.gguf"]);
    let r = finish(command.current_dir(dir.path()).env("STRATA_TEMP", "2").env("STRATA_TOPK", "1").output().unwrap());
    assert_eq!(r.code, Some(0), "{}", r.err);
    assert_eq!(shown(&r.out, "temp"), ("2.0".into(), "environment".into()));
    assert_eq!(shown(&r.out, "top_k"), ("40".into(), "strata.toml".into()));
    assert_eq!(shown(&r.out, "min_p"), ("0.05".into(), "model".into()));
    assert_eq!(shown(&r.out, "top_p"), ("0.95".into(), "default".into()));
    assert_eq!(shown(&r.out, "system"), ("\"a \\\"b\\\"\"".into(), "strata.toml".into()));
    assert_eq!(
        r.err,
        "warning: \"STRATA_TOPK\" is not a setting; did you mean STRATA_TOP_K?\n\
         warning: the model file's suggestion is passed over: general.sampling.penalty_last_n is \"-1\", \
         expected a whole number from 0 to 1048576\n"
    );
}

#[test]
fn a_wrong_file_or_variable_is_2() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("strata.toml"), "[sampling]\ntopk = 40").unwrap();
    let r = finish(strata(&["config", "show"]).current_dir(dir.path()).output().unwrap());
    assert_eq!(r.code, Some(2));
    assert_eq!(r.err, "error: strata.toml line 2: sampling.topk is not a setting; did you mean sampling.top_k?\n");
    let r = finish(strata(&["config", "show"]).env("STRATA_SEED", "x").output().unwrap());
    assert_eq!(r.code, Some(2));
    assert_eq!(r.err, "error: STRATA_SEED is \"x\", expected a whole number, at least 0 and below 2^64\n");
}
