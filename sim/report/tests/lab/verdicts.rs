//! Checks and verdicts.

use crate::project::{PLAIN, Project, noisy};
use strata_report::checks::Verdict;
use strata_report::result::MOST_BYTES;

fn verdict(text: &str) -> (Verdict, String) {
    let project = Project::new(text);
    let written =
        strata_report::result::of_run(project.root(), &project.experiment(), &project.run(), MOST_BYTES).unwrap();
    (written.verdict, written.why)
}

#[test]
fn all_checks_met_confirm_and_one_missed_refutes() {
    // The least height is 11 at depth 1 and 12.5 at 2.5.
    let (verdict_, why) = verdict(&PLAIN.replace("at_least = 1.5", "at_least = 1.13"));
    assert_eq!(verdict_, Verdict::Confirmed);
    assert!(why.contains("lowest share: 0.36, expected 0.36 ± 0.01"), "{why}");
    let (verdict_, why) = verdict(PLAIN);
    assert_eq!(verdict_, Verdict::Refuted);
    assert_eq!(why, "height at depth 2.5 over that at 1: 1.136, expected at least 1.5");
}

#[test]
fn an_interval_across_the_bound_leaves_it_open() {
    // The mean of noise up to 0.1 over 20 draws lies near 0.05, and its interval reaches both sides.
    let check =
        "\n[[checks]]\nname = 'least'\nselect = { depth = 1 }\nmetric = 'height'\nreduce = 'min'\nat_least = 11.05\n";
    let text = noisy(10).replace("at_least = 1.5", "at_least = 1.1");
    let (verdict_, why) = verdict(&(text.clone() + check));
    assert_eq!(verdict_, Verdict::Inconclusive, "{why}");
    assert!(why.starts_with("least: 11.") && why.contains('['), "{why}");
    let (verdict_, _) = verdict(&(text + &check.replace("11.05", "11.001")));
    assert_eq!(verdict_, Verdict::Confirmed);
}

#[test]
fn ratios_are_paired_by_draw() {
    // Both heights share their noise: the interval of the difference is none, though each height has one.
    let check = "\n[[checks]]\nname = 'd'\nselect = { depth = 2.5, share = 0.36 }\ndifference_to = { depth = 1 }\nmetric = 'height'\nexpect = 1.5\nabsolute = 1e-6\n";
    let (verdict_, why) = verdict(&(noisy(10).replace("at_least = 1.5", "at_least = 1.1") + check));
    assert_eq!(verdict_, Verdict::Confirmed, "{why}");
}

#[test]
fn what_is_fitted_or_no_gate_does_not_decide() {
    let (verdict_, _) = verdict(&PLAIN.replace("at_least = 1.5", "at_least = 1.5\nfitted = true"));
    assert_eq!(verdict_, Verdict::Confirmed);
    let (verdict_, _) = verdict(&PLAIN.replace("at_least = 1.5", "at_least = 1.5\ngate = false"));
    assert_eq!(verdict_, Verdict::Confirmed);
}

#[test]
fn a_selection_that_leaves_too_much_or_nothing_is_refused() {
    for (to, want) in [
        ("reduce = \"value\"", "leaves 26 configurations that differ in share, expected one"),
        ("difference_to = { layer = 3 }", "the rows hold no axis or label \"layer\""),
    ] {
        let text = if to.starts_with("reduce") {
            PLAIN.replace("reduce = \"min\"", to)
        } else {
            PLAIN.replace("relative_to = { depth = 1 }", to)
        };
        let project = Project::new(&text);
        let error = strata_report::result::of_run(project.root(), &project.experiment(), &project.run(), MOST_BYTES)
            .err()
            .unwrap();
        assert!(format!("{error:#}").contains(want), "{error:#}");
    }
    // No volume is known at depth 2.5.
    let project =
        Project::new(&PLAIN.replace("metric = \"height\"\nreduce = \"min\"", "metric = \"volume\"\nreduce = \"min\""));
    let error =
        strata_report::result::of_run(project.root(), &project.experiment(), &project.run(), MOST_BYTES).err().unwrap();
    assert!(format!("{error:#}").contains("have no volume"), "{error:#}");
}
