use super::counts::{HIT_POWER, Unions, expected, hit_rate, spread};
use super::*;
use proptest::prelude::*;
use strata_policy::split::BranchTimes;

/// Round numbers: an expert of 1 MB takes 1 ms on the CPU (1 GB/s), 0.5 ms over the link, 0.01 ms of VRAM.
fn machine() -> Machine {
    Machine {
        name: "plain".into(),
        vram_gb: 10.0,
        vram_gb_s: 100.0,
        tensor_tflops: 10.0,
        link_gb_s: 2.0,
        cpu_gb_s: 1.0,
        dram_gb_s: 100.0,
        workers: 4.0,
        balance: 1.0,
        wake_us: None,
        sources: Default::default(),
    }
}

fn model() -> ModelShape {
    ModelShape {
        name: "small".into(),
        experts: 20,
        used: 4,
        attention_layers: 1,
        expert_weights: 1e6,
        expert_bytes: vec![1e6; 2],
        dense_weights: 3e6,
        dense_bytes: 3e6,
        head_bytes: 1e6,
        draft_bytes: 0.0,
        extra_bytes: 0.0,
        kind: WeightKind::Plain,
    }
}

fn nothing_besides() -> Constants {
    Constants {
        vram_efficiency: 1.0,
        nodes_per_layer: 0.0,
        node_us: 0.0,
        row_us: 0.0,
        sync_us: 0.0,
        wake_us: 0.0,
        plain_ns: 0.0,
        nested_ns: 0.0,
        codebook_ns: 0.0,
        select_ns: 0.0,
        step_ms: 0.0,
        commit_ms: 0.0,
        ngram_ms: 0.0,
        other_ms: 0.0,
    }
}

fn one_layer(split: Split, order: (Composition, Copies), hits: f64, misses: f64, c: &Constants) -> LayerTime {
    let counts = LayerCounts { hits, misses, entries: hits + misses };
    layer_time(&machine(), &model(), c, split, order, 1.0, (1e6, 0.0), 1e6, counts).unwrap()
}

fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-12 * expected.abs().max(1e-3), "found {found}, expected {expected}");
}

const TURN: Copies = Copies::InTurn;

#[test]
fn a_layer_is_what_a_pencil_makes_of_it() {
    let c = nothing_besides();
    // Dense 0.01 ms, hits 3 x 0.01, two copies 2 x (0.5 + 0.01), two on the CPU 2 x 1.
    let t = one_layer(Split::Fixed(0.5), (Composition::Barrier, TURN), 3.0, 4.0, &c);
    near(t.dense, 0.01e-3);
    near(t.hits, 0.03e-3);
    near(t.copy, 1.02e-3);
    near(t.cpu, 2e-3);
    near(t.total, 2.01e-3);
    near(t.wait_gpu, 0.01e-3);
    near(t.copied_bytes, 2e6);
    near(t.cpu_bytes, 2e6);
    let serial = one_layer(Split::Fixed(0.5), (Composition::Serial, TURN), 3.0, 4.0, &c);
    near(serial.total, 3.06e-3);
    let overlapped = one_layer(Split::Fixed(0.5), (Composition::Overlapped, TURN), 3.0, 4.0, &c);
    near(overlapped.total, 2e-3);
}

#[test]
fn waiting_holds_what_the_gpus_experts_take_longer() {
    let c = nothing_besides();
    let t = one_layer(Split::Fixed(1.0), (Composition::Barrier, TURN), 3.0, 4.0, &c);
    // All copied: 0.03 + 4 x 0.51 behind 0.01, and no CPU.
    near(t.cpu, 0.0);
    near(t.wait_gpu, 2.08e-3);
    near(t.total, 2.08e-3);
    let beside = one_layer(Split::Fixed(1.0), (Composition::Barrier, Copies::Beside), 3.0, 4.0, &c);
    near(beside.total, 2.05e-3);
}

#[test]
fn each_constant_adds_its_own_time() {
    let plain = one_layer(Split::Fixed(0.0), (Composition::Barrier, TURN), 0.0, 2.0, &nothing_besides());
    near(plain.cpu, 2e-3);
    let c = Constants { wake_us: 50.0, node_us: 2.0, nodes_per_layer: 10.0, sync_us: 5.0, ..nothing_besides() };
    let t = one_layer(Split::Fixed(0.0), (Composition::Barrier, TURN), 0.0, 2.0, &c);
    near(t.cpu, 2.05e-3);
    near(t.nodes, 20e-6);
    near(t.sync, 5e-6);
    // 2 million weights at 8 ns over 4 workers are 4 ms, more than the 2 ms of their bytes.
    let c = Constants { plain_ns: 8.0, ..nothing_besides() };
    near(one_layer(Split::Fixed(0.0), (Composition::Barrier, TURN), 0.0, 2.0, &c).cpu, 4e-3);
    // No CPU expert, no waking.
    let c = Constants { wake_us: 50.0, ..nothing_besides() };
    near(one_layer(Split::Fixed(0.0), (Composition::Barrier, TURN), 2.0, 0.0, &c).cpu, 0.0);
}

#[test]
fn cpu_and_copies_share_main_memory() {
    let narrow = Machine { dram_gb_s: 1.0, ..machine() };
    let counts = LayerCounts { hits: 0.0, misses: 4.0, entries: 4.0 };
    let c = nothing_besides();
    let order = (Composition::Barrier, TURN);
    let t = layer_time(&narrow, &model(), &c, Split::Fixed(0.5), order, 1.0, (0.0, 0.0), 1e6, counts).unwrap();
    // 4 MB at 1 GB/s, though the CPU alone would be done after 2 ms.
    near(t.dram, 4e-3);
    near(t.total, 4e-3);
}

#[test]
fn a_slow_worker_ends_the_phase() {
    let uneven = Machine { balance: 0.5, ..machine() };
    let counts = LayerCounts { hits: 0.0, misses: 1.0, entries: 1.0 };
    let c = Constants { plain_ns: 8.0, ..nothing_besides() };
    let order = (Composition::Barrier, TURN);
    let t = layer_time(&uneven, &model(), &c, Split::Fixed(0.0), order, 1.0, (0.0, 0.0), 1e6, counts).unwrap();
    near(t.cpu, 4e-3);
}

#[test]
fn a_round_adds_what_surrounds_the_layers() {
    let c = Constants {
        step_ms: 0.5,
        commit_ms: 0.25,
        ngram_ms: 0.125,
        other_ms: 1.0,
        select_ns: 10.0,
        ..nothing_besides()
    };
    let layers = [LayerCounts { hits: 1.0, misses: 1.0, entries: 2.0 }; 2];
    let window = Window { rows: 2.0, drafts: 3.0, context: 100.0, kv: KvType::Int8, layers: &layers };
    let order = (Composition::Barrier, TURN);
    let t = round_time(&machine(), &model(), &c, Split::Fixed(0.0), order, window).unwrap();
    // One attention layer reads 100 x (128 + 1,056) bytes and selects for 1 us; the head is 1 MB of the dense 3 MB.
    near(t.dense, 0.02e-3 + 118_400.0 / 100e9 + 1e-6);
    near(t.head, 0.01e-3);
    near(t.cpu_pool, 2e-3);
    near(t.draft, 1.5e-3);
    near(t.total, t.wait_gpu + 2e-3 + 0.01e-3 + 1.5e-3 + 1.375e-3);
    near(t.cpu_bytes, 2e6);
}

#[test]
fn a_share_is_rounded_down_to_whole_experts() {
    // A copy takes twice as long as an expert on the CPU.
    let times = BranchTimes { copy: 2, cpu: 1, ..BranchTimes::default() };
    let copied = |split: Split, misses: f64| split.copied(misses, &times).unwrap();
    assert_eq!(copied(Split::Fixed(0.55), 1.0), 0.0);
    assert_eq!(copied(Split::Fixed(0.55), 2.0), 1.0);
    // 0.2 is 51 of 256: five misses give 0.996 of one.
    assert_eq!(copied(Split::Fixed(0.2), 5.0), 0.0);
    assert_eq!(copied(Split::Fixed(0.2), 6.0), 1.0);
    assert_eq!(copied(Split::Fixed(1.0), 40.0), STAGING_EXPERTS);
    assert_eq!(copied(Split::Bandwidth, 9.0), 3.0);
    assert_eq!(copied(Split::Measured, 9.0), 3.0);
    assert_eq!(copied(Split::Count(0.5), 9.0), 0.5);
    assert_eq!(copied(Split::Count(12.0), 9.0), 9.0);
}

#[test]
fn hits_follow_the_published_curve() {
    near(hit_rate(0.0, 24_576.0, HIT_POWER).unwrap(), 0.0);
    near(hit_rate(24_576.0, 24_576.0, HIT_POWER).unwrap(), 1.0);
    let at = |slots: f64| hit_rate(slots, 24_576.0, HIT_POWER).unwrap();
    // The point it is fitted to.
    assert!((at(4105.0) - 0.645).abs() < 0.0005);
    // Points that it is not: 12 GB laptop, 24 GB card, 32 GB card.
    assert!((at(2107.0) - 0.354).abs() < 0.05);
    assert!((0.828..0.903).contains(&at(7935.0)));
    assert!((0.95..0.995).contains(&at(12_758.0)));
}

#[test]
fn unions_of_misses_are_the_published_ones() {
    for (rows, union) in [(1.0, 1.0), (2.0, 1.75), (3.0, 2.4), (4.0, 3.05)] {
        let layers = expected(48, 512, 10, rows, 0.645, Unions::default()).unwrap();
        let mean = layers.iter().map(|l| l.misses).sum::<f64>() / 48.0;
        assert!((mean / 3.55 - union).abs() < 0.03, "{rows} rows: {}", mean / 3.55);
    }
}

#[test]
fn acceptance_gives_the_published_range_of_tokens() {
    let tokens = |accepted: f64| Acceptance::published(accepted).unwrap().rounds(4).unwrap().tokens;
    assert!((tokens(0.619) - 2.4).abs() < 0.005);
    assert!((tokens(0.864) - 3.2).abs() < 0.005);
    // By hand: 1 + 0.5 + 0.25 rows beyond the first, 0.4 and 0.16 tokens.
    let rounds = Acceptance::constant(0.5, 0.8).unwrap().rounds(3).unwrap();
    assert_eq!(rounds.rows, [0.5, 0.25, 0.25]);
    near(rounds.mean_rows, 1.75);
    near(rounds.tokens, 1.56);
    assert_eq!(Acceptance::constant(0.0, 0.0).unwrap().rounds(4).unwrap().tokens, 1.0);
    assert_eq!([Acceptance::steps(1, 1), Acceptance::steps(2, 4), Acceptance::steps(4, 4)], [0, 2, 3]);
}

#[test]
fn slots_are_what_is_left_of_vram() {
    let constants = VramConstants { reserve_bytes: 1e9, other_bytes: 1e9 };
    let plan = SlotPlan { context: 1000.0, kv: KvType::F16, resident: 500.0, draft: true };
    let model = ModelShape { draft_bytes: 1e9, experts: 10_000, ..model() };
    // Two layers of K/V, the draft layer's among them, for 500 cells; indexer keys and rotary tables for 1,000.
    let kv = 500.0 * 2048.0 * 2.0 + 1000.0 * (128.0 + 260.0);
    let left: f64 = 10e9 - 3e6 - 3e9 - kv;
    assert_eq!(slots(&machine(), &model, &constants, plan).unwrap(), (left / 1e6).floor());
    let few = ModelShape { experts: 20, ..model };
    assert_eq!(slots(&machine(), &few, &constants, plan).unwrap(), 40.0);
    let none = Machine { vram_gb: 3.0, ..machine() };
    assert!(slots(&none, &few, &constants, plan).unwrap_err().to_string().contains("room for an expert"));
}

#[test]
fn a_chunk_takes_its_streaming_and_its_arithmetic() {
    let c = PromptConstants {
        batch_ms: 100.0,
        refill_ms: 50.0,
        stream_gb_s: 1.0,
        link_efficiency: 1.0,
        tensor_efficiency: 1.0,
        overlap: 0.0,
        stream_from: 10.0,
        keep_slots: 2.0,
        lend_share: 0.9,
        ring_slots: 4.0,
        token_bytes: 1e5,
    };
    // 30 of 40 pairs have slots; 90 % may be lent: 27 MB less a ring of 4 MB are 230 tokens.
    let model = model();
    assert_eq!(largest_chunk(&model, &c, 30.0).unwrap(), 230.0);
    let prompt = Prompt { tokens: 250.0, chunk: 100.0, slots: 30.0, hits: 0.5, unions: Unions::default() };
    let t = prompt_time(&machine(), &model, &c, prompt).unwrap();
    // 14 slots lent: 40 - 16 = 24 MB, 24 ms a chunk, three chunks of 100, 100 and 50.
    assert_eq!((t.lent, t.chunks), (14.0, 3.0));
    near(t.stream, 72e-3);
    // 2 x (2 + 8) million operations a token.
    near(t.compute, 250.0 * 20e6 / 10e12);
    near(t.total, 0.15 + t.stream + t.compute);
    let hidden = prompt_time(&machine(), &model, &PromptConstants { overlap: 1.0, ..c.clone() }, prompt).unwrap();
    near(hidden.total, 0.15 + t.stream);
    // A slower link takes the place of the streaming rate.
    let slow = Machine { link_gb_s: 0.5, ..machine() };
    near(prompt_time(&slow, &model, &c, prompt).unwrap().stream, 144e-3);
    let large = Prompt { chunk: 240.0, ..prompt };
    assert!(
        prompt_time(&machine(), &model, &c, large).unwrap_err().to_string().contains("found 240, expected at most")
    );
    // A short one reads what it routes to, which is less than everything.
    let short = Prompt { tokens: 5.0, ..prompt };
    let t = prompt_time(&machine(), &model, &c, short).unwrap();
    assert!(t.bytes < 10e6 && t.bytes > 0.0, "{}", t.bytes);
}

#[test]
fn two_groups_of_one_row_are_one_group() {
    let layers = [LayerCounts { hits: 2.0, misses: 2.0, entries: 4.0 }; 2];
    let window = Window { rows: 1.0, drafts: 0.0, context: 0.0, kv: KvType::Int8, layers: &layers };
    let c = Constants::default();
    let split = Split::Fixed(0.0);
    let one = round_time(&machine(), &model(), &c, split, (Composition::Barrier, TURN), window).unwrap();
    let two = two_groups(&machine(), &model(), &c, split, 0.5, Unions::default(), window).unwrap();
    assert_eq!(one, two);
    // Two rows read the dense weights once more.
    let window = Window { rows: 2.0, ..window };
    let two = two_groups(&machine(), &model(), &c, split, 0.5, Unions::default(), window).unwrap();
    assert!(two.dense > 1.9 * one.dense && two.nodes == 2.0 * one.nodes);
}

#[test]
fn numbers_that_cannot_be_are_refused_by_name() {
    let layers = [LayerCounts::default(); 2];
    let window = Window { rows: 1.0, drafts: 0.0, context: 0.0, kv: KvType::Int8, layers: &layers };
    let order = (Composition::Barrier, TURN);
    let round = |machine: Machine, model: ModelShape, c: Constants, window: Window| {
        round_time(&machine, &model, &c, Split::Fixed(0.5), order, window).unwrap_err().to_string()
    };
    let c = Constants::default;
    for (error, said) in [
        (round(Machine { cpu_gb_s: 0.0, ..machine() }, model(), c(), window), "machine plain, field cpu_gb_s: found 0"),
        (round(Machine { link_gb_s: -1.0, ..machine() }, model(), c(), window), "field link_gb_s: found -1"),
        (round(Machine { vram_gb_s: f64::NAN, ..machine() }, model(), c(), window), "field vram_gb_s: found NaN"),
        (round(Machine { balance: 1.5, ..machine() }, model(), c(), window), "field balance: found 1.5"),
        (round(Machine { dram_gb_s: 0.5, ..machine() }, model(), c(), window), "at least its cpu_gb_s, 1"),
        (round(machine(), ModelShape { used: 30, ..model() }, c(), window), "from 1 to its 20 experts"),
        (round(machine(), ModelShape { expert_bytes: vec![], ..model() }, c(), window), "found no layer"),
        (round(machine(), ModelShape { head_bytes: 4e6, ..model() }, c(), window), "field head_bytes: found 4000000"),
        (round(machine(), model(), Constants { node_us: -1.0, ..c() }, window), "constant node_us: found -1"),
        (round(machine(), model(), Constants { vram_efficiency: 0.0, ..c() }, window), "constant vram_efficiency"),
        (round(machine(), model(), c(), Window { rows: 0.0, ..window }), "rows of a window: found 0"),
        (round(machine(), model(), c(), Window { layers: &layers[..1], ..window }), "found 1 layers, expected the"),
    ] {
        assert!(error.contains(said), "{error}");
    }
    let lost = [LayerCounts { hits: 1.0, misses: f64::NAN, entries: 1.0 }; 2];
    assert!(round(machine(), model(), c(), Window { layers: &lost, ..window }).contains("distinct misses of a layer"));
    assert!(hit_rate(50.0, 40.0, HIT_POWER).unwrap_err().to_string().contains("at most the 40 pairs"));
    assert!(expected(2, 20, 4, 1.0, 1.2, Unions::default()).unwrap_err().to_string().contains("hit rate: found 1.2"));
    assert!(Acceptance::constant(0.5, -0.1).unwrap_err().to_string().contains("accepted, draft 1: found -0.1"));
    assert!(Split::of("half", 0.5).unwrap_err().to_string().contains("fixed, bandwidth or measured"));
}

fn order() -> impl Strategy<Value = (Composition, Copies)> {
    let compositions = [Composition::Serial, Composition::Barrier, Composition::Overlapped];
    (prop::sample::select(compositions.to_vec()), prop::sample::select(vec![Copies::InTurn, Copies::Beside]))
}

fn any_split() -> impl Strategy<Value = Split> {
    prop_oneof![(0.0..=1.0f64).prop_map(Split::Fixed), Just(Split::Bandwidth), Just(Split::Measured)]
}

/// What rounding to whole ones may cost: the engine's rules reckon in them.
const NANOSECONDS: f64 = 50e-9;

proptest! {
    #[test]
    fn more_misses_never_make_a_layer_faster(
        order in order(), split in any_split(), hits in 0u32..20, misses in 0u32..40, plain_ns in 0.0..10.0f64,
    ) {
        let c = Constants { plain_ns, ..Constants::default() };
        let time = |misses: u32| one_layer(split, order, f64::from(hits), f64::from(misses), &c).total;
        // A rule may move an expert to the branch with slack, and it knows the layer as the engine composes it, so
        // elsewhere one whole expert of either branch bounds the step back.
        let step = match split {
            Split::Fixed(_) => 0.0,
            Split::Measured if order.0 == Composition::Barrier => NANOSECONDS,
            _ => 1e6 / 1e9 + 10e-3,
        };
        prop_assert!(time(misses + 1) >= time(misses) - step - 1e-15);
    }

    #[test]
    fn compositions_are_ordered(split in any_split(), copies in 0usize..2, hits in 0u32..20, misses in 0u32..40) {
        let copies = [Copies::InTurn, Copies::Beside][copies];
        // The rule must decide alike for the three, so that they compose the same branches.
        let c = Constants::default();
        let counts = (f64::from(hits), f64::from(misses));
        let copied = one_layer(split, (Composition::Barrier, copies), counts.0, counts.1, &c).copied;
        let time = |composition| one_layer(Split::Count(copied), (composition, copies), counts.0, counts.1, &c).total;
        let (serial, barrier, overlapped) =
            (time(Composition::Serial), time(Composition::Barrier), time(Composition::Overlapped));
        prop_assert!(overlapped <= barrier + 1e-15 && barrier <= serial + 1e-15);
    }

    #[test]
    fn bytes_of_misses_go_one_way_or_the_other(split in any_split(), order in order(), misses in 0u32..40) {
        let t = one_layer(split, order, 3.0, f64::from(misses), &Constants::default());
        prop_assert!((t.copied + t.on_cpu - f64::from(misses)).abs() < 1e-12);
        prop_assert!((t.copied_bytes + t.cpu_bytes - f64::from(misses) * 1e6).abs() < 1e-3);
        prop_assert!(t.copied <= STAGING_EXPERTS);
        prop_assert!((t.wait_gpu + t.cpu - t.total).abs() < 1e-15 && t.wait_gpu >= -1e-15);
    }

    #[test]
    fn a_higher_hit_rate_never_slows_a_serial_round(low in 0.0..1.0f64, more in 0.0..1.0f64, rows in 1u32..6) {
        let time = |hits: f64| {
            let layers = expected(2, 20, 4, f64::from(rows), hits, Unions::default()).unwrap();
            let window = Window { rows: f64::from(rows), drafts: 0.0, context: 0.0, kv: KvType::Int8, layers: &layers };
            let order = (Composition::Serial, Copies::InTurn);
            round_time(&machine(), &model(), &Constants::default(), Split::Fixed(0.0), order, window).unwrap().total
        };
        prop_assert!(time(low + (1.0 - low) * more) <= time(low) + 1e-12);
    }

    #[test]
    fn the_engines_rule_finds_the_shortest_layer_of_the_model(
        copies in 0usize..2, hits in 0u32..20, misses in 0u32..30, plain_ns in 0.0..10.0f64, wake_us in 0.0..900.0f64,
    ) {
        let c = Constants { plain_ns, wake_us, ..Constants::default() };
        let order = (Composition::Barrier, [Copies::InTurn, Copies::Beside][copies]);
        let time = |split| one_layer(split, order, f64::from(hits), f64::from(misses), &c).total;
        let best = time(Split::Measured);
        for copied in 0..=misses.min(16) {
            prop_assert!(best <= time(Split::Count(f64::from(copied))) + NANOSECONDS);
        }
    }

    #[test]
    fn a_fixed_share_is_the_published_formula(share in 0u32..=256, misses in 0u32..70) {
        let share = f64::from(share) / 256.0;
        let formula = (f64::from(misses) * share).floor().min(STAGING_EXPERTS);
        prop_assert_eq!(Split::Fixed(share).copied(f64::from(misses), &BranchTimes::default()).unwrap(), formula);
    }

    #[test]
    fn bandwidths_alone_give_their_share_to_half_an_expert(link in 1u64..50, cpu in 1u64..50, misses in 0u32..16) {
        // Times of an expert are the inverse of bandwidths.
        let times = BranchTimes { copy: 1_000_000 / link, cpu: 1_000_000 / cpu, ..BranchTimes::default() };
        let share = f64::from(misses) * link as f64 / (link + cpu) as f64;
        let copied = Split::Bandwidth.copied(f64::from(misses), &times).unwrap();
        prop_assert!((copied - share).abs() < 1.0, "{copied} for {share}");
    }

    #[test]
    fn spread_counts_are_whole_and_keep_their_mean(of in 0.0..60.0f64, share in 0.0..=1.0f64, layers in 1usize..80) {
        let mean = of.floor() * share;
        let counts = spread(layers, of, mean);
        prop_assert!(counts.iter().all(|&n| n.fract() == 0.0 && (0.0..=of).contains(&n)));
        let found = counts.iter().sum::<f64>() / layers as f64;
        prop_assert!((found - mean).abs() <= 0.5 / layers as f64 + 1e-9, "{found} for {mean}");
    }

    #[test]
    fn a_longer_prompt_never_takes_less_time(tokens in 1u32..3000, more in 0u32..3000) {
        let c = PromptConstants { ring_slots: 4.0, token_bytes: 1e4, keep_slots: 2.0, ..PromptConstants::default() };
        let time = |tokens: u32| {
            let (tokens, unions) = (f64::from(tokens), Unions::default());
            let prompt = Prompt { tokens, chunk: 500.0, slots: 30.0, hits: 0.5, unions };
            prompt_time(&machine(), &model(), &c, prompt).unwrap().total
        };
        prop_assert!(time(tokens + more) >= time(tokens) - 1e-12);
    }
}
