//! Reports: what is kept says what the rows say.

use crate::bowl;
use crate::project::{NAME, PLAIN, Project, noisy};
use strata_report::report::report;

fn check(project: &Project) -> Vec<String> {
    report(project.root(), bowl::find, true).unwrap().differences
}

#[test]
fn a_result_just_written_has_no_differences() {
    for text in [PLAIN.to_owned(), noisy(2)] {
        let project = Project::new(&text);
        project.finish();
        assert_eq!(check(&project), [""; 0]);
    }
}

#[test]
fn a_changed_file_is_found() {
    for (file, from, to) in [
        ("rows.csv", "0.36,1,11", "0.36,1,10"),
        ("summary.md", "Refuted", "Confirmed"),
        ("meta.json", "refuted", "confirmed"),
        ("height.svg", "Height", "Depth"),
    ] {
        let project = Project::new(PLAIN);
        project.finish();
        let path = project.result().join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file} holds no {from}: {text}");
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let found = check(&project);
        assert!(found.iter().any(|d| d.starts_with(&format!("results/{NAME}/{file} line "))), "{file}: {found:?}");
    }
}

#[test]
fn a_changed_row_is_found_by_running_again() {
    let project = Project::new(PLAIN);
    project.finish();
    // All files agree with each other, and none with the study.
    let mut rows = strata_report::run::rows(project.root(), &project.experiment()).unwrap();
    rows.lines[3].figures[0] = Some(17.0);
    std::fs::write(project.result().join("rows.parquet"), rows.parquet().unwrap()).unwrap();
    report(project.root(), bowl::find, false).unwrap();
    let found = check(&project);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("rows.parquet row 4: height is 17, evaluated again it is "), "{found:?}");
    // Without `quick` nobody would know.
    project.write(&PLAIN.replace("quick = true", ""));
    assert_eq!(check(&project), [""; 0]);
}

#[test]
fn rows_of_another_experiment_or_input_are_found() {
    let project = Project::new(PLAIN);
    project.finish();
    project.write(&PLAIN.replace("depth = [1, 2.5]", "depth = [1, 2.5, 4]"));
    assert!(check(&project)[0].contains("was made from other axes"));
    project.write(PLAIN);
    std::fs::write(project.root().join("traces/clay.txt"), "12\n").unwrap();
    assert!(check(&project)[0].contains("was made from another traces/clay.txt (clay)"));
}

#[test]
fn a_gate_moved_after_the_run_shows() {
    let project = Project::new(PLAIN);
    project.finish();
    project.write(&PLAIN.replace("at_least = 1.5", "at_least = 1.1"));
    let found = check(&project);
    assert!(found.iter().any(|d| d.contains("summary.md")), "{found:?}");
}

#[test]
fn the_index_lists_all_results_with_their_verdicts() {
    let project = Project::new(PLAIN);
    let hand = project.root().join("results/cpu-000-by-hand");
    std::fs::create_dir_all(&hand).unwrap();
    std::fs::write(hand.join("entry.toml"), "what = 'measured | by hand'\nverdict = 'met'\n").unwrap();
    project.finish();
    std::fs::write(project.result().join("notes.md"), "# Notes\n\nDepth counts\nfor less.\n\nMore.\n").unwrap();
    report(project.root(), bowl::find, false).unwrap();
    let index = std::fs::read_to_string(project.root().join("results/INDEX.md")).unwrap();
    assert!(index.contains("| [901-bowl](901-bowl/summary.md) | Where the bowl is lowest | refuted | height at depth 2.5 over that at 1: 1.136, expected at least 1.5. Depth counts for less. |"), "{index}");
    assert!(
        index.contains("| [cpu-000-by-hand](cpu-000-by-hand/summary.md) | measured \\| by hand | met |"),
        "{index}"
    );
    assert!(index.contains("| 901-bowl | lowest share | 0.36 | 0.36 | +0.0 % | no | the formula |"), "{index}");
    assert_eq!(check(&project), [""; 0]);
    std::fs::remove_file(hand.join("entry.toml")).unwrap();
    let error = report(project.root(), bowl::find, true).unwrap_err().to_string();
    assert!(error.contains("results/cpu-000-by-hand belongs to no experiment"), "{error}");
}

#[test]
fn large_rows_are_aggregated_and_still_checked() {
    let text = noisy(4);
    let project = Project::new(&text);
    let written = project.finish_within(16_000);
    assert_eq!(written.full.as_ref().unwrap().lines.len(), 26 * 2 * 8);
    let csv = String::from_utf8(written.files["rows.csv"].clone()).unwrap();
    assert!(csv.starts_with("noise,share,depth,height,height_low,height_high,volume,"), "{}", &csv[..80]);
    assert_eq!(csv.lines().count(), 26 * 2 + 1);
    assert_eq!(check(&project), [""; 0]);
    // Means and intervals are too many bytes as well: nothing is left out in silence.
    let finished = project.run();
    let error = strata_report::result::of_run(project.root(), &project.experiment(), &finished, 1_000).err().unwrap();
    assert!(error.to_string().contains("expected at most 1000: fewer values on the axes"), "{error}");
    // A check that was not there when the draws were cannot be answered.
    project.write(&(text + "\n[[checks]]\nname = 'new'\nmetric = 'height'\nreduce = 'max'\nat_most = 99\n"));
    let error = report(project.root(), bowl::find, true).unwrap_err().to_string();
    assert!(error.contains("run the experiment again"), "{error}");
}

/// What CI holds against the repository itself.
#[test]
fn the_results_of_this_repository_say_what_their_rows_say() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let checked = report(&root, strata_sim::study::find, true).unwrap();
    checked.notes.iter().for_each(|note| println!("{note}"));
    assert_eq!(checked.differences, [""; 0], "`just report` makes results again, and `just run-experiment` runs one");
    assert!(!checked.rerun.is_empty());
}
