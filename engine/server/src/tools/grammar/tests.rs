//! What grammars allow, and what becomes of it.

use super::*;
use crate::tools::Tools;
use crate::tools::parser::{Parser, Piece};
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::json;

fn tools() -> Vec<Tool> {
    let tool = |name: &str, parameters| Tool { name: name.to_owned(), description: None, parameters, strict: true };
    let weather = json!({"type": "object", "required": ["city"], "$defs": {"day": {"type": "integer"}}, "properties": {
        "city": {"type": "string"}, "days": {"type": "array", "items": {"$ref": "#/$defs/day"}},
        "unit": {"type": "string", "enum": ["C", "\"F\""]},
    }});
    vec![tool("get_weather", weather), tool("stop", json!({"type": "object", "properties": {}}))]
}

/// A vocabulary of all bytes, the tags of calls, and a token that ends answers.
fn vocabulary() -> llguidance::toktrie::TokEnv {
    let mut words: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    words.extend([CALL.0, CALL.1, "<end>"].map(|tag| [&[TokTrie::SPECIAL_TOKEN_MARKER], tag.as_bytes()].concat()));
    let info = TokRxInfo::new(words.len() as u32, words.len() as u32 - 1);
    std::sync::Arc::new(ApproximateTokEnv::new(TokTrie::from(&info, &words)))
}

/// Whether the grammar of some tools allows an answer, be the tags of calls tokens or not.
fn allowed(tools: &[Tool], free: Free<'_>, several: bool, answer: &str) -> bool {
    let calls = Calls::of(&tools.iter().collect::<Vec<_>>());
    let plain = accepts(&calls.lark(free, false, several), answer, false);
    assert_eq!(plain, accepts(&calls.lark(free, true, several), answer, true), "marked or not: {answer}");
    plain
}

fn allows(free: Free<'_>, several: bool, answer: &str) -> bool {
    allowed(&tools(), free, several, answer)
}

fn accepts(grammar: &str, answer: &str, marked: bool) -> bool {
    let factory = ParserFactory::new_simple(&vocabulary()).expect("a factory");
    let parser = factory.create_parser(TopLevelGrammar::from_lark(grammar.to_owned()));
    let mut matcher = Matcher::new(parser);
    assert!(!matcher.is_error(), "{:?}: {grammar}", matcher.get_error());
    let (mut tokens, mut rest) = (Vec::new(), answer.as_bytes());
    while let Some((&byte, behind)) = rest.split_first() {
        let tag = [CALL.0, CALL.1].iter().position(|tag| marked && rest.starts_with(tag.as_bytes()));
        tokens.push(tag.map_or(u32::from(byte), |tag| 256 + tag as u32));
        rest = tag.map_or(behind, |tag| &rest[[CALL.0, CALL.1][tag].len()..]);
    }
    matcher.validate_tokens(&tokens).is_ok_and(|n| n == tokens.len())
        && matcher.consume_tokens(&tokens).is_ok()
        && matcher.is_accepting().unwrap_or(false)
}

const WEATHER: &str = "<tool_call>\n<function=get_weather>\n<parameter=city>\nSão\n</p>\n\n</parameter>\n\
                       <parameter=days>\n[1, 2]\n</parameter>\n<parameter=unit>\n\"F\"\n</parameter>\n</function>\n</tool_call>";
const STOP: &str = "<tool_call>\n<function=stop>\n</function>\n</tool_call>";

#[test]
fn calls_are_allowed_and_nothing_else() {
    for answer in [WEATHER, STOP, &format!("\n\n{WEATHER}\n{STOP}")] {
        assert!(allows(Free::Nothing, true, answer), "{answer}");
    }
    assert!(!allows(Free::Nothing, false, &format!("{STOP}\n{STOP}")));
    for answer in [
        "",
        "I call.",
        "<tool_call>\n<function=gone>\n</function>\n</tool_call>",
        "<tool_call>\n<function=get_weather>\n</function>\n</tool_call>",
        &WEATHER.replace("[1, 2]", "[\"x\"]"),
        &WEATHER.replace("\"F\"", "K"),
        &WEATHER.replace("<parameter=days>", "<parameter=nights>"),
    ] {
        assert!(!allows(Free::Nothing, true, answer), "{answer}");
    }
}

#[test]
fn text_or_json_may_come_instead() {
    for answer in ["I call.", STOP, &format!("I call.{STOP}")] {
        assert!(allows(Free::Text, true, answer), "{answer}");
    }
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
    assert!(allows(Free::Json(&schema), true, "{\"a\": 1}"));
    assert!(allows(Free::Json(&schema), true, WEATHER));
    assert!(!allows(Free::Json(&schema), true, "{\"a\": \"x\"}"));
}

const CITY: &str = "<tool_call>\n<function=f>\n<parameter=p>\nVALUE\n</parameter>\n</function>\n</tool_call>";

/// A tool with one parameter of a schema, and definitions for it.
fn with_parameter(schema: &Value, strict: bool) -> Tool {
    let parameters = json!({
        "type": "object", "properties": {"p": schema, "a/b": {"const": "slash"}}, "required": ["p"],
        "$defs": {"colour": {"enum": ["red", "blue"]}, "list": {"type": "array", "items": {"$ref": "#/$defs/colour"}},
            "tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}, "additionalProperties": false}},
        "definitions": {"code": {"type": "string", "pattern": "^[A-Z]{2}$"}},
    });
    Tool { name: "f".to_owned(), description: None, parameters, strict }
}

/// What a call with such a value comes to; `None` if the grammar forbids it.
fn value(schema: &Value, text: &str) -> Option<Value> {
    let tool = with_parameter(schema, true);
    assert_eq!(Calls::of(&[&tool]).gaps, [], "{schema}");
    let answer = CITY.replace("VALUE", text);
    if !allowed(std::slice::from_ref(&tool), Free::Nothing, false, &answer) {
        return None;
    }
    let mut parser = Parser::new(&Tools { list: vec![tool], ..Tools::default() }, false);
    let mut pieces = Vec::new();
    parser.text(&answer, &mut pieces);
    parser.finish(false, &mut pieces);
    let arguments = pieces.iter().filter_map(|piece| match piece {
        Piece::Arguments(json) => Some(json.as_str()),
        _ => None,
    });
    let arguments: Value = serde_json::from_str(&arguments.collect::<String>()).expect("whole JSON");
    Some(arguments["p"].clone())
}

#[test]
fn values_are_held_to_their_schemas() {
    let array = |items: Value| json!({"type": "array", "items": items});
    let any = |options: &[Value]| json!({"anyOf": options});
    let (string, null) = (json!({"type": "string"}), json!({"type": "null"}));
    for (schema, good, bad) in [
        (string.clone(), &["", "x\n\ny", "5", "[1", "</p>"][..], &[][..]),
        (json!({"const": "yes"}), &["yes"], &["no", "yes ", "\"yes\""]),
        (
            json!({"type": "string", "enum": ["a", "say \"b\"", "c\nd", "e\u{7f}", ""]}),
            &["a", "say \"b\"", "c\nd", "e\u{7f}", ""],
            &["b", "c"],
        ),
        (json!({"type": "string", "pattern": "^a+$"}), &["a", "aaa"], &["", "ab", "a\n"]),
        (json!({"type": "string", "pattern": "a/b"}), &["a/b", "x\na/by"], &["a", "ab"]),
        (json!({"type": "string", "minLength": 2, "maxLength": 3}), &["ab", "äöü", "a\nb"], &["a", "abcd"]),
        (json!({"type": "string", "format": "date"}), &["2024-02-29"], &["2024-02-30", "today"]),
        (json!({"type": "string", "enum": ["ab", "cd"], "pattern": "^a"}), &["ab"], &["cd"]),
        (json!({"type": "string", "not": {"enum": ["bad"]}}), &["good", "bad!"], &["bad"]),
        (json!({"$ref": "#/$defs/colour"}), &["red"], &["green"]),
        (json!({"$ref": "#/definitions/code"}), &["DE"], &["de", "DEU"]),
        (json!({"$ref": "#/properties/a~1b"}), &["slash"], &["a/b"]),
        (json!({"allOf": [{"$ref": "#/$defs/colour"}, {"maxLength": 3}]}), &["red"], &["blue"]),
        (
            json!({"oneOf": [{"type": "string", "maxLength": 2}, {"type": "string", "minLength": 2}]}),
            &["a", "abc"],
            &["ab"],
        ),
        (json!({"if": {"minLength": 2}, "then": {"const": "ab"}, "type": "string"}), &["ab", "x"], &["xy"]),
        (json!({"type": "integer", "minimum": 3}), &["3", "12"], &["2", "x", "3.5"]),
        (json!({"$ref": "#/$defs/list"}), &["[\"red\"]", "[]"], &["[\"green\"]", "red"]),
        (json!({"$ref": "#/$defs/tree"}), &["{\"left\": {\"left\": {}}}"], &["{\"right\": {}}"]),
        (array(json!({"$ref": "#"})), &["[{\"p\": []}]"], &["[{}]", "[1]"]),
        (any(&[json!({"enum": ["on", "off"]}), null.clone()]), &["on", "null"], &["None!", "maybe"]),
        (any(&[string.clone(), null.clone()]), &["null", "text"], &[]),
        (any(&[json!({"const": "auto"}), json!({"type": "integer"})]), &["auto", "-12"], &["1.5", "manual"]),
        (json!({"enum": ["5", 7, true, null, "x"]}), &["7", "true", "null", "x"], &["5", "6", "false"]),
        (
            any(&[string.clone(), array(json!({"type": "integer"}))]),
            &["[1, 2]", "text [1]", "12"],
            &["[\"a\"]", "[1", " [1"],
        ),
        (
            any(&[json!({"maxLength": 3, "type": "string"}), json!({"type": "object"})]),
            &["abc", "{\"k\": 1}"],
            &["abcd", "{"],
        ),
        (json!({"minLength": 2}), &["ab", "1", "true", "[1]"], &["a"]),
        (json!({}), &["anything", "[1", "5"], &[]),
        (json!(true), &["anything"], &[]),
    ] {
        for text in good {
            let found = value(&schema, text);
            assert!(found.is_some(), "{schema} allows {text:?}");
            let found = found.expect("it is");
            let expected = serde_json::from_str(text).ok().filter(|v: &Value| *v == found);
            assert!(expected.is_some() || found == *text, "{schema}: {text:?} became {found}");
        }
        for text in bad {
            assert_eq!(value(&schema, text), None, "{schema} forbids {text:?}");
        }
    }
}

#[test]
fn a_value_cannot_end_early() {
    let schema = json!({"type": "string", "minLength": 1});
    for text in ["a</parameter", "</para</parameter b", "<</b>", "a\n<parameter=p>\nb"] {
        assert_eq!(value(&schema, text), Some(json!(text)));
    }
    assert_eq!(value(&schema, "a</parameter>\n</function> b"), None);
    assert_eq!(value(&schema, "a\r"), None);
}

#[test]
fn what_cannot_be_followed_is_told_and_left_free() {
    for (schema, about, free) in [
        (json!({"type": "string", "pattern": "(?=a)"}), "\"(?=a)\"", "anything"),
        (json!({"type": "string", "format": "colour"}), "\"colour\"", "anything"),
        (json!({"$ref": "#/$defs/gone"}), "\"#/$defs/gone\"", "anything"),
        (json!({"$ref": "other.json"}), "\"other.json\"", "anything"),
        (json!({"$ref": "#/properties/p"}), "without end", "anything"),
        (json!({"type": "string", "enum": []}), "no value", "anything"),
        (json!({"type": "string", "minLength": 3, "maxLength": 2}), "no value", "anything"),
        (json!({"type": "string", "pattern": "^a", "const": "b"}), "no value", "anything"),
        (json!({"type": ["string", "number"], "minimum": 3}), "minimum", "anything"),
        (json!({"type": "array", "uniqueItems": true, "contains": {"const": 1}}), "contains", "[1, {}]"),
        (
            json!({"type": "object", "properties": {"n": {"$ref": "#/properties/p"}}, "required": ["n"]}),
            "without end",
            "{}",
        ),
        (json!({"type": "integer", "minimum": 3, "maximum": 2}), "", "7"),
    ] {
        for strict in [true, false] {
            let tool = with_parameter(&schema, strict);
            let calls = Calls::of(&[&tool]);
            let [gap] = &calls.gaps[..] else { panic!("{schema}: {:?}", calls.gaps) };
            assert_eq!((&gap.tool[..], gap.strict, &gap.what[..]), ("f", strict, "its parameter \"p\""));
            assert!(gap.why.contains(about), "{schema}: {}", gap.why);
            for internal in ["WRITTEN", "UNLISTED", "start:", "suffix"] {
                assert!(!gap.why.contains(internal), "{}", gap.why);
            }
            assert!(accepts(&calls.lark(Free::Nothing, false, false), &CITY.replace("VALUE", free), false), "{schema}");
        }
    }
}

#[test]
fn a_schema_of_no_shape_is_told() {
    for (parameters, why) in [
        (json!({"type": "string"}), "their type is another than object"),
        (json!({"type": ["null", "array"], "properties": {}}), "their type is another than object"),
        (json!({"type": "object", "properties": 5}), "properties is no object"),
        (json!({"type": "object", "properties": {"a": {}}, "required": "a"}), "required is no list of names"),
        (json!({"type": "object", "properties": {"a": {}}, "required": [5]}), "required is no list of names"),
    ] {
        let tool = Tool { name: "f".to_owned(), description: None, parameters, strict: true };
        let gaps = Calls::of(&[&tool]).gaps;
        let told: Vec<&str> = gaps.iter().filter(|gap| gap.strict).map(|gap| &gap.why[..]).collect();
        assert_eq!(told, [why], "{}", tool.parameters);
    }
    for parameters in [json!({}), json!({"type": ["object", "null"]}), json!({"type": "object", "required": []})] {
        let tool = Tool { name: "f".to_owned(), description: None, parameters, strict: true };
        assert_eq!(Calls::of(&[&tool]).gaps, [], "{}", tool.parameters);
    }
}

#[test]
fn a_tool_need_not_list_its_parameters_itself() {
    let tool = |parameters| Tool { name: "f".to_owned(), description: None, parameters, strict: false };
    let call = |text: &str| CITY.replace("VALUE", text);
    let object = json!({"type": "object", "properties": {"p": {"type": "integer"}}, "required": ["p"]});
    for parameters in [
        json!({"$ref": "#/$defs/arguments", "$defs": {"arguments": object}}),
        json!({"allOf": [{"$ref": "#/definitions/arguments"}], "definitions": {"arguments": object}}),
        json!({"type": "object", "required": ["p"], "additionalProperties": {"type": "integer"}}),
    ] {
        let tools = [tool(parameters)];
        assert!(allowed(&tools, Free::Nothing, false, &call("5")));
        assert!(!allowed(&tools, Free::Nothing, false, &call("five")));
        assert!(!allowed(&tools, Free::Nothing, false, "<tool_call>\n<function=f>\n</function>\n</tool_call>"));
    }
    let none = [tool(json!({"type": "object"}))];
    assert!(!allowed(&none, Free::Nothing, false, &call("5")));
    // Any names, where the schema asks for that or says what is not known here.
    for (parameters, gaps) in [
        (json!({"type": "object", "additionalProperties": true}), 0),
        (json!({"anyOf": [object, {"type": "object"}]}), 1),
    ] {
        let tools = [tool(parameters)];
        assert!(allowed(&tools, Free::Nothing, false, &call("five")));
        assert_eq!(Calls::of(&[&tools[0]]).gaps.len(), gaps);
    }
    // A name that no tag can hold.
    let odd = [tool(json!({"type": "object", "properties": {"a>b": {}, "p": {}}}))];
    assert_eq!(Calls::of(&[&odd[0]]).gaps[0].what, "its parameter \"a>b\"");
    assert!(allowed(&odd, Free::Nothing, false, &call("5")));
}

#[test]
fn schemas_that_are_too_much_take_no_long_time() {
    let wide = |next: usize| json!({"anyOf": vec![json!({"$ref": format!("#/$defs/{next}")}); 50]});
    let definitions: serde_json::Map<String, Value> = (0..30).map(|n| (n.to_string(), wide(n + 1))).collect();
    let tree = json!({"type": "object", "properties": {"p": {"$ref": "#/$defs/0"}}, "$defs": definitions});
    let chain: serde_json::Map<String, Value> =
        (0..3000).map(|n| (n.to_string(), json!({"items": {"$ref": format!("#/$defs/{}", n + 1)}}))).collect();
    let mut chain = json!({"type": "object", "properties": {"p": {"$ref": "#/$defs/0"}}, "$defs": chain});
    chain["$defs"]["3000"] = json!({"type": "integer"});
    let huge = json!({"type": "object", "properties": {
        "p": {"type": "string", "maxLength": 4_000_000_000_u64},
        "q": {"type": "string", "pattern": "((a{1,1000}){1,1000}){1,1000}b"},
    }});
    for (parameters, gaps) in [(tree, 1), (chain, 0), (huge, 0)] {
        let tool = Tool { name: "f".to_owned(), description: None, parameters, strict: true };
        let calls = Calls::of(&[&tool]);
        assert_eq!(calls.gaps.len(), gaps, "{:?}", calls.gaps);
        // It can be followed, whatever was left free.
        let grammar = calls.lark(Free::Nothing, false, false);
        assert!(strata_runtime::Constraint::Lark(grammar).check().is_ok());
    }
    // What one pattern costs for each place in it is bounded for all of it.
    let ruled = json!({"type": "string", "maxLength": 100_000, "not": {"pattern": "x"}});
    assert!(Calls::of(&[&with_parameter(&ruled, true)]).gaps[0].why.contains("too long"));
}
