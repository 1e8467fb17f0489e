//! Runs: the same bytes however they came about.

use crate::bowl::EVALUATED;
use crate::project::{NAME, PLAIN, Project, noisy};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use strata_report::result::{self, Files};
use strata_report::run::{self, Ended, How, Shard};

/// Tests that count evaluations have the counter to themselves only if they take turns.
static TURN: Mutex<()> = Mutex::new(());

fn files(project: &Project, finished: &run::Finished) -> Files {
    result::of_run(project.root(), &project.experiment(), finished, result::MOST_BYTES).unwrap().files
}

#[test]
fn the_number_of_jobs_changes_no_byte() {
    let _turn = TURN.lock();
    let text = noisy(7).replace("depth = [1, 2.5]", "depth = [1, 2.5]\nglaze = ['plain', 'layered']");
    let text = text.replace("series = [\"depth\"]", "series = [\"depth\"]\nselect = { glaze = 'plain' }");
    let text = text.replace("select = { depth = ", "select = { glaze = 'plain', depth = ");
    let mut all = Vec::new();
    for jobs in [1, 2, 7] {
        let project = Project::new(&text);
        let Ended::Whole(finished) = project.run_with(jobs, Shard::WHOLE, usize::MAX).unwrap() else { panic!() };
        all.push(files(&project, &finished));
    }
    assert_eq!(all[0].len(), 5);
    assert!(all[0]["rows.csv"].len() > 10_000);
    assert_eq!(all[0], all[1]);
    assert_eq!(all[0], all[2]);
}

#[test]
fn shards_joined_are_the_run_of_one_machine() {
    let _turn = TURN.lock();
    let (whole, shared) = (Project::new(&noisy(3)), Project::new(&noisy(3)));
    let want = files(&whole, &whole.run());
    let experiment = shared.experiment();
    let base = shared.root().join("target/experiments");
    for index in [3, 1] {
        let Ended::Shard { points, .. } = shared.run_with(1, Shard { index, of: 3 }, usize::MAX).unwrap() else {
            panic!()
        };
        assert_eq!(points, 104);
    }
    let error = run::merge(shared.root(), &experiment, &base).err().unwrap().to_string();
    assert!(error.contains("104 of 312 points are missing") && error.contains("the first is point 1"), "{error}");
    shared.run_with(2, Shard { index: 2, of: 3 }, usize::MAX).unwrap();
    let merged = run::merge(shared.root(), &experiment, &base).unwrap();
    assert_eq!(files(&shared, &merged), want);
}

#[test]
fn a_shard_that_begins_anew_leaves_the_parts_of_others() {
    let _turn = TURN.lock();
    let project = Project::new(PLAIN);
    let experiment = project.experiment();
    let base = project.root().join("target/experiments");
    // Points that another division of the work did as well: what begins anew takes none of them over.
    for (index, of) in [(1, 3), (1, 2), (2, 2)] {
        project.run_with(1, Shard { index, of }, usize::MAX).unwrap();
    }
    let before = EVALUATED.load(Ordering::Relaxed);
    let stop = AtomicBool::new(false);
    let shard = Shard { index: 2, of: 2 };
    let how = How { jobs: 1, shard, parts: base.clone(), fresh: true, stop: &stop, progress: &|_, _| {} };
    let Ended::Shard { points, dir } = run::run(project.root(), &experiment, &how).unwrap() else { panic!() };
    assert_eq!((points, EVALUATED.load(Ordering::Relaxed) - before), (26, 26));
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), 3);
    run::merge(project.root(), &experiment, &base).unwrap();
}

#[test]
fn a_run_that_was_stopped_goes_on_where_it_was() {
    let _turn = TURN.lock();
    let (whole, stopped) = (Project::new(PLAIN), Project::new(PLAIN));
    let want = files(&whole, &whole.run());
    let Ended::Stopped { done, points } = stopped.run_with(1, Shard::WHOLE, 20).unwrap() else { panic!() };
    assert_eq!((done, points), (20, 52));
    // The last line was being written when the machine went down.
    let part = std::fs::read_dir(stopped.root().join("target/experiments").join(NAME))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let part = part.join("part-1-of-1.jsonl");
    let text = std::fs::read_to_string(&part).unwrap();
    std::fs::write(&part, &text[..text.len() - 5]).unwrap();
    let before = EVALUATED.load(Ordering::Relaxed);
    let finished = stopped.run();
    assert_eq!(EVALUATED.load(Ordering::Relaxed) - before, 52 - 19);
    assert_eq!(files(&stopped, &finished), want);
}

#[test]
fn rows_of_other_inputs_or_axes_are_not_taken_for_these() {
    let _turn = TURN.lock();
    let project = Project::new(PLAIN);
    project.run_with(1, Shard::WHOLE, 20).unwrap();
    std::fs::write(project.root().join("traces/clay.txt"), "11\n").unwrap();
    let before = EVALUATED.load(Ordering::Relaxed);
    let finished = project.run();
    assert_eq!(EVALUATED.load(Ordering::Relaxed) - before, 52);
    assert!(finished.rows.lines.iter().all(|l| l.figures[0].unwrap() > 11.0));
    // Words may change: nothing is evaluated again.
    project.write(&PLAIN.replace("Where the bowl", "Where each bowl"));
    project.run();
    assert_eq!(EVALUATED.load(Ordering::Relaxed) - before, 52);
}

#[test]
fn a_damaged_part_is_refused_with_its_line() {
    let _turn = TURN.lock();
    let project = Project::new(PLAIN);
    project.run_with(1, Shard::WHOLE, 5).unwrap();
    let dir = std::fs::read_dir(project.root().join("target/experiments").join(NAME))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let part = dir.join("part-1-of-1.jsonl");
    let text = std::fs::read_to_string(&part).unwrap().replacen("\"point\":1,", "\"punkt\":1,", 1);
    std::fs::write(&part, text).unwrap();
    let error = project.run_with(1, Shard::WHOLE, 5).err().unwrap().to_string();
    assert!(error.contains("part-1-of-1.jsonl line 3 is damaged"), "{error}");
}

#[test]
fn shards_are_read_as_people_write_them() {
    assert_eq!("3/8".parse(), Ok(Shard { index: 3, of: 8 }));
    for bad in ["0/8", "9/8", "3", "a/b", "3/0"] {
        assert!(bad.parse::<Shard>().unwrap_err().contains("expected i/n"), "{bad}");
    }
}
