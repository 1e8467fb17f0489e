//! What `experiment.toml` may say, and how it is refused.

use crate::bowl;
use crate::project::{PLAIN, Project};
use strata_report::spec::Experiment;

fn parse(text: &str) -> Result<Experiment, String> {
    Experiment::parse("x", "x.toml", text, bowl::find).map_err(|e| format!("{e:#}"))
}

fn refused(from: &str, to: &str) -> String {
    assert!(PLAIN.contains(from), "{from}");
    match parse(&PLAIN.replace(from, to)) {
        Ok(_) => panic!("{to} was accepted"),
        Err(e) => e,
    }
}

#[test]
fn the_last_axis_moves_fastest_and_draws_faster_still() {
    let e = parse(&PLAIN.replace("quick = true", "seeds = [7, 8]\nrepetitions = 2")).unwrap();
    assert_eq!((e.configurations(), e.points()), (26 * 2, 26 * 2 * 4));
    let point = |i: usize| {
        let p = e.point(i);
        (p.values["share"].to_string(), p.values["depth"].to_string(), p.seed)
    };
    assert_eq!(point(0), ("0".into(), "1".into(), 7));
    assert_eq!(point(2), ("0".into(), "1".into(), 8));
    assert_eq!(point(4).1, "2.5");
    assert_eq!(point(8).0, "0.04");
    let seeds: std::collections::BTreeSet<u64> = (0..4).map(|i| point(i).2).collect();
    assert_eq!(seeds.len(), 4, "repetitions have seeds of their own");
}

#[test]
fn axes_stand_in_the_order_of_the_file() {
    let text = PLAIN
        .replace("depth = [1, 2.5]", "")
        .replace("[axes]", "[[zip]]\nglaze = ['a', 'b', 'a']\ndepth = [1, 2.5, 3]\n\n[axes]");
    let e = parse(&text).unwrap();
    assert_eq!(e.axes, ["glaze", "depth", "share"]);
    assert_eq!(e.points(), 3 * 26);
    let last: Vec<String> = e.configuration(3 * 26 - 1).iter().map(ToString::to_string).collect();
    assert_eq!(last, ["a", "3", "1"]);
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    for (from, to, want) in [
        ("title = \"Where the bowl is lowest\"\n", "", "missing field `title`"),
        ("quick = true", "quik = true", "x.toml line 6: unknown field `quik`"),
        ("quick = true", "quick = 1", "x.toml line 6: invalid type: integer `1`, expected a boolean"),
        ("study = \"bowl\"", "study = \"bowls\"", "x.toml line 5: found study \"bowls\""),
        ("hypothesis = \"At a share of 0.36, by the formula.\"", "hypothesis = ' '", "hypothesis is empty"),
        ("clay = ", "clya = ", "x.toml line 9: found input \"clya\"; did you mean \"clay\"?"),
        ("clay = \"traces/clay.txt\"", "", "study bowl needs inputs that are not named: clay"),
        ("traces/clay.txt", "../clay.txt", "expected one below the project's root"),
        ("share = {", "shar = {", "x.toml line 12: found axis \"shar\"; did you mean \"share\"?"),
        ("step = 0.04", "step = 0", "x.toml line 12: share: found step 0, expected a number above 0"),
        ("step = 0.04", "stop = 0.04", "x.toml line 12: unknown field `stop`"),
        ("depth = [1, 2.5]", "depth = [1, 1.0]", "x.toml line 13: depth: found 1 twice"),
        (
            "depth = [1, 2.5]",
            "depth = [[1]]",
            "x.toml line 13: invalid type: sequence, expected true, false, a finite number or a word",
        ),
        (
            "depth = [1, 2.5]",
            "'speculation.spec' = [1, 99]",
            "x.toml line 13: speculation.spec is \"99\", expected auto or a whole number from 0 to 15",
        ),
        (
            "depth = [1, 2.5]",
            "[[zip]]\ndepth = [1, 2.5]\nglaze = ['a']",
            "found 1 values for \"glaze\", expected 2 as for \"depth\"",
        ),
        ("depth = [1, 2.5]", "depth = 1\n[[zip]]\ndepth = [1]", "found axis \"depth\" again"),
        ("quick = true", "seeds = []", "x.toml line 6: found no seed"),
        ("quick = true", "seeds = [1, 1]", "x.toml line 6: found seed 1 twice"),
        ("quick = true", "repetitions = 1000000000", "seeds and repetitions give more than 10000000 points"),
        ("quick = true", "seeds = [1, 2]\nrepetitions = 4294967295", "give more than 10000000 points"),
        ("quick = true", "repetitions = 0", "x.toml line 6: found 0 repetitions"),
        (
            "y = [\"height\"]",
            "y = [\"heigt\"]",
            "x.toml line 15: figure \"height\": found figure \"heigt\"; did you mean \"height\"?",
        ),
        ("file = \"height\"", "file = \"../height\"", "expected small letters, digits and dashes"),
        ("series = [\"depth\"]", "series = [\"glaze\"]", "found axis \"glaze\", expected one of: share, depth, layer"),
        (
            "select = { depth = 1 }",
            "select = { depth = 2 }",
            "check \"lowest share\": found depth = 2, expected one of its values: 1, 2.5",
        ),
        (
            "metric = \"height\"\nreduce = \"argmin\"",
            "metric = \"mass\"\nreduce = \"argmin\"",
            "found figure \"mass\", expected one of: height, volume",
        ),
        ("axis = \"share\"\n", "", "found argmin or argmax without axis"),
        ("reduce = \"min\"", "axis = \"share\"", "found axis, which goes with argmin and argmax alone"),
        ("absolute = 0.01", "", "expected either expect with percent or absolute, or at_least, at_most or both"),
        ("absolute = 0.01", "absolute = 0.01\nat_least = 1", "expected either expect"),
        ("at_least = 1.5", "at_least = 1.5\nfitted = true\ngate = true", "what was fitted validates nothing"),
        ("at_least = 1.5", "at_least = 1.5\ndifference_to = { depth = 1 }", "relative_to and difference_to"),
        (
            "expect = 0.36",
            "expect = nan",
            "x.toml line 23: check \"lowest share\": found expect = NaN, expected a finite number",
        ),
        ("absolute = 0.01", "percent = inf", "found percent = inf, expected a finite number"),
        ("absolute = 0.01", "absolute = inf", "found absolute = inf, expected a finite number"),
        ("at_least = 1.5", "at_least = nan", "found at_least = NaN, expected a finite number"),
        ("at_least = 1.5", "at_most = inf", "found at_most = inf, expected a finite number"),
        (
            "series = [\"depth\"]",
            "lines = [{ label = 'a', y = nan }]",
            "figure \"height\": found y of a line = NaN, expected a finite number",
        ),
        (
            "series = [\"depth\"]",
            "published = [{ label = 'a', series = 1, points = [[0.0, 1.0]] }]",
            "found published series 1, expected none, as the figure has no series",
        ),
        ("reduce = \"min\"", "reduce = \"least\"", "unknown variant `least`"),
    ] {
        let error = refused(from, to);
        assert!(error.contains(want), "{to}\n  gave {error}\n  not  {want}");
    }
}

#[test]
fn an_experiment_without_a_deciding_check_is_refused() {
    let text = PLAIN
        .replace("at_least = 1.5", "at_least = 1.5\ngate = false")
        .replace("absolute = 0.01", "absolute = 0.01\nfitted = true");
    assert!(parse(&text).err().unwrap().contains("no check that decides"));
}

#[test]
fn everything_missing_is_listed_at_once() {
    let project =
        Project::new(&PLAIN.replace("clay = \"traces/clay.txt\"", "clay = \"traces/a\"\ntools = \"traces/b\""));
    let error = strata_report::run::rows(project.root(), &project.experiment()).unwrap_err().to_string();
    assert!(error.contains("clay = traces/a") && error.contains("tools = traces/b"), "{error}");
}

#[test]
fn a_number_is_enough_to_name_an_experiment() {
    let project = Project::new(PLAIN);
    let resolve = |name: &str| strata_report::spec::resolve(project.root(), name).map_err(|e| e.to_string());
    assert_eq!(resolve("901").unwrap(), crate::project::NAME);
    assert_eq!(resolve("901-bowl").unwrap(), crate::project::NAME);
    assert!(resolve("90").unwrap_err().contains("there are: 901-bowl"));
    std::fs::remove_dir_all(project.root().join("experiments/901-bowl")).unwrap();
    assert!(resolve("90").unwrap_err().ends_with("there are: none"));
}

#[test]
fn a_point_that_cannot_be_is_named() {
    let project = Project::new(&PLAIN.replace("depth = [1, 2.5]", "depth = [1, 2.5, -1]"));
    let error = format!("{:#}", strata_report::run::rows(project.root(), &project.experiment()).unwrap_err());
    assert!(error.contains("experiment.toml: depth = -1") && error.contains("expected at least 0"), "{error}");
}
