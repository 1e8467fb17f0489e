//! Prompt lookup against a search that reads the whole text.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use strata_policy::lookup::{GRAM, Limits, Lookup};

/// The definition: every occurrence of the last trigram, most recent first, compared token by token.
fn naive(text: &[u32], limits: Limits, max: usize) -> Option<(usize, Vec<u32>)> {
    let end = text.len();
    if max == 0 || end > limits.text || end < GRAM {
        return None;
    }
    let same = |a: usize| (a >= GRAM) && text[a - GRAM..a] == text[end - GRAM..];
    let recent: Vec<usize> = (0..end).rev().filter(|&a| same(a)).take(limits.occurrences).collect();
    let length =
        |a: usize| (1..=a.min(limits.match_length.max(GRAM))).rev().find(|n| text[a - n..a] == text[end - n..]);
    let mut best: Option<(usize, usize)> = None;
    for a in recent {
        let n = length(a).unwrap();
        if best.is_none_or(|(longest, _)| n > longest) {
            best = Some((n, a));
        }
    }
    let (n, a) = best?;
    let mut whole = text.to_vec();
    for i in 0..max {
        whole.push(whole[a + i]);
    }
    Some((n, whole[end..].to_vec()))
}

fn read(text: &[u32], limits: Limits) -> Lookup {
    let mut lookup = Lookup::with_limits(limits);
    text.iter().for_each(|&t| lookup.push(t));
    lookup
}

fn propose(lookup: &Lookup, max: usize) -> Option<(usize, Vec<u32>)> {
    let mut out = vec![7; 3];
    let length = lookup.propose(max, &mut out);
    assert!(length.is_some() || out.is_empty());
    length.map(|n| (n, out))
}

fn limits() -> impl Strategy<Value = Limits> {
    (0usize..5, 0usize..12, prop_oneof![Just(1 << 20), 0usize..80])
        .prop_map(|(occurrences, match_length, text)| Limits { occurrences, match_length, text })
}

proptest! {
    #[test]
    fn proposals_are_those_of_a_full_search(
        text in prop::collection::vec(0u32..3, 0..120),
        limits in limits(),
        max in 0usize..9,
    ) {
        let mut lookup = Lookup::with_limits(limits);
        for (i, &token) in text.iter().enumerate() {
            lookup.push(token);
            prop_assert_eq!(propose(&lookup, max), naive(&text[..=i], limits, max));
        }
    }

    #[test]
    fn a_text_that_went_back_is_as_if_read_afresh(
        steps in prop::collection::vec((prop::collection::vec(0u32..3, 0..30), 0usize..60), 1..8),
        limits in limits(),
    ) {
        let (mut lookup, mut text) = (Lookup::with_limits(limits), Vec::new());
        for (more, len) in steps {
            for token in more {
                lookup.push(token);
                text.push(token);
            }
            lookup.truncate(len);
            text.truncate(len);
            prop_assert_eq!(lookup.len(), text.len());
            prop_assert_eq!(propose(&lookup, 5), propose(&read(&text, limits), 5));
            prop_assert_eq!(propose(&lookup, 5), naive(&text, limits, 5));
        }
    }
}

#[test]
fn the_longest_match_wins_and_the_more_recent_of_equals() {
    let text = [9, 1, 2, 3, 4, 8, 1, 2, 3, 5, 7, 1, 2, 3, 6, 9, 1, 2, 3];
    assert_eq!(propose(&read(&text, Limits::default()), 2), Some((4, vec![4, 8])));
    assert_eq!(propose(&read(&text, Limits { match_length: 3, ..Limits::default() }), 2), Some((3, vec![6, 9])));
    // The occurrence that agrees longest is the third from the end.
    assert_eq!(propose(&read(&text, Limits { occurrences: 2, ..Limits::default() }), 2), Some((3, vec![6, 9])));
}

#[test]
fn periodic_text_goes_on_with_its_period() {
    let text: Vec<u32> = (0..40).map(|i| i % 2).collect();
    assert_eq!(propose(&read(&text, Limits::default()), 5), Some((38, vec![0, 1, 0, 1, 0])));
}

#[test]
fn nothing_is_proposed_without_a_match_or_beyond_the_stored_text() {
    assert_eq!(propose(&Lookup::new(), 4), None);
    assert_eq!(propose(&read(&[1, 2, 3], Limits::default()), 4), None);
    assert_eq!(propose(&read(&[1, 2, 3, 4, 2, 3], Limits::default()), 4), None);
    let mut long = read(&[5; 12], Limits { text: 10, ..Limits::default() });
    assert_eq!((long.len(), propose(&long, 4)), (12, None));
    long.truncate(10);
    assert_eq!(propose(&long, 1), Some((9, vec![5])));
    long.clear();
    assert!(long.is_empty());
}
