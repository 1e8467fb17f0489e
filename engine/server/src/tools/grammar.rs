//! What the model may write when it has to call a tool, as a grammar.

use super::{CALL, Tool};
use serde_json::{Value, json};
use std::fmt::Write;

/// What may stand in an answer besides calls.
pub(crate) enum Free<'a> {
    /// Nothing: a call must come.
    Nothing,
    /// Any text before the first call, or instead of one.
    Text,
    /// Instead of calls, JSON of this schema.
    Json(&'a Value),
}

/// A grammar of calls of these tools, in llguidance's Lark dialect. `marked` says that calls are opened and closed by
/// tokens.
///
/// String values are any text up to their closing tag, or one of the schema's `enum`; other values follow the schema.
/// Parameters come in the schema's order, required ones always.
pub(crate) fn lark(tools: &[&Tool], free: Free<'_>, marked: bool, several: bool) -> String {
    let mut rules = String::new();
    let more = if several { r#" ("\n" call)*"# } else { "" };
    let start = match free {
        Free::Nothing => "BREAKS? calls".to_owned(),
        Free::Text => "TEXT | calls | TEXT calls".to_owned(),
        Free::Json(schema) => format!("BREAKS? calls | BREAKS? json\njson: %json {}", bounded(schema.clone())),
    };
    let tag = |tag: &str| if marked { tag.to_owned() } else { quoted(tag) };
    let functions: Vec<String> = (0..tools.len()).map(|i| format!("f{i}")).collect();
    let _ = writeln!(rules, "start: {start}");
    let _ = writeln!(rules, "calls: call{more}");
    let _ = writeln!(rules, r#"call: {} "\n" function "\n" {}"#, tag(CALL.0), tag(CALL.1));
    let _ = writeln!(rules, "function: {}", functions.join(" | "));
    for (i, tool) in tools.iter().enumerate() {
        function(&mut rules, i, tool);
    }
    // The line breaks that templates have between thinking and answer.
    rules.push_str("BREAKS: /\\n{1,2}/\n");
    rules.push_str("TEXT: /(?s:.+)/\n");
    rules.push_str("value[suffix=\"\\n</parameter>\\n\"]: /(?s:.*)/\n");
    rules
}

fn function(rules: &mut String, number: usize, tool: &Tool) {
    let empty = serde_json::Map::new();
    let properties = tool.parameters.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    let required = tool.parameters.get("required").and_then(Value::as_array);
    let needed = |key: &str| required.is_some_and(|r| r.iter().any(|v| v.as_str() == Some(key)));
    let mut body = quoted(&format!("<function={}>\n", tool.name));
    for (i, key) in properties.keys().enumerate() {
        let _ = write!(body, " f{number}p{i}{}", if needed(key) { "" } else { "?" });
    }
    let _ = writeln!(rules, "f{number}: {body} {}", quoted("</function>"));
    for (i, (key, schema)) in properties.iter().enumerate() {
        let open = quoted(&format!("<parameter={key}>\n"));
        let value = value(schema, &tool.parameters);
        let _ = writeln!(rules, "f{number}p{i}: {open} {value}");
    }
}

/// A value with its closing tag.
fn value(schema: &Value, root: &Value) -> String {
    let close = quoted("\n</parameter>\n");
    if let Some(values) = schema.get("enum").and_then(Value::as_array)
        && let Some(texts) = values.iter().map(Value::as_str).collect::<Option<Vec<_>>>()
        && !texts.is_empty()
    {
        let texts: Vec<String> = texts.into_iter().map(quoted).collect();
        return format!("({}) {close}", texts.join(" | "));
    }
    let kind = schema.get("type").and_then(Value::as_str);
    if !matches!(kind, Some("integer" | "number" | "boolean" | "null" | "object" | "array")) {
        return "value".to_owned();
    }
    let mut schema = schema.clone();
    for definitions in ["$defs", "definitions"] {
        if let (Some(found), Some(object)) = (root.get(definitions), schema.as_object_mut()) {
            object.entry(definitions).or_insert_with(|| found.clone());
        }
    }
    format!("%json {} {close}", bounded(schema))
}

/// The schema with bounded white space: without a bound, a model that has lost its way can write line breaks until its
/// limit.
fn bounded(mut schema: Value) -> Value {
    if let Value::Object(fields) = &mut schema {
        fields.entry("x-guidance").or_insert_with(|| json!({"whitespace_pattern": r"[\x20\x0A\x0D\x09]{1,48}"}));
    }
    schema
}

fn quoted(text: &str) -> String {
    json!(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use llguidance::api::TopLevelGrammar;
    use llguidance::toktrie::{ApproximateTokEnv, TokRxInfo, TokTrie};
    use llguidance::{Matcher, ParserFactory};

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

    /// Whether the grammar allows an answer, be the tags of calls tokens or not.
    fn allows(free: Free<'_>, several: bool, answer: &str) -> bool {
        let again = match &free {
            Free::Nothing => Free::Nothing,
            Free::Text => Free::Text,
            Free::Json(schema) => Free::Json(schema),
        };
        let plain = accepts(free, several, answer, false);
        assert_eq!(plain, accepts(again, several, answer, true), "marked or not: {answer}");
        plain
    }

    fn accepts(free: Free<'_>, several: bool, answer: &str, marked: bool) -> bool {
        let tools = tools();
        let grammar = lark(&tools.iter().collect::<Vec<_>>(), free, marked, several);
        let factory = ParserFactory::new_simple(&vocabulary()).expect("a factory");
        let parser = factory.create_parser(TopLevelGrammar::from_lark(grammar.clone()));
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
}
