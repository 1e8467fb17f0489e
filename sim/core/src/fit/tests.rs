use super::*;
use proptest::prelude::*;

#[test]
fn the_search_finds_the_least_squares_of_a_line() {
    let parameters = [Parameter::new("a", "", 0.0, -10.0, 10.0), Parameter::new("b", "", 0.0, -10.0, 10.0)];
    let points = [(0.0, 1.0), (1.0, 3.0), (2.0, 5.0), (3.0, 8.0)];
    let minimum =
        least_squares(&parameters, |v| Ok(points.iter().map(|(x, y)| v[0] + v[1] * x - y).collect())).unwrap();
    // Normal equations by hand: slope 11.5 / 5, intercept 17 / 4 - 1.5 x 2.3.
    assert!((minimum.values[1] - 2.3).abs() < 1e-5 && (minimum.values[0] - 0.8).abs() < 1e-5, "{minimum:?}");
}

#[test]
fn a_minimum_outside_the_bounds_ends_on_them() {
    let parameters = [Parameter::new("a", "", 0.5, 0.0, 1.0), Parameter::new("b", "", 0.5, 0.0, 1.0)];
    let minimum = least_squares(&parameters, |v| Ok(vec![v[0] - 3.0, v[1] - 0.25])).unwrap();
    assert_eq!(minimum.values[0], 1.0);
    assert!((minimum.values[1] - 0.25).abs() < 1e-6);
}

#[test]
fn a_fit_that_cannot_be_is_refused() {
    let p = |start, low, high| [Parameter::new("a", "", start, low, high)];
    let refused =
        |parameters: &[Parameter], r: Vec<f64>| least_squares(parameters, |_| Ok(r.clone())).unwrap_err().to_string();
    assert!(refused(&p(2.0, 0.0, 1.0), vec![1.0]).contains("parameter a: found start 2 within 0 to 1"));
    assert!(refused(&p(0.5, 0.0, 1.0), vec![]).contains("measurements to fit to: found 0, expected at least 1"));
    assert!(refused(&p(0.5, 0.0, 1.0), vec![f64::NAN]).contains("residual 1 at the start: found NaN"));
    let wrong = [Parameter::new("speed", "", 1.0, 0.0, 2.0)];
    assert!(with_values(&Constants::default(), &wrong, &[1.0]).unwrap_err().to_string().contains("found speed"));
}

/// Windows of three made-up machines whose times the model itself made, with constants that the fit is not told.
fn synthetic(constants: &Constants) -> Vec<Case> {
    let machines = recorded_machines().unwrap();
    let models = models().unwrap();
    let mut cases = Vec::new();
    for name in ["4090x2", "A3000", "3080x2"] {
        let machine = machines.iter().find(|m| m.name == name).unwrap().clone();
        let machine = RecordedMachine { cpu_gb_s: None, first_card_only: false, ..machine };
        let model = models.iter().find(|m| m.name == machine.model).unwrap().clone();
        for (i, (rows, cpu, copied)) in [(1.0, 0.5, 0.0), (2.0, 3.0, 0.5), (4.0, 8.0, 1.0)].into_iter().enumerate() {
            let recorded = Recorded {
                row: i.to_string(),
                machine: name.into(),
                context: "1000".into(),
                hit_pct: None,
                rows: Some(rows),
                tokens: Some(rows * 0.75),
                window_ms: None,
                wait_gpu_ms: None,
                cpu_pool_ms: None,
                draft_ms: None,
                cpu_experts: Some(cpu),
                cpu_entries: None,
                vram_entries: None,
                copied: Some(copied),
                flags: String::new(),
            };
            let mut case = Case { recorded, machine: machine.clone(), model: model.clone() };
            let [wait, cpu, draft, window] = case.predicted(constants).unwrap().unwrap();
            case.recorded.wait_gpu_ms = Some(wait);
            case.recorded.cpu_pool_ms = Some(cpu);
            case.recorded.draft_ms = Some(draft);
            case.recorded.window_ms = Some(window);
            cases.push(case);
        }
    }
    cases
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]
    #[test]
    fn known_constants_are_found_again(
        node_us in 2.0..20.0f64, row_us in 5.0..100.0f64, wake_us in 10.0..100.0f64, nested_ns in 0.1..0.8f64,
        codebook_ns in 0.1..0.8f64, step_ms in 0.5..3.0f64, other_ms in 1.0..8.0f64,
    ) {
        let known = [node_us, row_us, wake_us, nested_ns, codebook_ns, step_ms, other_ms];
        let parameters = free_constants();
        let constants = with_values(&Constants::default(), &parameters, &known).unwrap();
        let fitted = fit(&synthetic(&constants), &Constants::default(), &parameters).unwrap();
        for (p, (found, known)) in parameters.iter().zip(fitted.values.iter().zip(known)) {
            prop_assert!((found / known - 1.0).abs() < 0.01, "{}: {found} for {known}", p.name);
        }
    }
}

#[test]
fn recordings_are_read_with_what_is_a_number_and_what_is_not() {
    let rows = recorded().unwrap();
    assert_eq!(rows.len(), 71);
    let of = |row: &str| rows.iter().find(|r| r.row == row).unwrap();
    let a = of("026");
    assert_eq!((a.wait_gpu_ms, a.cpu_pool_ms, a.window_ms), (Some(26.73), Some(41.59), Some(78.1)));
    // 12.38 entries of the CPU at 35.4 % hits and 4.06 copied experts of 1.4 entries each.
    let rows_of_a = a.window_rows(10.0).unwrap();
    assert!((rows_of_a - (12.38 / 0.646 + 4.06 * 12.38 / 8.85) / 10.0).abs() < 1e-9, "{rows_of_a}");
    // A range and a bound are no numbers.
    assert_eq!((of("035").window_ms, of("030").hit_pct), (None, None));
    assert_eq!(rows.iter().filter(|r| r.wait_gpu_ms.is_some() && r.cpu_pool_ms.is_some()).count(), 39);
}

#[test]
fn recordings_that_cannot_be_are_refused_with_line_and_field() {
    let header = "row,machine,ctx,flags,hit_pct,avg_T,tok_per_window,window_ms,wait_gpu_ms,cpu_pool_ms,draft_ms,\
                  cpu_experts,cpu_entries,vram_entries,pcie_experts";
    let good = format!("{header}\n1,m,0,,90,2,1.5,30,10,5,1,2,3,15,0\n");
    assert_eq!(recorded_of("t.csv", &good).unwrap()[0].window_ms, Some(30.0));
    let refused = |text: &str| recorded_of("t.csv", text).unwrap_err().to_string();
    assert!(refused(&good.replace(",30,", ",-30,")).contains("t.csv line 2, field window_ms: found -30"));
    assert!(refused(&good.replace(",30,", ",inf,")).contains("field window_ms: found inf"));
    assert!(refused(&good.replace("window_ms", "window")).contains("t.csv: found no column window_ms"));
    assert!(refused("row,machine\n1\n").contains("t.csv"));
    let machines = |text: &str| recorded_machines_of("m.toml", text).unwrap_err().to_string();
    let machine =
        "[[machine]]\nname = 'm'\nbackend = 'cuda'\nvram_gb_s = 0.0\nlink_gb_s = 1.0\nworkers = 1.0\nmodel = 'Q2_0'";
    assert!(machines(machine).contains("machine m, field vram_gb_s: found 0"));
    assert!(machines(&machine.replace("link_gb_s = 1.0\n", "")).contains("missing field `link_gb_s`"));
    assert!(machines(&machine.replace("backend", "backed")).contains("unknown field `backed`"));
    assert!(
        machines(&machine.replace("cuda", "hip").replace("0.0", "1.0")).contains("found hip, expected cuda or sycl")
    );
}

#[test]
fn the_defaults_are_the_fit_to_the_published_figures() {
    let fitted = fit_reference(&Anchors::default()).unwrap();
    let default = Constants::default();
    for (name, found, stated) in [
        ("node_us", fitted.node_us, default.node_us),
        ("row_us", fitted.row_us, default.row_us),
        ("step_ms", fitted.step_ms, default.step_ms),
        ("other_ms", fitted.other_ms, default.other_ms),
        ("codebook_ns", fitted.codebook_ns, default.codebook_ns),
        ("select_ns", fitted.select_ns, default.select_ns),
    ] {
        assert!((found / stated - 1.0).abs() < 0.005, "{name}: fitted {found}, stated {stated}");
    }
}
