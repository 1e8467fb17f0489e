//! The window policy in a simulated engine. Rates are tokens per simulated cost, never per second of the test.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used, clippy::panic)]

mod simulated;

use proptest::prelude::*;
use simulated::{Chance, Confidence, FLAT, SHAPES, USUAL, WORLD, World};
use strata_policy::window::{MAX_ROWS, Match, Offer, Outcome, Policy, Probe, Round, Settings, Source, agreement};

const CONFIDENCES: [Confidence; 3] = [Confidence::Constant(0.8), Confidence::Noise, Confidence::Honest];

/// Least and mean of a figure over seeds.
fn over_seeds(figure: impl Fn(u64) -> f64) -> (f64, f64) {
    let figures: Vec<f64> = (0..4).map(figure).collect();
    (figures.iter().copied().fold(f64::INFINITY, f64::min), figures.iter().sum::<f64>() / figures.len() as f64)
}

#[test]
fn it_converges_to_the_best_fixed_number_of_drafts_or_beats_it() {
    for (name, shape) in SHAPES {
        for mtp in [0.3, 0.5, 0.7, 0.9, 0.97] {
            for confidence in CONFIDENCES {
                let world = World { shape, mtp, confidence, ..WORLD };
                let best = world.best_fixed();
                let (least, mean) = over_seeds(|seed| world.fresh(Source::Mtp, seed, 2000).rate() / best);
                println!(
                    "{name:6} acceptance {mtp:4} {confidence:?}: {mean:.3} of the best fixed, at least {least:.3}"
                );
                assert!(mean > 0.965 && least > 0.87, "{name} {mtp} {confidence:?}: {mean} {least}");
            }
        }
    }
    // Probabilities that mean something are worth more than any fixed number.
    let world = World { confidence: Confidence::Honest, ..WORLD };
    assert!(over_seeds(|seed| world.fresh(Source::Mtp, seed, 2000).rate() / world.best_fixed()).1 > 1.03);
}

#[test]
fn drafts_that_always_fail_cost_less_than_3_percent() {
    for (name, shape) in SHAPES {
        for confidence in CONFIDENCES {
            for matches in [0.0, 0.5] {
                let world = World { shape, mtp: 0.0, confidence, matches, ..WORLD };
                let (least, mean) = over_seeds(|seed| world.fresh(Source::Both, seed, 2000).rate());
                let (early_least, early) = over_seeds(|seed| world.fresh(Source::Both, seed, 100).rate());
                println!("{name:6} {confidence:?}, {matches} matches: {mean:.4} of plain, first 100 rounds {early:.3}");
                assert!(mean > 0.996 && least > 0.99, "{name} {confidence:?}: {mean} {least}");
                assert!(early > 0.95 && early_least > 0.93, "{name} {confidence:?}: {early} {early_least}");
            }
        }
    }
}

#[test]
fn it_follows_acceptance_down_and_up() {
    let (good, bad) = (World { mtp: 0.85, ..WORLD }, World { mtp: 0.0, ..WORLD });
    for seed in 0..6 {
        let (mut policy, mut chance) = (Policy::new(Settings::default()), Chance(seed));
        good.run(&mut policy, &mut chance, 1000);
        let fall = bad.run(&mut policy, &mut chance, 200).rate();
        let low = bad.run(&mut policy, &mut chance, 1000).rate();
        let rise = good.run(&mut policy, &mut chance, 300).rate() / good.best_fixed();
        let high = good.run(&mut policy, &mut chance, 700).rate() / good.best_fixed();
        println!(
            "seed {seed}: 200 rounds after the fall {fall:.3}, then {low:.3}; 300 after the rise {rise:.3}, then {high:.3}"
        );
        assert!(fall > 0.85 && low > 0.98 && rise > 0.75 && high > 0.95, "{fall} {low} {rise} {high}");
    }
}

#[test]
fn another_text_has_drafts_tried_again_at_once() {
    let (good, bad) = (World { mtp: 0.9, ..WORLD }, World { mtp: 0.0, ..WORLD });
    let (mut policy, mut chance) = (Policy::new(Settings::default()), Chance(1));
    bad.run(&mut policy, &mut chance, 1000);
    assert_eq!(policy.plan(Offer { lookup: None, mtp: true, remaining: 100 }).steps, 0);
    policy.text_changed();
    assert!(policy.plan(Offer { lookup: None, mtp: true, remaining: 100 }).steps > 0);
    let sum = good.run(&mut policy, &mut chance, 200);
    assert!(sum.rate() > 0.9 * good.best_fixed(), "{sum:?}");
}

#[test]
fn costs_that_changed_are_measured_again() {
    let (usual, flat) = (World { mtp: 0.5, ..WORLD }, World { mtp: 0.5, shape: FLAT, ..WORLD });
    let (mut policy, mut chance) = (Policy::new(Settings::default()), Chance(3));
    for (world, rounds) in [(usual, 2000), (flat, 4000), (usual, 4000)] {
        world.run(&mut policy, &mut chance, rounds);
        let sum = world.run(&mut policy, &mut chance, 2000);
        let share = sum.rate() / world.best_fixed();
        println!("{share:.3} of the best fixed, rows {:?}", sum.rows);
        assert!(share > 0.93, "{sum:?}");
    }
    // All rows twice as slow is no other shape.
    let slow = World { shape: USUAL.map(|c| 2.0 * c), step: 0.1, ..usual };
    slow.run(&mut policy, &mut chance, 200);
    let ratio = policy.cost(2).unwrap() / policy.cost(1).unwrap();
    assert!((ratio - 1.35).abs() < 0.15, "{ratio}");
    assert!((policy.cost(1).unwrap() - 0.040).abs() < 0.004);
}

#[test]
fn probes_stay_within_their_share() {
    for (name, shape) in SHAPES {
        let world = World { shape, mtp: 0.6, ..WORLD };
        let (mut probes, mut policy) = (0, Policy::new(Settings::default()));
        world.run_with(&mut policy, &mut Chance(5), 5000, |round| {
            probes += usize::from(matches!(round.plan.probe, Some(Probe::Cost(size)) if size == round.window.rows()));
        });
        println!("{name}: {probes} sizes measured again in 5000 rounds");
        assert!(probes > 0 && probes < 400);
    }
}

#[test]
fn lookup_replaces_or_extends_the_draft_layer_where_that_pays() {
    for matches in [0.3, 1.0] {
        for lookup in [0.1, 0.5, 0.8, 0.95] {
            let world = World { matches, lookup, length: 16, ..WORLD };
            let of = |source| over_seeds(|seed| world.fresh(source, seed, 2000).rate()).1;
            let (mtp, alone, both) = (of(Source::Mtp), of(Source::Lookup), of(Source::Both));
            println!("{matches} matches accepted {lookup}: mtp {mtp:.3} lookup {alone:.3} both {both:.3}");
            assert!(both > 0.985 * mtp.max(alone).max(1.0));
        }
    }
    // Proposals that are right or wrong as a whole: the draft layer's first draft tells which.
    let world = World { matches: 1.0, lookup: 0.5, whole: true, mtp: 0.8, length: 16, ..WORLD };
    let (mut extended, mut policy) = (0, Policy::new(Settings::default()));
    let both = world.run_with(&mut policy, &mut Chance(1), 2000, |round| {
        extended += usize::from(round.window.source() == Source::Both);
    });
    let mtp = world.fresh(Source::Mtp, 1, 2000).rate();
    let lookup = world.fresh(Source::Lookup, 1, 2000).rate();
    println!(
        "as a whole: {extended} of 2000 windows hold both; mtp {mtp:.3} lookup {lookup:.3} both {:.3}",
        both.rate()
    );
    assert!(extended > 200 && both.rate() > 1.03 * mtp.max(lookup), "{both:?}");
}

#[test]
fn fixed_settings_are_kept() {
    let world = World { matches: 0.5, lookup: 0.5, ..WORLD };
    let run = |source, fixed, confidence_floor| {
        let mut policy = Policy::new(Settings { source, fixed, confidence_floor, ..Settings::default() });
        let mut seen = Vec::new();
        world.run_with(&mut policy, &mut Chance(2), 50, |round| seen.push(round.window));
        seen
    };
    assert!(run(Source::None, Some(3), 0.0).iter().all(|w| w.rows() == 1));
    assert!(run(Source::None, None, 0.0).iter().all(|w| w.rows() == 1));
    assert!(run(Source::Mtp, Some(3), 0.5).iter().all(|w| (w.mtp, w.lookup) == (3, 0)));
    assert!(run(Source::Mtp, Some(3), 0.9).iter().all(|w| w.rows() == 1));
    assert!(run(Source::Mtp, None, 0.9).iter().all(|w| w.rows() == 1));
    assert!(run(Source::Mtp, Some(100), 0.0).iter().all(|w| w.rows() == 8));
    let lookup = run(Source::Lookup, Some(2), 0.0);
    assert!(lookup.iter().all(|w| w.mtp == 0) && lookup.iter().any(|w| w.lookup == 2));
    let both = run(Source::Both, Some(2), 0.0);
    assert!(
        both.iter().all(|w| w.drafts() == 2) && both.iter().any(|w| w.mtp == 2) && both.iter().any(|w| w.lookup == 2)
    );
}

#[test]
fn a_policy_that_was_written_out_decides_as_before() {
    let world = World { matches: 0.4, lookup: 0.7, confidence: Confidence::Honest, ..WORLD };
    let (mut policy, mut chance) = (Policy::new(Settings::default()), Chance(9));
    world.run(&mut policy, &mut chance, 700);
    let mut read: Policy = serde_json::from_str(&serde_json::to_string(&policy).unwrap()).unwrap();
    assert_eq!(read, policy);
    let seed = chance.0;
    let (a, b) = (world.run(&mut policy, &mut chance, 700), world.run(&mut read, &mut Chance(seed), 700));
    assert_eq!((a, &policy), (b, &read));
}

#[test]
fn drafts_agree_up_to_the_first_that_differs() {
    assert_eq!(agreement(&[1, 2, 3, 4], &[1, 2, 9]), 2);
    assert_eq!(agreement(&[1, 2], &[1, 2, 3]), 2);
    assert_eq!(agreement(&[], &[1]), 0);
}

#[test]
fn records_that_cannot_be_are_ignored_or_clamped() {
    let mut policy = Policy::new(Settings::default());
    let mut chance = Chance(4);
    WORLD.run(&mut policy, &mut chance, 300);
    let plan = policy.plan(Offer { lookup: None, mtp: true, remaining: 100 });
    let window = policy.window(&plan, &[0.8], None);
    let round = Round {
        plan,
        window,
        accepted: 0,
        probabilities: &[],
        mtp_agreed: 0,
        lookup: None,
        seconds_verify: 0.02,
        seconds_draft: 0.0,
    };
    let costs = |policy: &Policy| (1..=MAX_ROWS).map(|rows| policy.cost(rows).unwrap()).collect::<Vec<_>>();
    for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300] {
        let before = costs(&policy);
        policy.record(&Round { seconds_verify: seconds, seconds_draft: seconds, ..round });
        assert_eq!(before, costs(&policy));
    }
    let before = policy.clone();
    let wide = strata_policy::window::Window { mtp: usize::MAX, lookup: usize::MAX };
    policy.record(&Round { window: wide, ..round });
    assert_eq!(policy, before);
    // Too many accepted are all that there are.
    let (mut a, mut b) = (policy.clone(), policy.clone());
    a.record(&Round { accepted: usize::MAX, mtp_agreed: usize::MAX, probabilities: &[0.8], ..round });
    b.record(&Round { accepted: window.drafts(), mtp_agreed: 1, probabilities: &[0.8], ..round });
    assert_eq!(a, b);
}

fn any_round() -> impl Strategy<Value = (Vec<f32>, [usize; 5], f64, f64)> {
    let number = prop_oneof![0usize..20, Just(usize::MAX)];
    let seconds = prop_oneof![0.001f64..0.1, any::<f64>()];
    let probability = prop_oneof![0f32..1.0, any::<f32>()];
    let numbers = [number.clone(), number.clone(), number.clone(), number.clone(), number];
    (prop::collection::vec(probability, 20), numbers, seconds.clone(), seconds)
}

proptest! {
    #[test]
    fn whatever_is_recorded_windows_keep_to_their_limits(
        rounds in prop::collection::vec(any_round(), 1..80),
        source in prop_oneof![Just(Source::Mtp), Just(Source::Lookup), Just(Source::Both)],
        fixed in prop::option::of(0usize..30),
        max_rows in 0usize..40,
        confidence_floor in prop_oneof![Just(0.0f32), any::<f32>()],
        probe_share in prop_oneof![Just(0.02f64), any::<f64>()],
    ) {
        let mut policy = Policy::new(Settings { source, fixed, max_rows, confidence_floor, probe_share });
        for (chain, [length, drafts, remaining, accepted, agreed], seconds_verify, seconds_draft) in rounds {
            let found = Some(Match { length, drafts });
            let limit = max_rows.min(remaining).clamp(1, MAX_ROWS);
            let plan = policy.plan(Offer { lookup: found, mtp: true, remaining });
            let mut made = 0;
            while policy.go_on(&plan, &chain[..made], found) {
                made += 1;
                prop_assert!(made < limit);
            }
            let window = policy.window(&plan, &chain[..made], found);
            prop_assert!(window.rows() <= limit, "{:?} {:?}", window, plan);
            prop_assert!(window.mtp <= made && window.lookup <= drafts.saturating_sub(window.mtp));
            let lookup = Some(Outcome { found: Match { length, drafts }, agreed, confirmed: accepted });
            let probabilities = &chain[..made];
            policy.record(&Round {
                plan, window, accepted, probabilities, mtp_agreed: agreed, lookup, seconds_verify, seconds_draft,
            });
            let costs: Vec<f64> = (1..=MAX_ROWS).map(|rows| policy.cost(rows).unwrap()).collect();
            prop_assert!(costs.iter().all(|c| c.is_finite() && *c > 0.0), "{:?}", costs);
        }
        // JSON has no number for what is not finite.
        let settings = Settings { confidence_floor: 0.0, probe_share: 0.0, ..*policy.settings() };
        policy.set_settings(settings);
        let text = serde_json::to_string(&policy).unwrap().replace("\"fixed\":null", "");
        prop_assert!(!text.contains("null"), "{}", text);
    }
}
