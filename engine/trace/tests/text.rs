//! JSON lines and CSV.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Shape, is_prefix, shapes, trace};
use proptest::prelude::*;
use strata_trace::{Opened, Trace, TraceError, read_jsonl, read_jsonl_from, write_csv, write_jsonl};

const SMALL: Shape = Shape { layers: 2, experts: 9, used: 2, rounds: 3, times: true, hits: true, moves: true };

fn jsonl(trace: &Trace) -> String {
    let mut text = Vec::new();
    write_jsonl(trace, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

fn read(text: &str) -> Result<Opened, TraceError> {
    read_jsonl_from(text.as_bytes(), "t.jsonl")
}

proptest! {
    #[test]
    fn lines_are_read_again(shape in shapes(), seed: u64) {
        let whole = trace(shape, seed);
        let text = jsonl(&whole);
        prop_assert_eq!(text.lines().count(), whole.rounds.len() + 2);
        prop_assert_eq!(&read(&text).unwrap().trace, &whole);
    }

    #[test]
    fn lines_cut_anywhere_are_refused_or_give_the_first_rounds_with_a_warning(seed: u64, at: prop::sample::Index) {
        let whole = trace(SMALL, seed);
        let text = jsonl(&whole);
        let cut = &text[..text.floor_char_boundary(at.index(text.len() - 1))];
        if let Ok(Opened { trace, warnings }) = read(cut) {
            prop_assert!(is_prefix(&trace, &whole));
            prop_assert!(warnings.iter().any(|w| w.contains("rounds may be missing")), "{:?}", warnings);
        }
    }

    #[test]
    fn any_change_is_refused_or_read(seed: u64, at: prop::sample::Index, byte: u8) {
        let mut text = jsonl(&trace(SMALL, seed)).into_bytes();
        let at = at.index(text.len());
        text[at] = byte;
        let _ = read_jsonl_from(&text[..], "t.jsonl");
    }
}

/// The example of the documentation, with what may be left out left out.
#[test]
fn other_programs_may_leave_out_what_they_do_not_know() {
    let documented = include_str!("../src/jsonl.md");
    let example: String = documented.split("```").nth(1).unwrap().trim_start_matches("text\n").replace("\n ", " ");
    let Opened { trace, warnings } = read(&example).unwrap();
    assert_eq!((trace.rounds.len(), trace.ids.as_slice(), warnings.len()), (1, &[3, 1, 0, 2][..], 0));
    assert_eq!(trace.gates, [49151, 16384, 39321, 26214]);
    assert!(trace.layer_times.is_empty() && trace.hits.is_empty() && trace.move_ends.is_empty());
    assert!(trace.tokens[0].committed && !trace.tokens[0].drafted);
    let unended: String = example.lines().take(2).flat_map(|l| [l, "\n"]).collect();
    let Opened { warnings, .. } = read(&unended).unwrap();
    assert_eq!(warnings, ["t.jsonl: no line ends it, so rounds may be missing behind its 1"]);
}

#[test]
fn what_is_wrong_is_said_with_line_and_field() {
    let text = jsonl(&trace(Shape { times: false, hits: false, moves: false, ..SMALL }, 4));
    let lines: Vec<&str> = text.lines().collect();
    let round = |experts: &str, weights: &str| {
        format!(
            "{{\"request\":0,\"round\":0,\"phase\":\"decode\",\"committed\":1,\"tokens\":[{{\"id\":1,\"position\":0,\
             \"experts\":{experts},\"weights\":{weights}}}]}}"
        )
    };
    let good = round("[[1,2],[3,4]]", "[[0.5,0.5],[1,0]]");
    let second = |line: &str| read(&format!("{}\n{line}\n", lines[0])).map(|o| o.trace.rounds.len());
    assert_eq!(second(&good).unwrap(), 1);
    for (line, want) in [
        (
            round("[[1,9],[3,4]]", "[[0.5,0.5],[1,0]]"),
            "t.jsonl line 2: round 0 of request 0, token 0, layer 0: found expert 9",
        ),
        (round("[[1,1],[3,4]]", "[[0.5,0.5],[1,0]]"), "found expert 1 twice"),
        (round("[[1,2]]", "[[0.5,0.5],[1,0]]"), "t.jsonl line 2: tokens[0].experts: found 1 layers, expected 2"),
        (round("[[1,2],[3]]", "[[0.5,0.5],[1,0]]"), "tokens[0].experts[1]: found 1 values, expected 2"),
        (round("[[1,2],[3,4]]", "[[0.5,1.5],[1,0]]"), "tokens[0].weights: found 1.5, expected numbers from 0 to 1"),
        (round("[[1,2],[3,4]]", "[[0.5,-0.1],[1,0]]"), "found -0.1, expected numbers from 0 to 1"),
        (round("[[1,2],[3,4]]", "[[0.5,NaN],[1,0]]"), "t.jsonl line 2, column "),
        (round("[[1,2],[3,4]]", "[[0.5,null],[1,0]]"), "t.jsonl line 2, column "),
        (round("[[1,2],[3,4]]", "[[0.5,1e999],[1,0]]"), "found number out of range, expected a round"),
        (round("[[1,65536],[3,4]]", "[[0.5,0.5],[1,0]]"), "found invalid value: integer `65536`, expected u16"),
        (good.replace("\"phase\":\"decode\",", ""), "found missing field `phase`, expected a round"),
        (good.replace("\"committed\":1", "\"committed\":2"), "found 2 rows kept, expected at most its 1"),
        (good.replace("\"committed\"", "\"comitted\""), "found unknown field `comitted`"),
        (good.replace("\"tokens\"", "\"nanos\":{\"gpu\":1},\"tokens\""), "found unknown variant `gpu`"),
        (
            good.replace("\"tokens\"", "\"nanos\":{\"draft\":86400000000001},\"tokens\""),
            "nanos of draft: found 86400000000001",
        ),
        (good.replace("\"tokens\"", "\"moves\":[{\"layer\":2,\"came\":1}],\"tokens\""), "found expert 0 of layer 2"),
        (good.replace("\"tokens\"", "\"moves\":[{\"layer\":1}],\"tokens\""), "found nothing that came or left"),
        (good.replace("\"tokens\"", "\"layer_times\":[{}],\"tokens\""), "found 1 layers with times, expected 2"),
        ("[]".into(), "t.jsonl line 2, column "),
        (
            "{\"end\":{\"rounds\":1,\"lost\":0}}".into(),
            "t.jsonl line 2: found an end of 1 rounds, expected 0, as there are",
        ),
    ] {
        let e = second(&line).unwrap_err().to_string();
        assert!(e.contains(want), "{e}\n{want}");
    }
    let e = read(&format!("{text}{}", lines[1])).unwrap_err().to_string();
    assert_eq!(e, "t.jsonl line 6: found a line behind the end, expected none");
    let e = read(&lines[0].replace("\"strata_trace\":1", "\"strata_trace\":2")).unwrap_err().to_string();
    assert_eq!(e, "t.jsonl line 1: strata_trace: found version 2 of the format, expected 1");
    let e = read(&lines[0].replace("\"used\":2", "\"used\":0")).unwrap_err().to_string();
    assert_eq!(e, "t.jsonl line 1: meta.used: found 0, expected 1 to 9");
    let e = read("\n").unwrap_err().to_string();
    assert_eq!(e, "t.jsonl line 2: found the end of the file, expected a first line with the meta");
    assert!(read_jsonl("/nowhere/t.jsonl".as_ref()).unwrap_err().to_string().starts_with("/nowhere/t.jsonl: "));
}

#[test]
fn a_table_has_a_line_for_each_token_and_layer() {
    let whole = trace(SMALL, 4);
    let mut csv = Vec::new();
    write_csv(&whole, &mut csv).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 1 + whole.tokens.len() * 2);
    assert!(rows.iter().all(|row| row.len() == 15), "{csv}");
    let column = |name: &str| rows[0].iter().position(|c| *c == name).unwrap();
    for (i, row) in rows[1..].iter().enumerate() {
        let (token, layer) = (i / 2, i % 2);
        let numbers = |name: &str| row[column(name)].split(' ').map(|n| n.parse::<f64>().unwrap()).collect::<Vec<_>>();
        let experts: Vec<f64> = whole.chosen(token, layer).iter().map(|&e| e.into()).collect();
        assert_eq!(numbers("experts"), experts);
        let at = (token * 2 + layer) * 2;
        for (weight, gate) in numbers("weights").iter().zip(&whole.gates[at..at + 2]) {
            assert_eq!((weight * 65535.0).round(), f64::from(*gate));
        }
        assert_eq!(numbers("hits"), whole.hits[at..at + 2].iter().map(|&h| f64::from(u8::from(h))).collect::<Vec<_>>());
        assert_eq!(row[column("layer")], layer.to_string());
        assert_eq!(row[column("token")], whole.tokens[token].id.to_string());
    }
    let mut csv = Vec::new();
    write_csv(&trace(Shape { times: false, hits: false, ..SMALL }, 4), &mut csv).unwrap();
    assert!(String::from_utf8(csv).unwrap().lines().skip(1).all(|line| line.ends_with(",,,")));
}
