//! Tools: what a request offers, what the model calls, and what it may call.

pub(crate) mod grammar;
pub(crate) mod parser;
mod patterns;
mod refs;
mod texts;
mod typing;
mod values;

use crate::backend::{ModelInfo, Refusal};
use crate::options::Log;
use grammar::{Calls, Free};
use serde_json::{Map, Value, json};
use strata_runtime::Constraint;

/// The literals between which a model calls a tool.
pub(crate) const CALL: (&str, &str) = ("<tool_call>", "</tool_call>");

/// References in a row that lead to a tool's parameters at most.
const REFERENCES: usize = 16;

/// A function that the model may call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    /// The schema of its arguments.
    pub(crate) parameters: Value,
    /// Whether calls must follow the schema.
    pub(crate) strict: bool,
}

impl Tool {
    /// The schema that lists the parameters: what the tool's own schema refers to, if it does no more than that.
    fn arguments(&self) -> &Value {
        let mut schema = &self.parameters;
        for _ in 0..REFERENCES {
            let reference = schema.get("$ref").and_then(Value::as_str);
            let next = match schema.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
                _ if schema.get("properties").is_some() => None,
                Some([only]) => Some(only),
                _ => reference.and_then(|reference| refs::target(&self.parameters, reference)),
            };
            let Some(next) = next else { break };
            schema = next;
        }
        schema
    }

    /// The schema of a parameter.
    fn parameter(&self, name: &str) -> Option<&Value> {
        self.arguments().get("properties")?.get(name)
    }

    /// As chat templates list it.
    fn for_template(&self) -> Value {
        let mut function = Map::new();
        function.insert("name".to_owned(), json!(self.name));
        if let Some(description) = &self.description {
            function.insert("description".to_owned(), json!(description));
        }
        function.insert("parameters".to_owned(), self.parameters.clone());
        json!({"type": "function", "function": function})
    }
}

/// What the model has to do with its tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Choice {
    /// What it likes.
    #[default]
    Auto,
    /// Call none.
    None,
    /// Call at least one.
    Required,
    /// Call this one.
    Named(String),
}

/// What an answer's text must be.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum Format {
    /// Any text.
    #[default]
    Text,
    /// JSON that a schema allows.
    Json(Value),
}

/// The tools of a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Tools {
    pub(crate) list: Vec<Tool>,
    pub(crate) choice: Choice,
    /// Takes the first call only.
    pub(crate) single: bool,
}

impl Tools {
    /// As chat templates list them. Tools that must not be called are listed too, where that can be forbidden, so that
    /// the prompt's beginning stays the same.
    pub(crate) fn for_template(&self, model: &ModelInfo) -> Vec<Value> {
        if self.choice == Choice::None && !marked(model) {
            return Vec::new();
        }
        self.list.iter().map(Tool::for_template).collect()
    }

    /// Whether calls are looked for in the answer.
    pub(crate) fn callable(&self) -> bool {
        !self.list.is_empty() && self.choice != Choice::None
    }

    /// The literal that must not come, if calls are forbidden and tools are listed.
    pub(crate) fn forbidden(&self, model: &ModelInfo) -> Option<&'static str> {
        (self.choice == Choice::None && !self.list.is_empty() && marked(model)).then_some(CALL.0)
    }

    /// What the answer must be, given the format that its text must have and the name of the field that says so. `at`
    /// names the list of tools in errors. What calls are not held to goes to the log.
    ///
    /// # Errors
    /// A call is asked for and there is no such tool, or what has to be enforced cannot be with this model.
    pub(crate) fn constraint(
        &self,
        (format, field): &(Format, &'static str),
        model: &ModelInfo,
        at: &str,
        log: &Log,
    ) -> Result<Option<Constraint>, Refusal> {
        let all: Vec<&Tool> = self.list.iter().collect();
        let json = match format {
            Format::Json(schema) => {
                let whole = Constraint::Json(schema.clone());
                whole.check().map_err(|e| Refusal::param(*field, format!("{field}: {e}")))?;
                Some(schema)
            }
            Format::Text => None,
        };
        let calls = |tools: &[&Tool], free| self.calls(tools, free, model, at, log).map(Some);
        match (&self.choice, json) {
            (Choice::Required, _) if all.is_empty() => {
                Err(Refusal::param("tool_choice", "tool_choice asks for a call, but there are no tools"))
            }
            (Choice::Required, _) => calls(&all, Free::Nothing),
            (Choice::Named(name), _) => match self.list.iter().find(|t| t.name == *name) {
                None => {
                    let message = format!("tool_choice names {name:?}, which is none of the tools");
                    Err(Refusal::param("tool_choice", message))
                }
                Some(tool) => calls(&[tool], Free::Nothing),
            },
            (Choice::Auto, Some(schema)) if !all.is_empty() => calls(&all, Free::Json(schema)),
            (Choice::Auto, None) if all.iter().any(|t| t.strict) => {
                if !marked(model) {
                    let message = "strict tools need tool_choice \"required\" with this model, whose vocabulary has no token \
                                   that opens a call";
                    return Err(Refusal::param(at, message));
                }
                calls(&all, Free::Text)
            }
            (Choice::Auto | Choice::None, _) => Ok(json.cloned().map(Constraint::Json)),
        }
    }

    /// Calls of these tools, as far as they can be held to their schemas.
    fn calls(
        &self,
        tools: &[&Tool],
        free: Free<'_>,
        model: &ModelInfo,
        at: &str,
        log: &Log,
    ) -> Result<Constraint, Refusal> {
        let mut calls = Calls::of(tools);
        for grammar::Gap { tool, strict, what, why } in &calls.gaps {
            if *strict {
                let message = format!("the tool {tool:?} is strict, but {what} cannot be enforced: {why}");
                return Err(Refusal::param(at, message));
            }
            log.line(&format!("calls of the tool {tool:?} are not held to what its schema says of {what}: {why}"));
        }
        // Each schema can be followed, but all of them together may be too much.
        if Constraint::Lark(calls.lark(free, false, !self.single)).check().is_err() {
            let what = "the schemas of the tools are too large or too complex together to be enforced";
            if tools.iter().any(|tool| tool.strict) {
                return Err(Refusal::param(at, what));
            }
            log.line(what);
            calls = calls.loosened();
        }
        Ok(Constraint::Lark(calls.lark(free, marked(model), !self.single)))
    }
}

/// Whether a call is opened by a token that no text can make.
pub(crate) fn marked(model: &ModelInfo) -> bool {
    model.marks.iter().any(|m| m == CALL.0)
}
