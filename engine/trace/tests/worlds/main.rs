//! explore
mod adaptive;
use strata_trace::Trace;
use strata_trace::stats::Sequence;
use strata_trace::synth::*;
fn figures(trace: &Trace, whats: &[(&str, f64)]) -> Vec<f64> {
    let scale = trace.meta.layers as f64 / 48.0;
    let seq = Sequence::new(trace);
    let (one, other) = seq.halves().unwrap();
    let (r1, r2) = (seq.ranking(&one), seq.ranking(&other));
    let n = |s: f64| (s * scale).round() as usize;
    let rounds = |odd: u32| (0..trace.rounds.len()).filter(move |r| trace.rounds[*r].request % 2 == odd);
    let d = seq.distances(300);
    whats
        .iter()
        .map(|(w, x)| match *w {
            "static" => (seq.hits(&r1.best(n(*x)), &other) + seq.hits(&r2.best(n(*x)), &one)) / 2.0,
            "first" => {
                let f = seq.first_used(&one, n(*x));
                seq.hits(&f, &other)
            }
            "adaptive" => adaptive::adaptive(trace, rounds(1), r1.best(n(*x)), n(96.0)),
            "lru" => d.hits(*x as usize),
            "reuse" => seq.reuse().unwrap(),
            "union" => seq.union(None)[*x as usize - 1].unwrap(),
            m if m.starts_with("miss") => {
                let u = seq.union(Some(&r1.best(n(4105.0))));
                u[*x as usize - 1].unwrap() / u[0].unwrap()
            }
            _ => panic!(),
        })
        .collect()
}
#[test]
#[ignore]
fn explore() {
    let base = SynthParams {
        layers: 12,
        tokens: 12000,
        requests: 24,
        window: 4,
        accept: 0.77,
        zipf_spread: 0.2,
        topics: 64,
        topic_tokens: 200.0,
        topic_share: 0.4,
        zipf: 0.5,
        tail: 3.0,
        ..SynthParams::default()
    };
    let free = [
        Free { parameter: Parameter::Tail, low: 0.0, high: 20.0, step: 1.0 },
        Free { parameter: Parameter::Zipf, low: 0.0, high: 2.5, step: 0.1 },
        Free { parameter: Parameter::Reuse, low: 0.2, high: 0.5, step: 0.05 },
        Free { parameter: Parameter::TopicTokens, low: 10.0, high: 2000.0, step: 1.0 },
        Free { parameter: Parameter::TopicShare, low: 0.0, high: 1.0, step: 0.1 },
    ];
    let report: Vec<(&str, f64)> = vec![
        ("static", 4500.0),
        ("static", 4105.0),
        ("first", 4105.0),
        ("adaptive", 4500.0),
        ("adaptive", 3652.0),
        ("adaptive", 4234.0),
        ("adaptive", 7935.0),
        ("adaptive", 12758.0),
        ("adaptive", 17463.0),
        ("lru", 64.0),
        ("lru", 93.0),
        ("lru", 128.0),
        ("lru", 186.0),
        ("lru", 279.0),
        ("lru", 372.0),
        ("lru", 512.0),
        ("reuse", 0.0),
        ("union", 4.0),
        ("miss", 2.0),
        ("miss", 3.0),
        ("miss", 4.0),
    ];
    let worlds: &[(&str, &[(&str, f64, f64, f64)])] = &[
        ("article", &[("static", 4500., 0.50, 0.01), ("adaptive", 4500., 0.72, 0.01), ("reuse", 0., 0.35, 0.1)]),
        (
            "header",
            &[
                ("static", 4105., 0.645, 0.01),
                ("first", 4105., 0.486, 0.02),
                ("adaptive", 4234., 0.71, 0.03),
                ("adaptive", 7935., 0.865, 0.03),
                ("adaptive", 12758., 0.97, 0.02),
                ("adaptive", 17463., 0.987, 0.01),
                ("adaptive", 3652., 0.55, 0.1),
                ("reuse", 0., 0.35, 0.1),
            ],
        ),
        (
            "imp",
            &[
                ("lru", 93., 0.435, 0.01),
                ("lru", 186., 0.62, 0.01),
                ("lru", 279., 0.72, 0.01),
                ("lru", 372., 0.789, 0.01),
                ("lru", 512., 0.85, 0.01),
            ],
        ),
    ];
    for (name, ts) in worlds {
        let t0 = std::time::Instant::now();
        let targets: Vec<Target> =
            ts.iter().map(|t| Target { name: format!("{}@{}", t.0, t.1), value: t.2, tolerance: t.3 }).collect();
        let whats: Vec<(&str, f64)> = ts.iter().map(|t| (t.0, t.1)).collect();
        let f = fit(&base, &free, &targets, 150, |t| Ok(figures(t, &whats))).unwrap();
        println!(
            "{name}: loss {:.2} traces {} {:?} zipf {} reuse {} tt {} ts {}",
            f.loss,
            f.traces,
            t0.elapsed(),
            f.params.zipf,
            f.params.reuse,
            f.params.topic_tokens,
            f.params.topic_share
        );
        for (t, a) in targets.iter().zip(&f.achieved) {
            println!("   {} want {} got {:.3}", t.name, t.value, a);
        }
        let all = figures(&f.params.generate().unwrap(), &report);
        for (w, a) in report.iter().zip(all) {
            print!(" {}@{}={:.3}", w.0, w.1, a);
        }
        println!();
    }
}
