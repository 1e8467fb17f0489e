//! What replays start from.

use crate::made::{cold, trace};
use strata_policy::cache::{CacheParams, Capacity, Rule, Shape};
use strata_sim::replay::{Accesses, StartState, popularity, ranking_from_text, replay};

#[test]
fn popularity_ranks_by_use_and_knows_only_what_it_may() {
    let shape = Shape::uniform(2, 3, 1).unwrap();
    let accesses = Accesses::from_keys(shape, vec![4, 4, 0, 1, 4, 1, 5, 5, 5, 5], 2).unwrap();
    assert_eq!(popularity(&accesses, |_, _| true), [5, 4, 1, 0]);
    assert_eq!(popularity(&accesses, |round, _| round < 2), [4, 0, 1]);
    assert!(popularity(&accesses, |_, _| false).is_empty());
}

#[test]
fn a_ranking_of_other_requests_helps_a_static_cache_and_its_own_helps_more() {
    let accesses = Accesses::from_trace(&trace(5, 4, 60)).unwrap();
    let held_out = accesses.only(|_, span| span.request == 3);
    let params = CacheParams::new(Rule::Static, Capacity::Slots(12));
    let hits = |start: &StartState| replay(&held_out, &params, start).unwrap().decode.hits;
    let others = StartState::ranked(popularity(&accesses, |_, span| span.request != 3));
    let own = StartState::ranked(popularity(&held_out, |_, span| span.phase == strata_trace::Phase::Decode));
    assert!(hits(&own) >= hits(&others) && hits(&others) > hits(&cold()));
}

#[test]
fn a_ranking_is_read_from_text() {
    let shape = Shape::uniform(2, 3, 1).unwrap();
    let read = |text: &str| ranking_from_text("profile.txt", text, &shape);
    assert_eq!(read("# best first\n1 2\n\n 0 0 # often\n").unwrap(), [5, 0]);
    assert!(read("").unwrap().is_empty());
    let refused = |text: &str| read(text).unwrap_err().to_string();
    assert_eq!(refused("1 2\n1"), "profile.txt line 2: found \"1\", expected a layer and an expert");
    assert_eq!(refused("1 x"), "profile.txt line 1: found \"1 x\", expected a layer and an expert");
    assert_eq!(
        refused("2 0"),
        "profile.txt line 1: found layer 2, expert 0, expected a layer below 2 and an expert below 3"
    );
    assert_eq!(
        refused("1 2\n0 1\n1 2"),
        "profile.txt line 3: found layer 1, expert 2 again, expected each expert once, and it stands in line 1"
    );
}
