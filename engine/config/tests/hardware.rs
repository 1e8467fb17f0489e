//! Hardware profiles: those that are committed, and what is wrong with others.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use strata_config::HardwareProfile;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/hardware")
}

fn committed() -> Vec<(String, HardwareProfile)> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder()).unwrap().map(|e| e.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "toml"));
    paths.sort();
    let name = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    paths.iter().map(|path| (name(path), HardwareProfile::from_file(path).unwrap())).collect()
}

#[test]
fn committed_profiles_load_and_are_named_as_their_files() {
    let profiles = committed();
    let names: Vec<&str> = profiles.iter().map(|(name, _)| name.as_str()).collect();
    for wanted in ["h200-capped", "m3-ultra", "rtx-4090", "rtx-5070-ryzen-7600", "rtx-5090"] {
        assert!(names.contains(&wanted), "{wanted} is missing from {names:?}");
    }
    for (name, profile) in &profiles {
        assert_eq!(name, &profile.name);
        assert!(profile.numbers().len() > 5);
        // Only a machine that was measured has few assumptions; a published one says so where it has them.
        assert!(profile.numbers().iter().all(|n| n.source.len() > 5), "{name}");
    }
    let (_, h200) = profiles.iter().find(|(name, _)| name == "h200-capped").unwrap();
    assert_eq!(
        h200.numbers().iter().filter(|n| n.assumed()).map(|n| n.field.as_str()).collect::<Vec<_>>(),
        ["gpu.sync_us"]
    );
    assert_eq!((h200.cpu.read_at(6), h200.cpu.shared_at(6)), (Some(68.1), Some(114.3)));
}

#[test]
fn a_profile_that_is_written_reads_back_as_the_same() {
    for (name, mut profile) in committed() {
        assert_eq!(HardwareProfile::from_toml(&name, &profile.to_toml()).unwrap(), profile);
        // A machine without a card or a disk, and a text that has to be quoted.
        (profile.gpu, profile.link, profile.ssd) = (None, None, None);
        profile.description = "a \"quoted\" name\nof two lines \\ and 'more'".into();
        assert_eq!(HardwareProfile::from_toml(&name, &profile.to_toml()).unwrap(), profile);
    }
}

#[test]
fn rates_lie_between_those_that_were_measured() {
    let text = "name = 'a'\ndescription = 'b'\n[cpu]\ncores = { value = 8, source = 'x' }\n\
                threads = { value = 8, source = 'x' }\nlayer_overhead_us = { value = 0, source = 'x' }\n\
                read_gb_s = [{ threads = 2, value = 20, source = 'x' }, { threads = 6, value = 40, source = 'x' }]\n\
                kernels = [{ ty = 'Q8_0', tokens = 4, threads = 8, gb_s = 9, source = 'x' },\n\
                { ty = 'Q8_0', tokens = 1, threads = 8, gb_s = 10, source = 'x' }]";
    let cpu = HardwareProfile::from_toml("a.toml", text).unwrap().cpu;
    let rates: Vec<_> = [0, 1, 2, 3, 6, 9].map(|threads| cpu.read_at(threads)).to_vec();
    assert_eq!(rates, [None, Some(10.0), Some(20.0), Some(25.0), Some(40.0), Some(40.0)]);
    assert_eq!(cpu.shared_at(4), None);
    let rate = |ty, tokens| cpu.kernel(ty, tokens).map(|k| k.gb_s);
    assert_eq!(
        [rate("Q8_0", 1), rate("Q8_0", 3), rate("Q8_0", 9), rate("F32", 1)],
        [Some(10.0), Some(10.0), Some(9.0), None]
    );
}

#[test]
fn what_is_wrong_is_said_with_file_line_and_field() {
    let good = std::fs::read_to_string(folder().join("rtx-5090.toml")).unwrap();
    let line = |what: &str| good.lines().position(|line| line.starts_with(what)).unwrap() + 1;
    let refused = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        HardwareProfile::from_toml("x.toml", &good.replacen(from, to, 1)).unwrap_err().to_string()
    };
    let vram = line("vram_read_gb_s");
    for (to, found) in [("0", "0"), ("-3.5", "-3.5"), ("nan", "NaN"), ("inf", "inf"), ("-0.0", "-0")] {
        let want = format!("x.toml line {vram}: gpu.vram_read_gb_s is \"{found}\", expected a finite number above 0");
        assert_eq!(refused("vram_read_gb_s = { value = 1523.2", &format!("vram_read_gb_s = {{ value = {to}")), want);
    }
    let cpu = line("read_gb_s = [") + 1;
    assert_eq!(
        refused("{ threads = 16, value = 55.0", "{ threads = 16, value = 0"),
        format!("x.toml line {cpu}: cpu.read_gb_s[0].value is \"0\", expected a finite number above 0")
    );
    assert_eq!(
        refused("{ threads = 16, value = 55.0", "{ threads = 0, value = 55.0"),
        format!(
            "x.toml line {cpu}: cpu.read_gb_s[0].threads is \"0\", expected at least 1: numbers of threads increase"
        )
    );
    // A key that is misspelled, one that is missing, one of the wrong type, a whole section.
    let said = refused("vram_read_gb_s", "vram_read_gbs");
    assert!(
        said.starts_with(&format!("x.toml line {vram}: gpu.vram_read_gbs: unknown field `vram_read_gbs`")),
        "{said}"
    );
    let said = refused("launch_us = ", "# launch_us = ");
    assert!(said.starts_with("x.toml line ") && said.ends_with("gpu: missing field `launch_us`"), "{said}");
    let said = refused("value = 1523.2", "value = \"fast\"");
    assert!(said.starts_with(&format!("x.toml line {vram}: gpu.vram_read_gb_s.value: invalid type: string")), "{said}");
    let said = refused("[cpu]", "[cpu.more]");
    assert!(said.contains("cpu") && said.contains("field"), "{said}");
    let said = refused("value = 1523.2, source", "value = 1523.2, sauce");
    assert!(said.contains(&format!("line {vram}: gpu.vram_read_gb_s.sauce: unknown field `sauce`")), "{said}");
    let start = good.find("[gpu]").unwrap();
    let without = format!("{}{}", &good[..start], &good[good.find("[link]").unwrap()..]);
    let said = HardwareProfile::from_toml("x.toml", &without).unwrap_err().to_string();
    assert!(said.ends_with("link is a link without a [gpu], expected both, or none of them"), "{said}");
    assert!(HardwareProfile::from_toml("x.toml", "name = ").unwrap_err().to_string().starts_with("x.toml line 1"));
    let gone = HardwareProfile::from_file(Path::new("/nowhere/x.toml")).unwrap_err().to_string();
    assert!(gone.starts_with("cannot read /nowhere/x.toml: "), "{gone}");
}
