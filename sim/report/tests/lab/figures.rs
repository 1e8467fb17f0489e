//! Figures.

use crate::project::{PLAIN, Project, noisy};

fn svg(text: &str) -> Result<String, String> {
    let project = Project::new(text);
    let experiment = project.experiment();
    let rows = strata_report::run::rows(project.root(), &experiment).unwrap();
    let cells = strata_report::cells::Cells::of(&rows, &experiment.draws);
    strata_report::figure::svg(&experiment, &cells, &experiment.figures[0]).map_err(|e| format!("{e:#}"))
}

#[test]
fn a_figure_is_text_with_its_labels_and_the_same_each_time() {
    let once = svg(&noisy(4)).unwrap();
    assert_eq!(once, svg(&noisy(4)).unwrap());
    for label in ["Height of the bowl", "share", "height, mm", "depth 1", "depth 2.5"] {
        assert!(once.contains(label), "{label}");
    }
    // A mark for each value and one in the legend, for each series.
    assert_eq!(once.matches("<circle").count(), 26 + 1);
    assert_eq!(once.matches("<polygon").count(), 26 + 1);
}

#[test]
fn published_points_and_levels_stand_beside_ours() {
    let text = PLAIN.replace(
        "series = [\"depth\"]",
        "series = [\"depth\"]\npublished = [{ label = 'the potter', points = [[0.36, 11.2]] }]\nlines = [{ label = 'a plate', y = 10.5 }]",
    );
    let figure = svg(&text).unwrap();
    assert!(figure.contains("the potter") && figure.contains("a plate"));
}

#[test]
fn bars_stand_on_zero_and_take_words() {
    let text = PLAIN
        .replace("share = { from = 0.0, to = 1.0, step = 0.04 }", "share = 0.36\nglaze = ['plain', 'shiny']")
        .replace("kind = \"line\"\nx = \"share\"", "kind = \"bar\"\nx = \"glaze\"");
    let figure = svg(&text.replace("select = { depth", "select = { glaze = 'plain', depth")).unwrap();
    assert!(figure.contains("shiny") && figure.contains(">\n0\n<"), "{figure}");
}

#[test]
fn what_cannot_be_drawn_is_said() {
    let forgotten = svg(&PLAIN.replace("series = [\"depth\"]", "")).unwrap_err();
    assert!(forgotten.contains("same x and differ in depth"), "{forgotten}");
    let log = svg(&PLAIN.replace("series = [\"depth\"]", "series = [\"depth\"]\nlog = [\"x\"]")).unwrap_err();
    assert!(log.contains("found 0 on a logarithmic axis"), "{log}");
}
