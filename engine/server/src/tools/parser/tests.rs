//! Answers in every cut.

use super::*;
use serde_json::json;

fn tools() -> Tools {
    let parameters = json!({"type": "object", "properties": {
        "code": {"type": "string"}, "n": {"type": "integer"}, "o": {"type": "object"}, "b": {"type": "boolean"},
    }});
    let tool = Tool { name: "f".to_owned(), description: None, parameters, strict: false };
    Tools { list: vec![tool], ..Tools::default() }
}

/// What an answer comes to: text pieces joined, calls as name and arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Text(String),
    Call(String, String, bool),
}

fn text(text: &str) -> Seen {
    Seen::Text(text.to_owned())
}

fn call(arguments: &str) -> Seen {
    Seen::Call("f".to_owned(), arguments.to_owned(), true)
}

fn gather(pieces: Vec<Piece>) -> Vec<Seen> {
    let mut seen = Vec::new();
    for piece in pieces {
        match (piece, seen.last_mut()) {
            (Piece::Text(more), Some(Seen::Text(text))) => text.push_str(&more),
            (Piece::Text(text), _) => seen.push(Seen::Text(text)),
            (Piece::Call { name, .. }, _) => seen.push(Seen::Call(name, String::new(), false)),
            (Piece::Arguments(more), Some(Seen::Call(_, arguments, false))) => arguments.push_str(&more),
            (Piece::End, Some(Seen::Call(_, _, ended @ false))) => *ended = true,
            (piece, last) => panic!("{piece:?} behind {last:?}"),
        }
    }
    seen
}

/// Reads an answer in pieces of so many characters.
fn read(answer: &str, marked: bool, size: usize, cut: bool) -> (Vec<Seen>, bool) {
    let mut parser = Parser::new(&tools(), marked);
    let mut pieces = Vec::new();
    let mut rest = answer;
    while !rest.is_empty() {
        if let Some(mark) = [CALL.0, CALL.1].into_iter().find(|m| marked && rest.starts_with(m)) {
            parser.mark(mark, &mut pieces);
            rest = &rest[mark.len()..];
            continue;
        }
        let mark = if marked { rest.find(CALL.0).into_iter().chain(rest.find(CALL.1)).min() } else { None };
        let piece: String = rest[..mark.unwrap_or(rest.len())].chars().take(size).collect();
        parser.text(&piece, &mut pieces);
        rest = &rest[piece.len()..];
    }
    parser.finish(cut, &mut pieces);
    (gather(pieces), parser.broken())
}

/// However an answer is cut into pieces, it comes to the same.
fn always(answer: &str, expected: &[Seen]) {
    for marked in [true, false] {
        for size in [1, 2, 3, 5, 7, 1000] {
            let (seen, broken) = read(answer, marked, size, false);
            assert_eq!(seen, expected, "marked {marked}, pieces of {size}: {answer}");
            assert!(!broken);
        }
    }
}

#[test]
fn calls_are_found_however_they_are_cut() {
    always("Hello.", &[text("Hello.")]);
    always("A < b\n<tool> <tool_\n", &[text("A < b\n<tool> <tool_\n")]);
    let f = "<tool_call>\n<function=f>\n<parameter=code>\nx = \"<a>\" & '\\n'\n\nif y:\n\treturn 🙂\n</parameter>\n\
             <parameter=n>\n12\n</parameter>\n<parameter=b>\nTrue\n</parameter>\n<parameter=o>\n{\"k\": [1, {}]}\n</parameter>\n\
             </function>\n</tool_call>";
    let arguments =
        "{\"code\":\"x = \\\"<a>\\\" & '\\\\n'\\n\\nif y:\\n\\treturn 🙂\",\"n\":12,\"b\":true,\"o\":{\"k\": [1, {}]}}";
    always(f, &[call(arguments)]);
    always(&format!("Look:\n\n{f}\n"), &[text("Look:"), call(arguments)]);
    always(&format!("{f}\n{f}"), &[call(arguments), call(arguments)]);
    always("<tool_call>\n<function=f>\n</function>\n</tool_call>", &[call("{}")]);
    always("<tool_call><function=f></function></tool_call>", &[call("{}")]);
    always(
        "<tool_call>\n<function=f>\n<parameter=code>\n</parameter>\n</function>\n</tool_call>",
        &[call("{\"code\":\"\"}")],
    );
    always(
        "<tool_call>\n<function=f>\n<parameter=code>\n5\n</parameter>\n</function>\n</tool_call>",
        &[call("{\"code\":\"5\"}")],
    );
    always(
        "<tool_call>\n<function=f>\r\n<parameter=code>\r\na\r\nb\r\n</parameter>\r\n</function>\r\n</tool_call>",
        &[call("{\"code\":\"a\\r\\nb\"}")],
    );
}

#[test]
fn a_value_may_hold_closing_tags() {
    let answer = "<tool_call>\n<function=f>\n<parameter=code>\n<p>\n</parameter> and\n</parameter>\nmore\n</parameter>\n\
                  </function>\n</tool_call>";
    always(answer, &[call("{\"code\":\"<p>\\n</parameter> and\\n</parameter>\\nmore\"}")]);
}

#[test]
fn json_is_a_call_too() {
    always("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>", &[call("{\"n\":1}")]);
    always("<tool_call>{\"name\": \"f\"}</tool_call>", &[call("{}")]);
    let (seen, _) =
        read("<tool_call>{\"name\": \"f\", \"arguments\": {\"code\": \"</tool_call>\"}}</tool_call>", false, 3, false);
    assert_eq!(seen, [call("{\"code\":\"</tool_call>\"}")]);
}

#[test]
fn what_is_no_call_stays_text() {
    for answer in [
        "<tool_call>\nnothing",
        "<tool_call>\n<function=f>\nnothing",
        "<tool_call>\n<function=>\n</function>\n</tool_call>",
        "<tool_call>\n{\"name\": 5}\n</tool_call>",
        "<tool_call>\n<function=f",
        "<tool_call>",
        "<tool_call>\n</tool_call>",
    ] {
        always(answer, &[text(answer)]);
    }
    // Without the token, only at a line's start.
    let (seen, _) = read("Use <tool_call>\n<function=f>\n</function>\n</tool_call>", false, 4, false);
    assert!(matches!(&seen[..], [Seen::Text(_)]), "{seen:?}");
}

#[test]
fn missing_ends_are_forgiven_if_nothing_else_is_missing() {
    let whole = "<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>";
    for end in ["\n</tool_call>", "\n</function>\n</tool_call>"] {
        let short = whole.strip_suffix(end).expect("its end");
        always(short, &[call("{\"n\":1}")]);
    }
    let (seen, broken) =
        read("<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>\n</tool_call>", true, 2, false);
    assert_eq!((seen, broken), (vec![call("{\"n\":1}")], false));
}

#[test]
fn a_call_that_is_cut_is_left_as_it_is() {
    let whole = "<tool_call>\n<function=f>\n<parameter=code>\nabc\n</parameter>\n<parameter=n>\n12\n</parameter>\n</function>\n</tool_call>";
    for marked in [true, false] {
        for (at, _) in whole.char_indices().filter(|&(at, _)| at > 46) {
            let (seen, broken) = read(&whole[..at], marked, 3, true);
            let [Seen::Call(_, arguments, true)] = &seen[..] else { panic!("{at}: {seen:?}") };
            let done = at >= whole.find("</function>").expect("there") + "</function>".len();
            assert_eq!(broken, !done, "{at}");
            assert_eq!(serde_json::from_str::<Value>(arguments).is_ok(), done, "{at}: {arguments}");
            assert!("{\"code\":\"abc\",\"n\":12}".starts_with(&arguments[..]), "{at}: {arguments}");
        }
    }
}

#[test]
fn a_call_that_is_cut_before_it_names_a_function_says_nothing() {
    let whole = "<tool_call>\n<function=f>\n<parameter=code>\nabc";
    let named = whole.find("f>").expect("there");
    for (at, _) in whole.char_indices().filter(|&(at, _)| at > "<tool_call>".len() && at <= named) {
        assert_eq!(read(&whole[..at], true, 3, true).0, [], "{at}");
    }
}

#[test]
fn a_call_that_goes_wrong_is_broken_and_the_rest_is_text() {
    let answer = "<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>\n<parameter=>\n</tool_call>";
    let (seen, broken) = read(answer, true, 4, false);
    assert!(broken);
    assert_eq!(seen[0], Seen::Call("f".to_owned(), "{\"n\":1".to_owned(), true));
    assert!(matches!(&seen[1..], [Seen::Text(rest)] if rest.starts_with("<parameter=>")), "{seen:?}");
}
