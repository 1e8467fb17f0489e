//! What the model may write when it has to call a tool, as a grammar.

use super::texts::{literal, terminals};
use super::values::{Form, Lost, bounded};
use super::{CALL, Tool};
use serde_json::Value;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// What may stand in an answer besides calls.
#[derive(Clone, Copy)]
pub(crate) enum Free<'a> {
    /// Nothing: a call must come.
    Nothing,
    /// Any text before the first call, or instead of one.
    Text,
    /// Instead of calls, JSON of this schema.
    Json(&'a Value),
}

/// Something in a tool's schema that calls are not held to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Gap {
    /// The tool, and whether it is strict.
    pub(crate) tool: String,
    pub(crate) strict: bool,
    /// What of it, such as `its parameter "city"`.
    pub(crate) what: String,
    /// Why, as a clause.
    pub(crate) why: String,
}

/// Calls of some tools.
pub(crate) struct Calls {
    functions: Vec<Function>,
    /// What they are not held to.
    pub(crate) gaps: Vec<Gap>,
}

struct Function {
    name: String,
    parameters: Vec<Parameter>,
    /// The values of further parameters, of any name.
    more: Option<Form>,
}

struct Parameter {
    name: String,
    required: bool,
    form: Form,
}

/// Time after which no further schema of a request is looked at. Any sensible ones take milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest name of a parameter.
const NAME: usize = 200;

/// Keywords about all parameters at once.
const TOGETHER: [&str; 14] = [
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "if",
    "enum",
    "const",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
];

impl Calls {
    /// Takes the schemas of tools apart.
    pub(crate) fn of(tools: &[&Tool]) -> Calls {
        let mut calls = Calls { functions: Vec::new(), gaps: Vec::new() };
        let started = Instant::now();
        for tool in tools {
            let mut gaps = Vec::new();
            calls.functions.push(Function::of(tool, started, &mut gaps));
            let gap = |(what, why)| Gap { tool: tool.name.clone(), strict: tool.strict, what, why };
            calls.gaps.extend(gaps.into_iter().map(gap));
        }
        calls
    }

    /// The same with any text for every value.
    pub(crate) fn loosened(mut self) -> Calls {
        for function in &mut self.functions {
            function.parameters.iter_mut().for_each(|parameter| parameter.form = Form::Free);
            function.more = function.more.take().map(|_| Form::Free);
        }
        self
    }

    /// Their grammar, in llguidance's Lark dialect. `marked` says that calls are opened and closed by tokens.
    ///
    /// Parameters come in the schema's order, required ones always. Values are what [`values`](super::values) says.
    pub(crate) fn lark(&self, free: Free<'_>, marked: bool, several: bool) -> String {
        let mut rules = String::new();
        let more = if several { r#" ("\n" call)*"# } else { "" };
        let start = match free {
            Free::Nothing => "BREAKS? calls".to_owned(),
            Free::Text => "TEXT | calls | TEXT calls".to_owned(),
            Free::Json(schema) => format!("BREAKS? calls | BREAKS? json\njson: %json {}", bounded(schema.clone())),
        };
        let tag = |tag: &str| if marked { tag.to_owned() } else { literal(tag) };
        let functions: Vec<String> = (0..self.functions.len()).map(|i| format!("f{i}")).collect();
        let _ = writeln!(rules, "start: {start}");
        let _ = writeln!(rules, "calls: call{more}");
        let _ = writeln!(rules, r#"call: {} "\n" function "\n" {}"#, tag(CALL.0), tag(CALL.1));
        let _ = writeln!(rules, "function: {}", functions.join(" | "));
        for (i, function) in self.functions.iter().enumerate() {
            function.rules(&mut rules, i);
        }
        // The line breaks that templates have between thinking and answer.
        rules.push_str("BREAKS: /\\n{1,2}/\n");
        rules.push_str("TEXT: /(?s:.+)/\n");
        rules.push_str("value[suffix=\"\\n</parameter>\\n\"]: /(?s:.*)/\n");
        rules.push_str(&terminals());
        rules
    }
}

/// What has to hold of a schema that lists parameters, and what is wrong where it does not.
fn shape(schema: &Value) -> [(bool, &'static str); 3] {
    let is_object = |name: &Value| name == "object";
    [
        (
            schema.get("type").is_none_or(|t| is_object(t) || t.as_array().is_some_and(|t| t.iter().any(is_object))),
            "their type is another than object",
        ),
        (schema.get("properties").is_none_or(Value::is_object), "properties is no object"),
        (
            schema.get("required").is_none_or(|r| r.as_array().is_some_and(|r| r.iter().all(Value::is_string))),
            "required is no list of names",
        ),
    ]
}

impl Function {
    fn of(tool: &Tool, started: Instant, gaps: &mut Vec<(String, String)>) -> Function {
        let (root, schema) = (&tool.parameters, tool.arguments());
        let empty = serde_json::Map::new();
        let listed = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        let required = schema.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let required: Vec<&str> = required.iter().filter_map(Value::as_str).collect();
        for (right, why) in shape(schema) {
            if !right {
                gaps.push(("its parameters".to_owned(), why.to_owned()));
            }
        }
        let others = schema.get("additionalProperties");
        let together = TOGETHER.iter().find(|key| schema.get(**key).is_some());
        if let Some(key) = together {
            gaps.push(("its parameters together".to_owned(), format!("{key} is not known there")));
        }
        // Those that are required need not be listed.
        let unlisted = required.iter().filter(|key| !listed.contains_key(**key));
        let unlisted = unlisted.map(|key| (*key, others.unwrap_or(&Value::Bool(true))));
        let form = |schema: &Value| match started.elapsed() > PATIENCE {
            true => Err(Lost { why: "those before it took too long".to_owned(), instead: Form::widest(schema, root) }),
            false => Form::of(schema, root),
        };
        let mut parameters = Vec::new();
        for (name, schema) in listed.iter().map(|(key, schema)| (key.as_str(), schema)).chain(unlisted) {
            let what = || format!("its parameter {name:?}");
            if name.is_empty() || name.len() > NAME || name.trim() != name || name.contains(['<', '>', '\n']) {
                gaps.push((what(), "its name does not fit into a tag".to_owned()));
                continue;
            }
            let form = form(schema).unwrap_or_else(|Lost { why, instead }| {
                gaps.push((what(), why));
                instead
            });
            parameters.push(Parameter { name: name.to_owned(), required: required.contains(&name), form });
        }
        let open = together.is_some() || matches!(others, Some(Value::Bool(true) | Value::Object(_)));
        let more = (parameters.is_empty() && open).then(|| match others {
            Some(schema @ Value::Object(_)) => form(schema).unwrap_or_else(|Lost { why, instead }| {
                gaps.push(("its parameters".to_owned(), why));
                instead
            }),
            _ => Form::Free,
        });
        Function { name: tool.name.clone(), parameters, more }
    }

    fn rules(&self, rules: &mut String, number: usize) {
        let mut body = literal(&format!("<function={}>\n", self.name));
        for (i, parameter) in self.parameters.iter().enumerate() {
            let _ = write!(body, " f{number}p{i}{}", if parameter.required { "" } else { "?" });
        }
        if self.more.is_some() {
            let _ = write!(body, " f{number}more*");
        }
        let _ = writeln!(rules, "f{number}: {body} {}", literal("</function>"));
        for (i, Parameter { name, form, .. }) in self.parameters.iter().enumerate() {
            let (open, own) = (literal(&format!("<parameter={name}>\n")), format!("f{number}p{i}v"));
            let _ = write!(rules, "f{number}p{i}: {open} {}\n{}", form.usage(&own), form.rules(&own));
        }
        if let Some(form) = &self.more {
            let (open, own) = (r"/<parameter=[A-Za-z0-9_.-]{1,64}>\n/", format!("f{number}mv"));
            let _ = write!(rules, "f{number}more: {open} {}\n{}", form.usage(&own), form.rules(&own));
        }
    }
}

#[cfg(test)]
mod tests;
