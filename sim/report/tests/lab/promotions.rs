//! Promotion of winning settings.

use crate::bowl;
use crate::project::{NAME, PLAIN, Project};
use strata_report::promote::{self, Choice, DEFAULTS};
use strata_sim::study::AxisValue;

fn with_knob(at_least: f64) -> Project {
    // The study ignores the knob, so the first of equals wins; depth and share decide.
    let text = PLAIN
        .replace("depth = [1, 2.5]", "depth = [1, 2.5]\n'speculation.spec' = [3, 5]")
        .replace("series = [\"depth\"]", "series = [\"depth\"]\nselect = { 'speculation.spec' = 3 }")
        .replace("select = { depth = ", "select = { 'speculation.spec' = 3, depth = ")
        .replace("at_least = 1.5", &format!("at_least = {at_least}"));
    let project = Project::new(&format!(
        "{text}\n[promote]\nselect = {{ depth = 1 }}\nmetric = 'height'\nreduce = 'argmin'\nknobs = {{ 'speculation.spec' = 'speculation.spec' }}\n"
    ));
    let path = project.root().join(DEFAULTS);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, defaults()).unwrap();
    project
}

fn defaults() -> &'static str {
    include_str!("../../../../engine/config/defaults.toml")
}

#[test]
fn the_winner_becomes_the_default_and_says_why() {
    let project = with_knob(1.1);
    project.finish();
    let choices = promote::promote(project.root(), NAME, bowl::find).unwrap();
    assert_eq!(choices, [Choice { key: "speculation.spec".into(), value: AxisValue::Int(3) }]);
    let text = std::fs::read_to_string(project.root().join(DEFAULTS)).unwrap();
    let want = "# Chosen by results/901-bowl: least height (11), among depth = 1.\nspec = 3\n";
    assert!(text.contains(want), "{text}");
    assert!(text.ends_with("\"speculation.spec\" = \"901-bowl\"\n"), "{text}");
    // Nothing else changed, and what is there is what the engine reads.
    let replaced = [
        "spec = \"auto\"",
        "# Chosen: the policy measures what drafts cost and bring, and stops where they bring nothing.",
    ];
    assert!(defaults().lines().all(|line| text.contains(line) || replaced.contains(&line)));
    let layer = strata_config::Layer::defaults_of(&text).unwrap();
    assert_eq!(layer.result(&strata_config::registry::SPEC), Some(NAME));
    // Promoting again changes nothing.
    promote::promote(project.root(), NAME, bowl::find).unwrap();
    assert_eq!(std::fs::read_to_string(project.root().join(DEFAULTS)).unwrap(), text);
}

#[test]
fn a_refuted_experiment_sets_no_default() {
    let project = with_knob(1.5);
    project.finish();
    let error = promote::promote(project.root(), NAME, bowl::find).unwrap_err().to_string();
    assert!(error.contains("901-bowl is refuted, and only a confirmed experiment sets defaults"), "{error}");
    assert_eq!(std::fs::read_to_string(project.root().join(DEFAULTS)).unwrap(), defaults());
}

#[test]
fn a_value_that_its_knob_does_not_take_is_refused() {
    let choice = |key: &str, value: AxisValue| [Choice { key: key.into(), value }];
    let wrong =
        promote::set(defaults(), "x", &choice("engine.threads", AxisValue::Text("many".into())), "w").unwrap_err();
    assert!(wrong.to_string().contains("engine.threads is \"many\""), "{wrong}");
    assert!(promote::set(defaults(), "x", &choice("engine.nothing", AxisValue::Int(1)), "w").is_err());
}

#[test]
fn what_names_no_settings_promotes_nothing() {
    let project = Project::new(PLAIN);
    project.finish();
    let error = promote::promote(project.root(), NAME, bowl::find).unwrap_err().to_string();
    assert!(error.contains("has no [promote]"), "{error}");
}
