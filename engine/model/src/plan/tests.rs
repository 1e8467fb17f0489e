use super::*;
use crate::{CpuOps, Model};
use std::path::Path;
use strata_gguf::Gguf;

const GIB: u64 = 1 << 30;

fn tiny() -> Gguf {
    Gguf::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiny/tiny-qwen4exp.gguf")).unwrap()
}

fn wish(budget: u64) -> Wish {
    Wish {
        budget,
        reserve: reserve(budget, false),
        context: 256,
        conversations: 3,
        checkpoints: 6,
        chunk: 64,
        rows: 4,
        slots: None,
    }
}

/// All parts of a plan, which are the budget.
fn sum(plan: &Plan) -> u64 {
    plan.dense
        + plan.draft
        + plan.caches
        + plan.states
        + plan.windows
        + plan.scratch
        + plan.wish.reserve
        + plan.slots_bytes
        + plan.free
}

#[test]
fn needs_are_those_of_the_file() {
    let gguf = tiny();
    let needs = Needs::of(&gguf, None).unwrap();
    let all: u64 = gguf.tensors().iter().map(|t| t.bytes()).sum();
    let draft: u64 = gguf.tensors().iter().filter(|t| t.name().contains(".nextn.")).map(|t| t.bytes()).sum();
    assert!(needs.experts_in_file + needs.rest_in_file + needs.table <= all - draft);
    assert!(needs.experts >= needs.experts_in_file && needs.experts_in_file > 0 && needs.dense > 0);
    let slots = needs.slot * (needs.config.layers * needs.config.experts) as u64;
    assert!(slots >= needs.experts_in_file, "{slots} for {}", needs.experts_in_file);
    assert_eq!((needs.draft, needs.draft_experts), (0, 0));
}

#[test]
fn what_a_sequence_takes_is_what_its_state_holds() {
    let gguf = tiny();
    let needs = Needs::of(&gguf, None).unwrap();
    let model = Model::load(&gguf, CpuOps::new(1), &mut |_| ()).unwrap();
    for context in [64, 256] {
        // Of the state's bytes 4 a token are the tokens themselves, which no device has.
        let exact = (model.state_bytes(context) - 4 * context) as u64;
        let planned = needs.caches(context) + needs.states();
        assert!(planned >= exact, "{context}: {planned} for {exact}");
        let parts = 5 * needs.config.layers as u64;
        assert!(planned <= exact + exact / 8 + 512 * parts, "{context}: {planned} for {exact}");
    }
}

#[test]
fn parts_add_up_to_the_budget_and_nothing_grows_when_it_shrinks() {
    let needs = Needs::of(&tiny(), None).unwrap();
    let mut before: Option<Plan> = None;
    let mut budget = 4 * GIB;
    loop {
        let plan = match Plan::new(&needs, wish(budget)) {
            Ok(plan) => plan,
            Err(e) => {
                assert!(e.needed > budget && e.budget == budget, "{e}");
                break;
            }
        };
        assert_eq!(sum(&plan), budget);
        assert!(plan.conversations >= 1 && plan.slots <= plan.experts);
        if let Some(before) = before {
            assert!(plan.conversations <= before.conversations && plan.checkpoints <= before.checkpoints);
        } else {
            assert_eq!((plan.place, plan.slots), (ExpertPlace::Device, plan.experts));
            assert_eq!((plan.conversations, plan.checkpoints), (3, 6));
        }
        before = Some(plan);
        budget -= budget / 16;
    }
    // The last that had room is not far from the first that had none.
    assert!(before.is_some_and(|plan| plan.conversations == 1));
}

#[test]
fn experts_can_be_limited() {
    let needs = Needs::of(&tiny(), None).unwrap();
    let plan = Plan::new(&needs, Wish { slots: Some(3), ..wish(4 * GIB) }).unwrap();
    assert_eq!((plan.place, plan.slots, plan.slots_bytes), (ExpertPlace::Host, 3, 3 * needs.slot));
    assert_eq!(plan.slot_bytes(0, u64::MAX, needs.slot), 3 * needs.slot);
    assert_eq!(sum(&plan), 4 * GIB);
    assert_eq!((plan.conversations, plan.checkpoints), (3, 6), "what experts leave is for conversations");
    let all = Plan::new(&needs, Wish { slots: Some(plan.experts), ..wish(4 * GIB) }).unwrap();
    assert_eq!(all.place, ExpertPlace::Device);
}

#[test]
fn slots_give_way_to_what_is_really_held() {
    let needs = Needs::of(&tiny(), None).unwrap();
    let some = |budget| Plan::new(&needs, Wish { conversations: 1, checkpoints: 0, ..wish(budget) }).ok();
    // The least budget, to a MiB, with which something fits.
    let least = (1..4096).map(|mib| mib << 20).find(|&budget| some(budget).is_some()).unwrap();
    let plan = some(least).unwrap();
    let planned = plan.dense + plan.first;
    assert!(plan.slot_bytes(planned, u64::MAX, needs.slot) <= plan.slots_bytes + plan.free);
    assert_eq!(plan.slot_bytes(plan.wish.budget, u64::MAX, needs.slot), 0, "all is taken");
    assert_eq!(plan.slot_bytes(0, 0, needs.slot), 0, "others took it");
}

#[test]
fn a_reserve_is_a_share_and_of_a_shared_gpu_half_a_gib() {
    assert_eq!(reserve(20 * GIB, true), GIB);
    assert_eq!(reserve(2 * GIB, true), 512 << 20);
    assert_eq!(reserve(2 * GIB, false), 2 * GIB / 20);
}

#[test]
fn a_few_checkpoints_come_before_a_second_conversation() {
    let room = |most: usize| kept(8, 8, |n, c| n * (1 + c) <= most);
    assert_eq!(room(0), (1, 1));
    assert_eq!(room(4), (1, 3));
    assert_eq!(room(11), (2, 4));
    assert_eq!(room(40), (8, 4));
    assert_eq!(room(1000), (8, 8));
    assert_eq!(kept(2, 0, |n, c| n + c <= 2), (2, 0));
}

#[test]
fn layers_take_turns() {
    let order: Vec<(usize, usize)> = in_turn(2, 3).collect();
    assert_eq!(order, [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]);
}

#[test]
fn chunks_are_as_long_as_experts_can_make_room_for() {
    // Numbers of a large model, whose experts take most of the memory.
    let mut needs = Needs::of(&tiny(), None).unwrap();
    needs.config.experts = 4096;
    needs.slot = 1 << 20;
    needs.experts = needs.slot * (needs.config.layers * needs.config.experts) as u64;
    let asked = |budget, chunk| {
        Plan::new(&needs, Wish { conversations: 1, checkpoints: 0, context: 100_000, chunk, ..wish(budget) }).unwrap()
    };
    let all = asked(200 * GIB, 0);
    assert_eq!((all.place, all.chunk, all.reserved), (ExpertPlace::Device, 2048, 2048));
    let mut longest = 8192;
    for sixteenths in (17..=64).rev() {
        let plan = asked(sixteenths * GIB / 16, 0);
        assert_eq!((plan.place, plan.reserved), (ExpertPlace::Host, RESERVED));
        assert!(plan.chunk <= longest && plan.chunk >= RESERVED, "{} of {sixteenths}", plan.chunk);
        assert!(plan.chunk == RESERVED || needs.config.results(plan.chunk) < plan.slots_bytes / 2);
        longest = plan.chunk;
    }
    assert!(longest < 8192, "what has less room reads shorter chunks");
    // What is asked is done, in room of its own where experts cannot make any.
    let (small, large) = (asked(GIB, 8192), asked(20 * GIB, 8192));
    assert_eq!((small.chunk, small.reserved, large.chunk, large.reserved), (8192, 8192, 8192, RESERVED));
    assert_eq!((asked(20 * GIB, 7).chunk, asked(20 * GIB, 7).reserved), (7, 7));
}
