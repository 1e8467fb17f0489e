use super::*;
use crate::fit::cases;

fn pairs(values: &[(f64, f64)]) -> Vec<Pair> {
    values.iter().map(|&(predicted, measured)| Pair { predicted, measured }).collect()
}

#[test]
fn figures_are_what_a_pencil_makes_of_them() {
    let p = pairs(&[(11.0, 10.0), (18.0, 20.0), (40.0, 40.0)]);
    assert!((mape(&p) - 0.2 / 3.0).abs() < 1e-12);
    assert!((p95(&p) - 0.1).abs() < 1e-12);
    assert_eq!(kendall_tau(&p), 1.0);
    assert_eq!(regret(&p, true), 0.0);
    // The largest prediction is the largest measurement.
    assert_eq!(regret(&p, false), 0.0);
    let wrong = pairs(&[(1.0, 12.0), (2.0, 10.0), (3.0, 15.0)]);
    assert!((regret(&wrong, true) - 0.2).abs() < 1e-12);
    // One of three pairs is in the opposite order.
    assert!((kendall_tau(&wrong) - 1.0 / 3.0).abs() < 1e-12);
    // Equal predictions count for neither, and shorten the scale: 2 of sqrt(2 x 3).
    let tied = pairs(&[(1.0, 1.0), (1.0, 2.0), (2.0, 3.0)]);
    assert!((kendall_tau(&tied) - 2.0 / 6f64.sqrt()).abs() < 1e-12);
    assert!(kendall_tau(&pairs(&[(1.0, 1.0)])).is_nan());
}

#[test]
fn an_interval_holds_its_figure_and_is_the_same_each_time() {
    let blocks: Vec<Vec<Pair>> = (1..9).map(|i| pairs(&[(10.0 + f64::from(i), 10.0), (10.0, 10.0)])).collect();
    let interval = with_interval(&blocks, 7, mape).unwrap();
    assert!(interval.low < interval.value && interval.value < interval.high, "{interval:?}");
    assert_eq!(interval, with_interval(&blocks, 7, mape).unwrap());
    assert_ne!(interval, with_interval(&blocks, 8, mape).unwrap());
    // Pairs that all err alike have an interval of one point.
    let alike = with_interval(&[pairs(&[(11.0, 10.0), (22.0, 20.0)])], 7, mape).unwrap();
    assert!((alike.high - alike.low).abs() < 1e-12);
}

#[test]
fn blocks_are_drawn_whole() {
    // Two machines, one predicted exactly, the other twice too slow: whole machines give 0, 0.5 or 1 and nothing between.
    let blocks = [pairs(&[(1.0, 1.0); 10]), pairs(&[(2.0, 1.0); 10])];
    let interval = with_interval(&blocks, 1, mape).unwrap();
    assert_eq!((interval.value, interval.low, interval.high), (0.5, 0.0, 1.0));
}

#[test]
fn measurements_that_cannot_be_are_refused() {
    for (p, said) in [((1.0, 0.0), "a measurement: found 0"), ((f64::NAN, 1.0), "a prediction: found NaN")] {
        assert!(with_interval(&[pairs(&[p])], 1, mape).unwrap_err().to_string().contains(said));
    }
    assert!(with_interval(&[], 1, mape).unwrap_err().to_string().contains("at least one"));
}

#[test]
fn a_machine_measured_once_is_predicted_in_other_settings() {
    let plan = PLANS.iter().find(|plan| plan.name == "3080x2").unwrap();
    let report = plan.run(&cases("cuda").unwrap(), &Default::default(), 1).unwrap();
    assert_eq!((report.windows, report.held_out.len()), (4, 4));
    let of = |metric: &str| report.quality.iter().find(|q| q.metric == metric).unwrap();
    assert!(of("window_ms").mape.value < 0.05, "{:?}", of("window_ms"));
    assert_eq!(of("window_ms").tau.value, 1.0);
    let text = report_markdown(&report);
    assert!(text.contains("| window_ms | 4 | 4 |") && text.contains("| 3080x2 | 030 | wait_gpu_ms |"), "{text}");
    assert_eq!(report_csv(&report).lines().count(), 1 + 4 * 3);
}

#[test]
fn every_plan_names_constants_that_are_free_and_has_windows() {
    for plan in PLANS {
        assert_eq!(plan.free().unwrap().len(), plan.parameters.len(), "{}", plan.name);
        let cases = cases(plan.backend).unwrap();
        let windows = cases.iter().filter(|case| plan.takes(case)).count();
        assert!(windows >= 3, "{}: {windows}", plan.name);
    }
}
