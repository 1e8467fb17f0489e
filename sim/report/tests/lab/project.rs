//! A project in a folder of its own, with one experiment.

use crate::bowl;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use strata_report::result;
use strata_report::run::{self, Ended, Finished, How, Shard};
use strata_report::spec::Experiment;

pub(crate) const PLAIN: &str = r#"
title = "Where the bowl is lowest"
hypothesis = "At a share of 0.36, by the formula."
gate = "The lowest share within 0.01 of 0.36, at every depth."
study = "bowl"
quick = true

[inputs]
clay = "traces/clay.txt"

[axes]
share = { from = 0.0, to = 1.0, step = 0.04 }
depth = [1, 2.5]

[[figures]]
file = "height"
title = "Height of the bowl"
kind = "line"
x = "share"
y = ["height"]
series = ["depth"]

[[checks]]
name = "lowest share"
select = { depth = 1 }
metric = "height"
reduce = "argmin"
axis = "share"
expect = 0.36
absolute = 0.01
published = "the formula"

[[checks]]
name = "height at depth 2.5 over that at 1"
select = { depth = 2.5 }
relative_to = { depth = 1 }
metric = "height"
reduce = "min"
at_least = 1.5
"#;

/// The same with noise and so many draws.
pub(crate) fn noisy(seeds: usize) -> String {
    let seeds: Vec<String> = (1..=seeds).map(|s| s.to_string()).collect();
    PLAIN
        .replace("[axes]", "[axes]\nnoise = 0.1")
        .replace("quick = true", &format!("quick = true\nseeds = [{}]\nrepetitions = 2", seeds.join(", ")))
}

pub(crate) struct Project {
    dir: tempfile::TempDir,
}

pub(crate) const NAME: &str = "901-bowl";

impl Project {
    pub(crate) fn new(experiment: &str) -> Project {
        let project = Project { dir: tempfile::tempdir().unwrap() };
        for dir in ["traces", "results", &format!("experiments/{NAME}")] {
            std::fs::create_dir_all(project.root().join(dir)).unwrap();
        }
        std::fs::write(project.root().join("traces/clay.txt"), "10\n").unwrap();
        project.write(experiment);
        project
    }

    pub(crate) fn root(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn write(&self, experiment: &str) {
        std::fs::write(self.root().join(format!("experiments/{NAME}/experiment.toml")), experiment).unwrap();
    }

    pub(crate) fn experiment(&self) -> Experiment {
        Experiment::load(self.root(), NAME, bowl::find).unwrap()
    }

    pub(crate) fn result(&self) -> PathBuf {
        self.root().join("results").join(NAME)
    }

    pub(crate) fn run_with(&self, jobs: usize, shard: Shard, stop_after: usize) -> anyhow::Result<Ended> {
        let stop = AtomicBool::new(false);
        let progress = |done: usize, _: usize| {
            if done >= stop_after {
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        };
        let parts = self.root().join("target/experiments");
        run::run(
            self.root(),
            &self.experiment(),
            &How { jobs, shard, parts, fresh: false, stop: &stop, progress: &progress },
        )
    }

    pub(crate) fn run(&self) -> Finished {
        match self.run_with(2, Shard::WHOLE, usize::MAX).unwrap() {
            Ended::Whole(finished) => *finished,
            _ => panic!("not finished"),
        }
    }

    /// Runs and writes the result and the index.
    pub(crate) fn finish(&self) -> result::Written {
        self.finish_within(result::MOST_BYTES)
    }

    /// Rows of more bytes are aggregated.
    pub(crate) fn finish_within(&self, most: usize) -> result::Written {
        let written = result::of_run(self.root(), &self.experiment(), &self.run(), most).unwrap();
        result::put(&self.result(), &written.files).unwrap();
        let made = strata_report::report::report(self.root(), bowl::find, false).unwrap();
        assert!(made.differences.is_empty(), "{:?}", made.differences);
        written
    }
}
